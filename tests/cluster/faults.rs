//! Misbehaving guests, on a separate control plane and host: existing children stay, the parent
//! reports the fault, other parents converge, and good behaviour alone recovers the parent.
//!
//! Misbehaviour beyond a single pass is tested in `misbehaving`.
//!
//! The modules below are the fault matrix, in which guests behave and everything around the host
//! fails. It has plans (`plan`, `rounds`), their execution (`test_cluster`, `driver`, `acts`,
//! `denials`, `foreign_edits`), and their verdict (`oracles`, `normal`, `report`).

mod acts;
mod credentials;
mod denials;
mod driver;
#[cfg(feature = "failpoints")]
mod failpoints;
mod foreign_edits;
mod matrix;
mod naive;
mod normal;
mod oracles;
mod plan;
mod report;
mod rounds;
mod test_cluster;

use std::{fs, sync::OnceLock};

use innkeeper_tests::{
    ControlPlane, Host, HostOptions, Write, eventually, manifest::condition,
    process::path_from_env, user::Kind,
};
use serde_json::{Value, json};

use crate::stage::wait_served;

const GROUP: &str = "test.innkeeper.dev/v1";

/// A file that is not a plugin, listed before the plugins.
const BROKEN: &str = "broken.wasm";

/// Plugins in this suite. Each test also watches a second one, which must not be affected.
pub(crate) const UNRULY: Plugin = Plugin {
    kind: "Unruly",
    crd: "unrulies.test.innkeeper.dev",
};
pub(crate) const GARBAGE: Plugin = Plugin {
    kind: "Garbage",
    crd: "garbages.test.innkeeper.dev",
};
pub(crate) const NOSY: Plugin = Plugin {
    kind: "Nosy",
    crd: "nosies.test.innkeeper.dev",
};

#[derive(Clone, Copy)]
pub(crate) struct Plugin {
    kind: &'static str,
    crd: &'static str,
}

impl Plugin {
    pub(crate) fn neighbour(self) -> Self {
        if self.kind == UNRULY.kind {
            GARBAGE
        } else {
            UNRULY
        }
    }
}

pub(crate) struct Shared {
    pub(crate) host: Host,
    // No controllers: no child in these tests needs one.
    pub(crate) plane: ControlPlane,
}

pub(crate) fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let plane = ControlPlane::start_with(&["--api-only"]).expect("the control plane starts");
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").expect("the guests are built");
        // The broken file comes first, because the order sets the plugins' priority: the host must
        // still serve the others.
        let broken = plane.directory().join(BROKEN);
        fs::write(&broken, "not WebAssembly").expect("a file can be written");
        let good = ["unruly.wasm", "garbage.wasm", "nosy.wasm"].map(|guest| guests.join(guest));
        let options = HostOptions {
            plugins: [broken].into_iter().chain(good).collect(),
            arguments: ["--admin-address", "127.0.0.1:0"]
                .map(str::to_owned)
                .to_vec(),
            ..HostOptions::default()
        };
        let host = Host::start(&plane.kubeconfig(), &options).expect("the host starts");
        let crds = [UNRULY, GARBAGE, NOSY].map(|plugin| plugin.crd);
        wait_served(&plane, &host, &crds);
        Shared { host, plane }
    })
}

/// A namespace with one applied parent.
pub(crate) struct Case {
    pub(crate) namespace: String,
}

impl Case {
    pub(crate) fn start(plugin: Plugin) -> Self {
        let namespace = shared().plane.namespace("faults").expect("a namespace");
        let case = Self { namespace };
        case.apply_behaviour(plugin, "parent", "good");
        case
    }

    /// Sets the guest's behaviour for a parent, which is created if missing; returns the parent's
    /// generation.
    pub(crate) fn set_behaviour(&self, plugin: Plugin, name: &str, behaviour: &str) -> Value {
        let parent = json!({
            "apiVersion": GROUP, "kind": plugin.kind,
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "behaviour": behaviour },
        });
        let parent = shared()
            .plane
            .user()
            .apply(&parent)
            .expect("a parent can be applied");
        parent["metadata"]["generation"].clone()
    }

    /// Sets the guest's behaviour for a parent, and waits until the parent is applied.
    #[track_caller]
    pub(crate) fn apply_behaviour(&self, plugin: Plugin, name: &str, behaviour: &str) {
        self.set_behaviour(plugin, name, behaviour);
        self.wait_applied(plugin, name);
    }

    /// Waits until the `Synced` condition has this generation, status and reason.
    #[track_caller]
    pub(crate) fn wait_synced(
        &self,
        plugin: Plugin,
        name: &str,
        generation: &Value,
        (status, wanted): (&str, &str),
    ) -> Value {
        let goal = format!("{} {name} becomes Synced={status}/{wanted}", plugin.kind);
        eventually(&goal, || {
            let parent = self.parent(plugin, name);
            let observed = parent["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|condition| condition["type"] == "Synced")
                .map(|condition| condition["observedGeneration"].clone());
            let is_met = condition(&parent, "Synced")
                .unwrap_or_default()
                .starts_with(&format!("{status}/{wanted}: "));
            if is_met && observed.as_ref() == Some(generation) {
                Ok(parent)
            } else {
                let log = shared().host.log().unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(10).collect();
                Err(format!("{:#}\n{}", parent["status"], lines.join("\n")))
            }
        })
    }

    /// Waits until a parent's current generation is applied.
    #[track_caller]
    pub(crate) fn wait_applied(&self, plugin: Plugin, name: &str) -> Value {
        let generation = self.parent(plugin, name)["metadata"]["generation"].clone();
        self.wait_synced(plugin, name, &generation, ("True", "Applied"))
    }

    pub(crate) fn parent(&self, plugin: Plugin, name: &str) -> Value {
        let kind = Kind::new(GROUP, plugin.kind, &self.namespace);
        shared()
            .plane
            .user()
            .get(kind, name)
            .expect("a parent can be read")
            .expect("the parent exists")
    }

    /// Checks that another plugin's new parent converges.
    #[track_caller]
    pub(crate) fn check_neighbour(&self, plugin: Plugin) {
        let neighbour = plugin.neighbour();
        self.apply_behaviour(neighbour, "bystander", "good");
    }

    /// Names and resource versions of the parent's children.
    fn children(&self, plugin: Plugin) -> Vec<(String, String)> {
        let kind = Kind::new("v1", "ConfigMap", &self.namespace);
        let selector = format!("innkeeper.dev/plugin={}", plugin.kind.to_ascii_lowercase());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        shared()
            .plane
            .user()
            .list(kind, &selector)
            .expect("children can be listed")
            .iter()
            .map(|child| &child["metadata"])
            .filter(|metadata| {
                metadata["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("parent-"))
            })
            .map(|metadata| (text(&metadata["name"]), text(&metadata["resourceVersion"])))
            .collect()
    }

    /// All writes to this parent's children after a mark, including those by the cluster's own
    /// controllers.
    pub(crate) fn child_writes(&self, mark: usize) -> Vec<String> {
        let writes = shared().plane.audit().since(mark).expect("an audit log");
        writes
            .iter()
            .filter(|write| write.namespace == self.namespace)
            .filter(|write| write.name.starts_with("parent-") || write.name.is_empty())
            .filter(|write| !write.resource.starts_with("events"))
            .map(Write::line)
            .collect()
    }
}

/// Checks one behaviour after a good start: the children stay unchanged, `Synced` has this status
/// and reason and a message with `text`, a neighbour's new parent converges meanwhile, and good
/// behaviour recovers the parent.
#[track_caller]
pub(crate) fn check(plugin: Plugin, behaviour: &str, expected: (&str, &str), text: &str) {
    check_in(&Case::start(plugin), plugin, behaviour, expected, text);
}

#[track_caller]
pub(crate) fn check_in(
    case: &Case,
    plugin: Plugin,
    behaviour: &str,
    expected: (&str, &str),
    text: &str,
) {
    let before = case.children(plugin);
    assert!(!before.is_empty());
    let mark = shared().plane.audit().mark().expect("an audit log");

    let generation = case.set_behaviour(plugin, "parent", behaviour);
    let parent = case.wait_synced(plugin, "parent", &generation, expected);
    let synced = condition(&parent, "Synced").expect("a condition that was waited for");
    assert!(synced.contains(text), "{synced}");

    case.check_neighbour(plugin);
    assert_eq!(case.child_writes(mark), Vec::<String>::new());
    assert_eq!(case.children(plugin), before);

    case.apply_behaviour(plugin, "parent", "good");
    assert_eq!(case.child_writes(mark), Vec::<String>::new());
    assert_eq!(case.children(plugin), before);
}

#[track_caller]
pub(crate) fn check_unruly(behaviour: &str, reason: &str, text: &str) {
    check(UNRULY, behaviour, ("False", reason), text);
}

#[track_caller]
pub(crate) fn check_garbage(behaviour: &str, text: &str) {
    check(GARBAGE, behaviour, ("False", "OutputRejected"), text);
}

/// The host logs one error for a file that cannot be loaded, keeps running and serves the other
/// plugins.
#[test]
fn a_file_that_is_no_plugin_does_not_affect_other_plugins() {
    // The host serves both other plugins.
    let case = Case::start(UNRULY);
    case.apply_behaviour(GARBAGE, "bystander", "good");
    let log = shared().host.log().unwrap();
    let refusals: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("plugin is not served"))
        .collect();
    assert_eq!(refusals.len(), 1, "{log}");
    assert!(refusals[0].contains(BROKEN), "{log}");
    assert!(refusals[0].contains("this is not WebAssembly"), "{log}");
}

/// Proves that the other tests would see deletions: this answer does cause them.
#[test]
fn only_an_answer_without_children_deletes_them() {
    let case = Case::start(UNRULY);
    let mark = shared().plane.audit().mark().expect("an audit log");
    let generation = case.set_behaviour(UNRULY, "parent", "nothing");
    case.wait_synced(UNRULY, "parent", &generation, ("True", "Applied"));
    let mut writes = case.child_writes(mark);
    writes.sort();
    assert_eq!(
        writes,
        [
            "delete configmaps parent-first 200",
            "delete configmaps parent-second 200"
        ]
    );
}

#[test]
fn keeps_children_when_the_guest_says_keep() {
    check(UNRULY, "keep", ("True", "Applied"), "");
}

#[test]
fn keeps_children_when_the_guest_asks_for_a_retry() {
    check_unruly("retry", "Retrying", "told to try again");
}

#[test]
fn keeps_children_when_the_guest_calls_the_parent_invalid() {
    check_unruly("invalid", "Invalid", "spec.behaviour: told to be wrong");
}

/// A fatal answer is final for the parent: the host calls the guest again only for another revision
/// or configuration, and still serves the other parents.
#[test]
fn keeps_children_after_a_fatal_answer_and_stops_calling_the_guest() {
    let case = Case::start(UNRULY);
    let before = case.children(UNRULY);
    let mark = shared().plane.audit().mark().expect("an audit log");
    // Good behaviour does not help: only another revision or configuration does.
    for behaviour in ["fatal", "good"] {
        let generation = case.set_behaviour(UNRULY, "parent", behaviour);
        let parent = case.wait_synced(UNRULY, "parent", &generation, ("False", "Fatal"));
        let synced = condition(&parent, "Synced").expect("a condition that was waited for");
        assert!(synced.contains("told to give up"), "{synced}");
    }
    case.apply_behaviour(UNRULY, "sibling", "good");
    assert_eq!(case.child_writes(mark), Vec::<String>::new());
    assert_eq!(case.children(UNRULY), before);
}

#[test]
fn keeps_children_when_the_guest_traps() {
    check_unruly("trap", "GuestTrapped", "told to trap");
}

#[test]
fn keeps_children_when_the_guest_loops() {
    check_unruly("loop", "DeadlineExceeded", "250");
}

#[test]
fn keeps_children_when_the_guest_allocates_without_end() {
    check_unruly("allocate", "MemoryExceeded", "67108864");
}

#[test]
fn keeps_children_when_the_guest_floods_its_log() {
    check_unruly("flood", "DeadlineExceeded", "250");
    let log = shared().host.log().unwrap();
    assert!(log.contains("guest logged more than its limit"));
}

#[test]
fn keeps_children_when_the_guest_answers_an_undeclared_kind() {
    check_unruly("undeclared-kind", "ChildForbidden", "Secret");
}

#[test]
fn keeps_children_when_the_guest_answers_another_namespace() {
    check_unruly("other-namespace", "ChildForbidden", "kube-system");
}

#[test]
fn keeps_children_when_the_guest_answers_a_foreign_owner() {
    check_unruly("foreign-owner", "OutputRejected", "ownerReferences");
}

#[test]
fn keeps_children_when_the_guest_answers_too_many_children() {
    check_unruly("many-children", "OutputRejected", "256");
}

#[test]
fn keeps_children_when_the_guest_answers_a_huge_object() {
    check_unruly("huge-object", "OutputRejected", "child-0");
}

#[test]
fn keeps_children_when_the_guest_finalizes_a_living_parent() {
    check_unruly("finalized", "OutputRejected", "finalized");
}

#[test]
fn keeps_children_when_the_guest_answers_invalid_json() {
    check_garbage("unparsable-child", "only");
}

#[test]
fn keeps_children_when_the_guest_answers_an_empty_text() {
    check_garbage("empty-child", "only");
}

#[test]
fn keeps_children_when_the_guest_answers_a_number() {
    check_garbage("scalar-child", "only");
}

#[test]
fn keeps_children_when_the_guest_answers_a_child_without_a_name() {
    check_garbage("nameless-child", "metadata.name");
}

#[test]
fn keeps_children_when_the_guest_answers_null() {
    check_garbage("null-in-child", "null");
}

#[test]
fn keeps_children_when_the_guest_nests_without_end() {
    check_garbage("deep-child", "64");
}

#[test]
fn keeps_children_when_the_guest_answers_a_status_that_is_no_json() {
    check_garbage("unparsable-status", "status");
}

#[test]
fn keeps_children_when_the_guest_states_conditions_in_the_status() {
    check_garbage("conditions-in-status", "conditions");
}
