//! Runs a target: on its corpus, then on generated inputs.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use innkeeper_tests::process;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::{
    corpus::{self, Seed},
    edits::{Edits, strategy},
    worker::Worker,
};

/// The generated inputs of a run without a time, and of one round of a run with a time.
const INPUTS: u32 = 1000;

/// Runs a target on its corpus and on generated inputs: a thousand, or those of the time that
/// `INNKEEPER_FUZZ_SECONDS` gives to each target.
pub(super) fn run<const N: usize>(target: &str, check: fn(&[u8]) -> [bool; N]) {
    run_with(target, check, Vec::new());
}

/// Runs a target on more inputs than those of its corpus. Fails if these inputs leave a part of the checks unreached.
pub(super) fn run_with<const N: usize>(
    target: &str,
    check: fn(&[u8]) -> [bool; N],
    more: Vec<Seed>,
) {
    let mut seeds = corpus::of(target);
    seeds.extend(more);
    let worker = Worker::start(check);
    let mut reached = [false; N];
    for seed in &seeds {
        let judged = worker.check(&seed.bytes);
        let judged = judged.unwrap_or_else(|problem| panic!("{target}/{}: {problem}", seed.name));
        for (reached, now) in reached.iter_mut().zip(judged) {
            *reached |= now;
        }
    }
    assert_eq!(
        reached, [true; N],
        "no input of {target} reaches the end of a check"
    );
    let edits = Edits::of(seeds);
    let time = process::fuzz_seconds().map(Duration::from_secs);
    let begun = Instant::now();
    // A failure is kept as a file, so that a run with a time may take other inputs each time.
    let first = time.map_or_else(process::seed, |_| fastrand::u64(..));
    let mut inputs = 0_u64;
    for round in 0_u64.. {
        generated(target, &worker, &edits, first.wrapping_add(round));
        inputs += u64::from(INPUTS);
        if time.is_none_or(|time| begun.elapsed() >= time) {
            break;
        }
    }
    let rate = inputs / begun.elapsed().as_secs().max(1);
    println!("{target}: {inputs} inputs, {rate} per second");
}

/// Runs one round; fails with the file that has the reduced input.
fn generated<const N: usize>(target: &str, worker: &Worker<N>, edits: &Edits, seed: u64) {
    let config = Config {
        cases: INPUTS,
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let ended = TestRunner::new_with_rng(config, rng).run(&strategy(), |chosen| {
        let judged = worker.check(&edits.input(&chosen));
        judged.map(drop).map_err(TestCaseError::fail)
    });
    match ended {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("{target}: {reason}"),
        Err(TestError::Fail(reason, chosen)) => {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-{seed:x}"));
            fs::write(&path, edits.input(&chosen)).unwrap();
            let path = path.display();
            panic!(
                "{reason}\nThe input is {path}: add it to tests/fuzz/corpus/{target}/ with the fix"
            );
        }
    }
}

#[test]
#[should_panic(expected = "no input of plugin reaches the end of a check")]
fn a_target_whose_corpus_leaves_a_check_unreached_fails() {
    run("plugin", |_| [true, false]);
}
