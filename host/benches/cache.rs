//! What the cache costs: resident bytes for each byte of JSON, time of a list and of an event.
//!
//! A server in the same process makes its answers page by page, so that next to nothing but the cache stays resident.
//! Fails when the cache takes more than twice the size of the objects.

use std::{
    io::{BufRead, BufReader, BufWriter, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use innkeeper::{
    cluster::{Cluster, Interest, Options, WatchStatus},
    model::{Access, Gvk, PluginName, ReadKind, ReadScope},
};

/// As many, and as large, as the promise says.
const PODS: u64 = 20_000;
const POD_BYTES: usize = 5 * 1024;
const RATIO_MAX: f64 = 2.0;
const PATIENCE: Duration = Duration::from_mins(5);

fn main() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let churn = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&churn);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let flag = Arc::clone(&flag);
            thread::spawn(move || serve(stream, &flag));
        }
    });
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(measure(&url, &churn))
}

async fn measure(url: &str, churn: &AtomicBool) -> anyhow::Result<()> {
    let mut config = kube::Config::new(url.parse()?);
    config.default_retry = false;
    let client = kube::Client::try_from(config)?;
    let (cluster, driver) = Cluster::new(client, Options::new(1));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(driver.run(|| {}));
    cluster.wait_discovered().await;
    let before = resident_bytes()?;

    let begun = Instant::now();
    let _registration = cluster.register(Interest {
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
    });
    let listed = until(&cluster, |pods| pods.why.is_none() && pods.objects > 0).await?;
    let took = begun.elapsed();
    report("listed", &listed, before, took)?;

    let begun = Instant::now();
    churn.store(true, Ordering::Release);
    let last = 2 * PODS + 1;
    let changed = until(&cluster, |pods| pods.version.0 >= last).await?;
    report(
        "every object changed once",
        &changed,
        before,
        begun.elapsed(),
    )
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
        anyhow::ensure!(
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
    anyhow::ensure!(
        resident <= RATIO_MAX * json,
        "the cache takes more than {RATIO_MAX} times the size of the objects"
    );
    Ok(())
}

fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib
        .ok_or_else(|| anyhow::anyhow!("no VmRSS"))?
        .trim()
        .parse()?;
    Ok(kib * 1024)
}

/// Answers one request; whoever hangs up ends it.
fn serve(stream: TcpStream, churn: &AtomicBool) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    let _head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let target = request.split(' ').nth(1).unwrap_or_default();
    let mut out = BufWriter::new(&stream);
    if answer(&mut out, target, churn).is_ok() {
        out.flush().unwrap_or_default();
    }
}

fn answer(out: &mut impl Write, target: &str, churn: &AtomicBool) -> std::io::Result<()> {
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
    if value("watch").is_some() {
        out.flush()?;
        while !(churn.load(Ordering::Acquire) && path.ends_with("/pods")) {
            thread::sleep(Duration::from_millis(20));
        }
        for number in 0..PODS {
            writeln!(
                out,
                r#"{{"type":"MODIFIED","object":{}}}"#,
                pod(number, PODS + 2 + number)
            )?;
        }
        out.flush()?;
        thread::sleep(PATIENCE);
        return Ok(());
    }
    let all = if path.ends_with("/pods") { PODS } else { 0 };
    let limit: u64 = value("limit")
        .and_then(|limit| limit.parse().ok())
        .unwrap_or(all);
    let first: u64 = value("continue")
        .and_then(|next| next.parse().ok())
        .unwrap_or(0);
    let next = (first + limit).min(all);
    let following = if next < all {
        next.to_string()
    } else {
        String::new()
    };
    write!(
        out,
        r#"{{"metadata":{{"resourceVersion":"{}","continue":"{following}"}},"items":["#,
        PODS + 1
    )?;
    for number in first..next {
        let comma = if number > first { "," } else { "" };
        write!(out, "{comma}{}", pod(number, number + 1))?;
    }
    write!(out, "]}}")
}

/// A Pod of the usual shape and size; what the cache drops comes on top.
fn pod(number: u64, version: u64) -> String {
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
    let fill = POD_BYTES.saturating_sub(head.len() + rest.len() + 5);
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
