//! CustomResourceDefinitions that a plugin installs: the checks before the installation, and the object to apply.

mod schema;

use innkeeper_model::{
    ANNOTATION_APPLIED, Gvk, HashKey, LABEL_PLUGIN, Object, ParentKind, PluginName,
    ResourceVersion, Scope, Uid,
};
use serde_json::{Map, Value, json};

use super::body;
use schema::Differences;

/// The maximum number of differences that a message lists; it keeps conditions readable.
const LISTED_MAX: usize = 10;

/// One apply of a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdWrite {
    /// The name of the definition.
    pub name: String,
    /// The whole object to apply.
    pub body: Map<String, Value>,
    /// The observed state that it replaces; `None` if it creates the definition.
    pub replaces: Option<(Uid, ResourceVersion)>,
    /// The validation rules that the existing definition lacks, each with its version and path.
    pub new_rules: Vec<String>,
}

/// The reason why a CustomResourceDefinition is not installed or not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrdRefusal {
    /// The object has no name, or is not a CustomResourceDefinition.
    #[error("this is not an apiextensions.k8s.io/v1 CustomResourceDefinition with a metadata.name")]
    Unnamed,
    /// The name is not `<plural>.<group>`, which the API server requires.
    #[error(
        "CustomResourceDefinition {name} is misnamed: metadata.name must be <plural>.<group>, which is \"{expected}\""
    )]
    Misnamed {
        /// The name of the definition.
        name: String,
        /// The required name.
        expected: String,
    },
    /// The definition converts between versions with a webhook.
    #[error(
        "CustomResourceDefinition {0} converts versions with a webhook, which a plugin cannot serve: set spec.conversion.strategy to None"
    )]
    ConversionWebhook(String),
    /// The definition exists and does not belong to this plugin.
    #[error(
        "CustomResourceDefinition {name} exists and {}{}: to hand it to this plugin, run kubectl label --overwrite crd {name} {LABEL_PLUGIN}={plugin}",
        match owner { Some(owner) => format!("belongs to plugin {owner}"), None => "was not installed by innkeeper".to_owned() },
        if narrower.is_empty() { String::new() } else { format!(", and the plugin's is narrower ({})", list(narrower)) }
    )]
    Foreign {
        /// The name of the definition.
        name: String,
        /// The plugin that requests the installation.
        plugin: PluginName,
        /// The plugin in its label, if any.
        owner: Option<String>,
        /// The places at which the plugin's schema is narrower.
        narrower: Vec<String>,
    },
    /// The definition is being deleted.
    #[error("CustomResourceDefinition {0} is being deleted: wait until it is gone")]
    Deleting(String),
    /// The definition exists with another scope, which the API server does not allow to change.
    #[error(
        "CustomResourceDefinition {name} exists with scope {existing}, the plugin defines it with {desired}: delete it together with all its objects, or use the plugin that installed it"
    )]
    Scope {
        /// The name of the definition.
        name: String,
        /// The existing scope.
        existing: String,
        /// The scope of the plugin's definition.
        desired: String,
    },
    /// The new definition lacks a version that is served or in which objects are stored.
    #[error(
        "CustomResourceDefinition {name} serves or stores version {version}, which the plugin does not define: add it to the plugin"
    )]
    VersionGone {
        /// The name of the definition.
        name: String,
        /// The missing version.
        version: String,
    },
    /// The new schema rejects objects that the old one accepts, or drops fields of them.
    #[error(
        "the schema of CustomResourceDefinition {name} would become narrower ({}): use a plugin with a compatible schema, or, if the change is intended, apply the new schema yourself: innkeeper manifests --plugin FILE | kubectl apply --server-side --force-conflicts -f -",
        list(changes)
    )]
    Narrower {
        /// The name of the definition.
        name: String,
        /// The restrictions that the new schema adds, each with its version and path.
        changes: Vec<String>,
    },
    /// The plural differs from the one in the plugin's manifest.
    #[error(
        "CustomResourceDefinition {name} has the plural \"{found}\", the plugin's parent has \"{parent}\": make them the same"
    )]
    ParentPlural {
        /// The name of the definition.
        name: String,
        /// The plural of the definition.
        found: String,
        /// The parent's plural.
        parent: String,
    },
    /// The scope differs from the one in the plugin's manifest.
    #[error(
        "CustomResourceDefinition {name} has the scope {found}, the plugin's parent has {parent}: make them the same"
    )]
    ParentScope {
        /// The name of the definition.
        name: String,
        /// The scope of the definition.
        found: String,
        /// The parent's scope.
        parent: &'static str,
    },
    /// The definition does not serve the version that the plugin uses.
    #[error("CustomResourceDefinition {name} does not serve {kind}, which the plugin uses")]
    NotServed {
        /// The name of the definition.
        name: String,
        /// The kind in the missing version.
        kind: Gvk,
    },
    /// The definition has no status subresource.
    #[error(
        "CustomResourceDefinition {name} has no status subresource for {kind}: add subresources.status"
    )]
    NoStatus {
        /// The name of the definition.
        name: String,
        /// The kind.
        kind: Gvk,
    },
    /// Its conditions are not a list-map with the key `type`, so that the guest and the host would overwrite each other's.
    #[error(
        "CustomResourceDefinition {name} does not declare status.conditions of {kind} as a map: add x-kubernetes-list-type: map and x-kubernetes-list-map-keys: [type]"
    )]
    AtomicConditions {
        /// The name of the definition.
        name: String,
        /// The kind.
        kind: Gvk,
    },
}

/// Plans the apply of a CustomResourceDefinition; returns `None` if the existing one is unchanged since the last apply.
///
/// `existing` is the result of a live read, not of the cache.
///
/// # Errors
///
/// Returns a refusal if the existing definition belongs to another owner or is being deleted, or if the new one has
/// another scope, fewer versions or a narrower schema.
pub fn plan(
    plugin: &PluginName,
    hash_key: &HashKey,
    existing: Option<&Object>,
    desired: &Map<String, Value>,
) -> Result<Option<CrdWrite>, CrdRefusal> {
    let name = name(desired).ok_or(CrdRefusal::Unnamed)?;
    let mut body = canonical(plugin, &name, desired);
    let applied = body::applied(hash_key, &body, &[]);
    let mut new_rules = Vec::new();
    if let Some(existing) = existing {
        new_rules = check_existing(plugin, &name, existing, desired)?;
        if is_unchanged(plugin, existing, &applied, &body) {
            return Ok(None);
        }
    }
    if let Some(metadata) = body.get_mut("metadata") {
        metadata["annotations"][ANNOTATION_APPLIED] = applied.into();
    }
    let replaces = existing.map(|existing| (existing.uid.clone(), existing.resource_version));
    Ok(Some(CrdWrite {
        name,
        body,
        replaces,
        new_rules,
    }))
}

/// Checks a definition, and compares it with the plugin's parents that it defines.
///
/// # Errors
///
/// Returns a refusal if the API server would reject the definition, or if the host could not serve its objects.
pub fn check(crd: &Map<String, Value>, parents: &[ParentKind]) -> Result<(), CrdRefusal> {
    let name = name(crd).ok_or(CrdRefusal::Unnamed)?;
    let spec = |pointer| text(crd.get("spec"), pointer).unwrap_or_default();
    let expected = format!("{}.{}", spec("/names/plural"), spec("/group"));
    if name != expected {
        return Err(CrdRefusal::Misnamed { name, expected });
    }
    if spec("/conversion/strategy") == "Webhook" {
        return Err(CrdRefusal::ConversionWebhook(name));
    }
    let (group, kind) = (spec("/group"), spec("/names/kind"));
    parents
        .iter()
        .filter(|parent| *parent.kind.group == *group && *parent.kind.kind == *kind)
        .try_for_each(|parent| check_parent(crd, parent))
}

/// Checks that the host can serve the objects of a definition as parents.
///
/// # Errors
///
/// Returns a refusal if plural or scope differ from the plugin's manifest, if the version is not served, or if two field
/// managers cannot share its status.
pub fn check_parent(crd: &Map<String, Value>, parent: &ParentKind) -> Result<(), CrdRefusal> {
    let name = name(crd).ok_or(CrdRefusal::Unnamed)?;
    let kind = parent.kind.clone();
    let spec = |pointer| {
        text(crd.get("spec"), pointer)
            .unwrap_or_default()
            .to_owned()
    };
    let plural = spec("/names/plural");
    if plural != parent.plural {
        return Err(CrdRefusal::ParentPlural {
            name,
            found: plural,
            parent: parent.plural.clone(),
        });
    }
    let (found, scope) = (
        spec("/scope"),
        match parent.scope {
            Scope::Namespaced => "Namespaced",
            Scope::Cluster => "Cluster",
        },
    );
    if found != scope {
        return Err(CrdRefusal::ParentScope {
            name,
            found,
            parent: scope,
        });
    }
    let served = find_version(crd, &kind.version).filter(|version| is_served(version));
    let Some(version) = served else {
        return Err(CrdRefusal::NotServed { name, kind });
    };
    if version.pointer("/subresources/status").is_none() {
        return Err(CrdRefusal::NoStatus { name, kind });
    }
    let conditions =
        version.pointer("/schema/openAPIV3Schema/properties/status/properties/conditions");
    let is_map = text(conditions, "/x-kubernetes-list-type") == Some("map")
        && conditions.and_then(|schema| schema.get("x-kubernetes-list-map-keys"))
            == Some(&json!(["type"]));
    if is_map {
        Ok(())
    } else {
        Err(CrdRefusal::AtomicConditions { name, kind })
    }
}

/// Joins the first items of a list, and adds the number of the others.
fn list(items: &[String]) -> String {
    let first = items
        .iter()
        .take(LISTED_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match items.len().saturating_sub(LISTED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn name(crd: &Map<String, Value>) -> Option<String> {
    let field = |name| crd.get(name).and_then(Value::as_str);
    let is_crd = field("kind") == Some("CustomResourceDefinition")
        && field("apiVersion") == Some("apiextensions.k8s.io/v1");
    let name = text(crd.get("metadata"), "/name")?;
    (is_crd && !name.is_empty()).then(|| name.to_owned())
}

fn text<'a>(value: Option<&'a Value>, pointer: &str) -> Option<&'a str> {
    value?.pointer(pointer)?.as_str()
}

fn versions(crd: &Map<String, Value>) -> &[Value] {
    crd.get("spec")
        .and_then(|spec| spec.get("versions"))
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Returns the object to apply, without the applied annotation.
fn canonical(plugin: &PluginName, name: &str, desired: &Map<String, Value>) -> Map<String, Value> {
    let field = |name| text(desired.get("metadata"), name);
    let mut metadata = json!({"name": name, "labels": {}, "annotations": {}});
    for part in ["labels", "annotations"] {
        let stated = desired
            .get("metadata")
            .and_then(|metadata| metadata.get(part));
        if let Some(Value::Object(stated)) = stated {
            metadata[part] = Value::Object(stated.clone());
        }
    }
    metadata["labels"][LABEL_PLUGIN] = plugin.as_str().into();
    if field("/annotations").is_none() && metadata["annotations"] == json!({}) {
        metadata
            .as_object_mut()
            .map(|metadata| metadata.remove("annotations"));
    }
    let mut spec = desired.get("spec").cloned().unwrap_or_default();
    drop_nulls(&mut spec);
    Map::from_iter([
        ("apiVersion".to_owned(), "apiextensions.k8s.io/v1".into()),
        ("kind".to_owned(), "CustomResourceDefinition".into()),
        ("metadata".to_owned(), metadata),
        ("spec".to_owned(), spec),
    ])
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Checks that the existing definition may be replaced, and returns the validation rules that this adds.
fn check_existing(
    plugin: &PluginName,
    name: &str,
    existing: &Object,
    desired: &Map<String, Value>,
) -> Result<Vec<String>, CrdRefusal> {
    let name = name.to_owned();
    let json: Value = serde_json::from_str(&existing.json).unwrap_or_default();
    let differences = differences(&json, desired);
    let owner = existing.labels.get(LABEL_PLUGIN).map(|owner| &**owner);
    if owner != Some(plugin.as_str()) {
        return Err(CrdRefusal::Foreign {
            name,
            plugin: plugin.clone(),
            owner: owner.map(str::to_owned),
            narrower: differences.narrower,
        });
    }
    if existing.is_deleting() {
        return Err(CrdRefusal::Deleting(name));
    }
    let scopes = (
        text(json.get("spec"), "/scope"),
        text(desired.get("spec"), "/scope"),
    );
    if let (Some(existing), Some(desired)) = scopes
        && existing != desired
    {
        return Err(CrdRefusal::Scope {
            name,
            existing: existing.to_owned(),
            desired: desired.to_owned(),
        });
    }
    if let Some(version) = version_gone(&json, desired) {
        return Err(CrdRefusal::VersionGone { name, version });
    }
    if differences.narrower.is_empty() {
        Ok(differences.rules)
    } else {
        Err(CrdRefusal::Narrower {
            name,
            changes: differences.narrower,
        })
    }
}

fn is_served(version: &Value) -> bool {
    version.get("served").and_then(Value::as_bool) == Some(true)
}

fn find_version<'a>(crd: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    versions(crd)
        .iter()
        .find(|version| text(Some(version), "/name") == Some(name))
}

fn served_versions(crd: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let versions = crd
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    versions
        .filter(|version| is_served(version))
        .map(|version| (text(Some(version), "/name").unwrap_or_default(), version))
}

/// Returns a stored or served version that the new definition lacks.
fn version_gone(existing: &Value, desired: &Map<String, Value>) -> Option<String> {
    let mut stored = existing
        .pointer("/status/storedVersions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let gone = stored.find(|version| find_version(desired, version).is_none());
    let unserved = || {
        served_versions(existing)
            .map(|(version, _)| version)
            .find(|version| !find_version(desired, version).is_some_and(is_served))
    };
    gone.or_else(unserved).map(str::to_owned)
}

/// Compares the schemas of the versions that both definitions have; only versions that the existing one serves count.
fn differences(existing: &Value, desired: &Map<String, Value>) -> Differences {
    fn schema(version: &Value) -> Option<&Value> {
        version.pointer("/schema/openAPIV3Schema")
    }
    let mut all = Differences::default();
    for (version, old) in served_versions(existing) {
        let new = find_version(desired, version);
        let (Some(old), Some(new)) = (schema(old), new.and_then(schema)) else {
            continue;
        };
        let found = Differences::between(old, new);
        let with_version = |change: String| format!("{version} {change}");
        all.narrower
            .extend(found.narrower.into_iter().map(with_version));
        all.rules.extend(found.rules.into_iter().map(with_version));
    }
    all
}

fn is_unchanged(
    plugin: &PluginName,
    existing: &Object,
    applied: &str,
    body: &Map<String, Value>,
) -> bool {
    existing.annotation(ANNOTATION_APPLIED) == Some(applied)
        && body::is_covered(existing, &plugin.field_manager(), body)
}
