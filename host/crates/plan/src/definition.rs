//! Plans how to apply a CustomResourceDefinition that a plugin installs.

use innkeeper_model::{
    ANNOTATION_APPLIED, HashKey, LABEL_PLUGIN, Object, PluginName, ResourceVersion, Uid,
};
use serde_json::{Map, Value, json};

use super::{body, text::drop_nulls};

/// An apply for a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionWrite {
    /// The definition's name.
    pub name: String,
    /// The whole object to apply.
    pub body: Map<String, Value>,
    /// The observed state that it replaces; `None` if it creates the definition.
    pub replaces: Option<(Uid, ResourceVersion)>,
}

/// Plans how to apply a CustomResourceDefinition; returns `None` if the existing one is unchanged since the last apply.
///
/// `existing` comes from a live read, not from the cache. The caller has checked that the desired definition may
/// replace it.
pub fn plan_definition(
    plugin: &PluginName,
    hash_key: &HashKey,
    name: &str,
    existing: Option<&Object>,
    desired: &Map<String, Value>,
) -> Option<DefinitionWrite> {
    let mut body = canonical(plugin, name, desired);
    let applied = body::applied(hash_key, &body, &[]);
    // An edit by another client leaves the annotation as it is; the managed fields show it.
    if let Some(existing) = existing
        && existing.annotation(ANNOTATION_APPLIED) == Some(&applied)
        && body::is_covered(existing, &plugin.field_manager(), &body)
    {
        return None;
    }
    body::put(
        &mut body,
        &["metadata", "annotations"],
        ANNOTATION_APPLIED,
        applied.into(),
    );
    Some(DefinitionWrite {
        name: name.to_owned(),
        body,
        replaces: existing.map(|existing| (existing.uid.clone(), existing.resource_version)),
    })
}

/// Returns the object to apply, without the applied annotation.
fn canonical(plugin: &PluginName, name: &str, desired: &Map<String, Value>) -> Map<String, Value> {
    let mut metadata = json!({"name": name, "labels": {}});
    for part in ["labels", "annotations"] {
        let stated = desired
            .get("metadata")
            .and_then(|metadata| metadata.get(part));
        if let Some(Value::Object(stated)) = stated
            && !stated.is_empty()
        {
            metadata[part] = Value::Object(stated.clone());
        }
    }
    metadata["labels"][LABEL_PLUGIN] = plugin.as_str().into();
    let mut spec = desired.get("spec").cloned().unwrap_or_default();
    drop_nulls(&mut spec);
    Map::from_iter([
        ("apiVersion".to_owned(), "apiextensions.k8s.io/v1".into()),
        ("kind".to_owned(), "CustomResourceDefinition".into()),
        ("metadata".to_owned(), metadata),
        ("spec".to_owned(), spec),
    ])
}
