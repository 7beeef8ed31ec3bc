//! The host ends by itself before and after each of its first writes, and each of the first events of its watches, one later
//! in each life: what comes of it in the end is what a host makes that lives (F1, L4).
//!
//! The relay ends hosts at writes, too, and holds events back, but cannot tell what the host has taken in of what it sent.

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
    stage::{Stage, is_synced, lines},
    suite::Target,
};

const CACHE: Target<'static> = ("cache.example.com/v1", "Memcached", "cache-0");

/// What the parent is like in the end.
const SIZE: u64 = 3;

/// How often the host ends: well beyond what it writes and sees for the first pass.
const LIVES: u64 = 24;

fn cache(namespace: &str, size: u64) -> Value {
    let (api_version, kind, name) = CACHE;
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"size": size},
    })
}

/// Lets a host live until it ends by itself, with always something new to do.
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
    eventually("the host ends where it is asked to", || -> Result<_> {
        if let Some(ended) = host.process().try_wait()? {
            return Ok(ended);
        }
        edits += 1;
        // The first lives end before the kind is there.
        let edited = stage.plane.user().apply(&cache(namespace, edits % SIZE));
        edited.context("nothing to do for the host")?;
        anyhow::bail!("after {edits} edits the host lives: {}", host.log()?)
    })
}

#[track_caller]
fn check(place: &str) {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let (namespace, reference) = (stage.namespace("ends"), stage.namespace("lives"));
    let mark = stage.mark();
    for number in 1..=LIVES {
        let ended = live(&stage, &namespace, place, number);
        assert_eq!(
            ended.signal(),
            Some(Signal::ABORT.as_raw()),
            "{place}:{number}"
        );
    }

    let host = stage.host();
    stage.wait_served(&host, &["memcacheds.cache.example.com"]);
    for namespace in [&namespace, &reference] {
        stage.apply(namespace, &cache(namespace, SIZE));
        stage.wait(&host, namespace, CACHE, |parent| {
            is_synced(parent, "True", "Applied")
        });
    }
    stage.settle(Duration::from_secs(1));
    let served = || KINDS.into_iter().filter(|(group, _)| *group != GROUP);
    let found = |namespace| normal::state(stage.plane.user(), namespace, served()).unwrap();
    assert_eq!(found(&namespace), found(&reference), "{place}");
    let writes = stage.writes_since(mark);
    let made = creates(&writes, &namespace);
    assert_eq!(made, creates(&writes, &reference), "{place}");
    assert!(
        made.len() >= 2 && made.values().all(|count| *count == 1),
        "{made:#?}"
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
fn f1_l4_a_host_ends_before_its_writes() {
    check("before-write");
}

#[test]
fn f1_l4_a_host_ends_after_its_writes() {
    check("after-write");
}

#[test]
fn f1_l4_a_host_ends_before_it_takes_events_in() {
    check("before-event");
}

#[test]
fn f1_l4_a_host_ends_after_it_took_events_in() {
    check("after-event");
}
