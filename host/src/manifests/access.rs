//! The rights of the host: what follows from the plugins' grants, and what it needs for itself.
//!
//! Server-side apply asks for `patch`, and for `create` too where the object is missing, both with the object's name:
//! that is why `create` can be limited to names here.
//! Parents are reconciled in every namespace, so that their roles are bound in the whole cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    Granted,
    host::{NAME, labels},
};
use crate::{model::Gvk, plugins::resource, schema::Kinds};

/// The objects of the host's own namespace that it keeps.
const HASH_KEY: &str = "innkeeper-hash-key";
const INVENTORY: &str = "innkeeper-inventory";
const LEASE: &str = "innkeeper";

/// The verbs of children. Delete is there for all kinds, although retained children are never deleted: which children
/// are retained is decided by each answer.
const CHILD_VERBS: [&str; 6] = ["create", "delete", "get", "list", "patch", "watch"];
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];

/// Account, roles and bindings of the host itself.
pub(super) fn host(namespace: &str, crds: &[&str]) -> Vec<Value> {
    let mut rules = vec![
        // To see at once when a kind appears or goes.
        rule(
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            &["list", "watch"],
        ),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule(
            resource::GROUP,
            &["plugins"],
            &["get", "list", "patch", "watch"],
        ),
        rule(resource::GROUP, &["plugins/status"], &["patch"]),
        // Where owner references that block deletion are protected, this is what making one takes.
        rule(resource::GROUP, &["plugins/finalizers"], &["update"]),
        // The host makes sure of its namespace before it puts its key there, and makes it only where it runs outside.
        named("", "namespaces", &["get"], &[namespace]),
    ];
    if !crds.is_empty() {
        rules.push(named(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            &["create", "get", "patch"],
            crds,
        ));
    }
    let own = vec![
        named("", "secrets", &["create", "get", "patch"], &[HASH_KEY]),
        named("", "configmaps", &["create", "get", "patch"], &[INVENTORY]),
        named(
            "coordination.k8s.io",
            "leases",
            &["create", "get", "patch"],
            &[LEASE],
        ),
    ];
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": NAME, "namespace": namespace, "labels": labels()},
        }),
        cluster_role(NAME, rules),
        cluster_role_binding(NAME, namespace),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": NAME, "namespace": namespace, "labels": labels()},
            "rules": own,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": NAME, "namespace": namespace, "labels": labels()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
            "subjects": [subject(namespace)],
        }),
    ]
}

/// The role of the host for one plugin, and its binding.
pub(super) fn plugin(plugin: &Granted<'_>, kinds: &Kinds, namespace: &str) -> Vec<Value> {
    let name = format!("{NAME}-plugin-{}", plugin.manifest.name);
    everywhere(&name, plugin_rules(plugin, kinds), namespace)
}

/// Gives the host rights in every namespace. What is limited to some namespaces takes Roles in the place of this.
fn everywhere(name: &str, rules: Vec<Value>, namespace: &str) -> Vec<Value> {
    vec![
        cluster_role(name, rules),
        cluster_role_binding(name, namespace),
    ]
}

fn plugin_rules(plugin: &Granted<'_>, kinds: &Kinds) -> Vec<Value> {
    let Granted { manifest, grants } = plugin;
    let mut verbs: Verbs = BTreeMap::new();
    let plural = |kind: &Gvk| kinds.resource_of(kind).plural.to_string();
    for parent in &manifest.parents {
        if !grants.allows_parent(&parent.kind.group_kind()) {
            continue;
        }
        let (group, plural) = (&*parent.kind.group, plural(&parent.kind));
        // The finalizer is a patch of the parent.
        allow(
            &mut verbs,
            group,
            &plural,
            &["get", "list", "patch", "watch"],
        );
        allow(&mut verbs, group, &format!("{plural}/status"), &["patch"]);
        // Where owner references that block deletion are protected, this is what making one takes.
        allow(
            &mut verbs,
            group,
            &format!("{plural}/finalizers"),
            &["update"],
        );
    }
    for child in &manifest.children {
        if grants.allows_child(&child.kind.group_kind()) {
            allow(
                &mut verbs,
                &child.kind.group,
                &plural(&child.kind),
                &CHILD_VERBS,
            );
        }
    }
    for read in &manifest.reads {
        if grants.reads_of(&read.kind.group_kind()).next().is_some() {
            allow(
                &mut verbs,
                &read.kind.group,
                &plural(&read.kind),
                &READ_VERBS,
            );
        }
    }
    rules(verbs)
}

/// Verbs by group and resource.
type Verbs = BTreeMap<(String, String), BTreeSet<&'static str>>;

fn allow(verbs: &mut Verbs, group: &str, resource: &str, allowed: &[&'static str]) {
    verbs
        .entry((group.to_owned(), resource.to_owned()))
        .or_default()
        .extend(allowed);
}

/// One rule per group and set of verbs.
fn rules(verbs: Verbs) -> Vec<Value> {
    let mut merged: BTreeMap<(String, BTreeSet<&str>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs {
        merged.entry((group, verbs)).or_default().push(resource);
    }
    merged
        .into_iter()
        .map(|((group, verbs), resources)| {
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
        })
        .collect()
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Value {
    json!({
        "apiGroups": [group],
        "resources": [resource],
        "resourceNames": names,
        "verbs": verbs,
    })
}

fn cluster_role(name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels()},
        "rules": rules,
    })
}

fn cluster_role_binding(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [subject(namespace)],
    })
}

fn subject(namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": NAME, "namespace": namespace})
}
