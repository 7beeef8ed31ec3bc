//! The rights of the host: those for its plugins, which follow from their grants, and those for itself.
//!
//! Server-side apply requires `patch`, and `create` as well if the object does not exist. Both requests have the name of
//! the object, so `create` can be limited to names here.
//! Roles are bound in the whole cluster, because parents are reconciled in every namespace. A host that is limited to
//! namespaces has Roles in them, and a ClusterRole only for cluster-scoped objects.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::{ANNOTATION_PLUGINS, Gvk, Resource, Scope};
use innkeeper_plugin_controller::resource;
use innkeeper_reconcile::INVENTORY;
use innkeeper_schema::Kinds;
use serde_json::{Value, json};

use super::Granted;
use crate::{
    config::{Definitions, ManifestsArgs, ResourceArgs},
    run::HASH_KEY_SECRET,
};

/// The namespace of events about cluster-scoped objects.
const EVENTS_NAMESPACE: &str = "default";

/// The verbs of children. They include `delete` for all kinds, because each answer decides which children are retained.
const CHILD_VERBS: [&str; 6] = ["create", "delete", "get", "list", "patch", "watch"];
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];

/// Returns account, roles and bindings of the host itself.
pub(super) fn host(args: &ManifestsArgs, crds: &[&str], plugins: &[Granted<'_>]) -> Vec<Value> {
    let (namespace, host) = (&args.namespace, args.subject());
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": args.name, "namespace": namespace, "labels": args.labels()},
    })];
    let rules = everywhere_rules(args, crds);
    if !rules.is_empty() {
        objects.extend(bound(args, &args.name, None, rules, &host));
    }
    let rules = own_rules(args);
    objects.extend(bound(args, &args.name, Some(namespace), rules, &host));
    let events = || rule("events.k8s.io", "events", &["create", "patch"]);
    for name in args.namespaces.iter().flatten() {
        let rules = vec![events(), named("", "namespaces", &["get"], &[name])];
        let role = format!("{}-namespace", args.name);
        objects.extend(bound(args, &role, Some(name), rules, &host));
    }
    let mut parents = plugins.iter().flat_map(|plugin| &plugin.manifest.parents);
    if args.namespaces.is_some() && parents.any(|parent| parent.scope == Scope::Cluster) {
        let role = format!("{}-events", args.name);
        let rules = vec![events()];
        objects.extend(bound(args, &role, Some(EVENTS_NAMESPACE), rules, &host));
    }
    objects
}

/// Returns the rules for the host itself in the whole cluster.
fn everywhere_rules(args: &ManifestsArgs, crds: &[&str]) -> Vec<Value> {
    let is_limited = args.namespaces.is_some();
    let has_definitions = args.crds == Definitions::Install;
    let mut rules = Vec::new();
    if has_definitions {
        // A new or removed kind must be known at once.
        rules.push(rule(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            &["list", "watch"],
        ));
    }
    if !is_limited {
        rules.push(rule("events.k8s.io", "events", &["create", "patch"]));
    }
    if !is_limited || args.resources().is_some() {
        rules.extend([
            rule(
                resource::GROUP,
                "plugins",
                &["get", "list", "patch", "watch"],
            ),
            rule(resource::GROUP, "plugins/status", &["patch"]),
            // The admission plugin OwnerReferencesPermissionEnforcement requires it for an owner reference that blocks
            // deletion.
            rule(resource::GROUP, "plugins/finalizers", &["update"]),
            // A Plugin may select parents by the labels of their namespaces. The host also checks its own namespace
            // before it creates its key there. Only a host outside of the cluster creates the namespace.
            rule("", "namespaces", &READ_VERBS),
        ]);
    }
    if has_definitions && !crds.is_empty() {
        rules.push(named(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            &["create", "get", "patch"],
            crds,
        ));
    }
    rules
}

/// Returns the rules for the host in its own namespace.
fn own_rules(args: &ManifestsArgs) -> Vec<Value> {
    let kept = ["create", "get", "patch"];
    let mut rules = vec![
        named("", "secrets", &kept, &[HASH_KEY_SECRET]),
        named("", "configmaps", &kept, &[INVENTORY]),
        named("coordination.k8s.io", "leases", &kept, &[&args.name]),
    ];
    if args.namespaces.is_some() {
        // The API server authorizes a request for a namespace within that namespace, so a Role is enough.
        rules.push(named("", "namespaces", &["get"], &[&args.namespace]));
    }
    if let Some(ResourceArgs {
        secrets,
        config_maps,
        ..
    }) = args.resources()
    {
        for (resource, names) in [("secrets", secrets), ("configmaps", config_maps)] {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if !names.is_empty() {
                rules.push(named("", resource, &["get"], &names));
            }
        }
    }
    rules
}

/// Returns the roles and bindings for one plugin: those of the host, and those of the account that writes its children.
pub(super) fn plugin(plugin: &Granted<'_>, kinds: &Kinds, args: &ManifestsArgs) -> Vec<Value> {
    let name = format!("{}-plugin-{}", args.name, plugin.manifest.name);
    let account = args.account(plugin);
    let verbs: &[&'static str] = if account.is_some() {
        &READ_VERBS
    } else {
        &CHILD_VERBS
    };
    let host = args.subject();
    let permissions = of_host(plugin, verbs);
    let rules_in = |is_asked: fn(Scope) -> bool| rules(&permissions, kinds, is_asked);
    let mut objects = where_it_sees(args, &name, &host, rules_in);
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
            "labels": args.labels(),
            "annotations": {ANNOTATION_PLUGINS: plugin.manifest.name.as_str()},
        },
    }));
    let permissions = of_account(plugin);
    let rules_in = |is_asked: fn(Scope) -> bool| rules(&permissions, kinds, is_asked);
    objects.extend(where_it_sees(
        args,
        &format!("{name}-children"),
        &writer,
        rules_in,
    ));
    let rules = vec![named(
        "",
        "serviceaccounts",
        &["get", "impersonate"],
        &[&account.name],
    )];
    let role = format!("{name}-account");
    objects.extend(bound(args, &role, Some(&account.namespace), rules, &host));
    objects
}

/// Returns roles and bindings of a subject in the whole scope of the host.
fn where_it_sees(
    args: &ManifestsArgs,
    name: &str,
    subject: &Value,
    rules: impl Fn(fn(Scope) -> bool) -> Vec<Value>,
) -> Vec<Value> {
    let Some(limited) = &args.namespaces else {
        return bound(args, name, None, rules(|_| true), subject);
    };
    let mut objects = Vec::new();
    let everywhere = rules(|scope| scope == Scope::Cluster);
    if !everywhere.is_empty() {
        objects.extend(bound(args, name, None, everywhere, subject));
    }
    let rules = rules(|scope| scope == Scope::Namespaced);
    for namespace in limited.iter().filter(|_| !rules.is_empty()) {
        objects.extend(bound(args, name, Some(namespace), rules.clone(), subject));
    }
    objects
}

/// Returns a role and its binding, in a namespace or in the whole cluster.
fn bound(
    args: &ManifestsArgs,
    name: &str,
    namespace: Option<&str>,
    rules: Vec<Value>,
    subject: &Value,
) -> Vec<Value> {
    const GROUP: &str = "rbac.authorization.k8s.io";

    let mut metadata = json!({"name": name, "labels": args.labels()});
    let mut kind = "ClusterRole";
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
        kind = "Role";
    }
    vec![
        json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": kind,
            "metadata": metadata,
            "rules": rules,
        }),
        json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
            "subjects": [subject],
        }),
    ]
}

/// A permission: a kind, the part of its objects, such as `/status`, and verbs.
type Permission<'a> = (&'a Gvk, &'static str, &'a [&'static str]);

/// Returns the permissions of the host for a plugin.
fn of_host<'a>(plugin: &'a Granted<'_>, of_children: &'a [&'static str]) -> Vec<Permission<'a>> {
    let Granted { manifest, grants } = plugin;
    let parents = plugin.parents().flat_map(|parent| -> [Permission<'_>; 3] {
        [
            // The finalizer is added by a patch of the parent.
            (parent, "", &["get", "list", "patch", "watch"]),
            (parent, "/status", &["patch"]),
            // The admission plugin OwnerReferencesPermissionEnforcement requires it for an owner reference that blocks
            // deletion.
            (parent, "/finalizers", &["update"]),
        ]
    });
    let children = plugin.children().map(|child| (child, "", of_children));
    let reads = manifest.reads.iter().map(|read| &read.kind);
    let granted = reads.filter(|kind| grants.reads_of(&kind.group_kind()).next().is_some());
    let reads = granted.map(|kind| (kind, "", &READ_VERBS[..]));
    parents.chain(children).chain(reads).collect()
}

/// Returns the permissions to write the children of a plugin with owner references to their parents.
fn of_account<'a>(plugin: &'a Granted<'_>) -> Vec<Permission<'a>> {
    let parents = plugin
        .parents()
        .map(|parent| -> Permission<'_> { (parent, "/finalizers", &["update"]) });
    let children = plugin.children();
    let children =
        children.map(|child| -> Permission<'_> { (child, "", &["create", "delete", "patch"]) });
    parents.chain(children).collect()
}

/// Returns the rules for the permissions to kinds whose scope fits; kinds with the same group and verbs share a rule.
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
