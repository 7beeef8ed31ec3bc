//! Checks of an outcome against the manifest.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{identity, statuses};
use crate::child::{Child, is_dns_subdomain};
use crate::manifest::Manifest;
use crate::outcome::Outcome;
use crate::request::{Phase, Request};

/// The number of characters of a name and of a key.
const NAME_CHARS_MAX: usize = 253;

/// Fields of the metadata that only the host and the API server set.
const OTHERS_METADATA: [&str; 11] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Lists the rules of the host that an outcome breaks; empty if it keeps them.
///
/// The host refuses an outcome that breaks one of them, and changes nothing. The list has the kinds that the
/// manifest does not declare, keys and objects that are stated twice, an `after` that names no child or leads to
/// a circle, namespaces other than that of a namespaced parent, names, fields of the metadata that are not the
/// plugin's, and `Finalized` for a parent that is not being deleted. What depends on the cluster, such as grants
/// and limits, only the host knows: `innkeeper test` checks more.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use innkeeper_sdk::testing::{TestRequest, outcome_problems};
/// use serde_json::json;
///
/// let manifest = Manifest::new("ponds", "1.0.0").child_kind("v1", "ConfigMap", true);
/// let parent = json!({"metadata": {"name": "koi", "namespace": "demo"}});
/// let request = TestRequest::new(&parent).build();
/// let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "koi"}});
/// let outcome = Outcome::desired([Child::new("service", &service)], Report::new());
/// let problems = outcome_problems(&manifest, &request, &outcome);
/// assert_eq!(problems, ["child service: describe() does not declare children of kind v1 Service"]);
/// ```
pub fn outcome_problems(manifest: &Manifest, request: &Request, outcome: &Outcome) -> Vec<String> {
    let mut problems = Vec::new();
    if matches!(outcome, Outcome::Finalized(_)) && request.phase == Phase::Reconcile {
        problems.push("finalized is an answer for a parent that is being deleted".to_owned());
    }
    let (mut keys, mut objects) = (BTreeSet::new(), BTreeMap::new());
    for child in outcome.children() {
        let mut tell = |problem: String| problems.push(format!("child {}: {problem}", child.key));
        let length = child.key.chars().count();
        if !(1..=NAME_CHARS_MAX).contains(&length) {
            tell(format!(
                "its key has {length} characters, and 1 to {NAME_CHARS_MAX} are allowed"
            ));
        }
        if !keys.insert(child.key.as_str()) {
            tell("another child has the same key".to_owned());
        }
        let (group, kind, namespace, name) = identity(&child.object);
        if let Some(other) = objects.insert((group, kind, namespace, name), &child.key) {
            tell(format!("it is the same object as child {other}"));
        }
        kind_problems(manifest, &child.object, &mut tell);
        let own = request.namespace();
        if !own.is_empty() && !namespace.is_empty() && namespace != own {
            tell(format!(
                "it is in the namespace {namespace}, and its parent in {own}"
            ));
        }
        let is_parent = (group, kind, name)
            == (
                request.parent_group(),
                request.parent_kind(),
                request.name(),
            );
        if is_parent && (namespace.is_empty() || namespace == own) {
            tell("it is the parent itself".to_owned());
        }
        for field in OTHERS_METADATA {
            if child.object["metadata"].get(field).is_some() {
                tell(format!("leave out metadata.{field}"));
            }
        }
    }
    order_problems(outcome.children(), &mut problems);
    let status = outcome.report().status.clone();
    let status = status.unwrap_or_else(|| serde_json::json!({}));
    problems.extend(statuses::problems(manifest, request, &status));
    problems
}

/// Tells an undeclared kind and an unusable name.
fn kind_problems(manifest: &Manifest, object: &Value, tell: &mut impl FnMut(String)) {
    let (group, kind, _, name) = identity(object);
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let mut declared = manifest.children.iter();
    if !declared.any(|it| it.api_version == version && it.kind == kind) {
        tell(format!(
            "describe() does not declare children of kind {version} {kind}"
        ));
    }
    // Kinds of roles may have other names.
    let is_role = group == "rbac.authorization.k8s.io";
    let is_free = is_role && (1..=NAME_CHARS_MAX).contains(&name.len());
    if !is_free && !is_dns_subdomain(name) {
        tell(format!("\"{name}\" is not a valid name"));
    }
}

/// Tells each `after` without a child, and the children that wait for each other.
fn order_problems(children: &[Child], problems: &mut Vec<String>) {
    let keys: BTreeSet<&str> = children.iter().map(|it| it.key.as_str()).collect();
    for child in children {
        for key in &child.after {
            if !keys.contains(key.as_str()) {
                problems.push(format!(
                    "child {}: there is no child {key} to wait for",
                    child.key
                ));
            }
        }
    }
    let mut waiting: Vec<&Child> = children.iter().collect();
    loop {
        let left: BTreeSet<&str> = waiting.iter().map(|it| it.key.as_str()).collect();
        let before = waiting.len();
        waiting.retain(|it| it.after.iter().any(|key| left.contains(key.as_str())));
        if waiting.len() == before {
            break;
        }
    }
    if !waiting.is_empty() {
        let keys: Vec<&str> = waiting.iter().map(|it| it.key.as_str()).collect();
        problems.push(format!(
            "the children {} wait for each other",
            keys.join(", ")
        ));
    }
}
