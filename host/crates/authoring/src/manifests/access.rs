//! The host's permissions for a plugin, which follow from the grants.
//!
//! Parents are reconciled in every namespace, so the permissions are in a ClusterRole. The host's own role aggregates
//! it by label. A namespaced host has Roles in those namespaces, and a ClusterRole only for cluster-scoped objects.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_command::Definitions;
use innkeeper_crd::Kinds;
use innkeeper_model::{ANNOTATION_PLUGINS, Gvk, LABEL_AGGREGATE, Resource, Scope};
use serde_json::{Value, json};

use super::Granted;
use crate::args::ManifestsArgs;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The namespace for events about cluster-scoped objects.
const EVENTS_NAMESPACE: &str = "default";

/// Verbs on children, except for deletion.
const CHILD_VERBS: [&str; 5] = ["create", "get", "list", "patch", "watch"];
const WRITE_VERBS: [&str; 2] = ["create", "patch"];
/// The verb for all child kinds except those that are never deleted, because each answer decides which are retained.
const DELETE_VERBS: [&str; 1] = ["delete"];
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];

/// Returns one plugin's roles and bindings: the host's, and those for the account that writes its children.
pub(super) fn plugin(plugin: &Granted<'_>, kinds: &Kinds, args: &ManifestsArgs) -> Vec<Value> {
    let name = format!("{}-plugin-{}", args.name, plugin.manifest.name);
    let account = args.account(plugin);
    let host = json!({"kind": "ServiceAccount", "name": args.name, "namespace": args.namespace});
    let permissions = host_permissions(plugin, account.is_none());
    let rules_in = |is_asked: fn(Scope) -> bool| {
        let mut rules = rules(&permissions, kinds, is_asked);
        if is_asked(Scope::Cluster) && args.crds == Definitions::Install {
            rules.extend(definitions_rule(plugin));
        }
        rules
    };
    let mut objects = if args.namespaces.is_some() {
        where_it_sees(args, &name, &host, rules_in)
    } else {
        let mut role = role(args, &name, None, &rules_in(|_| true));
        // Without a binding: the chart's ClusterRole aggregates roles with this label.
        role["metadata"]["labels"][LABEL_AGGREGATE] = args.name.as_str().into();
        vec![role]
    };
    let mut parents = plugin.manifest.parents.iter();
    if args.namespaces.is_some() && parents.any(|parent| parent.scope == Scope::Cluster) {
        // Events about cluster-scoped objects are there, whatever --namespaces says.
        let rules = vec![rule("events.k8s.io", "events", &["create", "patch"])];
        let role = format!("{}-events", args.name);
        objects.extend(bound(args, &role, Some(EVENTS_NAMESPACE), &rules, &host));
    }
    let Some(account) = account else {
        return objects;
    };
    let writer = json!({
        "kind": "ServiceAccount", "name": account.name, "namespace": account.namespace,
    });
    objects.push(json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": account.name,
            "namespace": account.namespace,
            "labels": labels(args),
            "annotations": {ANNOTATION_PLUGINS: plugin.manifest.name.as_str()},
        },
    }));
    let permissions = account_permissions(plugin);
    let rules_in = |is_asked: fn(Scope) -> bool| rules(&permissions, kinds, is_asked);
    objects.extend(where_it_sees(
        args,
        &format!("{name}-children"),
        &writer,
        rules_in,
    ));
    // `get`, because the host reads the annotation in which the account names its plugins.
    let rules = vec![named(
        "",
        "serviceaccounts",
        &["get", "impersonate"],
        &[&account.name],
    )];
    let role = format!("{name}-account");
    objects.extend(bound(args, &role, Some(&account.namespace), &rules, &host));
    objects
}

/// Returns a subject's roles and bindings in the host's whole scope.
fn where_it_sees(
    args: &ManifestsArgs,
    name: &str,
    subject: &Value,
    rules: impl Fn(fn(Scope) -> bool) -> Vec<Value>,
) -> Vec<Value> {
    let Some(limited) = &args.namespaces else {
        return bound(args, name, None, &rules(|_| true), subject);
    };
    let mut objects = Vec::new();
    let everywhere = rules(|scope| scope == Scope::Cluster);
    if !everywhere.is_empty() {
        objects.extend(bound(args, name, None, &everywhere, subject));
    }
    let rules = rules(|scope| scope == Scope::Namespaced);
    for namespace in limited.iter().filter(|_| !rules.is_empty()) {
        objects.extend(bound(args, name, Some(namespace), &rules, subject));
    }
    objects
}

/// Returns a role with a binding, in a namespace or in the whole cluster.
fn bound(
    args: &ManifestsArgs,
    name: &str,
    namespace: Option<&str>,
    rules: &[Value],
    subject: &Value,
) -> Vec<Value> {
    let role = role(args, name, namespace, rules);
    let mut binding = role.clone();
    let kind = role["kind"].as_str().unwrap_or_default();
    binding["kind"] = format!("{kind}Binding").into();
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": name});
    binding["subjects"] = json!([subject]);
    if let Some(fields) = binding.as_object_mut() {
        fields.remove("rules");
    }
    vec![role, binding]
}

/// Returns a role in a namespace or in the whole cluster.
fn role(args: &ManifestsArgs, name: &str, namespace: Option<&str>, rules: &[Value]) -> Value {
    let mut role = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels(args)},
        "rules": rules,
    });
    if let Some(namespace) = namespace {
        role["kind"] = "Role".into();
        role["metadata"]["namespace"] = namespace.into();
    }
    role
}

/// Returns the labels for everything that belongs to the host.
fn labels(args: &ManifestsArgs) -> Value {
    json!({"app.kubernetes.io/name": "innkeeper", "app.kubernetes.io/instance": args.name})
}

/// Returns the rule to install and maintain a plugin's definitions, if it has any.
fn definitions_rule(plugin: &Granted<'_>) -> Option<Value> {
    let definitions = plugin.definitions();
    let names: Vec<&str> = definitions.keys().map(String::as_str).collect();
    let group = "apiextensions.k8s.io";
    let resource = "customresourcedefinitions";
    // An apply that creates an object needs `create` too. Unlike a POST it has a name, so the rule can be limited to
    // names.
    (!names.is_empty()).then(|| named(group, resource, &["create", "get", "patch"], &names))
}

/// A permission: a kind, a part such as `/status`, and verbs.
type Permission<'a> = (&'a Gvk, &'static str, &'a [&'static str]);

/// Returns the host's permissions for a plugin.
fn host_permissions<'a>(plugin: &'a Granted<'_>, writes_children: bool) -> Vec<Permission<'a>> {
    let Granted {
        manifest, grants, ..
    } = plugin;
    let parents = plugin.parents().flat_map(|parent| -> [Permission<'_>; 3] {
        [
            // A patch to the parent adds the finalizer.
            (parent, "", &["get", "list", "patch", "watch"]),
            (parent, "/status", &["patch"]),
            // The admission plugin OwnerReferencesPermissionEnforcement requires it for an owner reference that blocks
            // deletion.
            (parent, "/finalizers", &["update"]),
        ]
    });
    // If another account writes the children, the host only watches them.
    let verbs: &[&'static str] = if writes_children {
        &CHILD_VERBS
    } else {
        &READ_VERBS
    };
    let children = plugin
        .children()
        .map(move |child| -> Permission<'_> { (child, "", verbs) })
        .chain(deletions(plugin).filter(move |_| writes_children));
    let reads = manifest
        .reads
        .iter()
        .map(|read| &read.kind)
        .filter(|kind| grants.reads_of(&kind.group_kind()).next().is_some())
        .map(|kind| (kind, "", &READ_VERBS[..]));
    parents.chain(children).chain(reads).collect()
}

/// Returns the permissions to write a plugin's children with owner references to their parents.
fn account_permissions<'a>(plugin: &'a Granted<'_>) -> Vec<Permission<'a>> {
    let parents = plugin
        .parents()
        .map(|parent| -> Permission<'_> { (parent, "/finalizers", &["update"]) });
    let children = plugin
        .children()
        .map(|child| -> Permission<'_> { (child, "", &WRITE_VERBS) });
    parents.chain(children).chain(deletions(plugin)).collect()
}

/// Returns the permissions to delete children.
fn deletions<'a>(plugin: &'a Granted<'_>) -> impl Iterator<Item = Permission<'a>> {
    plugin
        .children()
        .filter(|child| !plugin.manifest.never_deletes(&child.group_kind()))
        .map(|child| -> Permission<'_> { (child, "", &DELETE_VERBS) })
}

/// Returns the rules for permissions on kinds with a fitting scope; kinds with the same group and verbs share a rule.
fn rules(
    permissions: &[Permission<'_>],
    kinds: &Kinds,
    is_asked: impl Fn(Scope) -> bool,
) -> Vec<Value> {
    let mut verbs: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for (kind, part, allowed) in permissions {
        let Resource { plural, scope, .. } = kinds.resource_of(kind);
        if is_asked(scope) {
            let resource = (&*kind.group, format!("{plural}{part}"));
            verbs.entry(resource).or_default().extend(*allowed);
        }
    }
    let mut merged: BTreeMap<(&str, BTreeSet<&str>), Vec<String>> = BTreeMap::new();
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

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

fn named(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Value {
    let mut rule = rule(group, resource, verbs);
    rule["resourceNames"] = names.into();
    rule
}
