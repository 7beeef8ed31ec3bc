//! Late watch events, above all for the host's own writes: the host writes nothing twice, and does
//! not repeat a stale write with the same outdated object.

use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use innkeeper_tests::{Host, HostOptions, Write, process::path_from_env};
use serde_json::{Value, json};

use crate::{
    relay::{Late, Moment, Relay},
    stage::{Stage, is_applied, lines},
    suite::Target,
};

const MEMCACHED: Target<'static> = ("cache.example.com/v1", "Memcached", "cache");
const UNRULY: Target<'static> = ("test.innkeeper.dev/v1", "Unruly", "parent");
const CRDS: [&str; 2] = [
    "memcacheds.cache.example.com",
    "unrulies.test.innkeeper.dev",
];

/// Well above one pass, so the next pass runs before the last one's events arrive.
const LATE_BY: Duration = Duration::from_secs(2);

/// After this long without a write, every event has been delivered: well above the delay, one pass
/// and the watch events that it causes.
const QUIET: Duration = Duration::from_secs(3);

/// A host behind a relay. No controllers run, so every write to a child comes from the host or the
/// test.
struct DelayedHost {
    host: Host,
    relay: Relay,
    stage: Stage,
}

impl DelayedHost {
    /// Locks the host that the tests in this file share, and removes all watch delays.
    fn lock() -> MutexGuard<'static, Self> {
        static SHARED: OnceLock<Mutex<DelayedHost>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| {
            let mut plugins = HostOptions::with_guests(&["memcached"]).unwrap().plugins;
            let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
            plugins.push(guests.join("unruly.wasm"));
            let stage = Stage::api_only(plugins);
            let relay = Relay::start(&stage.plane).unwrap();
            let host = Host::start(&relay.kubeconfig, &stage.options).unwrap();
            stage.wait_served(&host, &CRDS);
            Mutex::new(Self { host, relay, stage })
        });
        let slow = shared.lock().unwrap_or_else(PoisonError::into_inner);
        slow.relay.hold_back(None);
        slow
    }

    /// Delays watch events for one kind, or for all kinds if the path is empty.
    fn hold_back(&self, path: &'static str) {
        let late = Late { by: LATE_BY, path };
        self.relay.hold_back(Some(late));
    }

    /// Waits until a parent's current spec is applied.
    #[track_caller]
    fn wait_applied(&self, namespace: &str, parent: Target<'_>) -> Value {
        self.stage.wait(&self.host, namespace, parent, is_applied)
    }

    fn writes_since(&self, mark: usize, namespace: &str) -> Vec<Write> {
        let mut writes = self
            .stage
            .plane
            .audit()
            .in_namespace_since(mark, namespace)
            .unwrap();
        writes.retain(|write| !write.resource.starts_with("events"));
        writes
    }

    /// Creates a parent and scales it three times, each time as soon as the API server has the
    /// previous state. Returns the writes to the children, and how many writes to the parent were
    /// refused.
    fn grow(&self) -> (Vec<String>, usize) {
        let namespace = self.stage.namespace("grow");
        let mark = self.stage.mark();
        for size in SIZES {
            let parent = json!({
                "apiVersion": MEMCACHED.0, "kind": MEMCACHED.1, "metadata": { "name": MEMCACHED.2 },
                "spec": { "size": size },
            });
            self.stage.apply(&namespace, &parent);
            self.wait_applied(&namespace, MEMCACHED);
        }
        self.stage.settle(QUIET);
        let (to_parent, to_children): (Vec<_>, Vec<_>) = self
            .writes_since(mark, &namespace)
            .into_iter()
            .partition(|write| write.resource.starts_with("memcacheds"));
        let refused = to_parent.iter().filter(|write| write.code >= 300).count();
        (lines(&to_children), refused)
    }
}

const SIZES: [u32; 4] = [1, 2, 3, 4];

/// The host expects its own writes until the watch delivers them. Otherwise each late event would
/// cause one more write.
#[test]
fn late_watches_cause_no_additional_write() {
    let slow = DelayedHost::lock();
    let (prompt, _) = slow.grow();
    let count = |code: &str| prompt.iter().filter(|line| line.ends_with(code)).count();
    assert_eq!(
        (count("201"), count("200")),
        (2, SIZES.len() - 1),
        "{prompt:?}"
    );
    // First all watches are late, then only those for Deployments: the host then sees the parent's
    // next change before its own last write to the child.
    for path in ["", "/deployments"] {
        slow.hold_back(path);
        let (late, refused) = slow.grow();
        assert_eq!(late, prompt, "{path:?} late");
        assert!(refused <= SIZES.len(), "{path:?} late: {refused} refused");
    }
}

/// One child per key. A host that relied on the watch alone would create another object in each
/// pass.
#[test]
fn a_child_with_a_made_up_name_is_created_once() {
    let slow = DelayedHost::lock();
    let namespace = slow.stage.namespace("name");
    let mark = slow.stage.mark();
    slow.hold_back("/configmaps");
    let parent = json!({
        "apiVersion": UNRULY.0, "kind": UNRULY.1, "metadata": { "name": UNRULY.2 },
        "spec": { "behaviour": "made-up-name" },
    });
    slow.stage.apply(&namespace, &parent);
    slow.wait_applied(&namespace, UNRULY);
    // Each turn triggers a pass in which the guest generates another name.
    for turn in 0..3 {
        let turn =
            json!({ "metadata": { "annotations": { "test.example/turn": turn.to_string() } } });
        slow.stage.merge(&namespace, UNRULY, &turn);
    }
    slow.stage.settle(QUIET);
    let codes: Vec<u16> = slow
        .writes_since(mark, &namespace)
        .iter()
        .filter(|write| write.resource == "configmaps")
        .map(|write| write.code)
        .collect();
    assert_eq!(codes, [201]);
}

/// After a 409, the host waits for the watch. A retry with the same outdated object would only fail
/// again.
#[test]
fn a_stale_write_is_not_repeated_before_the_watch_has_advanced() {
    let slow = DelayedHost::lock();
    let namespace = slow.stage.namespace("stale");
    let tell = |behaviour: &str| {
        let parent = json!({
            "apiVersion": UNRULY.0, "kind": UNRULY.1, "metadata": { "name": UNRULY.2 },
            "spec": { "behaviour": behaviour },
        });
        slow.stage.apply(&namespace, &parent);
    };
    tell("good");
    slow.wait_applied(&namespace, UNRULY);
    slow.stage.settle(QUIET);

    // The parent changes while the host is about to write the status, and the watch delivers that
    // change late.
    slow.relay.arm(Some(Moment::Before));
    tell("keep");
    let stopped = slow.relay.stopped.recv_timeout(QUIET).unwrap();
    slow.hold_back("/unrulies");
    tell("good");
    let mark = slow.stage.mark();
    stopped.resume();
    slow.wait_applied(&namespace, UNRULY);
    slow.stage.settle(QUIET);
    let codes: Vec<u16> = slow
        .writes_since(mark, &namespace)
        .iter()
        .map(|write| write.code)
        .collect();
    assert_eq!(codes, [409, 200]);
}
