//! A proxy between host and API server that returns wrong objects, other formats, or endless
//! answers: the host reports the error, leaves other objects alone, stays within its memory limit, and
//! recovers once the answers are honest.

mod rows;

use std::{
    thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{Host, Write, eventually_for, process::path_from_env};
use serde_json::{Value, json};

use crate::{
    relay::{
        Relay,
        rules::{Action, End, On, Rule, Verb},
    },
    stage::{Stage, is_applied, lines},
};

use rows::{DISTORTIONS, Distortion, Provoke, Real, WATCH, WRITE, event, page, replaced, with};

const API: &str = "test.innkeeper.dev/v1";
const PARENT: (&str, &str, &str) = (API, "Moody", "web");
const CHILD: (&str, &str, &str) = ("v1", "ConfigMap", "web");
const FOREIGN: (&str, &str, &str) = ("v1", "ConfigMap", "foreign");

/// Time limit for recovery: the backoff after a few failures, plus the time after which the host
/// reads its own writes live if the cache does not show them.
const RECOVERY_MAX: Duration = Duration::from_secs(45);

/// Well above an undisturbed host's memory, and far below the 1 GiB memory limit in `deploy/`. An
/// endless answer would exceed it within a second.
const RESIDENT_MAX: u64 = 512 << 20;

/// How often each distortion acts: the second time affects the retry.
const TIMES: u32 = 2;

/// Interval between provocations, and their number.
const PROVOKE_EVERY: Duration = Duration::from_secs(2);
const PROVOCATIONS: usize = 20;

struct Site {
    host: Host,
    relay: Relay,
    stage: Stage,
    namespace: String,
    elsewhere: String,
    edits: usize,
}

impl Site {
    fn new() -> Self {
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        let mut stage = Stage::api_only(vec![guests.join("generous.wasm")]);
        let [namespace, elsewhere] = ["served", "other"].map(|name| stage.namespace(name));
        stage.options.arguments = vec!["--namespaces".to_owned(), namespace.clone()];
        let relay = Relay::start(&stage.plane).unwrap();
        let host = Host::start(&relay.kubeconfig, &stage.options).unwrap();
        stage.wait_served(&host, &["moodies.test.innkeeper.dev"]);
        for (place, kind, name) in [
            (&namespace, "ConfigMap", "foreign"),
            (&namespace, "Secret", "foreign"),
            (&elsewhere, "ConfigMap", "elsewhere"),
        ] {
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
            stage.apply(place, &object);
        }
        let mut site = Self {
            host,
            stage,
            relay,
            namespace,
            elsewhere,
            edits: 0,
        };
        site.edit();
        site.wait_converged("before");
        site
    }

    fn real(&self) -> Real {
        let find = |target| self.stage.get(&self.namespace, target);
        Real {
            parent: find(PARENT),
            child: find(CHILD),
            foreign: find(FOREIGN),
            secret: find(("v1", "Secret", "foreign")),
            elsewhere: self
                .stage
                .get(&self.elsewhere, ("v1", "ConfigMap", "elsewhere")),
        }
    }

    fn edit(&mut self) {
        self.edits += 1;
        let (api_version, kind, name) = PARENT;
        let parent = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name},
            "spec": {"note": self.note()},
        });
        self.stage.apply_new(&self.namespace, &parent);
    }

    fn note(&self) -> String {
        format!("edit {}", self.edits)
    }

    /// Waits until the child shows the last edit and the parent reports it.
    #[track_caller]
    fn wait_converged(&self, goal: &str) {
        eventually_for(RECOVERY_MAX, &format!("the host recovers: {goal}"), || {
            let child = self.stage.find(&self.namespace, CHILD).unwrap_or_default();
            let parent = self.stage.find(&self.namespace, PARENT).unwrap_or_default();
            if child["data"]["note"] == self.note() && is_applied(&parent) {
                return Ok(());
            }
            let log = self.host.log().unwrap();
            let last: Vec<&str> = log.lines().rev().take(15).collect();
            Err(format!(
                "{child:#} {:#}\n{}",
                parent["status"],
                last.join("\n")
            ))
        });
    }

    /// Makes the host send the request.
    fn provoke(&mut self, provoke: Provoke, real: &Real) {
        let deleted = || event("DELETED", &with_version_of(&real.child, &real.parent));
        match provoke {
            Provoke::Edit => return self.edit(),
            Provoke::Doubt => {
                self.relay.add(limited(WRITE, 1, replaced(&page())));
                return self.edit();
            }
            Provoke::Relist => self.relay.add(limited(WATCH, 1, Action::Expire)),
            Provoke::Recreate => self.relay.add(limited(WATCH, 1, deleted())),
            Provoke::Watch => {}
        }
        self.relay.close_connections(on(WATCH), End::Close);
    }

    /// Distorts answers until the host has received and reported them, then waits for recovery.
    #[track_caller]
    fn distort(&mut self, distortion: &Distortion) {
        let Distortion { name, logged, .. } = distortion;
        let before = self.host.log().unwrap().len();
        self.relay.seen();
        let action = (distortion.answer)(&self.real());
        self.relay.add(limited(distortion.on, TIMES, action));
        // If there is nothing to report, all distorted answers must be delivered.
        let times = usize::try_from(if logged.is_empty() { TIMES } else { 1 }).unwrap();
        let mut met = 0;
        let is_reported = (0..PROVOCATIONS).any(|_| {
            // Repeated in case it had no effect: after a bookmark, the host ignores a forged event
            // as too old.
            self.provoke(distortion.provoke, &self.real());
            let since = Instant::now();
            while since.elapsed() < PROVOKE_EVERY {
                thread::sleep(Duration::from_millis(20));
                met += self
                    .relay
                    .seen()
                    .iter()
                    .filter(|request| request.action == Some(action))
                    .count();
                if met >= times && self.host.log().unwrap()[before..].contains(logged) {
                    return true;
                }
            }
            false
        });
        let log = self.host.log().unwrap();
        assert!(is_reported, "{name}: met {met} times\n{}", &log[before..]);
        self.relay.clear();
        self.relay.seen();
        self.relay.close_connections(on(WATCH), End::Close);
        // An honest watch event resets the host's backoff, so pauses do not grow from row to row.
        eventually_for(
            RECOVERY_MAX,
            &format!("the host watches again: {name}"),
            || {
                self.relay
                    .seen()
                    .iter()
                    .any(|request| on(WATCH).matches(&request.line))
                    .then_some(())
                    .ok_or("no watch")
            },
        );
        self.edit();
        self.wait_converged(name);
    }
}

/// Copies the other object's resource version.
fn with_version_of(object: &Value, other: &Value) -> Value {
    with(
        object,
        "resourceVersion",
        &other["metadata"]["resourceVersion"],
    )
}

const fn on((verb, path): (Verb, &'static str)) -> On {
    On { verb, path }
}

const fn limited(place: (Verb, &'static str), times: u32, action: Action) -> Rule {
    Rule {
        on: on(place),
        every: 1,
        times,
        action,
    }
}

/// Each distortion hits a list, a watch, a read or a write, one after the other, on one host.
/// Writes based on a trusted distorted answer would change or delete the foreign objects.
#[test]
fn a_host_survives_a_proxy_that_answers_with_other_objects() {
    let mut site = Site::new();
    let foreign = |site: &Site| {
        let Real {
            foreign,
            secret,
            elsewhere,
            ..
        } = site.real();
        [foreign, secret, elsewhere]
    };
    let before = foreign(&site);
    let start = site.stage.mark();
    for distortion in &DISTORTIONS {
        site.distort(distortion);
        let exit = site.host.process().try_wait().unwrap();
        assert_eq!(
            exit,
            None,
            "{}:\n{}",
            distortion.name,
            site.host.log().unwrap()
        );
        let resident = site.host.process().usage().unwrap().resident_max_bytes;
        assert!(
            resident < RESIDENT_MAX,
            "{}: {} MiB",
            distortion.name,
            resident >> 20
        );
    }
    assert_eq!(foreign(&site), before);
    let is_own = |write: &&Write| write.name == "web" && write.verb == "patch";
    let writes = site.stage.writes_since(start);
    let mut others: Vec<Write> = writes
        .iter()
        .filter(|write| !is_own(write))
        .cloned()
        .collect();
    others.retain(|write| !write.resource.starts_with("events"));
    assert_eq!(lines(&others), Vec::<String>::new());
    let log = site.host.log().unwrap();
    assert!(!log.contains("panicked"), "{log}");
    Stage::stop(site.host);
}
