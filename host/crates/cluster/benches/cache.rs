//! Measures the cache: resident bytes per JSON byte, list time and event time.
//!
//! With `soak`, five times as many objects come, change and go for ten minutes more, in which memory must not grow.
//! A server in the same process creates each response on demand, so that hardly anything but the cache is resident.
//! Fails when the cache takes more than twice the size of the objects.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, BufWriter, Write},
    iter,
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use fastrand::Rng;
use innkeeper_cluster::{CacheSize, Cluster, Interest, Options, Registration, WatchStatus};
use innkeeper_model::{Access, Gvk, PluginName, ReadKind, ReadScope, Selector};

/// The Pod size in the promise.
const POD_BYTES: usize = 5 * 1024;
/// The promise: the cache's resident memory as a multiple of the JSON size.
const RATIO_MAX: f64 = 2.0;
/// Long enough for the slowest machine; reached only if the cache never syncs.
const PATIENCE: Duration = Duration::from_mins(5);

/// Object counts without and with a soak.
const PODS: usize = 20_000;
const SOAK_PODS: usize = 100_000;

/// Duration of the soak, and the time after which memory must not grow any more: until then pages fill up, because new
/// objects have other sizes than those that they replace.
const SOAK: Duration = Duration::from_mins(10);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(30);
const SETTLED_AFTER: Duration = Duration::from_mins(5);
/// The most resident memory after that time, as a multiple of the value then.
const GROWTH_MAX: f64 = 1.05;
/// Between two soak events.
const PAUSE: Duration = Duration::from_micros(500);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let pods = match &arguments[..] {
        [] => PODS,
        [word] if word == "soak" => SOAK_PODS,
        others => bail!("{others:?}: say soak, or nothing"),
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let world = Arc::new(World::new(pods));
    let served = Arc::clone(&world);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let served = Arc::clone(&served);
            thread::spawn(move || serve(stream, &served));
        }
    });
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(measure(&url, &world, pods > PODS))
}

/// The server's state.
struct World {
    pods: usize,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    version: u64,
    /// Version and size by object.
    objects: Vec<Option<(u64, usize)>>,
    rng: Rng,
    /// Requests so far; only the last one gets events.
    requests: u64,
}

/// The events that the watch sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing.
    Calm,
    /// Every object changes once; this many have.
    Sweep(usize),
    /// Objects come, change and go.
    Churn,
}

impl World {
    fn new(pods: usize) -> Self {
        Self {
            pods,
            state: Mutex::new(State {
                phase: Phase::Calm,
                version: number(pods) + 1,
                objects: (1..=number(pods))
                    .map(|version| Some((version, POD_BYTES)))
                    .collect(),
                rng: Rng::with_seed(1),
                requests: 0,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        self.lock().phase = phase;
    }
}

impl State {
    /// The next event as a watch line, and the pause before it.
    fn next(&mut self) -> Option<(String, Duration)> {
        let count = self.objects.len();
        let (at, kind, bytes, pause) = match self.phase {
            Phase::Calm => return None,
            Phase::Sweep(done) if done == count => return None,
            Phase::Sweep(done) => {
                self.phase = Phase::Sweep(done + 1);
                (done, "MODIFIED", POD_BYTES, Duration::ZERO)
            }
            Phase::Churn => {
                let at = self.rng.usize(..count);
                let goes = self.rng.u8(..8) == 0;
                let kind = match (self.objects[at], goes) {
                    (Some(_), true) => "DELETED",
                    (Some(_), false) => "MODIFIED",
                    (None, _) => "ADDED",
                };
                let bytes = self.rng.usize(POD_BYTES / 2..POD_BYTES * 3 / 2);
                (at, kind, bytes, PAUSE)
            }
        };
        self.version += 1;
        self.objects[at] = (kind != "DELETED").then_some((self.version, bytes));
        let object = pod(at, self.version, bytes);
        Some((format!(r#"{{"type":"{kind}","object":{object}}}"#), pause))
    }

    /// One page of objects, from this one on.
    fn page(&self, first: usize, limit: usize) -> String {
        let end = first.saturating_add(limit).min(self.objects.len());
        let following = if end < self.objects.len() {
            end.to_string()
        } else {
            String::new()
        };
        let existing = (first..end).filter_map(|at| Some((at, self.objects[at]?)));
        let items: Vec<String> = existing
            .map(|(at, (version, bytes))| pod(at, version, bytes))
            .collect();
        let version = self.version;
        let items = items.join(",");
        format!(
            r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{following}"}},"items":[{items}]}}"#
        )
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn interest(cluster: &Cluster) -> anyhow::Result<Registration> {
    Ok(cluster.register(Interest {
        plugin: PluginName::new("bench")?,
        parent: Gvk::new("example.com", "v1", "Cache"),
        children: Vec::new(),
        reads: vec![ReadKind {
            kind: Gvk::new("", "v1", "Pod"),
            access: Access::Full,
            scope: ReadScope::Cluster,
            label_selector: Selector::default(),
        }],
        selector: Selector::default(),
        all_shards: false,
        field_managers: std::collections::BTreeSet::new(),
        namespace_max: CacheSize::UNBOUNDED,
    }))
}

async fn measure(url: &str, world: &World, soaks: bool) -> anyhow::Result<()> {
    let mut config = kube::Config::new(url.parse()?);
    config.default_retry = false;
    let client = kube::Client::try_from(config)?;
    let (cluster, driver) = Cluster::new(client, Options::new(1));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(driver.run(|| {}));
    cluster.wait_discovered().await;
    let before = resident_bytes()?;

    let begun = Instant::now();
    let _registration = interest(&cluster)?;
    let listed = until(&cluster, |pods| pods.why.is_none() && pods.objects > 0).await?;
    let took = begun.elapsed();
    report("listed", &listed, before, Some(took))?;

    let begun = Instant::now();
    world.enter(Phase::Sweep(0));
    let last = number(2 * world.pods) + 1;
    let changed = until(&cluster, |pods| pods.version.0 >= last).await?;
    report(
        "every object changed once",
        &changed,
        before,
        Some(begun.elapsed()),
    )?;
    if soaks {
        soak(&cluster, world, before).await?;
    }
    Ok(())
}

/// Lets objects come, change and go, and checks that memory does not grow.
#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
async fn soak(cluster: &Cluster, world: &World, before: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let first = world.lock().version;
    world.enter(Phase::Churn);
    let mut settled = None;
    let mut highest = 0;
    while begun.elapsed() < SOAK {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        let resident = resident_bytes()?.saturating_sub(before);
        println!(
            "{:.0?}: {} MiB resident, {} events",
            begun.elapsed(),
            resident >> 20,
            world.lock().version - first
        );
        if begun.elapsed() >= SETTLED_AFTER {
            settled.get_or_insert(resident);
            highest = highest.max(resident);
        }
    }
    let (events, alive) = {
        let mut state = world.lock();
        state.phase = Phase::Calm;
        let alive = state.objects.iter().flatten().count();
        (state.version - first, alive)
    };
    let last = first + events;
    let pods = until(cluster, |pods| pods.version.0 >= last).await?;
    ensure!(
        pods.objects == alive,
        "{} objects are cached, and there are {alive}",
        pods.objects
    );
    report("after the soak", &pods, before, None)?;
    let settled = settled.context("the soak ended before memory settled")?;
    let growth = mib(highest)? / mib(settled)?;
    println!(
        "{events} events in {:.0?}, {} lists: at most {growth:.3} times what was resident after {SETTLED_AFTER:?}",
        begun.elapsed(),
        pods.lists
    );
    ensure!(
        growth <= GROWTH_MAX,
        "memory grows: {growth:.3} times, at most {GROWTH_MAX} is wanted"
    );
    Ok(())
}

fn mib(bytes: u64) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(bytes >> 10)?) / 1024.0)
}

async fn until(
    cluster: &Cluster,
    fits: impl Fn(&WatchStatus) -> bool,
) -> anyhow::Result<WatchStatus> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pods = cluster
            .watches()
            .into_iter()
            .find(|watch| &*watch.kind.kind == "Pod");
        if let Some(pods) = pods.filter(&fits) {
            return Ok(pods);
        }
        ensure!(
            Instant::now() < deadline,
            "gave up: {:#?}",
            cluster.watches()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn report(
    what: &str,
    pods: &WatchStatus,
    before: u64,
    took: Option<Duration>,
) -> anyhow::Result<()> {
    let objects = u32::try_from(pods.objects)?;
    let grown = resident_bytes()?.saturating_sub(before);
    let resident = f64::from(u32::try_from(grown / 1024)?) * 1024.0 / f64::from(objects);
    let json = f64::from(u32::try_from(pods.bytes / pods.objects)?);
    let each = took.map_or_else(String::new, |took| format!(", {:?} each", took / objects));
    println!(
        "{what}: {objects} objects of {json:.0} bytes, {resident:.0} resident bytes each, ratio {:.2}{each}",
        resident / json
    );
    ensure!(
        resident <= RATIO_MAX * json,
        "the cache takes more than {RATIO_MAX} times the size of the objects"
    );
    Ok(())
}

fn resident_bytes() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .ok_or_else(|| anyhow::anyhow!("no VmRSS"))?
        .trim()
        .parse()?;
    Ok(kib * 1024)
}

/// Answers one request; a client that hangs up ends it.
fn serve(stream: TcpStream, world: &World) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    let _head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let target = request.split(' ').nth(1).unwrap_or_default();
    let mut out = BufWriter::new(&stream);
    if answer(&mut out, target, world).is_ok() {
        out.flush().unwrap_or_default();
    }
}

fn answer(out: &mut impl Write, target: &str, world: &World) -> io::Result<()> {
    let group = |name: &str, plural: &str, kind: &str| {
        format!(
            r#"{{"kind":"APIGroupDiscoveryList","items":[{{"metadata":{{"name":"{name}"}},"versions":[{{"version":"v1","resources":[{{"resource":"{plural}","responseKind":{{"kind":"{kind}"}},"scope":"Namespaced","verbs":["list","watch"]}}]}}]}}]}}"#
        )
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let value = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value)
            .next()
    };
    write!(out, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")?;
    match path {
        "/api" => return write!(out, "{}", group("", "pods", "Pod")),
        "/apis" => return write!(out, "{}", group("example.com", "caches", "Cache")),
        _ => {}
    }
    let number_of = |name: &str| value(name).and_then(|text| text.parse::<u64>().ok());
    if !path.ends_with("/pods") {
        if value("watch").is_none() {
            return write!(
                out,
                r#"{{"metadata":{{"resourceVersion":"1"}},"items":[]}}"#
            );
        }
        out.flush()?;
        let seconds = number_of("timeoutSeconds").unwrap_or(60);
        thread::sleep(Duration::from_secs(seconds));
        return Ok(());
    }
    let request = {
        let mut state = world.lock();
        state.requests += 1;
        state.requests
    };
    if value("watch").is_none() {
        let number_of = |name| number_of(name).and_then(|number| usize::try_from(number).ok());
        let first = number_of("continue");
        let limit = number_of("limit");
        let page = world
            .lock()
            .page(first.unwrap_or(0), limit.unwrap_or(usize::MAX));
        return out.write_all(page.as_bytes());
    }
    out.flush()?;
    if number_of("resourceVersion") != Some(world.lock().version) {
        return writeln!(
            out,
            r#"{{"type":"ERROR","object":{{"kind":"Status","code":410,"reason":"Expired","message":"told to somebody else"}}}}"#
        );
    }
    let seconds = number_of("timeoutSeconds").unwrap_or(60);
    watch(
        out,
        world,
        request,
        Instant::now() + Duration::from_secs(seconds),
    )
}

/// Sends events until the watch ends or another request has come.
fn watch(out: &mut impl Write, world: &World, request: u64, end: Instant) -> io::Result<()> {
    while Instant::now() < end {
        let next = {
            let mut state = world.lock();
            if state.requests != request {
                break;
            }
            state.next()
        };
        let Some((line, pause)) = next else {
            out.flush()?;
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        writeln!(out, "{line}")?;
        if !pause.is_zero() {
            out.flush()?;
            thread::sleep(pause);
        }
    }
    out.flush()
}

/// A Pod with the usual shape and size, plus fields that the cache drops.
fn pod(number: usize, version: u64, bytes: usize) -> String {
    let head = format!(
        r#"{{"metadata":{{"name":"web-{:010x}-{number:05}","namespace":"team-{}","uid":"00000000-0000-4000-8000-{number:012}","resourceVersion":"{version}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app.kubernetes.io/name":"web","app.kubernetes.io/instance":"web-{}","pod-template-hash":"{:010x}"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"11111111-0000-4000-8000-{:012}","controller":true}}]"#,
        number / 3,
        number % 50,
        number / 3,
        number / 3,
        number / 3,
    );
    let managed = format!(
        r#","managedFields":[{{"manager":"kubelet","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:x":"{}"}}}}}}]"#,
        "m".repeat(1500)
    );
    let rest = r#"},"spec":{"containers":[{"name":"web","env":""#;
    let fill = bytes.saturating_sub(head.len() + rest.len() + 5);
    // Texts that differ, or the kernel could share their pages.
    let text: String = iter::repeat_with(fastrand::alphanumeric)
        .take(fill)
        .collect();
    format!("{head}{managed}{rest}{text}\"}}]}}}}")
}
