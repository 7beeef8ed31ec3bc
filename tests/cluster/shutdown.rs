//! SIGTERM under load: the host exits with success within the grace period, and the next host
//! converges without repeating a write.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use innkeeper_tests::{HostOptions, eventually};
use rustix::process::Signal;
use serde_json::json;

use crate::stage::{Stage, is_applied, is_synced, lines, wait_logged};

const API: &str = "cache.example.com/v1";
/// Enough to keep the host busy until the test stops it.
const PARENTS: usize = 60;

/// A Pod's default grace period.
const GRACE: Duration = Duration::from_secs(30);

fn parents(stage: &Stage, namespace: &str) -> Vec<String> {
    let names: Vec<String> = (0..PARENTS)
        .map(|number| format!("cache-{number}"))
        .collect();
    for name in &names {
        let parent = json!({
            "apiVersion": API, "kind": "Memcached", "metadata": { "name": name },
            "spec": { "size": 1 },
        });
        stage.apply(namespace, &parent);
    }
    names
}

/// Waits until the host has made this many writes since a mark.
fn wait_writes(stage: &Stage, mark: usize, expected: usize) {
    eventually("the host is in the middle of its work", || {
        let count = stage.writes_since(mark).len();
        if count >= expected {
            Ok(())
        } else {
            Err(count)
        }
    });
}

/// A user must be able to stop a host whose passes hang, for example without an API server.
#[test]
fn a_second_signal_ends_the_host_at_once_with_its_own_exit_code() {
    let (stage, host) = Stage::serving(
        HostOptions::with_guests(&["memcached"]).unwrap().plugins,
        &["memcacheds.cache.example.com"],
    );
    Stage::stop(host);
    parents(&stage, &stage.namespace("load"));
    let mark = stage.mark();
    let mut host = stage.host();
    wait_writes(&stage, mark, PARENTS / 4);
    // The paused API server does not answer the current writes, so no pass ends.
    stage.plane.control(&["pause", "apiserver"]).unwrap();
    host.process().signal(Signal::TERM).unwrap();
    wait_logged(
        &host,
        "the host drains",
        "stopping: waiting for running passes",
    );
    host.process().signal(Signal::INT).unwrap();
    let (status, log) = host.wait_exit(Duration::from_secs(10)).unwrap();
    assert_eq!(status.code(), Some(130), "{log}");
    assert!(log.contains("stopped by a second signal"), "{log}");
    stage.plane.control(&["resume", "apiserver"]).unwrap();
}

/// The host finishes running passes and starts no new ones: aborting passes would leave more work to
/// the next host, and running all pending passes would exceed the grace period.
#[test]
fn sigterm_under_load_ends_in_time_and_the_next_host_converges() {
    let (stage, host) = Stage::serving(
        HostOptions::with_guests(&["memcached"]).unwrap().plugins,
        &["memcacheds.cache.example.com"],
    );
    Stage::stop(host);
    let namespace = stage.namespace("load");
    let names = parents(&stage, &namespace);
    let mark = stage.mark();
    let mut host = stage.host();
    wait_writes(&stage, mark, PARENTS / 2);
    host.process().signal(Signal::TERM).unwrap();
    let signalled = Instant::now();
    let status = host.process().wait_for(GRACE).unwrap();
    assert!(status.success(), "{status}:\n{}", host.log().unwrap());
    assert!(signalled.elapsed() < GRACE);
    // If no parent is left, the host was not under load.
    let is_done = |name: &str| {
        let parent = stage.get(&namespace, (API, "Memcached", name));
        is_synced(&parent, "True", "Applied")
    };
    assert!(!names.iter().all(|name| is_done(name)));

    let host = stage.host();
    for name in &names {
        let parent = (API, "Memcached", name.as_str());
        stage.wait(&host, &namespace, parent, is_applied);
    }
    let writes = stage.writes_since(mark);
    let mut creates = BTreeMap::new();
    for write in &writes {
        if write.code == 201 && !write.resource.starts_with("events") {
            *creates.entry(write.line()).or_insert(0) += 1;
        }
    }
    for name in &names {
        for plural in ["deployments.apps", "services"] {
            let line = format!("patch {plural} {name} 201");
            assert_eq!(creates.get(&line), Some(&1), "{line}");
        }
    }
    assert!(creates.values().all(|count| *count == 1), "{creates:#?}");
    assert!(
        lines(&writes)
            .iter()
            .all(|line| !line.starts_with("delete"))
    );
}
