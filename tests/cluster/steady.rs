//! The host repeats no write, neither in a steady state nor after a restart.

use std::{thread, time::Duration};

use innkeeper_tests::{Host, HostOptions, manifest::is_ready, process::is_full};
use serde_json::json;

use crate::{
    stage::{Stage, is_applied, lines},
    suite::{GUESTS, PARENT_CRDS, Target},
};

const PARENTS: [Target<'static>; 4] = [
    ("cache.example.com/v1", "Memcached", "example-memcached"),
    ("example.com/v1", "Wordpress", "example-wordpress"),
    ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "demo"),
    ("gobackup.io/v1", "Backup", "example-backup"),
];

#[track_caller]
fn check_quiet(stage: &Stage, mark: usize, seconds: u64, host: &Host) {
    thread::sleep(Duration::from_secs(seconds));
    let writes = stage.writes_since(mark);
    assert!(
        writes.is_empty(),
        "{:#?}\n{}",
        lines(&writes),
        host.log().unwrap()
    );
}

/// A hash or an order that differs between runs would cause writes after a restart.
#[test]
fn nothing_is_written_in_a_steady_state_and_after_a_restart() {
    let (parents, seconds) = if is_full() { (20, 30) } else { (3, 10) };
    let stage = Stage::full(HostOptions::with_guests(&GUESTS).unwrap().plugins);
    let host = stage.host_serving(&PARENT_CRDS);
    let namespaces: Vec<String> = (0..parents).map(|_| stage.namespace("steady")).collect();
    for namespace in &namespaces {
        for guest in GUESTS {
            stage.apply_example(namespace, &format!("examples/{guest}/01-article.yaml"));
        }
    }
    for namespace in &namespaces {
        for parent in PARENTS {
            stage.wait(&host, namespace, parent, is_ready);
        }
    }
    let mark = stage.settle(Duration::from_secs(1));
    check_quiet(&stage, mark, seconds, &host);

    Stage::stop(host);
    let mark = stage.mark();
    let host = stage.host();
    check_quiet(&stage, mark, seconds, &host);

    // A host that serves nothing would be just as quiet, so a change must cause exactly one write.
    stage.merge(
        &namespaces[0],
        PARENTS[0],
        &json!({ "spec": { "size": 4 } }),
    );
    stage.wait(&host, &namespaces[0], PARENTS[0], |parent| {
        parent["status"]["readyReplicas"] == 4 && is_ready(parent)
    });
    let writes = lines(&stage.writes_since(mark));
    let to_children: Vec<_> = writes
        .iter()
        .filter(|line| !line.contains("/status") && !line.contains(" events."))
        .collect();
    assert_eq!(
        to_children,
        ["patch deployments.apps example-memcached 200"]
    );
}

/// Any additional write would cost one write per parent.
#[test]
fn a_new_parent_costs_one_write_for_each_child_and_one_report() {
    let (stage, host) = Stage::serving(
        HostOptions::with_guests(&["memcached"]).unwrap().plugins,
        &["memcacheds.cache.example.com"],
    );
    let namespace = stage.namespace("new");
    let mark = stage.mark();
    let (api_version, kind, _) = PARENTS[0];
    let parent = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "idle"}, "spec": {"size": 0},
    });
    stage.apply(&namespace, &parent);
    stage.wait(&host, &namespace, (api_version, kind, "idle"), is_applied);
    stage.settle(Duration::from_secs(1));
    // Counts only this namespace: the record of created kinds is elsewhere and written once.
    let writes = stage
        .plane
        .audit()
        .in_namespace_since(mark, &namespace)
        .unwrap();
    let mut kinds: Vec<&str> = writes.iter().map(|write| &*write.resource).collect();
    kinds.sort_unstable();
    // A single status write has the guest's part and the host's conditions.
    let status = "memcacheds.cache.example.com/status";
    assert_eq!(
        kinds,
        [
            "deployments.apps",
            "events.events.k8s.io",
            status,
            "services"
        ],
        "{:#?}",
        lines(&writes)
    );
    Stage::stop(host);
}
