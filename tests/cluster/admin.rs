//! A running host's HTTP endpoints (readiness, liveness, metrics, debugging) and the periodic
//! resync.

use std::time::Duration;

use anyhow::{Result, bail};
use innkeeper_tests::{
    Host, HostOptions,
    admin::{self, address, ask, sum},
    eventually, manifest,
};
use serde_json::{Value, json};

use crate::stage::{Stage, is_applied, lines};

const PARENT: (&str, &str, &str) = ("cache.example.com/v1", "Memcached", "web");
const CONTROLLER: &str = "controller=\"memcached/memcached\"";

/// Starts a host with admin endpoints.
pub(crate) fn host(stage: &Stage, arguments: &[&str]) -> Host {
    let mut options = stage.options.clone();
    let arguments = admin::ARGUMENTS.iter().chain(arguments);
    options.arguments = arguments.map(|argument| (*argument).to_owned()).collect();
    Host::start(&stage.plane.kubeconfig(), &options).unwrap()
}

fn get(address: &str, path: &str) -> (u16, String) {
    ask(address, "GET", path, "").unwrap()
}

#[track_caller]
pub(crate) fn wait_ready(address: &str) {
    eventually("the host is ready", || -> Result<()> {
        match get(address, "/readyz") {
            (200, _) => Ok(()),
            (status, body) => bail!("{status}: {body}"),
        }
    });
}

pub(crate) fn scrape(address: &str) -> String {
    admin::scrape(address).unwrap()
}

/// Scrapes until the metrics meet a condition.
#[track_caller]
fn scraped(address: &str, is_met: impl Fn(&str) -> bool) -> String {
    eventually("the metrics meet the condition", || {
        let metrics = scrape(address);
        if is_met(&metrics) {
            Ok(metrics)
        } else {
            Err(metrics)
        }
    })
}

fn passes(metrics: &str) -> f64 {
    sum(metrics, "controller_runtime_reconcile_total", CONTROLLER)
}

/// The probes distinguish a starting host from a ready one, and the metrics count every write, pass
/// and watch. Fails if a metric is missing, or if the host is ready before the API server answers.
#[test]
fn a_host_reports_readiness_and_counts_its_work() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    stage.plane.control(&["pause", "apiserver"]).unwrap();
    let host = host(&stage, &["--debug-endpoints"]);
    let address = &address(&host);
    let (status, body) = get(address, "/readyz");
    assert_eq!(status, 503, "{body}");
    assert_eq!(get(address, "/livez").0, 200);
    stage.plane.control(&["resume", "apiserver"]).unwrap();
    wait_ready(address);

    let namespace = stage.namespace("admin");
    let (api_version, kind, name) = PARENT;
    let parent = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"size": 1},
    });
    stage.apply(&namespace, &parent);
    stage.wait(&host, &namespace, PARENT, is_applied);
    // The host counts a pass when it ends, after the last write is visible.
    let before = scraped(address, |metrics| passes(metrics) >= 1.0);
    let writes = "innkeeper_plugin_writes_total";
    assert!(sum(&before, writes, "verb=\"create\"") >= 2.0, "{before}");
    let updates = sum(&before, writes, "verb=\"update\"");

    stage.merge(&namespace, PARENT, &json!({"spec": {"size": 2}}));
    let after = scraped(address, |after| {
        sum(after, writes, "verb=\"update\"") > updates && passes(after) > passes(&before)
    });
    let plugin = "plugin=\"memcached\"";
    for (name, label) in [
        (
            "controller_runtime_reconcile_time_seconds_count",
            CONTROLLER,
        ),
        ("controller_runtime_max_concurrent_reconciles", CONTROLLER),
        ("workqueue_adds_total", "name=\"memcached/memcached\""),
        (
            "workqueue_queue_duration_seconds_count",
            "name=\"memcached/memcached\"",
        ),
        ("innkeeper_plugin_call_cpu_seconds_count", plugin),
        ("innkeeper_plugin_memory_peak_bytes", plugin),
        ("innkeeper_plugin_parents", plugin),
        ("rest_client_requests_total", "method=\"PATCH\""),
        ("rest_client_requests_total", "method=\"GET\""),
        ("innkeeper_watch_synced", "kind=\"Memcached\""),
    ] {
        assert!(sum(&after, name, label) > 0.0, "{name} {label}\n{after}");
    }
    assert!(
        after.contains("workqueue_unfinished_work_seconds{"),
        "{after}"
    );
    // Without controllers, each of the two writes leaves a Deployment as the plugin predicts it.
    let predictions = sum(&after, "innkeeper_plugin_predictions_used_total", plugin);
    assert!(predictions >= 2.0, "{after}");
    assert!(!after.contains("innkeeper_plugin_faults_total{"), "{after}");
    check_process_metrics(&after);
    let errors = "controller_runtime_reconcile_errors_total";
    assert!(sum(&after, errors, CONTROLLER).abs() < 0.5, "{after}");

    let (status, live) = get(address, "/livez");
    assert_eq!(status, 200, "{live}");
    for moves in ["runtime", "watches", "controller/memcached/memcached"] {
        assert!(live.contains(&format!("[+]{moves} ok")), "{live}");
    }
    check_debug_endpoints(address);
    Stage::stop(host);
}

/// The API server stores the children of a new parent as each plugin predicts them.
#[test]
fn predictions_save_calls_of_each_plugin() {
    let guests = ["memcached", "wordpress", "backup", "etcd"];
    let stage = Stage::api_only(HostOptions::with_guests(&guests).unwrap().plugins);
    let host = host(&stage, &[]);
    let address = &address(&host);
    wait_ready(address);
    let namespace = stage.namespace("predictions");
    let mut parents = Vec::new();
    for example in [
        "memcached/01-article",
        "wordpress/02-secret",
        "backup/05-run-now",
        "etcd/09-paused",
    ] {
        let mut objects = manifest::load(&format!("examples/{example}.yaml")).unwrap();
        parents.extend(objects.pop());
        for object in objects {
            stage.apply_new(&namespace, &object);
        }
    }
    // A parent whose references are missing at first has a report already when they exist.
    stage.settle(Duration::from_secs(1));
    for parent in parents {
        stage.apply_new(&namespace, &parent);
    }
    let used = "innkeeper_plugin_predictions_used_total";
    scraped(address, |metrics| {
        guests.iter().all(|guest| {
            let plugin = format!("plugin=\"{guest}\"");
            sum(metrics, used, &plugin) > 0.5
        })
    });
    Stage::stop(host);
}

/// Every parent has a pass about once per resync period, and such a pass writes nothing if
/// nothing has changed.
#[test]
fn a_periodic_resync_writes_nothing() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let host = host(&stage, &["--resync-period", "1"]);
    let address = &address(&host);
    wait_ready(address);
    let namespace = stage.namespace("resync");
    let (api_version, kind, name) = PARENT;
    let parent = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"size": 1},
    });
    stage.apply(&namespace, &parent);
    stage.wait(&host, &namespace, PARENT, is_applied);
    let mark = stage.settle(Duration::from_secs(1));
    let before = passes(&scrape(address));
    scraped(address, |metrics| passes(metrics) >= before + 2.0);
    let writes = stage.writes_since(mark);
    assert!(writes.is_empty(), "{:#?}", lines(&writes));
    Stage::stop(host);
}

/// Checks the metrics that every Prometheus client exports.
#[track_caller]
fn check_process_metrics(metrics: &str) {
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    ] {
        let value: f64 = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .expect(name)
            .parse()
            .unwrap();
        assert!(value > 0.0, "{name} {value}");
    }
}

/// Checks the endpoints that only `--debug-endpoints` enables.
#[track_caller]
fn check_debug_endpoints(address: &str) {
    let (status, state) = get(address, "/debug/state");
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!((status, &state["started"]), (200, &json!(true)), "{state}");
    assert_eq!(state["plugins"][0]["name"], "memcached", "{state}");
    let changed = ask(address, "PUT", "/debug/log", "warn,innkeeper=debug").unwrap();
    assert_eq!(changed.0, 200, "{changed:?}");
    let (_, filter) = get(address, "/debug/log");
    assert!(filter.contains("innkeeper=debug"), "{filter}");
    let refused = ask(address, "PUT", "/debug/log", "innkeeper=loud").unwrap();
    assert_eq!(refused.0, 400, "{refused:?}");
}

/// A standby passes the readiness probe; otherwise a rolling update with two replicas would never
/// complete. The metrics show which host leads.
#[test]
fn a_standby_host_is_ready_and_reports_that_it_does_not_lead() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let elect = |identity| ["--leader-elect", "--lease-identity", identity];
    let leader = host(&stage, &elect("a"));
    wait_ready(&address(&leader));
    let standby = host(&stage, &elect("b"));
    let standby_at = &address(&standby);
    wait_ready(standby_at);
    let (_, ready) = get(standby_at, "/readyz");
    assert!(ready.contains("[+]standby ok"), "{ready}");
    let leads = |metrics: &str| sum(metrics, "leader_election_master_status", "innkeeper");
    assert!(leads(&scrape(&address(&leader))) > 0.5);
    let waiting = scrape(standby_at);
    assert!(leads(&waiting) < 0.5, "{waiting}");
    assert!(sum(&waiting, "innkeeper_watch_synced", "kind=\"Memcached\"") > 0.0);
    for path in ["/debug/state", "/debug/log"] {
        assert_eq!(get(standby_at, path).0, 404, "{path}");
    }

    Stage::stop(leader);
    eventually("the other host leads", || {
        let metrics = scrape(standby_at);
        if leads(&metrics) > 0.5 {
            Ok(())
        } else {
            Err(metrics)
        }
    });
    wait_ready(standby_at);
    Stage::stop(standby);
}
