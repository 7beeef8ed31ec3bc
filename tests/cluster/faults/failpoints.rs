//! A host that aborts before and after each of the first writes and watch events, one later in each
//! life. The final state must match an uninterrupted host's.
//!
//! The relay also kills hosts at writes and delays events, but it cannot tell which events the host
//! has processed.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result};
use innkeeper_tests::{Host, HostOptions, eventually, process::path_from_env};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{GROUP, normal, plan::KINDS};
use crate::{
    crash::creates,
    stage::{Stage, is_applied, lines},
    suite::Target,
};

const CACHE: Target<'static> = ("cache.example.com/v1", "Memcached", "cache-0");

/// The parent's final size.
const SIZE: u64 = 3;

/// Number of aborts: well above the writes and events in the first pass.
const LIVES: u64 = 24;

fn cache(namespace: &str, size: u64) -> Value {
    let (api_version, kind, name) = CACHE;
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"size": size},
    })
}

/// Runs a host until it aborts, and edits the parent so the host always has work.
#[track_caller]
fn live(stage: &Stage, namespace: &str, place: &str, number: u64) -> ExitStatus {
    let mut options = stage.options.clone();
    let failpoint = (
        "FAILPOINTS".to_owned(),
        format!("{place}={}*off->return", number - 1),
    );
    options.environment.push(failpoint);
    let mut host = Host::start(&stage.plane.kubeconfig(), &options).unwrap();
    let mut edits = 0;
    eventually("the host aborts at its failpoint", || -> Result<_> {
        if let Some(status) = host.process().try_wait()? {
            return Ok(status);
        }
        edits += 1;
        // The first hosts abort before the kind exists, so an edit may fail.
        stage
            .plane
            .user()
            .apply(&cache(namespace, edits % SIZE))
            .context("failed to edit the parent")?;
        anyhow::bail!("after {edits} edits the host still runs: {}", host.log()?)
    })
}

#[track_caller]
fn check(place: &str) {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let namespace = stage.namespace("ends");
    let reference = stage.namespace("lives");
    let mark = stage.mark();
    for number in 1..=LIVES {
        let status = live(&stage, &namespace, place, number);
        assert_eq!(
            status.signal(),
            Some(Signal::ABORT.as_raw()),
            "{place}:{number}"
        );
    }

    let host = stage.host_serving(&["memcacheds.cache.example.com"]);
    for namespace in [&namespace, &reference] {
        stage.apply(namespace, &cache(namespace, SIZE));
        stage.wait(&host, namespace, CACHE, is_applied);
    }
    stage.settle(Duration::from_secs(1));
    let served = || KINDS.into_iter().filter(|(group, _)| *group != GROUP);
    let settled = |namespace| normal::state(stage.plane.user(), namespace, served()).unwrap();
    assert_eq!(settled(&namespace), settled(&reference), "{place}");
    let writes = stage.writes_since(mark);
    let counts = creates(&writes, &namespace);
    assert_eq!(counts, creates(&writes, &reference), "{place}");
    assert!(
        counts.len() >= 2 && counts.values().all(|count| *count == 1),
        "{counts:#?}"
    );
    let deletes = lines(&writes)
        .into_iter()
        .filter(|line| line.starts_with("delete"));
    assert_eq!(deletes.collect::<Vec<_>>(), Vec::<String>::new());
    Stage::stop(host);
}

#[test]
fn rejects_failpoints_that_do_not_exist() {
    let starts = |failpoints: &str| {
        Command::new(path_from_env("INNKEEPER_BIN").unwrap())
            .arg("--version")
            .env("FAILPOINTS", failpoints)
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(starts("after-write=2*off->return"));
    for wrong in [
        "during-write=return",
        "after-write",
        "after-write=x*off",
        "after-write=abort",
    ] {
        assert!(!starts(wrong), "{wrong}");
    }
}

#[test]
fn converges_after_an_abort_before_each_write() {
    check("before-write");
}

#[test]
fn converges_after_an_abort_after_each_write() {
    check("after-write");
}

#[test]
fn converges_after_an_abort_before_each_event() {
    check("before-event");
}

#[test]
fn converges_after_an_abort_after_each_event() {
    check("after-event");
}
