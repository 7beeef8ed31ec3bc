//! Runs a target, first on the corpus, then on generated inputs.

use std::{
    cell::OnceCell,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use innkeeper_tests::process;
use proptest::{
    option,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

use super::{
    corpus::{self, Seed},
    edits::{Chosen, Edits, strategy},
    shapes::{Shape, Shaped, shapes},
    worker::Worker,
};

/// The number of generated inputs in a run without a time, and in one round of a timed run.
const INPUTS: u32 = 1000;

/// Runs a target on the corpus and on generated inputs: a thousand, or as many as fit into `INNKEEPER_FUZZ_SECONDS`.
pub(super) fn run(target: &'static str) {
    run_with(target, Vec::new(), None);
}

/// Runs a target on more inputs than the corpus has. `shaped` generates inputs from a depth, size and cost; they are half
/// of the generated ones. Fails if the corpus leaves a check unreached.
pub(super) fn run_with(target: &'static str, more: Vec<Seed>, shaped: Option<Shaped>) {
    let mut seeds = corpus::load(target);
    seeds.extend(more);
    let worker = Worker::new(target);
    reach(target, &seeds, |input| worker.check(input));
    let edits = Edits::new(seeds);
    let time = process::fuzz_seconds().map(Duration::from_secs);
    let begun = Instant::now();
    // A failure is saved to a file, so that a timed run may use other inputs each time.
    let first = time.map_or_else(process::seed, |_| fastrand::u64(..));
    let mut inputs = 0_u64;
    for round in 0_u64.. {
        generated(target, &worker, &edits, shaped, first.wrapping_add(round));
        inputs += u64::from(INPUTS);
        if time.is_none_or(|time| begun.elapsed() >= time) {
            break;
        }
    }
    let rate = inputs / begun.elapsed().as_secs().max(1);
    println!("{target}: {inputs} inputs, {rate} per second");
}

/// Judges a target's corpus; together the inputs have to reach the ends of all checks.
fn reach(target: &str, seeds: &[Seed], judge: impl Fn(&[u8]) -> Result<Vec<bool>, String>) {
    let mut reached = Vec::new();
    for seed in seeds {
        let now = judge(&seed.bytes)
            .unwrap_or_else(|problem| panic!("{target}/{}: {problem}", seed.name));
        reached.resize(now.len(), false);
        for (reached, now) in reached.iter_mut().zip(now) {
            *reached |= now;
        }
    }
    assert!(
        !reached.is_empty() && reached.iter().all(|reached| *reached),
        "no input of {target} reaches the end of a check: {reached:?}"
    );
}

/// Runs one round; fails with the file that holds the reduced input.
fn generated(target: &str, worker: &Worker, edits: &Edits, shaped: Option<Shaped>, seed: u64) {
    let config = Config {
        cases: INPUTS,
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let input = |(chosen, shape): &(Chosen, Option<Shape>)| match (shaped, shape) {
        (Some(shaped), Some(shape)) => shaped(shape),
        _ => edits.input(chosen),
    };
    let strategy = (strategy(), option::of(shapes()));
    let begun = Instant::now();
    let failed = OnceCell::new();
    let result = TestRunner::new_with_rng(config, rng).run(&strategy, |chosen| {
        let judged = worker.check(&input(&chosen));
        judged.map(drop).map_err(|problem| {
            let after = failed.get_or_init(|| begun.elapsed());
            TestCaseError::fail(format!("{problem}, in a round after {after:?}"))
        })
    });
    match result {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("{target}: {reason}"),
        Err(TestError::Fail(reason, chosen)) => {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-{seed:x}"));
            fs::write(&path, input(&chosen)).unwrap();
            let path = path.display();
            panic!(
                "{reason}\nThe input is {path}: add it to tests/fuzz/corpus/{target}/ with the fix"
            );
        }
    }
}

#[test]
#[should_panic(expected = "no input of plugin reaches the end of a check: [true, false]")]
fn a_target_whose_corpus_leaves_a_check_unreached_fails() {
    reach("plugin", &corpus::load("plugin"), |_| Ok(vec![true, false]));
}
