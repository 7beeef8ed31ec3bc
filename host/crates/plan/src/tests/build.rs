//! Builders for test inputs in domain terms, with valid defaults.

use std::collections::BTreeMap;

use innkeeper_model::{
    ANNOTATION_RETAINED_FOR, Access, ApplyPolicy, Child, ChildKind, Desired, Generated, GroupKind,
    Gvk, HashKey, ManagedEntry, Manifest, Object, Outcome, ParentKind, Phase, PluginName,
    Readiness, RemovalPolicy, Report, Resource, ResourceVersion, Resources, Scope, Uid,
};
use innkeeper_policy::Grants;
use serde_json::{Map, Value, json};

use crate::{Context, Plan, plan};

/// The kinds that the tests use; the cluster serves all except `ServiceMonitor`.
const KINDS: [(&str, &str, &str, bool); 9] = [
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "Service", "services", true),
    (
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        true,
    ),
    ("apps/v1", "Deployment", "deployments", true),
    ("batch/v1", "Job", "jobs", true),
    ("example.dev/v1", "Widget", "widgets", true),
    (
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        "servicemonitors",
        false,
    ),
    ("example.dev/v1", "Web", "webs", true),
];

/// A cluster that serves the kinds above, except removed ones.
#[derive(Clone, Default)]
pub struct Cluster {
    pub without: Vec<&'static str>,
    /// The kinds that other plugins serve.
    pub parents: Vec<&'static str>,
}

impl Resources for Cluster {
    fn resource(&self, kind: &Gvk) -> Option<Resource> {
        let (_, _, plural, _) = *KINDS.iter().find(|(version, name, _, served)| {
            *served
                && *version == kind.api_version()
                && *name == &*kind.kind
                && !self.without.contains(name)
        })?;
        Some(Resource {
            kind: kind.clone(),
            plural: plural.into(),
            scope: Scope::Namespaced,
        })
    }

    fn has_parents(&self, kind: &GroupKind) -> bool {
        self.parents.contains(&&*kind.kind)
    }
}

pub fn gvk(api_version: &str, kind: &str) -> Gvk {
    Gvk::parse(api_version, kind).unwrap()
}

pub fn manifest() -> Manifest {
    let children = KINDS.iter().filter(|(_, kind, ..)| *kind != "Web");
    Manifest {
        name: PluginName::new("web").unwrap(),
        version: "1.0.0".to_owned(),
        parents: vec![ParentKind {
            kind: gvk("example.dev/v1", "Web"),
            plural: "webs".to_owned(),
            scope: Scope::Namespaced,
        }],
        crds: Vec::new(),
        children: children
            .map(|(version, kind, _, served)| ChildKind {
                kind: gvk(version, kind),
                required: *served,
                ready_condition: (*kind == "Widget").then(|| "Available".to_owned()),
                never_deleted: false,
            })
            .collect(),
        reads: Vec::new(),
        finalize: false,
        reads_own_status: false,
        config_schema: None,
    }
}

/// The Web `demo/shop`.
#[derive(Clone)]
pub struct Parent(pub Value);

pub fn parent(uid: &str) -> Parent {
    Parent(json!({
        "apiVersion": "example.dev/v1",
        "kind": "Web",
        "metadata": {
            "name": "shop",
            "namespace": "demo",
            "uid": uid,
            "resourceVersion": "100",
            "generation": 3,
        },
    }))
}

impl Parent {
    pub fn with(mut self, pointer: &str, field: &str, value: Value) -> Self {
        self.0.pointer_mut(pointer).unwrap()[field] = value;
        self
    }

    pub fn deleting(self) -> Self {
        self.with(
            "/metadata",
            "deletionTimestamp",
            json!("2026-01-01T00:00:00Z"),
        )
    }

    pub fn finalizers(self, finalizers: &[&str]) -> Self {
        self.with("/metadata", "finalizers", json!(finalizers))
    }

    pub fn object(&self) -> Object {
        observed(&self.0)
    }
}

/// Returns an object as the cache would hold it.
pub fn observed(object: &Value) -> Object {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().map(std::sync::Arc::from);
    let list = |field: &str| metadata[field].as_array().cloned().unwrap_or_default();
    let ours = |field: &str| -> BTreeMap<_, _> {
        metadata[field]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.starts_with("innkeeper.dev/"))
            .map(|(key, value)| (key.as_str().into(), text(value).unwrap()))
            .collect()
    };
    let mut shown = object.clone();
    let fields = shown["metadata"].as_object_mut().unwrap();
    fields.remove("managedFields");
    fields.remove("resourceVersion");
    let mut object = Object {
        kind: gvk(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        ),
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]).unwrap(),
        uid: Uid(text(&metadata["uid"]).unwrap()),
        resource_version: ResourceVersion(
            metadata["resourceVersion"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap(),
        ),
        generation: metadata["generation"].as_i64(),
        deletion_timestamp: text(&metadata["deletionTimestamp"]),
        controller: list("ownerReferences")
            .iter()
            .find(|owner| owner["controller"] == true)
            .map(|owner| Uid(text(&owner["uid"]).unwrap())),
        finalizers: list("finalizers")
            .iter()
            .map(|finalizer| text(finalizer).unwrap())
            .collect(),
        labels: ours("labels"),
        annotations: ours("annotations"),
        retained_for: None,
        managed: list("managedFields")
            .iter()
            .filter(|entry| entry["manager"].as_str().unwrap().starts_with("innkeeper:"))
            .map(|entry| ManagedEntry {
                manager: text(&entry["manager"]).unwrap(),
                subresource: text(&entry["subresource"]),
                applied: entry["operation"] == "Apply",
                fields: entry["fieldsV1"].to_string().into(),
            })
            .collect(),
        form: Access::Full,
        json: shown.to_string().into(),
    };
    object.retained_for = object
        .annotation(ANNOTATION_RETAINED_FOR)
        .and_then(|mark| Some(key().verified(mark, &object.id())?.into()));
    object
}

/// Returns a child with the key `<kind>-<name>`.
pub fn child(api_version: &str, kind: &str, name: &str) -> Child {
    Child {
        key: format!("{}-{name}", kind.to_lowercase()),
        kind: gvk(api_version, kind),
        namespace: Some("demo".to_owned()),
        name: name.to_owned(),
        object: fields(json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name},
        })),
        generate: Vec::new(),
        apply: ApplyPolicy::Always,
        removal: RemovalPolicy::Delete,
        readiness: Readiness::Derive,
        after: Vec::new(),
    }
}

pub fn config_map(name: &str) -> Child {
    let mut child = child("v1", "ConfigMap", name);
    child.object.insert("data".to_owned(), json!({"a": "1"}));
    child
}

pub fn deployment(name: &str) -> Child {
    let mut child = child("apps/v1", "Deployment", name);
    child
        .object
        .insert("spec".to_owned(), json!({"replicas": 2}));
    child
}

pub fn secret(name: &str) -> Child {
    let mut child = child("v1", "Secret", name);
    child.generate = vec![Generated {
        key: "password".to_owned(),
        length: 12,
        alphabet: "abc".to_owned(),
        token: None,
    }];
    child
}

/// Small changes to a child.
pub trait ChildExt {
    fn after(self, keys: &[&str]) -> Self;
    fn applied(self, policy: ApplyPolicy) -> Self;
    fn retained(self) -> Self;
    fn said(self, readiness: Readiness) -> Self;
    fn set(self, field: &str, value: Value) -> Self;
}

impl ChildExt for Child {
    fn after(mut self, keys: &[&str]) -> Self {
        self.after = keys.iter().map(|key| (*key).to_owned()).collect();
        self
    }

    fn applied(mut self, policy: ApplyPolicy) -> Self {
        self.apply = policy;
        self
    }

    fn retained(mut self) -> Self {
        self.removal = RemovalPolicy::Retain;
        self
    }

    fn said(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    fn set(mut self, field: &str, value: Value) -> Self {
        self.object.insert(field.to_owned(), value);
        self
    }
}

pub fn desired(children: Vec<Child>) -> Outcome {
    Outcome::Desired(Desired {
        children,
        report: Report::default(),
        prediction: None,
    })
}

pub fn fields(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A plan's inputs besides objects and answer; a test changes the fields that it is about.
pub struct Scene {
    pub manifest: Manifest,
    pub cluster: Cluster,
    pub parent: Parent,
    pub namespace_terminating: bool,
    /// The kinds that cannot be read.
    pub unreadable: BTreeMap<GroupKind, String>,
    pub key: HashKey,
    pub grants: Grants,
}

/// The test host's key.
pub fn key() -> HashKey {
    HashKey::new(*b"the key of this cluster")
}

pub fn scene() -> Scene {
    Scene {
        manifest: manifest(),
        cluster: Cluster::default(),
        parent: parent("p1"),
        namespace_terminating: false,
        unreadable: BTreeMap::new(),
        key: key(),
        grants: Grants::default(),
    }
}

impl Scene {
    pub fn plan(&self, objects: &[Value], answer: &Outcome) -> Plan {
        let parent = self.parent.object();
        let phase = if parent.is_deleting() {
            Phase::Finalize
        } else {
            Phase::Reconcile
        };
        let context = Context {
            plugin: &self.manifest.name,
            manager: "innkeeper:web",
            manifest: &self.manifest,
            hash_key: &self.key,
            parent: &parent,
            phase,
            namespace_terminating: self.namespace_terminating,
            resources: &self.cluster,
            unreadable: &self.unreadable,
            grants: &self.grants,
        };
        let observed: Vec<Object> = objects.iter().map(observed).collect();
        plan(&context, &observed, answer)
    }
}
