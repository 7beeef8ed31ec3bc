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
pub(super) fn run(target: &str, check: fn(&[u8])) {
    run_with(target, check, Vec::new());
}

/// Runs a target on more inputs than those of its corpus.
pub(super) fn run_with(target: &str, check: fn(&[u8]), more: Vec<Seed>) {
    let mut seeds = corpus::of(target);
    seeds.extend(more);
    let worker = Worker::start(check);
    for seed in &seeds {
        let judged = worker.check(&seed.bytes);
        judged.unwrap_or_else(|problem| panic!("{target}/{}: {problem}", seed.name));
    }
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
fn generated(target: &str, worker: &Worker, edits: &Edits, seed: u64) {
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
        judged.map_err(TestCaseError::fail)
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
