//! Checks of the definitions in a manifest.

use serde_json::Value;

use crate::manifest::Manifest;

/// The start of the root description that the derive macro of kube writes if `doc` is not set.
const PLACEHOLDER: &str = "Auto-generated derived type";

/// Lists the places where the definitions of a manifest break conventions of Kubernetes; empty if they
/// keep them.
///
/// `kubectl explain` has a text of its own for the kind and for every field. The status has no
/// defaults, because a default would claim an observation that nothing has made.
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
    }
    problems
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
