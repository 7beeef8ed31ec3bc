//! Parents whose plugin has work to do before deletion: the finalizer is added first and removed
//! last, whatever the guest answers and whatever happens to the parent.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    Host, Write, eventually, manifest::condition, process::path_from_env, user::Kind,
};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::{
    relay::{Moment, Relay, Stopped},
    stage::{Stage, finalizers, is_applied, is_synced, lines},
    status,
    suite::Target,
};

const CRD: &str = "farewells.test.innkeeper.dev";
const PARENT: Target<'static> = ("test.innkeeper.dev/v1", "Farewell", "parent");
const HELLO: Target<'static> = ("v1", "ConfigMap", "parent-hello");
const GOODBYE: Target<'static> = ("v1", "ConfigMap", "parent-goodbye");

const FINALIZER: &str = "innkeeper.dev/farewell";
/// Another controller's finalizer, which keeps a parent from being deleted.
const FOREIGN: &str = "test.example/hold";

/// Well above one pass and the watch events that it causes.
const QUIET: Duration = Duration::from_millis(800);

/// Time limit for one parent's life.
const LIFE_MAX: Duration = Duration::from_secs(40);

/// Needs all controllers, because the garbage collector deletes the children.
fn stage() -> Stage {
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    Stage::full(vec![guests.join("farewell.wasm")])
}

fn shared() -> &'static (Stage, Host) {
    static SHARED: OnceLock<(Stage, Host)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let stage = stage();
        let host = stage.host_serving(&[CRD]);
        stage.restart_collector();
        (stage, host)
    })
}

/// A namespace with a parent that the guest finalizes in a given way.
struct Case {
    host: &'static Host,
    stage: &'static Stage,
    namespace: String,
}

impl Case {
    /// Creates the parent and waits until it is applied.
    fn start(parent: &Value) -> Self {
        let (stage, host) = shared();
        let case = Self {
            host,
            stage,
            namespace: stage.namespace("farewell"),
        };
        stage.apply(&case.namespace, parent);
        case.wait(is_applied);
        case
    }

    #[track_caller]
    fn wait(&self, check: impl Fn(&Value) -> bool) -> Value {
        self.stage.wait(self.host, &self.namespace, PARENT, check)
    }

    #[track_caller]
    fn wait_gone(&self, target: Target<'_>) {
        eventually("the object is deleted", || {
            self.stage
                .find(&self.namespace, target)
                .map_or(Ok(()), |object| Err(format!("{object:#}")))
        });
    }

    #[track_caller]
    fn wait_namespace_gone(&self) {
        let namespace: Target<'_> = ("v1", "Namespace", &self.namespace);
        eventually("the namespace is deleted", || {
            self.stage
                .find("", namespace)
                .map_or(Ok(()), |object| Err(format!("{object:#}")))
        });
    }

    /// Counts how often the API server refused the second ConfigMap.
    fn refused_goodbyes(&self, mark: usize) -> usize {
        lines(&self.writes_since(mark))
            .into_iter()
            .filter(|line| line == "patch configmaps parent-goodbye 403")
            .count()
    }

    fn find(&self, target: Target<'_>) -> Option<Value> {
        self.stage.find(&self.namespace, target)
    }

    fn delete(&self) {
        self.stage.delete(&self.namespace, PARENT);
    }

    fn merge(&self, patch: &Value) {
        self.stage.merge(&self.namespace, PARENT, patch);
    }

    /// Checks that `innkeeper status` reports this reason for the parent, with a message that
    /// contains `part`.
    #[track_caller]
    fn check_status(&self, reason: &str, part: &str) {
        let kubeconfig = self.stage.plane.kubeconfig();
        let output = status::run(&[
            "status",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "-o",
            "json",
        ]);
        assert_eq!(output.status.code(), Some(status::FINDING), "{output:?}");
        let document = status::document(&output);
        let parent = document["parents"]
            .as_array()
            .unwrap()
            .iter()
            .find(|parent| parent["namespace"] == *self.namespace)
            .unwrap_or_else(|| panic!("{document:#}"));
        let message = parent["message"].as_str().unwrap();
        let is_reported = parent["reason"] == reason && message.contains(part);
        assert!(is_reported, "{parent:#}");
    }

    fn writes_since(&self, mark: usize) -> Vec<Write> {
        self.stage
            .plane
            .audit()
            .in_namespace_since(mark, &self.namespace)
            .unwrap()
    }
}

fn parent(end: &str) -> Value {
    json!({
        "apiVersion": PARENT.0, "kind": PARENT.1, "metadata": { "name": PARENT.2 },
        "spec": { "end": end },
    })
}

fn line_position(lines: &[String], expected: &str) -> usize {
    lines
        .iter()
        .position(|line| line == expected)
        .unwrap_or_else(|| panic!("no {expected} in {lines:#?}"))
}

/// No child exists without the finalizer. If the finalizer came later, a deletion in between would
/// skip the finalize phase.
#[test]
fn the_finalizer_is_set_before_the_first_child_and_removed_last() {
    let mark = shared().0.mark();
    let case = Case::start(&parent("goodbye"));
    let writes = case.writes_since(mark);
    let write_lines = lines(&writes);
    let finalizer = line_position(&write_lines, &format!("patch {CRD} parent 200"));
    assert_eq!(finalizers(&writes[finalizer].body), [FINALIZER]);
    assert!(finalizer < line_position(&write_lines, "patch configmaps parent-hello 201"));
    assert_eq!(case.find(GOODBYE), None);

    let mark = case.stage.mark();
    case.delete();
    for target in [PARENT, HELLO, GOODBYE] {
        case.wait_gone(target);
    }
    let writes = case.writes_since(mark);
    let write_lines = lines(&writes);
    line_position(&write_lines, "patch configmaps parent-goodbye 201");
    let last = writes.last().unwrap();
    assert_eq!(last.line(), format!("patch {CRD} parent 200"));
    assert!(last.body.to_string().contains(FINALIZER), "{}", last.body);
    assert!(
        !write_lines.iter().any(|line| line.starts_with("delete")),
        "{write_lines:#?}"
    );
}

/// Guest answers in the finalize phase that keep the parent, and the resulting `Synced` status and
/// reason.
const HOLDING: [(&str, (&str, &str)); 4] = [
    ("keep", ("True", "Applied")),
    ("retry", ("False", "Retrying")),
    ("invalid", ("False", "Invalid")),
    ("trap", ("False", "GuestTrapped")),
];

/// The finalizer stays until the guest says that it has finished, and the condition says why the
/// parent waits. An early removal would skip the cleanup.
#[test]
fn an_unfinished_guest_holds_the_parent_and_the_parent_reports_it() {
    for (end, (status, reason)) in HOLDING {
        let case = Case::start(&parent(end));
        let hello = case.find(HELLO);
        let mark = case.stage.mark();
        case.delete();
        let blocked_parent = case.wait(|parent| {
            parent["metadata"]["deletionTimestamp"].is_string() && is_synced(parent, status, reason)
        });
        assert_eq!(finalizers(&blocked_parent), [FINALIZER], "{end}");
        assert_eq!(case.find(HELLO), hello, "{end}");
        assert_eq!(case.find(GOODBYE), None, "{end}");

        // Editing the parent makes the host call the guest again.
        case.merge(&json!({ "spec": { "end": "goodbye" } }));
        case.wait_gone(PARENT);
        let writes = lines(&case.writes_since(mark));
        line_position(&writes, "patch configmaps parent-goodbye 201");
    }
}

/// A user can always release a parent from a broken guest without changing the plugin.
#[test]
fn an_annotation_releases_a_parent_that_its_guest_holds() {
    let case = Case::start(&parent("trap"));
    let mark = case.stage.mark();
    case.delete();
    case.wait(|parent| is_synced(parent, "False", "GuestTrapped"));
    let skip = json!({ "innkeeper.dev/skip-finalize": "true" });
    case.merge(&json!({ "metadata": { "annotations": skip } }));
    for target in [PARENT, HELLO] {
        case.wait_gone(target);
    }
    let writes = lines(&case.writes_since(mark));
    assert!(!writes.iter().any(|line| line.contains("parent-goodbye")));
}

/// The API server accepts no new object in a namespace that is being deleted, so the guest would
/// wait forever for the child. The host sends the create once, and skips it in later passes.
#[test]
fn a_parent_that_cannot_be_finalized_in_its_namespace_names_the_annotation() {
    let case = Case::start(&parent("goodbye"));
    let mark = case.stage.mark();
    let namespace: Target<'_> = ("v1", "Namespace", &case.namespace);
    case.stage.delete("", namespace);
    let left_out = "so these cannot be created";
    let blocked_parent = case.wait(|parent| {
        is_synced(parent, "False", "NamespaceTerminating")
            && condition(parent, "Synced").is_some_and(|synced| synced.contains(left_out))
    });
    assert_eq!(finalizers(&blocked_parent), [FINALIZER]);
    let synced = condition(&blocked_parent, "Synced").unwrap();
    let skip = "innkeeper.dev/skip-finalize";
    assert!(synced.contains(skip), "{synced}");
    let log = case.host.log().unwrap();
    let names_the_annotation =
        |line: &str| line.contains("cannot be finalized") && line.contains(skip);
    assert!(log.lines().any(names_the_annotation), "{log}");
    case.check_status("NamespaceTerminating", skip);
    case.merge(&json!({ "metadata": { "annotations": { skip: "true" } } }));
    case.wait_namespace_gone();
    assert_eq!(case.refused_goodbyes(mark), 1);
}

/// A guest that learns about the namespace's deletion needs no user.
#[test]
fn a_guest_is_told_that_nothing_can_be_created_in_its_namespace() {
    let case = Case::start(&parent("goodbye-or-nothing"));
    let mark = case.stage.mark();
    case.stage.delete("", ("v1", "Namespace", &case.namespace));
    case.wait_namespace_gone();
    assert_eq!(case.refused_goodbyes(mark), 1);
}

/// A host that does not serve the plugin also obeys the annotation. Otherwise the parent could
/// never be deleted.
#[test]
fn an_annotation_releases_a_parent_of_a_plugin_that_is_no_longer_served() {
    let mut stage = stage();
    let host = stage.host_serving(&[CRD]);
    let namespace = stage.namespace("farewell");
    stage.apply(&namespace, &parent("trap"));
    stage.wait(&host, &namespace, PARENT, is_applied);
    Stage::stop(host);

    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    stage.options.plugins = vec![guests.join("memcached.wasm")];
    let host = stage.host_serving(&["memcacheds.cache.example.com"]);
    stage.delete(&namespace, PARENT);
    let annotations = json!({ "innkeeper.dev/skip-finalize": "true" });
    let skip = json!({ "metadata": { "annotations": annotations } });
    stage.merge(&namespace, PARENT, &skip);
    eventually("the parent is deleted", || {
        stage
            .find(&namespace, PARENT)
            .map_or(Ok(()), |object| Err(format!("{object:#}")))
    });
    Stage::stop(host);
}

/// Once the guest has finished, a parent that another finalizer keeps gets no further child,
/// because no pass would delete it again.
#[test]
fn a_deleted_parent_gets_no_child_outside_of_phase_finalize() {
    let mut object = parent("goodbye");
    object["metadata"]["finalizers"] = json!([FOREIGN]);
    let case = Case::start(&object);
    case.delete();
    case.wait(|parent| finalizers(parent) == [FOREIGN]);
    case.stage.settle(QUIET);
    // The host must not restore children for a parent that it has released.
    let mark = case.stage.mark();
    case.stage.delete(&case.namespace, HELLO);
    case.merge(&json!({ "spec": { "end": "keep" } }));
    case.stage.settle(QUIET);
    assert_eq!(lines(&case.writes_since(mark)), Vec::<String>::new());
    assert_eq!(case.find(HELLO), None);
    case.merge(&json!({ "metadata": { "finalizers": null } }));
    case.wait_gone(PARENT);
}

/// In a foreground deletion, the garbage collector waits for the children. A new child at this
/// point would make it wait forever.
#[test]
fn a_foreground_deletion_creates_no_child_that_would_block_it() {
    let case = Case::start(&parent("goodbye"));
    // The garbage collector waits for a child as long as it has a finalizer.
    let keep = json!({ "metadata": { "finalizers": [FOREIGN] } });
    case.stage.merge(&case.namespace, HELLO, &keep);
    let mark = case.stage.mark();
    let kind = Kind::new(PARENT.0, PARENT.1, &case.namespace);
    case.stage
        .plane
        .user()
        .delete_with(kind, PARENT.2, &DeleteParams::foreground())
        .unwrap();
    let blocked_parent = case.wait(|parent| is_synced(parent, "False", "ChildDeleting"));
    assert!(
        finalizers(&blocked_parent).contains(&"foregroundDeletion"),
        "{blocked_parent:#}"
    );
    case.stage.settle(QUIET);
    let writes = lines(&case.writes_since(mark));
    let is_of_child = |line: &&String| line.contains("configmaps");
    assert_eq!(writes.iter().find(is_of_child), None, "{writes:#?}");

    let release = json!({ "metadata": { "finalizers": null } });
    case.stage.merge(&case.namespace, HELLO, &release);
    for target in [PARENT, HELLO, GOODBYE] {
        case.wait_gone(target);
    }
}

/// A host behind a relay that intercepts the writes.
struct InterceptedHost {
    host: Host,
    relay: Relay,
    stage: Stage,
}

impl InterceptedHost {
    /// Runs a parent's life up to this write. Then a successor with the same name replaces the
    /// parent, and the write continues before the host knows the successor. Returns false if there
    /// is no such write.
    fn succeed_before(&self, number: usize) -> bool {
        let namespace = self.stage.namespace("successor");
        self.relay.arm(Some(Moment::Before));
        let old = self.stage.apply(&namespace, &parent("goodbye"));
        let start = Instant::now();
        let mut count = 0;
        let mut is_deleted = false;
        loop {
            let Ok(stopped) = self.relay.stopped.recv_timeout(QUIET) else {
                match self.stage.find(&namespace, PARENT) {
                    None => {
                        self.relay.arm(None);
                        return false;
                    }
                    Some(parent) if !is_deleted && is_synced(&parent, "True", "Applied") => {
                        self.stage.delete(&namespace, PARENT);
                        is_deleted = true;
                    }
                    Some(parent) => assert!(
                        start.elapsed() < LIFE_MAX,
                        "{parent:#}\n{}",
                        self.host.log().unwrap()
                    ),
                }
                continue;
            };
            count += 1;
            if count == number {
                self.relay.arm(None);
                self.succeed(&namespace, &old, stopped);
                return true;
            }
            self.relay.arm(Some(Moment::Before));
            stopped.resume();
        }
    }

    fn succeed(&self, namespace: &str, old: &Value, stopped: Stopped) {
        let write = stopped.line.clone();
        self.stage.delete(namespace, PARENT);
        if self.stage.find(namespace, PARENT).is_some() {
            let none = json!({ "metadata": { "finalizers": null } });
            self.stage.merge(namespace, PARENT, &none);
        }
        let mark = self.stage.mark();
        let new = self.stage.apply(namespace, &parent("goodbye"));
        let old = &old["metadata"]["uid"];
        let new = &new["metadata"]["uid"];
        assert_ne!(old, new);
        stopped.resume();

        let is_well = |parent: &Value| {
            is_synced(parent, "True", "Applied") && finalizers(parent) == [FINALIZER]
        };
        self.stage.wait(&self.host, namespace, PARENT, is_well);
        let is_right = || match (
            owner(self.stage.find(namespace, HELLO)),
            self.stage.find(namespace, GOODBYE),
        ) {
            (Some(owner), None) if owner == *new => Ok(()),
            other => Err(format!("before {write}: {other:?}")),
        };
        eventually("nothing of the old parent remains", is_right);
        self.stage.settle(QUIET);
        is_right().unwrap();
        let successor = self.stage.get(namespace, PARENT);
        assert_eq!(successor["metadata"]["uid"], *new, "before {write}");
        assert!(is_well(&successor), "before {write}: {successor:#}");

        // The garbage collector deletes children that name the old parent as owner.
        let old = old.as_str().unwrap();
        let landed: Vec<String> = self
            .stage
            .writes_since(mark)
            .iter()
            .filter(|write| write.code < 300 && write.body.to_string().contains(old))
            .filter(|write| write.resource != "configmaps" || write.code != 201)
            .map(Write::line)
            .collect();
        assert_eq!(landed, Vec::<String>::new(), "before {write}");
    }
}

fn owner(object: Option<Value>) -> Option<Value> {
    Some(object?["metadata"]["ownerReferences"][0]["uid"].clone())
}

/// Writes in one life: the finalizer, two children, the parent's status at the beginning and at the
/// end, and the finalizer again.
const WRITES_MIN: usize = 6;

/// Every write is bound to the parent's UID. Otherwise a pending write would change the successor.
#[test]
fn a_pending_write_for_a_predecessor_does_not_reach_its_successor() {
    let stage = stage();
    let relay = Relay::start(&stage.plane).unwrap();
    let host = Host::start(&relay.kubeconfig, &stage.options).unwrap();
    stage.wait_served(&host, &[CRD]);
    stage.restart_collector();
    let slow = InterceptedHost { host, relay, stage };
    // A first life covers the writes that the host makes only once.
    assert!(!slow.succeed_before(usize::MAX));
    let mut number = 1;
    while slow.succeed_before(number) {
        number += 1;
    }
    assert!(number > WRITES_MIN, "only {} writes", number - 1);
}
