//! Guests that misbehave, on a control plane and a host of their own: what they did before stays, the parent says what is
//! wrong, others go on, and good behaviour is all it takes to recover (A7, F16).
//!
//! Guests that misbehave in ways that are no faults of one pass are in `misbehaving`.
//!
//! What else can go wrong, around a host whose guests behave, is the fault matrix of the modules below: plans (`plan`,
//! `rounds`), who carries them out (`world`, `driver`, `acts`, `denials`, `meddle`), and who judges (`oracles`, `normal`, `report`).

mod acts;
mod credentials;
mod denials;
mod driver;
#[cfg(feature = "failpoints")]
mod failpoints;
mod matrix;
mod meddle;
mod naive;
mod normal;
mod oracles;
mod plan;
mod report;
mod rounds;
mod world;

use std::{fs, sync::OnceLock};

use anyhow::{Context as _, Result, bail};
use innkeeper_tests::{
    ControlPlane, Host, HostOptions, Write, eventually,
    manifest::{condition, condition_status},
    process::path_from_env,
    user::Kind,
};
use serde_json::{Value, json};

const GROUP: &str = "test.innkeeper.dev/v1";

/// A file that is no plugin and is given to the host before the others.
const BROKEN: &str = "broken.wasm";

/// The plugins of this suite. Each has another one for its innocent neighbour.
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
    // Controllers would have nothing to do: no child here has any.
    pub(crate) plane: ControlPlane,
    pub(crate) host: Host,
}

pub(crate) fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let plane = ControlPlane::start_with(&["--api-only"]).expect("the control plane starts");
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").expect("the guests are built");
        // First, because the order decides who competes for what: it must not keep the others from serving.
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
        let crds = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        for plugin in [UNRULY, GARBAGE, NOSY] {
            eventually("the host installs its CRDs", || -> Result<()> {
                let crd = plane
                    .user()
                    .get(crds, plugin.crd)?
                    .with_context(|| host.log().unwrap_or_default())?;
                match condition_status(&crd, "Established").as_str() {
                    "True" => Ok(()),
                    _ => bail!("{}", crd["status"]),
                }
            });
        }
        Shared { plane, host }
    })
}

/// A namespace with one parent that has behaved so far.
pub(crate) struct Case {
    pub(crate) namespace: String,
}

impl Case {
    pub(crate) fn start(plugin: Plugin) -> Self {
        let namespace = shared().plane.namespace("faults").expect("a namespace");
        let case = Self { namespace };
        case.tell(plugin, "parent", "good");
        case.wait_applied(plugin, "parent");
        case
    }

    /// Says what the guest does for a parent, which is made if it is missing; gives the parent's generation.
    pub(crate) fn tell(&self, plugin: Plugin, name: &str, behaviour: &str) -> Value {
        let parent = json!({
            "apiVersion": GROUP, "kind": plugin.kind,
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "behaviour": behaviour },
        });
        let user = shared().plane.user();
        let parent = user.apply(&parent).expect("a parent can be applied");
        parent["metadata"]["generation"].clone()
    }

    /// Waits until the condition `Synced` is about this generation and has this status and reason.
    #[track_caller]
    pub(crate) fn wait_synced(
        &self,
        plugin: Plugin,
        name: &str,
        generation: &Value,
        (status, wanted): (&str, &str),
    ) -> Value {
        let what = format!("{} {name} becomes Synced={status}/{wanted}", plugin.kind);
        eventually(&what, || {
            let parent = self.parent(plugin, name);
            let observed = parent["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|condition| condition["type"] == "Synced")
                .map(|condition| condition["observedGeneration"].clone());
            let said = condition(&parent, "Synced").unwrap_or_default();
            let is_met = said.starts_with(&format!("{status}/{wanted}: "));
            if is_met && observed.as_ref() == Some(generation) {
                Ok(parent)
            } else {
                let log = shared().host.log().unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(10).collect();
                Err(format!("{:#}\n{}", parent["status"], lines.join("\n")))
            }
        })
    }

    /// Waits until a parent's present specification is applied.
    #[track_caller]
    pub(crate) fn wait_applied(&self, plugin: Plugin, name: &str) -> Value {
        let generation = self.parent(plugin, name)["metadata"]["generation"].clone();
        self.wait_synced(plugin, name, &generation, ("True", "Applied"))
    }

    pub(crate) fn parent(&self, plugin: Plugin, name: &str) -> Value {
        let kind = Kind::new(GROUP, plugin.kind, &self.namespace);
        let found = shared().plane.user().get(kind, name);
        found
            .expect("a parent can be read")
            .expect("the parent is there")
    }

    /// A new parent of another plugin converges.
    #[track_caller]
    pub(crate) fn check_neighbour(&self, plugin: Plugin) {
        let neighbour = plugin.neighbour();
        self.tell(neighbour, "bystander", "good");
        self.wait_applied(neighbour, "bystander");
    }

    /// The parent's children with their versions.
    fn children(&self, plugin: Plugin) -> Vec<(String, String)> {
        let kind = Kind::new("v1", "ConfigMap", &self.namespace);
        let selector = format!("innkeeper.dev/plugin={}", plugin.kind.to_ascii_lowercase());
        let found = shared().plane.user().list(kind, &selector);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        found
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

    /// Everybody's writes to this parent's children after a mark, those of the cluster's own included.
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

/// Good until applied, then as told: the children stay as they are, `Synced` says why and its message holds `text`,
/// a neighbour's new parent converges meanwhile, and good behaviour ends it.
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

    let generation = case.tell(plugin, "parent", behaviour);
    let parent = case.wait_synced(plugin, "parent", &generation, expected);
    let synced = condition(&parent, "Synced").expect("a condition that was waited for");
    assert!(synced.contains(text), "{synced}");

    case.check_neighbour(plugin);
    assert_eq!(case.child_writes(mark), Vec::<String>::new());
    assert_eq!(case.children(plugin), before);

    case.tell(plugin, "parent", "good");
    case.wait_applied(plugin, "parent");
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

#[test]
fn f16_a_file_that_is_no_plugin_keeps_no_other_from_serving() {
    // Both of the others serve.
    let case = Case::start(UNRULY);
    case.tell(GARBAGE, "bystander", "good");
    case.wait_applied(GARBAGE, "bystander");
    let log = shared().host.log().unwrap();
    let refusals: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("plugin is not served"))
        .collect();
    assert_eq!(refusals.len(), 1, "{log}");
    assert!(refusals[0].contains(BROKEN), "{log}");
    assert!(refusals[0].contains("this is not WebAssembly"), "{log}");
}

/// The other tests look for deletes in vain because there are none, and not because they would not see one.
#[test]
fn a7_only_an_answer_without_children_deletes_them() {
    let case = Case::start(UNRULY);
    let mark = shared().plane.audit().mark().expect("an audit log");
    let generation = case.tell(UNRULY, "parent", "nothing");
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
fn a7_f16_keeps_children_when_the_guest_says_keep() {
    check(UNRULY, "keep", ("True", "Applied"), "");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_asks_for_a_retry() {
    check_unruly("retry", "Retrying", "told to try again");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_says_that_the_parent_is_wrong() {
    check_unruly("invalid", "Invalid", "spec.behaviour: told to be wrong");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_gives_up_and_asks_it_no_more() {
    let case = Case::start(UNRULY);
    let before = case.children(UNRULY);
    let mark = shared().plane.audit().mark().expect("an audit log");
    // Good behaviour does not help: only another revision or configuration can.
    for behaviour in ["fatal", "good"] {
        let generation = case.tell(UNRULY, "parent", behaviour);
        let parent = case.wait_synced(UNRULY, "parent", &generation, ("False", "Fatal"));
        let synced = condition(&parent, "Synced").expect("a condition that was waited for");
        assert!(synced.contains("told to give up"), "{synced}");
    }
    case.tell(UNRULY, "sibling", "good");
    case.wait_applied(UNRULY, "sibling");
    assert_eq!(case.child_writes(mark), Vec::<String>::new());
    assert_eq!(case.children(UNRULY), before);
}

#[test]
fn a7_f16_keeps_children_when_the_guest_traps() {
    check_unruly("trap", "GuestTrapped", "told to trap");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_loops() {
    check_unruly("loop", "DeadlineExceeded", "250");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_allocates_without_end() {
    check_unruly("allocate", "MemoryExceeded", "67108864");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_floods_its_log() {
    check_unruly("flood", "DeadlineExceeded", "250");
    let log = shared().host.log().unwrap();
    assert!(log.contains("guest logged more than its limit"));
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_an_undeclared_kind() {
    check_unruly("undeclared-kind", "ChildForbidden", "Secret");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_another_namespace() {
    check_unruly("other-namespace", "ChildForbidden", "kube-system");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_a_foreign_owner() {
    check_unruly("foreign-owner", "OutputRejected", "ownerReferences");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_too_many() {
    check_unruly("many-children", "OutputRejected", "256");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_a_huge_object() {
    check_unruly("huge-object", "OutputRejected", "child-0");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_lets_a_living_parent_go() {
    check_unruly("finalized", "OutputRejected", "finalized");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_garbage() {
    check_garbage("unparsable-child", "only");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_an_empty_text() {
    check_garbage("empty-child", "only");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_a_number() {
    check_garbage("scalar-child", "only");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_a_child_without_a_name() {
    check_garbage("nameless-child", "metadata.name");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_null() {
    check_garbage("null-in-child", "null");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_nests_without_end() {
    check_garbage("deep-child", "64");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_answers_a_status_that_is_garbage() {
    check_garbage("unparsable-status", "status");
}

#[test]
fn a7_f16_keeps_children_when_the_guest_states_conditions_in_the_status() {
    check_garbage("conditions-in-status", "conditions");
}
