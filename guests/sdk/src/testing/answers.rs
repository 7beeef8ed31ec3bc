//! Checks an answer against the manifest.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{identity, statuses};
use crate::answer::Answer;
use crate::child::{Child, is_dns_subdomain};
use crate::manifest::Manifest;
use crate::request::{Phase, Request};

/// The maximum length of names and keys, in characters.
const NAME_CHARS_MAX: usize = 253;

/// Metadata fields that only the host and the API server set.
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

/// Lists the host rules that an answer breaks.
///
/// The host refuses an answer that breaks a rule, and changes nothing. The list has undeclared kinds, duplicate keys and
/// objects, an `after` without a child or in a cycle, namespaces other than a namespaced parent's, invalid names,
/// metadata fields that a plugin must not set, and `Finalized` for a parent that is not being deleted. It cannot check
/// grants and limits, which depend on the cluster; `innkeeper test` checks more.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use innkeeper_sdk::testing::{TestRequest, answer_problems};
/// use serde_json::json;
///
/// let manifest = Manifest::new("ponds", "1.0.0").untyped_child(ChildKind::new("v1", "ConfigMap"));
/// let parent = json!({"metadata": {"name": "koi", "namespace": "demo"}});
/// let request = TestRequest::new(&parent).build();
/// let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "koi"}});
/// let answer = Desired::new().child(Child::untyped("service", &service)).into();
/// let problems = answer_problems(&manifest, &request, &answer);
/// assert_eq!(problems, ["child service: describe() does not declare children of kind v1 Service"]);
/// ```
pub fn answer_problems(manifest: &Manifest, request: &Request, answer: &Answer) -> Vec<String> {
    let mut problems = Vec::new();
    if matches!(answer, Answer::Finalized(_)) && request.phase == Phase::Reconcile {
        problems.push("finalized is an answer for a parent that is being deleted".to_owned());
    }
    let mut keys = BTreeSet::new();
    let mut objects = BTreeMap::new();
    for child in answer.children() {
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
    order_problems(answer.children(), &mut problems);
    let status = answer
        .report()
        .status
        .clone()
        .unwrap_or_else(|| serde_json::json!({}));
    problems.extend(statuses::problems(manifest, request, &status));
    problems
}

/// Reports an undeclared kind and an invalid name.
fn kind_problems(manifest: &Manifest, object: &Value, tell: &mut impl FnMut(String)) {
    let (group, kind, _, name) = identity(object);
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let mut declared = manifest.children.iter();
    if !declared
        .any(|declared_kind| declared_kind.api_version == version && declared_kind.kind == kind)
    {
        tell(format!(
            "describe() does not declare children of kind {version} {kind}"
        ));
    }
    // RBAC kinds allow other names.
    let is_role = group == "rbac.authorization.k8s.io";
    let is_free = is_role && (1..=NAME_CHARS_MAX).contains(&name.len());
    if !is_free && !is_dns_subdomain(name) {
        tell(format!("\"{name}\" is not a valid name"));
    }
}

/// Reports each `after` without a child, and children that wait for each other.
fn order_problems(children: &[Child], problems: &mut Vec<String>) {
    let keys: BTreeSet<&str> = children.iter().map(|child| child.key.as_str()).collect();
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
        let open: BTreeSet<&str> = waiting.iter().map(|child| child.key.as_str()).collect();
        let before = waiting.len();
        waiting.retain(|child| child.after.iter().any(|key| open.contains(key.as_str())));
        if waiting.len() == before {
            break;
        }
    }
    if !waiting.is_empty() {
        let keys: Vec<&str> = waiting.iter().map(|child| child.key.as_str()).collect();
        problems.push(format!(
            "the children {} wait for each other",
            keys.join(", ")
        ));
    }
}
