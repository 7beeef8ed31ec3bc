//! A guest's answer: converted, checked by the policy, planned, and applied to an in-memory API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
};

use innkeeper_crd::Kinds;
use innkeeper_model::{
    Child, Desired, Gvk, HashKey, LABEL_PLUGIN, Limits, Manifest, ObjectId, Operation, Outcome,
    Phase, Scope,
};
use innkeeper_plan::{
    Context, Plan, plan,
    tests::{build::observed, server::Server},
};
use innkeeper_plugin_controller::resource::grants_of_file;
use innkeeper_policy::{Checked, Grants, Rules, check, check_fault};
use innkeeper_sandbox::{manifest, testing};
use serde_json::{Value, json};

use super::{corpus, oracle, run::run};

/// The host's namespaces.
pub(super) const HOST: [&str; 2] = ["innkeeper", "innkeeper-pod"];

#[test]
fn an_answer_is_refused_or_within_the_grants() {
    run("answer");
}

/// The oracle works without the policy: it rejects the inputs whose child the policy has to refuse.
#[test]
fn the_oracle_refuses_every_child_that_breaks_a_rule() {
    let limits = Limits::default();
    let mut count = 0;
    for seed in corpus::load("answer") {
        let input: Value = serde_json::from_slice(&seed.bytes).unwrap();
        let Some(word) = input["breaks"].as_str() else {
            continue;
        };
        let name = &seed.name;
        let case = Case::read(&input).unwrap_or_else(|| panic!("{name} is refused as a whole"));
        let converted = testing::converted(&input["answer"], case.phase, &limits);
        let Some(Ok(Ok(outcome))) = converted else {
            panic!("{name} is no answer: {converted:?}");
        };
        let Outcome::Desired(Desired { children, .. }) = &outcome else {
            panic!("{name} has no children");
        };
        let payload =
            catch_unwind(AssertUnwindSafe(|| oracle::check(&case, &children[0]))).expect_err(name);
        // A message without values is not a String.
        let message: String = payload
            .downcast_ref::<&str>()
            .map(|message| (*message).to_owned())
            .or_else(|| payload.downcast_ref().cloned())
            .unwrap_or_default();
        assert!(message.contains(word), "{name}: {message}");
        assert!(check(outcome, &case.rules(&limits)).is_err(), "{name}");
        count += 1;
    }
    assert!(count >= 19, "{count} inputs break a rule");
}

/// An answer and everything the decision depends on.
pub(super) struct Case {
    pub(super) manifest: Manifest,
    pub(super) grants: Grants,
    /// False for a plugin loaded from a file without grants.
    pub(super) is_granted: bool,
    pub(super) kinds: Kinds,
    parent: Value,
    pub(super) id: ObjectId,
    /// The number of parents above the parent.
    pub(super) depth: u64,
    phase: Phase,
}

/// Reaches the plan for children, repeated plans until none is left, and a fault.
pub(super) fn answer(input: &[u8]) -> [bool; 3] {
    judged(input).unwrap_or_default()
}

fn judged(input: &[u8]) -> Option<[bool; 3]> {
    let input: Value = serde_json::from_slice(input).ok()?;
    let case = Case::read(&input)?;
    let limits = Limits::default();
    let converted = testing::converted(&input["answer"], case.phase, &limits)?.ok()?;
    let outcome = match converted {
        Ok(outcome) => check(outcome, &case.rules(&limits)).ok()?,
        Err(fault) => return Some([false, false, check_fault(fault).is_ok()]),
    };
    let children = children(&outcome);
    assert!(children.len() <= limits.children_max);
    let ids: BTreeSet<ObjectId> = children
        .iter()
        .map(|child| oracle::check(&case, child))
        .collect();
    assert_eq!(ids.len(), children.len(), "one object is stated twice");
    let first = case.plan(&[], &outcome);
    assert_eq!(
        first,
        case.plan(&[], &outcome),
        "the same input gives another plan"
    );
    for operation in &first.operations {
        check_operation(operation, &ids, &case.parent);
    }
    let is_understood = children.iter().all(is_understood);
    if is_understood {
        case.converge(&outcome);
    }
    let has_children = !children.is_empty();
    Some([has_children, has_children && is_understood, false])
}

fn host_namespaces() -> &'static [String] {
    static ALL: LazyLock<Vec<String>> = LazyLock::new(|| HOST.map(str::to_owned).into());
    &ALL
}

fn children(outcome: &Checked<Outcome>) -> &[Child] {
    match &**outcome {
        Outcome::Desired(desired) => &desired.children,
        Outcome::Keep(_) | Outcome::Finalized(_) => &[],
    }
}

impl Case {
    /// Reads a case; `None` if the description or the grants are refused.
    fn read(input: &Value) -> Option<Self> {
        let manifest: Manifest = serde_json::from_value(input["manifest"].clone()).ok()?;
        manifest::check(&manifest).ok()?;
        let grants = match &input["grants"] {
            Value::Object(grants) => grants_of_file(grants).ok()?,
            _ => Grants::for_file(&manifest),
        };
        let served = manifest.parents.first()?;
        let kind = &served.kind;
        let namespace = match served.scope {
            Scope::Cluster => None,
            Scope::Namespaced => Some(input["namespace"].as_str().unwrap_or("demo")),
        };
        let mut metadata = json!({"name": "web", "uid": "p1", "resourceVersion": "100"});
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        let is_deleting = input["phase"] == "finalize";
        if is_deleting {
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            metadata["finalizers"] = json!([manifest.name.finalizer()]);
        }
        let depth = input["depth"].as_u64();
        if let Some(depth) = depth {
            metadata["annotations"] = json!({"innkeeper.dev/depth": depth.to_string()});
        }
        Some(Self {
            kinds: Kinds::from_manifests([&manifest]),
            id: ObjectId::new(kind.group_kind(), namespace, "web"),
            parent: json!({
                "apiVersion": kind.api_version(),
                "kind": &*kind.kind,
                "metadata": metadata,
            }),
            phase: if is_deleting {
                Phase::Finalize
            } else {
                Phase::Reconcile
            },
            depth: depth.unwrap_or_default(),
            is_granted: input["grants"].is_object(),
            manifest,
            grants,
        })
    }

    fn rules<'a>(&'a self, limits: &'a Limits) -> Rules<'a> {
        Rules {
            manifest: &self.manifest,
            grants: &self.grants,
            limits,
            resources: &self.kinds,
            host_namespaces: host_namespaces(),
            parent: &self.id,
            depth: observed(&self.parent).depth(),
            phase: self.phase,
        }
    }

    fn plan(&self, objects: &[Value], outcome: &Outcome) -> Plan {
        let parent = observed(&self.parent);
        let objects: Vec<_> = objects.iter().map(observed).collect();
        let context = Context {
            plugin: &self.manifest.name,
            manager: "innkeeper:web",
            manifest: &self.manifest,
            hash_key: &HashKey::new(*b"the key of this cluster"),
            parent: &parent,
            phase: self.phase,
            namespace_terminating: false,
            resources: &self.kinds,
            unreadable: &BTreeMap::new(),
            grants: &self.grants,
        };
        plan(&context, &objects, outcome)
    }

    /// Applies plans until one writes no child. Each child is created once, and updated once at most.
    fn converge(&self, outcome: &Outcome) {
        let mut server = Server::default();
        for _ in 0..children_max(outcome) + 3 {
            let plan = self.plan(&server.objects(), outcome);
            let writes: Vec<_> = plan
                .operations
                .iter()
                .filter(|item| item.child().is_some())
                .collect();
            if writes.is_empty() {
                return;
            }
            for operation in writes {
                server.write(operation).unwrap();
            }
        }
        panic!("still to do:\n{}", self.plan(&server.objects(), outcome));
    }
}

/// The longest possible chain of children that wait for each other: each pass adds one child.
fn children_max(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Desired(desired) => desired.children.len(),
        Outcome::Keep(_) | Outcome::Finalized(_) => 0,
    }
}

/// Checks that an operation targets a child in the answer, and that a body names the parent as the only owner.
fn check_operation(operation: &Operation, ids: &BTreeSet<ObjectId>, parent: &Value) {
    let Some(id) = operation.child() else {
        return;
    };
    assert!(ids.contains(id), "{operation}");
    let Operation::Create { body, .. } = operation else {
        panic!("nothing is observed, so that everything is created: {operation}");
    };
    let body = Value::Object((**body).clone());
    let kind = Gvk::parse(
        body["apiVersion"].as_str().unwrap(),
        body["kind"].as_str().unwrap(),
    );
    assert_eq!(kind.unwrap().group_kind(), id.kind);
    let metadata = &body["metadata"];
    assert_eq!(metadata["name"].as_str(), Some(&*id.name));
    assert_eq!(metadata["namespace"].as_str(), id.namespace.as_deref());
    assert!(metadata["labels"][LABEL_PLUGIN].is_string(), "{metadata}");
    let owners = metadata["ownerReferences"].as_array();
    for owner in owners.into_iter().flatten() {
        assert_eq!(owner["uid"], parent["metadata"]["uid"]);
    }
}

/// Returns true if the in-memory API server understands the object: it identifies keyed lists by name alone, and its time
/// grows with the square of the field count.
fn is_understood(child: &Child) -> bool {
    let text = Value::Object(child.object.clone()).to_string();
    let lists = ["\"ports\"", "\"containers\"", "\"ownerReferences\""];
    let has_data = child.object.get("data").is_none_or(Value::is_object);
    has_data && text.len() < 4096 && !lists.iter().any(|list| text.contains(list))
}
