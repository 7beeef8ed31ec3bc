//! Checks a manifest's CRDs.

use serde_json::Value;

use super::statuses;
use crate::crd::unbounded;
use crate::manifest::Manifest;

/// The start of the root description that kube's derive macro writes if `doc` is not set.
const PLACEHOLDER: &str = "Auto-generated derived type";

/// Lists where a manifest's CRDs break Kubernetes conventions.
///
/// The kind and every field need a description for `kubectl explain`. The status may have no defaults, because a default
/// would be an invented observation, and no required fields, because the host writes conditions before the first
/// answer. Each string, list and map needs a bound; nothing bounds a field that keeps unknown fields.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use innkeeper_sdk::testing::definition_problems;
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
/// #[kube(group = "example.com", version = "v1", kind = "Pond", namespaced)]
/// #[kube(doc = "A pond.")]
/// struct PondSpec {
///     ducks: Option<i32>,
/// }
///
/// let manifest = Manifest::new("pond", "1.0.0").parent::<Pond>();
/// let problems = definition_problems(&manifest);
/// assert!(problems.contains(&"ponds.example.com: .spec.ducks has no description".to_owned()));
/// ```
pub fn definition_problems(manifest: &Manifest) -> Vec<String> {
    let mut problems = Vec::new();
    for crd in &manifest.crds {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let description = root["description"].as_str().unwrap_or_default();
        if description.is_empty() || description.starts_with(PLACEHOLDER) {
            problems.push(format!("{name}: the kind has no description"));
        }
        fields(name, "", root, &mut problems);
        let status = &root["properties"]["status"];
        let refusals = statuses::refusals(".status", status);
        problems.extend(refusals.map(|problem| format!("{name}: {problem}")));
        let properties = root["properties"].as_object().into_iter().flatten();
        for (field, schema) in properties.filter(|(field, _)| *field != "metadata") {
            sizes(name, &format!(".{field}"), schema, &mut problems);
        }
    }
    problems
}

/// Adds fields without a size bound.
fn sizes(name: &str, path: &str, schema: &Value, problems: &mut Vec<String>) {
    let Some(members) = schema.as_object() else {
        return;
    };
    for keyword in unbounded(members) {
        problems.push(format!("{name}: {path} has no {keyword}"));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        problems.push(format!(
            "{name}: {path} keeps unknown fields, whose size has no bound"
        ));
    }
    for (field, below) in schema["properties"].as_object().into_iter().flatten() {
        sizes(name, &format!("{path}.{field}"), below, problems);
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(below) = schema.get(keyword) {
            sizes(name, &format!("{path}{mark}"), below, problems);
        }
    }
}

fn fields(name: &str, path: &str, schema: &Value, problems: &mut Vec<String>) {
    if path.starts_with(".status") && schema.get("default").is_some() {
        problems.push(format!("{name}: {path} has a default"));
    }
    let properties = schema["properties"].as_object();
    for (field, below) in properties.into_iter().flatten() {
        let path = format!("{path}.{field}");
        if below.get("description").is_none() {
            problems.push(format!("{name}: {path} has no description"));
        }
        fields(name, &path, below, problems);
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(below) = schema.get(keyword) {
            fields(name, &format!("{path}{mark}"), below, problems);
        }
    }
}
