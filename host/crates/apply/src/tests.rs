//! The writer against scripted answers.

mod absences;
mod answers;
mod events;
mod scripted;
mod writes;

use std::collections::BTreeMap;

use innkeeper_model::{Access, Gvk, Object, Resource, ResourceVersion, Resources, Scope, Uid};

/// The tests' kinds, whose plural is the kind with an `s`.
struct Cluster;

impl Resources for Cluster {
    fn resource(&self, kind: &Gvk) -> Option<Resource> {
        Some(Resource {
            kind: kind.clone(),
            plural: format!("{}s", kind.kind.to_lowercase()).into(),
            scope: Scope::Namespaced,
        })
    }
}

/// An object in the namespace `demo` that has nothing but the identity.
fn object(kind: &str, name: &str, uid: &str, version: u64) -> Object {
    Object {
        kind: Gvk::new("example.dev", "v1", kind),
        namespace: Some("demo".into()),
        name: name.into(),
        uid: Uid(uid.into()),
        resource_version: ResourceVersion(version),
        generation: None,
        deletion_timestamp: None,
        controller: None,
        finalizers: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        retained_for: None,
        managed: Vec::new(),
        form: Access::Full,
        json: "{}".into(),
    }
}
