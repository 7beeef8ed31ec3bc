//! What the cache costs: resident bytes for each byte of JSON, time of a list and of an event.
//!
//! With `soak`, five times as many objects come, change and go for ten minutes more, in which memory must not grow.
//! A server in the same process makes its answers as they are asked for, so that next to nothing but the cache stays
//! resident.
//! Fails when the cache takes more than twice the size of the objects.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, BufWriter, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use fastrand::Rng;
use innkeeper::{
    cluster::{Cluster, Interest, Options, Registration, WatchStatus},
    model::{Access, Gvk, PluginName, ReadKind, ReadScope},
};

/// As large as the promise says.
const POD_BYTES: usize = 5 * 1024;
const RATIO_MAX: f64 = 2.0;
const PATIENCE: Duration = Duration::from_mins(5);

/// How many objects there are without and with a soak.
const PODS: usize = 20_000;
const PODS_OF_SOAK: usize = 100_000;

/// How long the soak lasts, and after which part of it memory must not grow.
const SOAK: Duration = Duration::from_mins(10);
const LOOKED_AT_EVERY: Duration = Duration::from_secs(30);
const SETTLED_AFTER: Duration = Duration::from_mins(2);
/// How much more may be resident at any later time.
const GROWTH_MAX: f64 = 1.05;
/// Between two events of the soak.
const PAUSE: Duration = Duration::from_micros(500);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let pods = match &arguments[..] {
        [] => PODS,
        [word] if word == "soak" => PODS_OF_SOAK,
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

/// What the server has.
struct World {
    pods: usize,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    version: u64,
    /// Which objects exist.
    alive: Vec<bool>,
    rng: Rng,
}

/// What the watch tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing.
    Calm,
    /// Every object changes once; so many have.
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
                alive: vec![true; pods],
                rng: Rng::with_seed(1),
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
    /// The next thing that happens, as a line of a watch, and how long after the one before.
    fn next(&mut self) -> Option<(String, Duration)> {
        let (at, kind, bytes, pause) = match self.phase {
            Phase::Calm => return None,
            Phase::Sweep(done) if done == self.alive.len() => return None,
            Phase::Sweep(done) => {
                self.phase = Phase::Sweep(done + 1);
                (done, "MODIFIED", POD_BYTES, Duration::ZERO)
            }
            Phase::Churn => {
                let at = self.rng.usize(..self.alive.len());
                let goes = self.rng.u8(..8) == 0;
                let kind = match (self.alive[at], goes) {
                    (true, true) => "DELETED",
                    (true, false) => "MODIFIED",
                    (false, _) => "ADDED",
                };
                self.alive[at] = kind != "DELETED";
                let bytes = self.rng.usize(POD_BYTES / 2..POD_BYTES * 3 / 2);
                (at, kind, bytes, PAUSE)
            }
        };
        self.version += 1;
        let object = pod(at, self.version, bytes);
        Some((format!(r#"{{"type":"{kind}","object":{object}}}"#), pause))
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
            label_selector: None,
        }],
        selector: None,
        field_managers: std::collections::BTreeSet::new(),
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
    report("listed", &listed, before, took)?;

    let begun = Instant::now();
    world.enter(Phase::Sweep(0));
    let last = number(2 * world.pods) + 1;
    let changed = until(&cluster, |pods| pods.version.0 >= last).await?;
    report(
        "every object changed once",
        &changed,
        before,
        begun.elapsed(),
    )?;
    if soaks {
        soak(&cluster, world, before).await?;
    }
    Ok(())
}

/// Lets objects come, change and go, and looks whether memory stays as it is.
#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
async fn soak(cluster: &Cluster, world: &World, before: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let first = world.lock().version;
    world.enter(Phase::Churn);
    let (mut settled, mut highest) = (None, 0);
    while begun.elapsed() < SOAK {
        tokio::time::sleep(LOOKED_AT_EVERY).await;
        let resident = resident_bytes()?.saturating_sub(before);
        println!("{:.0?}: {} MiB resident", begun.elapsed(), resident >> 20);
        if begun.elapsed() >= SETTLED_AFTER {
            settled.get_or_insert(resident);
            highest = highest.max(resident);
        }
    }
    let (events, alive) = {
        let mut state = world.lock();
        state.phase = Phase::Calm;
        let alive = state.alive.iter().filter(|is_alive| **is_alive).count();
        (state.version - first, alive)
    };
    let last = first + events;
    let pods = until(cluster, |pods| pods.version.0 >= last).await?;
    ensure!(
        pods.objects == alive,
        "{} objects are cached, and there are {alive}",
        pods.objects
    );
    report("after the soak", &pods, before, Duration::ZERO)?;
    let settled = settled.context("the soak ended before memory settled")?;
    let growth = mib(highest)? / mib(settled)?;
    println!(
        "{events} events in {:.0?}: at most {growth:.3} times what was resident after {SETTLED_AFTER:?}",
        begun.elapsed()
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
        let status = cluster.status();
        let pods = status
            .watches
            .into_iter()
            .find(|watch| &*watch.kind.kind == "Pod");
        if let Some(pods) = pods.filter(&fits) {
            return Ok(pods);
        }
        ensure!(
            Instant::now() < deadline,
            "gave up: {:#?}",
            cluster.status()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn report(what: &str, pods: &WatchStatus, before: u64, took: Duration) -> anyhow::Result<()> {
    let objects = u32::try_from(pods.objects)?;
    let grown = resident_bytes()?.saturating_sub(before);
    let resident = f64::from(u32::try_from(grown / 1024)?) * 1024.0 / f64::from(objects);
    let json = f64::from(u32::try_from(pods.bytes / pods.objects)?);
    let each = took / objects;
    println!(
        "{what}: {objects} objects of {json:.0} bytes, {resident:.0} resident bytes each, ratio {:.2}, {each:?} each",
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
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib
        .ok_or_else(|| anyhow::anyhow!("no VmRSS"))?
        .trim()
        .parse()?;
    Ok(kib * 1024)
}

/// Answers one request; whoever hangs up ends it.
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
    let number_of = |name: &str| value(name).and_then(|text| text.parse().ok());
    if value("watch").is_some() {
        out.flush()?;
        let seconds = number_of("timeoutSeconds").unwrap_or(60);
        let end = Instant::now() + Duration::from_secs(seconds);
        return if path.ends_with("/pods") {
            watch(out, world, end)
        } else {
            thread::sleep(end.saturating_duration_since(Instant::now()));
            Ok(())
        };
    }
    let all = if path.ends_with("/pods") {
        number(world.pods)
    } else {
        0
    };
    let limit = number_of("limit").unwrap_or(all);
    let first = number_of("continue").unwrap_or(0);
    let next = (first + limit).min(all);
    let following = if next < all {
        next.to_string()
    } else {
        String::new()
    };
    write!(
        out,
        r#"{{"metadata":{{"resourceVersion":"{}","continue":"{following}"}},"items":["#,
        number(world.pods) + 1
    )?;
    for at in first..next {
        let comma = if at > first { "," } else { "" };
        let pod = pod(usize::try_from(at).unwrap_or_default(), at + 1, POD_BYTES);
        write!(out, "{comma}{pod}")?;
    }
    write!(out, "]}}")
}

/// Tells what happens until a watch is over; whoever comes next is told what comes then.
fn watch(out: &mut impl Write, world: &World, end: Instant) -> io::Result<()> {
    while Instant::now() < end {
        let next = world.lock().next();
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

/// A Pod of the usual shape and size; what the cache drops comes on top.
fn pod(number: usize, version: u64, bytes: usize) -> String {
    static FILL: AtomicU64 = AtomicU64::new(0);
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
    let seed = FILL.fetch_add(1, Ordering::Relaxed);
    let mut text: String = (0..fill)
        .map(|at| format!("{seed:x}{at:x}"))
        .take(fill)
        .collect::<Vec<_>>()
        .concat();
    text.truncate(fill);
    format!("{head}{managed}{rest}{text}\"}}]}}}}")
}
