//! Kills the host before and after every write that one parent needs, starting with the first write
//! after startup. The final state must match an uninterrupted host's.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    Host, HostOptions, Write,
    manifest::{self, is_ready},
    process::is_full,
};

use crate::{
    relay::{Moment, Relay},
    stage::{Stage, lines},
    suite::Target,
};

/// Far more than any parent needs: two kills per write.
const KILLS_MAX: usize = 150;

/// A serving host that has not written for this long has finished: well above one pass and the
/// watch events that it causes.
const QUIET: Duration = Duration::from_millis(800);

/// Time limit until a host is killed or finishes.
const LIFE_MAX: Duration = Duration::from_secs(40);

struct Crash {
    relay: Relay,
    stage: Stage,
    namespace: String,
    example: String,
    parent: Target<'static>,
    is_applied: bool,
    killed_at: Vec<(Moment, String)>,
}

impl Crash {
    /// Runs one host until it is killed at the next write, or returns it once it has nothing more
    /// to write.
    fn live(&mut self, moment: Moment) -> Option<Host> {
        self.relay.arm(Some(moment));
        let mut host = Host::start(&self.relay.kubeconfig, &self.stage.options).unwrap();
        let start = Instant::now();
        loop {
            let is_done = self.is_done(&host);
            // Short while the host is still working, because `is_done` has to apply the parent
            // early.
            let patience = if is_done {
                QUIET
            } else {
                Duration::from_millis(20)
            };
            if let Ok(stopped) = self.relay.stopped.recv_timeout(patience) {
                host.process().kill().unwrap();
                self.killed_at.push((moment, stopped.line));
                return None;
            }
            if is_done {
                self.relay.arm(None);
                return Some(host);
            }
            assert!(
                start.elapsed() < LIFE_MAX,
                "the host neither writes nor finishes: {:#?}\n{}",
                self.stage.find(&self.namespace, self.parent),
                host.log().unwrap()
            );
        }
    }

    /// Returns true once the parent is Ready and this host, not an earlier one, serves the plugin.
    /// Applies the parent as soon as the kind exists.
    fn is_done(&mut self, host: &Host) -> bool {
        if !self.is_applied {
            let objects = manifest::load(&self.example).unwrap();
            self.is_applied = objects.into_iter().all(|mut object| {
                object["metadata"]["namespace"] = self.namespace.clone().into();
                self.stage.plane.user().apply(&object).is_ok()
            });
        }
        self.is_applied
            && host.log().unwrap().contains("serving plugin")
            && self
                .stage
                .find(&self.namespace, self.parent)
                .is_some_and(|parent| is_ready(&parent))
    }
}

/// Counts how often each child in a namespace was created.
pub(crate) fn creates(writes: &[Write], namespace: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        let is_child = write.namespace == namespace && !write.resource.starts_with("events");
        if is_child && write.code == 201 {
            *counts
                .entry(format!("{} {}", write.resource, write.name))
                .or_default() += 1;
        }
    }
    counts
}

/// Kills the host at every write, at each of these moments in turn.
#[track_caller]
fn check(guest: &str, parent: Target<'static>, moments: &[Moment]) {
    let stage = Stage::full(HostOptions::with_guests(&[guest]).unwrap().plugins);
    let relay = Relay::start(&stage.plane).unwrap();
    let mark = stage.mark();
    let mut crash = Crash {
        namespace: stage.namespace("crash"),
        example: format!("examples/{guest}/01-article.yaml"),
        relay,
        stage,
        parent,
        is_applied: false,
        killed_at: Vec::new(),
    };
    let mut turns = moments.iter().cycle();
    let host = loop {
        let moment = turns.next().expect("the caller passes a moment");
        if let Some(host) = crash.live(*moment) {
            break host;
        }
        assert!(crash.killed_at.len() < KILLS_MAX, "{:#?}", crash.killed_at);
    };

    // The reference: the same parent, reconciled by a host that nobody kills.
    let stage = &crash.stage;
    let reference = stage.namespace("alive");
    stage.apply_example(&reference, &crash.example);
    stage.wait(&host, &reference, parent, is_ready);
    stage.settle(QUIET);

    let writes = stage.writes_since(mark);
    let counts = creates(&writes, &crash.namespace);
    assert_eq!(counts, creates(&writes, &reference));
    assert!(counts.values().all(|count| *count == 1), "{counts:#?}");
    assert!(
        crash.killed_at.len() >= moments.len() * counts.len(),
        "{:#?}",
        crash.killed_at
    );
    let deletes: Vec<_> = lines(&writes)
        .into_iter()
        .filter(|line| line.starts_with("delete"))
        .collect();
    assert_eq!(deletes, Vec::<String>::new());
}

const BOTH: [Moment; 2] = [Moment::Before, Moment::After];

/// Moments for parents that take longer. A kill after the write is the harder half: the API server
/// has executed it, and the host never sees the response.
fn moments() -> &'static [Moment] {
    if is_full() { &BOTH } else { &[Moment::After] }
}

/// No kill leaves a child missing, created twice or deleted: the next host observes the cluster and
/// does not need the last one's memory.
#[test]
fn a_memcached_survives_a_kill_at_every_write() {
    check(
        "memcached",
        ("cache.example.com/v1", "Memcached", "example-memcached"),
        &BOTH,
    );
}

#[test]
fn a_wordpress_survives_a_kill_at_every_write() {
    check(
        "wordpress",
        ("example.com/v1", "Wordpress", "example-wordpress"),
        moments(),
    );
}

#[test]
fn an_etcd_cluster_survives_a_kill_at_every_write() {
    check(
        "etcd",
        ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "demo"),
        moments(),
    );
}

#[test]
fn a_backup_survives_a_kill_at_every_write() {
    check(
        "backup",
        ("gobackup.io/v1", "Backup", "example-backup"),
        moments(),
    );
}
