//! Checks a plugin's definition before it is installed.

use std::fmt::Display;

use innkeeper_model::ParentKind;
use serde_json::{Map, Value, json};

use super::{find_version, is_served, name_of, text};

/// The reason why a CustomResourceDefinition is not installed or not served, with the remedy.
///
/// A text only: no caller decides by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub(super) String);

impl Refusal {
    pub(super) fn new(name: &str, why: impl Display) -> Self {
        Self(format!("CustomResourceDefinition {name} {why}"))
    }
}

/// Checks a definition, and compares it with the plugin's parents that it defines.
///
/// # Errors
///
/// Returns a refusal if the API server would reject the definition, or if the host could not serve the objects.
pub fn check(crd: &Map<String, Value>, parents: &[ParentKind]) -> Result<(), Refusal> {
    let name = name(crd)?;
    let spec = |pointer| text(crd.get("spec"), pointer).unwrap_or_default();
    let expected = format!("{}.{}", spec("/names/plural"), spec("/group"));
    if *name != expected {
        let why =
            format!("is misnamed: metadata.name must be <plural>.<group>, which is \"{expected}\"");
        return Err(Refusal::new(name, why));
    }
    if spec("/conversion/strategy") == "Webhook" {
        let why = "converts versions with a webhook, which a plugin cannot serve: set spec.conversion.strategy to None";
        return Err(Refusal::new(name, why));
    }
    let group = spec("/group");
    let kind = spec("/names/kind");
    parents
        .iter()
        .filter(|parent| *parent.kind.group == *group && *parent.kind.kind == *kind)
        .try_for_each(|parent| check_parent(crd, parent))
}

/// Checks that the host can serve a definition's objects as parents.
///
/// # Errors
///
/// Returns a refusal if plural or scope differ from the plugin's manifest, if the version is not served, or if two field
/// managers cannot share the status.
pub fn check_parent(crd: &Map<String, Value>, parent: &ParentKind) -> Result<(), Refusal> {
    let name = name(crd)?;
    let kind = &parent.kind;
    let refused = |why: String| Err(Refusal::new(name, why));
    let spec = |pointer| text(crd.get("spec"), pointer).unwrap_or_default();
    let stated_plural = spec("/names/plural");
    let plural = &parent.plural;
    if stated_plural != plural {
        return refused(format!(
            "has the plural \"{stated_plural}\", the plugin's parent has \"{plural}\": make them the same"
        ));
    }
    let scope = parent.scope.to_string();
    let stated_scope = spec("/scope");
    if stated_scope != scope {
        return refused(format!(
            "has the scope {stated_scope}, the plugin's parent has {scope}: make them the same"
        ));
    }
    let served = find_version(crd, &kind.version).filter(|version| is_served(version));
    let Some(version) = served else {
        return refused(format!("does not serve {kind}, which the plugin uses"));
    };
    // The host writes a status only to the subresource, which would be a 404.
    if version.pointer("/subresources/status").is_none() {
        return refused(format!(
            "has no status subresource for {kind}: add subresources.status"
        ));
    }
    let conditions =
        version.pointer("/schema/openAPIV3Schema/properties/status/properties/conditions");
    let keys = conditions.and_then(|schema| schema.get("x-kubernetes-list-map-keys"));
    // Otherwise the guest and the host would overwrite each other's conditions.
    if text(conditions, "/x-kubernetes-list-type") == Some("map") && keys == Some(&json!(["type"]))
    {
        return Ok(());
    }
    refused(format!(
        "does not declare status.conditions of {kind} as a map: add x-kubernetes-list-type: map and x-kubernetes-list-map-keys: [type]"
    ))
}

/// Returns a definition's name.
pub(super) fn name(crd: &Map<String, Value>) -> Result<&str, Refusal> {
    let field = |name| crd.get(name).and_then(Value::as_str);
    let is_crd = field("kind") == Some("CustomResourceDefinition")
        && field("apiVersion") == Some("apiextensions.k8s.io/v1");
    let name = name_of(crd).filter(|name| is_crd && !name.is_empty());
    name.ok_or_else(|| {
        Refusal(
            "this is not an apiextensions.k8s.io/v1 CustomResourceDefinition with a metadata.name"
                .to_owned(),
        )
    })
}
