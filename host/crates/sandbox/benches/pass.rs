//! The sandbox's cost: one memcached pass in a fresh instance, on one thread, split into steps.
//!
//! `INNKEEPER_GUESTS` names the directory with the guests; `target/release-guests` without it.

#![expect(
    clippy::print_stdout,
    reason = "its figures are for the person who runs it"
)]

use std::{
    env, fs,
    hint::black_box,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use criterion::Criterion;
use innkeeper_model::{Limits, ListSelector, ObjectRef, Outcome, Phase, ReadFailure, Reads};
use innkeeper_sandbox::{
    CallReport, Context, Described, End, Engine, EngineSettings, ObservedChild, Plugin, Request,
    Timing,
    artifact::{self, ConfigChecker, Program},
    swap_is_off,
};
use serde_json::{Map, Value, json};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const CONTEXT: Context = Context {
    now_ms: 1_790_000_000_000,
    seed: [1; 32],
};

/// The target: a pass's fixed cost, and the additional cost per KB of JSON that crosses the boundary.
const FIXED: Duration = Duration::from_micros(15);
const PER_KB: Duration = Duration::from_micros(8);

/// Selects one step's time from a call's timing.
type Step = fn(&Timing) -> Duration;

/// Passes in the summary.
const PASSES: usize = 5000;

fn main() -> anyhow::Result<()> {
    let directory = guests_directory();
    print_sizes(&directory)?;

    let settings = EngineSettings {
        pagemap_scan: swap_is_off(),
        ..EngineSettings::new(NonZeroU32::MIN)
    };
    let engine = Engine::new(&settings)?;
    let path = directory.join("memcached.wasm");
    let bytes = fs::read(&path).with_context(|| {
        format!(
            "there is no {}: build the guests with tests/setup --only release-guests, or set INNKEEPER_GUESTS",
            path.display()
        )
    })?;
    let memcached = load(&engine, &bytes)?;
    let silent = load(&engine, &silent_guest()?)?;
    let input = Input::settled(&memcached)?;
    let first = Input::first();

    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion, &memcached, &silent, &input);
    criterion.final_summary();
    summarize(&memcached, &silent, &input);
    summarize_prediction(&memcached, first);
    Ok(())
}

fn bench(criterion: &mut Criterion, memcached: &Plugin, silent: &Plugin, input: &Input) {
    let mut group = criterion.benchmark_group("pass");
    group.bench_function("whole", |bencher| {
        bencher.iter(|| black_box(input.pass(memcached)));
    });
    let steps: [(&str, &Plugin, Step); 4] = [
        ("instantiate", memcached, |timing| timing.instantiate),
        // A guest that ignores its input.
        ("lower", silent, |timing| timing.call),
        ("lower and guest", memcached, |timing| timing.call),
        ("lift", memcached, |timing| timing.check),
    ];
    for (name, plugin, step) in steps {
        group.bench_function(name, |bencher| {
            bencher
                .iter_custom(|passes| (0..passes).map(|_| step(&input.pass(plugin).timing)).sum());
        });
    }
    group.finish();
}

fn summarize(memcached: &Plugin, silent: &Plugin, input: &Input) {
    let mut wholes = Vec::with_capacity(PASSES);
    let mut reports = Vec::with_capacity(PASSES);
    for _ in 0..PASSES {
        let started = Instant::now();
        let report = input.pass(memcached);
        wholes.push(started.elapsed());
        reports.push(report);
    }
    let lowers = (0..PASSES)
        .map(|_| input.pass(silent).timing.call)
        .collect();
    let typical = |step: Step| median(reports.iter().map(|report| step(&report.timing)).collect());
    let whole = median(wholes);
    let instantiate = typical(|timing| timing.instantiate);
    let lower = median(lowers);
    let guest = typical(|timing| timing.call).saturating_sub(lower);
    let lift = typical(|timing| timing.check);
    let rest = whole.saturating_sub(instantiate + lower + guest + lift);
    let bytes = input.bytes + reports.first().map_or(0, |report| report.read_bytes);
    let kilobytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1000.0;
    let target = FIXED + PER_KB.mul_f64(kilobytes);
    println!("\none pass, median of {PASSES}, {kilobytes:.1} KB of JSON handed over");
    for (name, time) in [
        ("instantiate", instantiate),
        ("lower", lower),
        ("guest", guest),
        ("lift", lift),
        ("tear down and rest", rest),
        ("whole", whole),
        ("target", target),
    ] {
        println!("  {name:<20} {:>8.1} us", time.as_secs_f64() * 1e6);
    }
    let fixed = instantiate + rest;
    let verdict = if whole <= target { "kept" } else { "missed" };
    println!(
        "  fixed part {:.1} us, {:.2} us per KB: target {verdict}",
        fixed.as_secs_f64() * 1e6,
        whole.saturating_sub(fixed).as_secs_f64() * 1e6 / kilobytes
    );
}

/// The times of a pass: whole, call and check.
type Times = (Duration, Duration, Duration);

/// Selects one of the times.
type TimeOf = fn(&Times) -> Duration;

/// Prints what a prediction adds to a parent's first pass.
fn summarize_prediction(memcached: &Plugin, mut first: Input) {
    let mut passes = [Vec::with_capacity(PASSES), Vec::with_capacity(PASSES)];
    // In turns, because the machine's speed changes.
    for _ in 0..PASSES {
        for (predict, passes) in [false, true].into_iter().zip(&mut passes) {
            first.predict = predict;
            let started = Instant::now();
            let timing = first.pass(memcached).timing;
            passes.push((started.elapsed(), timing.call, timing.check));
        }
    }
    println!("\na parent's first pass, alone and with a prediction, medians of {PASSES}");
    let steps: [(&str, TimeOf); 3] = [
        ("lower and guest", |pass| pass.1),
        ("lift", |pass| pass.2),
        ("whole", |pass| pass.0),
    ];
    for (name, step) in steps {
        let [alone, predicting] = passes
            .each_ref()
            .map(|passes| median(passes.iter().map(step).collect()).as_secs_f64() * 1e6);
        let percent = (predicting / alone - 1.0) * 100.0;
        println!("  {name:<20} {alone:>8.1} us {predicting:>8.1} us, {percent:.0} % more");
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark has no configuration of its own"
)]
fn guests_directory() -> PathBuf {
    env::var_os("INNKEEPER_GUESTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/release-guests"),
        PathBuf::from,
    )
}

fn print_sizes(directory: &Path) -> anyhow::Result<()> {
    let mut guests: Vec<_> = fs::read_dir(directory)
        .with_context(|| {
            format!(
                "there are no guests in {}: build them with tests/setup --only release-guests, or set INNKEEPER_GUESTS",
                directory.display()
            )
        })?
        .collect::<Result<_, _>>()?;
    guests.sort_by_key(fs::DirEntry::file_name);
    for guest in guests {
        if guest.path().extension().is_some_and(|ext| ext == "wasm") {
            let name = guest.file_name();
            println!(
                "{:<24} {:>9} bytes",
                name.display(),
                guest.metadata()?.len()
            );
        }
    }
    Ok(())
}

fn load(engine: &Engine, bytes: &[u8]) -> anyhow::Result<Plugin> {
    let artifact = artifact::compile(engine, bytes, &artifact::Limits::default(), None)?;
    let described = Described::load(engine, &artifact, &Limits::default())?;
    // Not measured: a program that finds each configuration valid.
    let checker = ConfigChecker::new(Program {
        path: "/bin/sh".into(),
        arguments: vec!["-c".into(), "cat >/dev/null; echo []".into()],
    });
    Ok(described.configure(&Map::new(), &checker)?)
}

/// A pass's input.
struct Input {
    parent: String,
    children: Vec<ObservedChild>,
    pods: Vec<Arc<str>>,
    limits: Limits,
    bytes: usize,
    predict: bool,
}

impl Input {
    /// A new parent: no children, no Pods.
    fn first() -> Self {
        Self {
            parent: parent().to_string(),
            children: Vec::new(),
            pods: Vec::new(),
            limits: Limits::default(),
            bytes: 0,
            predict: true,
        }
    }

    /// A parent with all children: the answer to the parent alone, as the cluster stores it.
    fn settled(plugin: &Plugin) -> anyhow::Result<Self> {
        let mut input = Self {
            pods: (0..3).map(pod).collect(),
            predict: false,
            ..Self::first()
        };
        let End::Answered(Outcome::Desired(desired)) = input.pass(plugin).end else {
            bail!("the guest wants nothing for {}", input.parent);
        };
        input.children = desired
            .children
            .into_iter()
            .map(|child| ObservedChild {
                key: Some(Arc::from(child.key)),
                retained: false,
                object: observed(child.object),
            })
            .collect();
        let children: usize = input.children.iter().map(|child| child.object.len()).sum();
        input.bytes = input.parent.len() + children;
        let report = input.pass(plugin);
        if !matches!(report.end, End::Answered(_)) {
            bail!("the guest does not answer: {:?}", report.end);
        }
        Ok(input)
    }

    fn pass(&self, plugin: &Plugin) -> CallReport {
        let request = Request {
            parent: &self.parent,
            children: &self.children,
            phase: Phase::Reconcile,
            namespace_terminating: false,
            predict: self.predict,
        };
        let reads = Pods(self.pods.clone());
        plugin
            .call(&request, reads, &CONTEXT, &self.limits)
            .expect("the code should be mapped")
            .0
    }
}

fn parent() -> Value {
    json!({
        "apiVersion": "cache.example.com/v1",
        "kind": "Memcached",
        "metadata": {
            "name": "example-memcached",
            "namespace": "default",
            "uid": "11111111-2222-4333-8444-555555555555",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"size": 3},
    })
}

/// Adds the fields that the API server and the controllers set.
fn observed(mut object: Map<String, Value>) -> Arc<str> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(
            "uid".to_owned(),
            json!("99999999-2222-4333-8444-555555555555"),
        );
        metadata.insert("generation".to_owned(), json!(1));
        metadata.insert(
            "creationTimestamp".to_owned(),
            json!("2026-01-01T00:00:01Z"),
        );
    }
    if object.get("kind") == Some(&json!("Deployment")) {
        let status = json!({
            "observedGeneration": 1,
            "replicas": 3,
            "updatedReplicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 3,
        });
        object.insert("status".to_owned(), status);
    }
    Arc::from(Value::Object(object).to_string())
}

/// A Pod as it is seen with access to metadata.
fn pod(index: usize) -> Arc<str> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("example-memcached-5d4f8c7b9d-{index:05}"),
            "namespace": "default",
            "uid": format!("{index:08}-2222-4333-8444-555555555555"),
            "creationTimestamp": "2026-01-01T00:00:02Z",
            "labels": {
                "app.kubernetes.io/name": "memcached",
                "app.kubernetes.io/instance": "example-memcached",
                "app.kubernetes.io/component": "cache",
                "app.kubernetes.io/managed-by": "innkeeper",
                "pod-template-hash": "5d4f8c7b9d",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "example-memcached-5d4f8c7b9d",
                "uid": "77777777-2222-4333-8444-555555555555",
                "controller": true,
            }],
        },
    });
    Arc::from(pod.to_string())
}

/// Shows the Pods and nothing else.
struct Pods(Vec<Arc<str>>);

impl Reads for Pods {
    fn get(&mut self, _: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        Ok(None)
    }

    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        Ok(match &*selector.kind.kind {
            "Pod" => self.0.clone(),
            _ => Vec::new(),
        })
    }
}

/// A guest that takes the input and answers `keep`, so that only the host's cost remains.
fn silent_guest() -> anyhow::Result<Vec<u8>> {
    let mut resolve = Resolve::default();
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../wit/plugin.wit");
    let text = fs::read_to_string(&contract)?;
    let package = resolve.push_str(contract.display().to_string(), &text)?;
    let world = resolve.select_world(&[package], Some("plugin"))?;
    let mut module = wat::parse_str(SILENT)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    ComponentEncoder::default().module(&module)?.encode()
}

/// At 1024 lies a manifest: name and version "a", one parent "a.a/a A", and nothing else. At 3072 lies the answer
/// `keep` with an empty report, which is zeros but for the case.
const SILENT: &str = r#"(module
  (memory (export "memory") 32)
  (data (i32.const 512) "aA")
  (data (i32.const 1024) "\00\02\00\00\01\00\00\00\00\02\00\00\01\00\00\00\00\08\00\00\01\00\00\00")
  (data (i32.const 2048) "\00\02\00\00\01\00\00\00\00\02\00\00\01\00\00\00\01\02\00\00\01\00\00\00\00\02\00\00\01\00\00\00\00")
  (data (i32.const 3080) "\01")
  (global $heap (mut i32) (i32.const 4096))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (global.get $heap)
    (global.set $heap (i32.and (i32.const -8)
      (i32.add (i32.add (global.get $heap) (local.get 3)) (i32.const 7)))))
  (func (export "innkeeper:plugin/reconciler@0.1.0#describe") (result i32) (i32.const 1024))
  (func (export "innkeeper:plugin/reconciler@0.1.0#reconcile")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 3072)))"#;
