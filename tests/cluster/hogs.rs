//! Guests that consume as much of a resource as they can, beside a plugin whose parents are edited:
//! measures the neighbour's delay, and the memory that the host frees afterwards.
//!
//! `tests/full` measures this with nothing else on the machine; `tests/run` only checks that the
//! neighbour converges.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    Host, Write, eventually,
    manifest::root,
    process::{is_full, path_from_env},
    user::Kind,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::stage::{Stage, is_synced};

const API: &str = "test.innkeeper.dev/v1";

/// The kind whose parents are edited.
const NEIGHBOUR: &str = "Moody";

/// Kinds whose guests can become hogs.
const HOG_KINDS: [&str; 2] = ["Unruly", "Nosy"];

/// A guest's behaviour that consumes too much of one resource.
struct Hog {
    takes: &'static str,
    kind: &'static str,
    behaviour: &'static str,
}

const fn hog(takes: &'static str, kind: &'static str, behaviour: &'static str) -> Hog {
    Hog {
        takes,
        kind,
        behaviour,
    }
}

const HOGS: [Hog; 6] = [
    hog("time", "Unruly", "loop"),
    hog("memory", "Unruly", "allocate"),
    hog("output", "Unruly", "output"),
    hog("log", "Unruly", "flood"),
    hog("host calls", "Nosy", "calls"),
    hog("lists", "Nosy", "list"),
];

/// Parents per plugin.
const PARENTS: usize = 10;

/// How much to measure.
struct Load {
    /// Per hog; each round is measured once undisturbed and once beside the hog.
    rounds: usize,
    /// Per round.
    edits: usize,
    edits_per_second: u32,
}

const SAMPLE: Load = Load {
    rounds: 1,
    edits: 20,
    edits_per_second: 20,
};

const FULL: Load = Load {
    rounds: 5,
    edits: 100,
    edits_per_second: 20,
};

/// Limit for the neighbour's p99 beside a hog, as a multiple of the undisturbed p99.
const RATIO_MAX: u32 = 2;

/// Allowance beyond that ratio: a hog that computes leaves one processor out of two to the host,
/// the API server, etcd and the tests, and each of the five hand-overs between them waits for a
/// time slice of about 4 ms.
const SLACK: Duration = Duration::from_millis(20);

/// A control plane with a host, and parents in one namespace.
struct HogFixture {
    host: Host,
    stage: Stage,
    namespace: String,
    /// Number of edits so far, which makes every edit differ.
    edits: usize,
}

/// Locks the fixture, because each test measures the host as a whole.
fn fixture() -> MutexGuard<'static, HogFixture> {
    static FIXTURE: LazyLock<Mutex<HogFixture>> = LazyLock::new(|| Mutex::new(HogFixture::new()));
    FIXTURE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HogFixture {
    fn new() -> Self {
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        let guests = ["generous", "unruly", "nosy"].map(|name| guests.join(format!("{name}.wasm")));
        let stage = Stage::api_only(guests.to_vec());
        let host = stage.host();
        let crds = ["moodies", "unrulies", "nosies"].map(|crd| format!("{crd}.test.innkeeper.dev"));
        stage.wait_served(&host, &crds.each_ref().map(String::as_str));
        let namespace = stage.namespace("hogs");
        let fixture = Self {
            host,
            stage,
            namespace,
            edits: 0,
        };
        for number in 0..PARENTS {
            fixture.put(NEIGHBOUR, number, &json!({}));
        }
        for kind in HOG_KINDS {
            fixture.set_behaviour(kind, "good");
        }
        for kind in HOG_KINDS.into_iter().chain([NEIGHBOUR]) {
            fixture.wait_all(kind, "True");
        }
        fixture
    }

    fn put(&self, kind: &str, number: usize, spec: &Value) {
        let parent = json!({
            "apiVersion": API, "kind": kind, "metadata": {"name": name(kind, number)}, "spec": spec,
        });
        self.stage.apply_new(&self.namespace, &parent);
    }

    /// Sets the behaviour for all parents of a kind.
    fn set_behaviour(&self, kind: &str, behaviour: &str) {
        for number in 0..PARENTS {
            self.put(kind, number, &json!({"behaviour": behaviour}));
        }
    }

    /// Waits until all parents of a kind have this `Synced` status.
    #[track_caller]
    fn wait_all(&self, kind: &str, status: &str) {
        for number in 0..PARENTS {
            let name = name(kind, number);
            let is = |parent: &Value| {
                [
                    "Applied",
                    "DeadlineExceeded",
                    "MemoryExceeded",
                    "LimitExceeded",
                    "ChildForbidden",
                ]
                .iter()
                .any(|reason| is_synced(parent, status, reason))
            };
            self.stage
                .wait(&self.host, &self.namespace, (API, kind, &name), is);
        }
    }

    /// Edits the neighbour's and a hog's parents in turn, and measures the time from each edit to
    /// the write of the child.
    fn measure(&mut self, hog: &Hog, load: &Load) -> Round {
        let user = self.stage.plane.user();
        let mark = self.stage.mark();
        let begin = Instant::now();
        let first = self.edits;
        for edit in 0..load.edits {
            let turn = first + edit;
            let annotations = json!({"test.example/turn": turn.to_string()});
            let spec = json!({"spec": {"note": note(turn)}});
            let edits = [
                (hog.kind, json!({"metadata": {"annotations": annotations}})),
                (NEIGHBOUR, spec),
            ];
            for (kind, patch) in edits {
                let name = name(kind, turn % PARENTS);
                user.merge(Kind::new(API, kind, &self.namespace), &name, &patch)
                    .unwrap();
            }
            let due =
                Duration::from_secs(1) * u32::try_from(edit + 1).unwrap() / load.edits_per_second;
            sleep(due.saturating_sub(begin.elapsed()));
        }
        self.edits += load.edits;
        self.wait_reflected();
        let writes = self.stage.plane.audit().since(mark).unwrap();
        let round = Round::new(&writes);
        let measured = round.host.len();
        assert!(
            measured * 10 >= load.edits * 9,
            "{measured} of {} edits",
            load.edits
        );
        round
    }

    /// Waits until every neighbour's child has the parent's note.
    #[track_caller]
    fn wait_reflected(&self) {
        let user = self.stage.plane.user();
        let notes = |api_version, kind, at: &str| -> BTreeMap<String, Value> {
            let of_neighbour = |object: &Value| {
                let name = object["metadata"]["name"].as_str()?;
                name.starts_with("moody-")
                    .then(|| (name.to_owned(), object[at]["note"].clone()))
            };
            user.list(Kind::new(api_version, kind, &self.namespace), "")
                .unwrap()
                .iter()
                .filter_map(of_neighbour)
                .collect()
        };
        eventually(
            "the neighbour's children have the notes of their parents",
            || {
                let expected = notes(API, NEIGHBOUR, "spec");
                let actual = notes("v1", "ConfigMap", "data");
                let same = expected.iter().all(|(name, note)| {
                    actual.get(name).and_then(Value::as_str).unwrap_or_default()
                        == note.as_str().unwrap_or_default()
                });
                if same {
                    Ok(())
                } else {
                    Err(format!("{expected:?} {actual:?}"))
                }
            },
        );
    }

    /// The host's resident memory, in bytes.
    fn resident(&mut self) -> u64 {
        self.host.process().usage().unwrap().resident_bytes
    }

    /// Makes all parents of a kind hogs until each reports the fault, and then makes them good
    /// again.
    fn run_hogs(&self, hog: &Hog) {
        self.set_behaviour(hog.kind, hog.behaviour);
        self.wait_all(hog.kind, "False");
        self.set_behaviour(hog.kind, "good");
        self.wait_all(hog.kind, "True");
    }
}

fn name(kind: &str, number: usize) -> String {
    format!("{}-{number}", kind.to_ascii_lowercase())
}

fn note(turn: usize) -> String {
    format!("turn {turn}")
}

/// Times from the neighbour's edits to the host's writes, by the API server's clock, in ascending
/// order.
struct Round {
    /// From the answer to an edit until the resulting write arrives: the host's time.
    host: Vec<Duration>,
    /// From the arrival of an edit to the answer to the resulting write: includes the API server's
    /// time for both.
    whole: Vec<Duration>,
}

impl Round {
    /// Skips edits that the parent's next edit overtook, because they caused no write.
    fn new(writes: &[Write]) -> Self {
        let noted = |resource: &str, at: &str| -> BTreeMap<&str, &Write> {
            writes
                .iter()
                .filter(|write| write.resource == resource)
                .filter_map(|write| Some((write.body[at]["note"].as_str()?, write)))
                // In reversed order, the first of several writes wins.
                .rev()
                .collect()
        };
        let edits = noted("moodies.test.innkeeper.dev", "spec");
        let children = noted("configmaps", "data");
        let pairs = children
            .iter()
            .filter_map(|(note, write)| Some((*edits.get(note)?, *write)));
        // A watch event may arrive before the answer to the edit.
        let time = |since: Timestamp, until: Timestamp| {
            Duration::try_from(until.duration_since(since)).unwrap_or_default()
        };
        let (mut host, mut whole): (Vec<_>, Vec<_>) = pairs
            .map(|(edit, write)| {
                let host = time(edit.answered, write.received);
                (host, time(edit.received, write.answered))
            })
            .unzip();
        host.sort_unstable();
        whole.sort_unstable();
        Self { host, whole }
    }
}

/// The median over the rounds of the time within which this percentage of edits was reflected.
/// Other load on the machine comes in bursts, which spoil one round but not all.
fn percentile(rounds: &[Round], share: usize, times: impl Fn(&Round) -> &[Duration]) -> Duration {
    let in_round = |round: &Round| {
        let times = times(round);
        let at = (times.len() * share).div_ceil(100).saturating_sub(1);
        times.get(at).copied().unwrap_or_default()
    };
    let mut all: Vec<Duration> = rounds.iter().map(in_round).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// A summary such as `p50 1.0ms, p99 2.0ms (3.0ms and 4.0ms with the API server's time)`.
fn summary(rounds: &[Round]) -> String {
    let host = |share| percentile(rounds, share, |round| &round.host);
    let whole = |share| percentile(rounds, share, |round| &round.whole);
    format!(
        "p50 {:.1?}, p99 {:.1?} ({:.1?} and {:.1?} with the API server's time)",
        host(50),
        host(99),
        whole(50),
        whole(99),
    )
}

/// The neighbour's delay stays within a factor and an allowance. A hog that blocked a worker thread
/// or a queue in the host would exceed them.
#[test]
fn a_hog_delays_its_neighbour_within_limits() {
    let load = if is_full() { FULL } else { SAMPLE };
    let mut fixture = fixture();
    let mut report = String::new();
    let mut too_slow = Vec::new();
    for hog in &HOGS {
        let mut alone = Vec::new();
        let mut beside = Vec::new();
        for _ in 0..load.rounds {
            alone.push(fixture.measure(hog, &load));
            fixture.set_behaviour(hog.kind, hog.behaviour);
            fixture.wait_all(hog.kind, "False");
            beside.push(fixture.measure(hog, &load));
            fixture.set_behaviour(hog.kind, "good");
            fixture.wait_all(hog.kind, "True");
        }
        let line = format!(
            "{}: alone {}; beside it {}",
            hog.takes,
            summary(&alone),
            summary(&beside)
        );
        let p99 = |rounds: &[Round]| percentile(rounds, 99, |round| &round.host);
        if p99(&beside) > p99(&alone) * RATIO_MAX + SLACK {
            too_slow.push(line.clone());
        }
        writeln!(report, "{line}").unwrap();
    }
    if is_full() {
        let rounds = format!(
            "{} rounds of {} edits each, the median round; 10 parents each\n",
            load.rounds, load.edits
        );
        fs::write(root().join("target/hog-report.txt"), rounds + &report).unwrap();
        assert!(
            too_slow.is_empty(),
            "more than {RATIO_MAX} times and {SLACK:?}:\n{}",
            too_slow.join("\n")
        );
    }
}

/// The host frees a hog's memory, except for what allocators and the instance pool keep for the
/// next call; that part does not grow.
#[test]
fn the_host_frees_the_memory_of_hogs() {
    const MIB: u64 = 1 << 20;
    /// Memory kept after the first run, compared with before.
    const KEPT_MAX: u64 = 64 * MIB;
    /// Additional memory after a second run.
    const GROWTH_MAX: u64 = 16 * MIB;

    let mut fixture = fixture();
    let mut before = fixture.resident();
    for kept_max in [KEPT_MAX, GROWTH_MAX] {
        for hog in &HOGS {
            fixture.run_hogs(hog);
        }
        before = eventually("the host frees the hogs' memory", || {
            match fixture.resident() {
                after if after <= before + kept_max => Ok(after),
                after => Err(format!("{} MiB after {} MiB", after / MIB, before / MIB)),
            }
        });
    }
    // The hogs did use memory: one instance alone reached the limit.
    let most = fixture.host.process().usage().unwrap().resident_max_bytes;
    assert!(most > before + 32 * MIB, "{} MiB at most", most / MIB);
}
