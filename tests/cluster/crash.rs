//! The host is killed before and after every write of the making of one parent, from the first write of its start on: what
//! comes of it in the end is what a host makes that lives (F1, L4).

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use innkeeper_tests::{Host, HostOptions, Write, manifest, process::is_full};
use rustix::process::Signal;

use crate::{
    relay::{Moment, Relay},
    stage::{Stage, lines},
    suite::{Target, is_ready},
};

/// Far more than any of the parents needs, which is two for each write.
const KILLS_MAX: usize = 150;

/// Without a write for so long, a host that serves has no more to do: well above the time of a pass and its watch events.
const QUIET: Duration = Duration::from_millis(800);

/// How long one life of a host may take.
const LIFE_MAX: Duration = Duration::from_secs(40);

struct Crash {
    stage: Stage,
    relay: Relay,
    namespace: String,
    example: String,
    parent: Target<'static>,
    is_applied: bool,
    killed_at: Vec<(Moment, String)>,
}

impl Crash {
    /// One life of a host: it ends at its next write, or has nothing more to write and is given back.
    fn live(&mut self, moment: Moment) -> Option<Host> {
        self.relay.arm(Some(moment));
        let mut host = Host::start(&self.relay.kubeconfig, &self.stage.options).unwrap();
        let start = Instant::now();
        loop {
            let is_done = self.is_done(&host);
            let patience = if is_done {
                QUIET
            } else {
                Duration::from_millis(20)
            };
            if let Ok(stopped) = self.relay.stopped.recv_timeout(patience) {
                host.process().signal(Signal::KILL).unwrap();
                host.process().wait_for(Duration::from_secs(5)).unwrap();
                self.killed_at.push((moment, stopped.line));
                return None;
            }
            if is_done {
                self.relay.arm(None);
                return Some(host);
            }
            assert!(
                start.elapsed() < LIFE_MAX,
                "the host neither writes nor comes to an end: {:#?}\n{}",
                self.stage.find(&self.namespace, self.parent),
                host.log().unwrap()
            );
        }
    }

    /// Whether the parent is Ready and this very host serves it; applies the parent as soon as its kind is there.
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

/// How often each child of a namespace was created by the host.
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

/// Kills at these moments of every write, in turn.
#[track_caller]
fn check(guest: &str, parent: Target<'static>, moments: &[Moment]) {
    let stage = Stage::full(HostOptions::with_guests(&[guest]).unwrap().plugins);
    let relay = Relay::start(&stage.plane).unwrap();
    let mark = stage.mark();
    let mut crash = Crash {
        namespace: stage.namespace("crash"),
        example: format!("examples/{guest}/01-article.yaml"),
        stage,
        relay,
        parent,
        is_applied: false,
        killed_at: Vec::new(),
    };
    let mut turns = moments.iter().cycle();
    let host = loop {
        let moment = turns.next().expect("there is a moment");
        if let Some(host) = crash.live(*moment) {
            break host;
        }
        assert!(crash.killed_at.len() < KILLS_MAX, "{:#?}", crash.killed_at);
    };

    // What a host makes that lives.
    let stage = &crash.stage;
    let reference = stage.namespace("alive");
    stage.apply_example(&reference, &crash.example);
    stage.wait(&host, &reference, parent, is_ready);
    stage.settle(QUIET);

    let writes = stage.writes_since(mark);
    let made = creates(&writes, &crash.namespace);
    assert_eq!(made, creates(&writes, &reference));
    assert!(made.values().all(|count| *count == 1), "{made:#?}");
    assert!(
        crash.killed_at.len() >= moments.len() * made.len(),
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

/// For the parents that take longer: what the API server has done and the host never learnt of is the harder half.
fn moments() -> &'static [Moment] {
    if is_full() { &BOTH } else { &[Moment::After] }
}

#[test]
fn f1_l4_killed_at_every_write_of_a_memcached() {
    check(
        "memcached",
        ("cache.example.com/v1", "Memcached", "example-memcached"),
        &BOTH,
    );
}

#[test]
fn f1_l4_killed_at_every_write_of_a_wordpress() {
    check(
        "wordpress",
        ("example.com/v1", "Wordpress", "example-wordpress"),
        moments(),
    );
}

#[test]
fn f1_l4_killed_at_every_write_of_an_etcd_cluster() {
    check(
        "etcd",
        ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "demo"),
        moments(),
    );
}

#[test]
fn f1_l4_killed_at_every_write_of_a_backup() {
    check(
        "backup",
        ("gobackup.io/v1", "Backup", "example-backup"),
        moments(),
    );
}
