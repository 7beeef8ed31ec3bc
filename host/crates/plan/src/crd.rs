//! CustomResourceDefinitions that a plugin installs: the checks before the installation, and the object to apply.

mod schema;

use std::fmt::Display;

use innkeeper_model::{
    ANNOTATION_APPLIED, HashKey, LABEL_PLUGIN, Object, ParentKind, PluginName, ResourceVersion, Uid,
};
use serde_json::{Map, Value, json};

use super::{
    body,
    text::{drop_nulls, first_of},
};
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

/// The reason why a CustomResourceDefinition is not installed or not served, with the remedy.
///
/// A text only: no caller decides by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CrdRefusal(String);

impl CrdRefusal {
    fn of(name: &str, why: impl Display) -> Self {
        Self(format!("CustomResourceDefinition {name} {why}"))
    }
}

/// Plans the apply of a CustomResourceDefinition; returns `None` if the existing one is unchanged since the last apply.
///
/// `existing` is the result of a live read, not of the cache.
/// With `has_served`, a plugin with this definition has served before. Then an existing definition that only has more
/// optional fields stays: a later revision has added them, and the earlier one ignores them.
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
    has_served: bool,
) -> Result<Option<CrdWrite>, CrdRefusal> {
    let name = name(desired)?;
    let mut body = canonical(plugin, name, desired);
    let applied = body::applied(hash_key, &body, &[]);
    let mut new_rules = Vec::new();
    if let Some(existing) = existing {
        match check_existing(plugin, name, existing, desired, has_served)? {
            Existing::Replaced { rules } => new_rules = rules,
            Existing::Stays => return Ok(None),
        }
        if existing.annotation(ANNOTATION_APPLIED) == Some(&applied)
            && body::is_covered(existing, &plugin.field_manager(), &body)
        {
            return Ok(None);
        }
    }
    body::put(
        &mut body,
        &["metadata", "annotations"],
        ANNOTATION_APPLIED,
        applied.into(),
    );
    let replaces = existing.map(|existing| (existing.uid.clone(), existing.resource_version));
    Ok(Some(CrdWrite {
        name: name.to_owned(),
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
    let name = name(crd)?;
    let spec = |pointer| text(crd.get("spec"), pointer).unwrap_or_default();
    let expected = format!("{}.{}", spec("/names/plural"), spec("/group"));
    if *name != expected {
        let why =
            format!("is misnamed: metadata.name must be <plural>.<group>, which is \"{expected}\"");
        return Err(CrdRefusal::of(name, why));
    }
    if spec("/conversion/strategy") == "Webhook" {
        let why = "converts versions with a webhook, which a plugin cannot serve: set spec.conversion.strategy to None";
        return Err(CrdRefusal::of(name, why));
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
    let (name, kind) = (name(crd)?, &parent.kind);
    let refused = |why: String| Err(CrdRefusal::of(name, why));
    let spec = |pointer| text(crd.get("spec"), pointer).unwrap_or_default();
    let (found, plural) = (spec("/names/plural"), &parent.plural);
    if found != plural {
        return refused(format!(
            "has the plural \"{found}\", the plugin's parent has \"{plural}\": make them the same"
        ));
    }
    let scope = parent.scope.to_string();
    let found = spec("/scope");
    if found != scope {
        return refused(format!(
            "has the scope {found}, the plugin's parent has {scope}: make them the same"
        ));
    }
    let served = find_version(crd, &kind.version).filter(|version| is_served(version));
    let Some(version) = served else {
        return refused(format!("does not serve {kind}, which the plugin uses"));
    };
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

/// Returns the name of a definition.
fn name(crd: &Map<String, Value>) -> Result<&str, CrdRefusal> {
    let field = |name| crd.get(name).and_then(Value::as_str);
    let is_crd = field("kind") == Some("CustomResourceDefinition")
        && field("apiVersion") == Some("apiextensions.k8s.io/v1");
    let name = text(crd.get("metadata"), "/name").filter(|name| is_crd && !name.is_empty());
    name.ok_or_else(|| {
        CrdRefusal(
            "this is not an apiextensions.k8s.io/v1 CustomResourceDefinition with a metadata.name"
                .to_owned(),
        )
    })
}

fn text<'a>(value: Option<&'a Value>, pointer: &str) -> Option<&'a str> {
    value?.pointer(pointer)?.as_str()
}

fn versions(spec: Option<&Value>) -> impl Iterator<Item = &Value> {
    let versions = spec.and_then(|spec| spec.get("versions")?.as_array());
    versions.into_iter().flatten()
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

/// The treatment of an existing definition.
enum Existing {
    /// The desired one replaces it, and adds these validation rules.
    Replaced { rules: Vec<String> },
    /// It only has more optional fields than the desired one.
    Stays,
}

/// Checks that the existing definition may be replaced or stays.
fn check_existing(
    plugin: &PluginName,
    name: &str,
    existing: &Object,
    desired: &Map<String, Value>,
    has_served: bool,
) -> Result<Existing, CrdRefusal> {
    let refused = |why: String| Err(CrdRefusal::of(name, why));
    let json: Value = serde_json::from_str(&existing.json).unwrap_or_default();
    let Differences {
        narrower, rules, ..
    } = differences(&json, desired);
    let changes = || first_of(narrower.iter(), LISTED_MAX);
    let owner = existing.labels.get(LABEL_PLUGIN).map(|owner| &**owner);
    if owner != Some(plugin.as_str()) {
        let whose = match owner {
            Some(owner) => format!("belongs to plugin {owner}"),
            None => "was not installed by innkeeper".to_owned(),
        };
        let narrower = changes().map_or_else(String::new, |changes| {
            format!(", and the plugin's is narrower ({changes})")
        });
        return refused(format!(
            "exists and {whose}{narrower}: to hand it to this plugin, run kubectl label --overwrite crd {name} {LABEL_PLUGIN}={plugin}"
        ));
    }
    if existing.is_deleting() {
        return refused("is being deleted: wait until it is gone".to_owned());
    }
    let scopes = (
        text(json.get("spec"), "/scope"),
        text(desired.get("spec"), "/scope"),
    );
    if let (Some(existing), Some(desired)) = scopes
        && existing != desired
    {
        return refused(format!(
            "exists with scope {existing}, the plugin defines it with {desired}: delete it together with all its objects, or use the plugin that installed it"
        ));
    }
    if let Some(version) = version_gone(&json, desired) {
        return refused(format!(
            "serves or stores version {version}, which the plugin does not define: add it to the plugin, or set spec.crds: Ignore in the Plugin to keep the installed definition"
        ));
    }
    match changes() {
        None => Ok(Existing::Replaced { rules }),
        Some(_) if has_served && only_adds_fields(&json, desired) => Ok(Existing::Stays),
        Some(changes) => Err(CrdRefusal(format!(
            "the schema of CustomResourceDefinition {name} would become narrower ({changes}): use a plugin with a compatible schema, set spec.crds: Ignore in the Plugin to keep the installed definition, or, if the change is intended, apply the CustomResourceDefinition that innkeeper manifests FILE prints, with kubectl apply --server-side --force-conflicts"
        ))),
    }
}

fn is_served(version: &Value) -> bool {
    version.get("served").and_then(Value::as_bool) == Some(true)
}

fn find_version<'a>(crd: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    versions(crd.get("spec")).find(|version| text(Some(version), "/name") == Some(name))
}

fn served_versions(crd: &Value) -> impl Iterator<Item = (&str, &Value)> {
    versions(crd.get("spec"))
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

fn schema(version: &Value) -> Option<&Value> {
    version.pointer("/schema/openAPIV3Schema")
}

/// Returns true if the existing definition serves all versions of the desired one, and its schemas differ only by more
/// optional fields.
fn only_adds_fields(existing: &Value, desired: &Map<String, Value>) -> bool {
    versions(desired.get("spec"))
        .filter(|version| is_served(version))
        .all(|new| {
            let name = text(Some(new), "/name");
            let old = served_versions(existing).find(|(version, _)| Some(*version) == name);
            let schemas = old.and_then(|(_, old)| schema(old)).zip(schema(new));
            schemas.is_some_and(|(old, new)| schema::only_adds_fields(old, new))
        })
}

/// Compares the schemas of the versions that both definitions have; only versions that the existing one serves count.
fn differences(existing: &Value, desired: &Map<String, Value>) -> Differences {
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
