//! Traces from passes, as a collector receives them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use innkeeper_tests::{
    Host, HostOptions,
    admin::{address, scrape, sum},
    eventually,
    process::{Running, bound, is_full, path_from_env, spawn_bound},
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    admin,
    stage::{Stage, is_applied},
};

const API: &str = "cache.example.com/v1";

/// The steps in a pass that calls the guest.
const STEPS: [&str; 8] = [
    "observe", "enter", "recall", "call", "check", "plan", "apply", "report",
];

/// A collector that stores raw requests.
struct Sink {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    requests: Mutex<Vec<u8>>,
    is_down: AtomicBool,
}

impl Sink {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        // The thread ends with the test process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !shared.is_down.load(Ordering::Relaxed) {
                    // The host may have ended.
                    shared.take(stream).unwrap_or_default();
                }
            }
        });
        Self { port, state }
    }

    fn has(&self, part: &[u8]) -> bool {
        self.state
            .requests
            .lock()
            .unwrap()
            .windows(part.len())
            .any(|window| window == part)
    }
}

impl State {
    /// Stores one request and closes the connection; `None` if the client closes it first.
    fn take(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(&stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).ok()? > 0 {}
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))?;
        let mut body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        self.requests
            .lock()
            .ok()?
            .extend([head.into(), body].concat());
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        (&stream).write_all(answer.as_bytes()).ok()
    }
}

/// Starts a host that sends traces to this port.
fn host(stage: &Stage, port: u16, arguments: &[&str]) -> Host {
    let endpoint = format!("http://127.0.0.1:{port}");
    let traces = ["--otlp-endpoint", &endpoint];
    let host = admin::host(stage, &[&traces, arguments].concat());
    stage.wait_served(&host, &["memcacheds.cache.example.com"]);
    host
}

fn apply_cache(stage: &Stage, host: &Host, namespace: &str, name: &str) {
    let parent = json!({
        "apiVersion": API, "kind": "Memcached", "metadata": {"name": name}, "spec": {"size": 1},
    });
    stage.apply(namespace, &parent);
    stage.wait(host, namespace, (API, "Memcached", name), is_applied);
}

/// Returns the trace ids that the log has for a parent's passes.
fn logged(host: &Host, parent: &str) -> Vec<String> {
    let log = host.log().unwrap();
    let lines = log.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let span = &line["span"];
        span["parent"]
            .as_str()?
            .ends_with(parent)
            .then(|| span["trace_id"].as_str().map(str::to_owned))?
    });
    lines.collect()
}

fn bytes(id: &str) -> Vec<u8> {
    assert_eq!(id.len(), 32, "{id}");
    let byte = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).unwrap();
    (0..id.len()).step_by(2).map(byte).collect()
}

fn spans(host: &Host, result: &str) -> f64 {
    let metrics = scrape(&address(host)).unwrap();
    let label = format!("result=\"{result}\"");
    sum(&metrics, "innkeeper_trace_spans_total", &label)
}

/// A pass is a trace with a span for each step, and log lines and Events have the trace id. Passes
/// continue without a collector, and a stopping host sends the last spans.
#[test]
fn each_pass_is_a_trace_that_log_and_events_name() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let sink = Sink::start();
    let running = host(&stage, sink.port, &[]);
    let namespace = stage.namespace("traces");
    apply_cache(&stage, &running, &namespace, "first");
    // With size 0 the parent becomes Ready, which causes an Event.
    let first = (API, "Memcached", "first");
    stage.merge(&namespace, first, &json!({"spec": {"size": 0}}));
    let event = eventually("the event names its trace", || {
        let kind = Kind::new("events.k8s.io/v1", "Event", &namespace);
        let events = stage.plane.user().list(kind, "").unwrap();
        let id = |event: &Value| {
            event["metadata"]["annotations"]["innkeeper.dev/trace-id"]
                .as_str()
                .map(str::to_owned)
        };
        events.iter().find_map(id).ok_or_else(|| json!(events))
    });
    let ids = logged(&running, "/first");
    assert!(!ids.is_empty(), "{}", running.log().unwrap());
    eventually("the collector has the traces", || {
        let mut ids = ids.iter().chain([&event]);
        if ids.all(|id| sink.has(&bytes(id))) {
            return Ok(());
        }
        Err(running.log().unwrap())
    });
    for name in STEPS {
        assert!(sink.has(name.as_bytes()), "{name}");
    }
    for text in [
        "POST /v1/traces ",
        "content-type: application/x-protobuf",
        "innkeeper.plugin",
        "memcached",
        &*namespace,
        "service.instance.id",
    ] {
        assert!(sink.has(text.as_bytes()), "{text}");
    }
    assert!(spans(&running, "sent") >= 8.0);

    sink.state.is_down.store(true, Ordering::Relaxed);
    apply_cache(&stage, &running, &namespace, "second");
    eventually("spans that nobody takes are counted", || {
        match spans(&running, "failed") {
            count if count > 0.0 => Ok(()),
            count => Err(count),
        }
    });
    sink.state.is_down.store(false, Ordering::Relaxed);
    apply_cache(&stage, &running, &namespace, "the-last-one");
    Stage::stop(running);
    assert!(sink.has(b"the-last-one"));

    // The lowest sampling rate.
    let rare = host(&stage, sink.port, &["--trace-one-in", "4294967295"]);
    apply_cache(&stage, &rare, &namespace, "rare");
    assert_eq!(logged(&rare, "/rare"), [""; 0]);
    Stage::stop(rare);
    assert!(!sink.has(b"rare"));
}

/// Starts the collector, and returns the port.
fn collector(file: &Path) -> (Running, u16) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut command = bound(&path_from_env("INNKEEPER_COLLECTOR").unwrap());
    command.arg(address.to_string()).arg(file);
    let running = spawn_bound(command).unwrap();
    eventually("the collector listens", || TcpStream::connect(address));
    (running, address.port())
}

/// Returns the spans in the collector's file.
fn collected(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut spans = Vec::new();
    for line in lines {
        for resource in line["resourceSpans"].as_array().unwrap() {
            let name = json!({"key": "service.name", "value": {"stringValue": "innkeeper"}});
            let attributes = resource["resource"]["attributes"].as_array().unwrap();
            assert!(attributes.contains(&name), "{attributes:?}");
            for scope in resource["scopeSpans"].as_array().unwrap() {
                spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
            }
        }
    }
    spans
}

/// The OpenTelemetry Collector's receiver accepts the traces. Only in `tests/full`, which builds it.
#[test]
fn the_collector_gets_a_span_for_each_step_below_that_of_the_pass() {
    if !is_full() {
        return;
    }
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let file = stage.plane.directory().join("traces.json");
    let (_collector, port) = collector(&file);
    let running = host(&stage, port, &[]);
    let namespace = stage.namespace("traces");
    apply_cache(&stage, &running, &namespace, "web");
    let id = logged(&running, "/web").remove(0);
    Stage::stop(running);

    let spans: Vec<Value> = collected(&file)
        .into_iter()
        .filter(|span| span["traceId"] == *id)
        .collect();
    let pass = spans.iter().find(|span| span["name"] == "pass").unwrap();
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let attributes = pass["attributes"].as_array().unwrap();
    for (key, value) in [
        ("innkeeper.plugin", "memcached"),
        ("innkeeper.parent.name", "web"),
        ("innkeeper.parent.namespace", &*namespace),
    ] {
        assert!(
            attributes.contains(&attribute(key, value)),
            "{attributes:?}"
        );
    }
    for name in STEPS {
        let step = spans
            .iter()
            .find(|span| span["name"] == name)
            .unwrap_or_else(|| panic!("{name} of {spans:#?}"));
        assert_eq!(step["parentSpanId"], pass["spanId"], "{step}");
    }
}
