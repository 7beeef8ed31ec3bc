//! Compares an installed definition with the plugin's.

mod differences;

use innkeeper_model::{LABEL_PLUGIN, Object, PluginName, join_first};
use serde_json::{Map, Value};

use super::{Refusal, check::name, find_version, is_served, text, versions};
use differences::Differences;

/// The most differences that a message lists; more would make conditions unreadable.
const LISTED_MAX: usize = 10;

/// The verdict on an installed definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The desired definition may replace it.
    Replaceable {
        /// The validation rules that the installed definition lacks, each with version and path.
        new_rules: Vec<String>,
    },
    /// It stays, because it only has more optional fields than the desired one.
    Stays,
}

/// Decides if a plugin's definition may replace the installed one.
///
/// With `has_served`, a plugin with this definition has served before. Then an installed definition that only has more
/// optional fields stays: a later revision has added them, and the earlier one ignores them.
///
/// # Errors
///
/// Returns a refusal if the installed definition belongs to another owner or is being deleted, or if the desired one has
/// another scope, fewer versions or a narrower schema.
pub fn check_installed(
    plugin: &PluginName,
    installed: &Object,
    desired: &Map<String, Value>,
    has_served: bool,
) -> Result<Installed, Refusal> {
    let name = name(desired)?;
    let refused = |why: String| Err(Refusal::new(name, why));
    let json: Value = serde_json::from_str(&installed.json).unwrap_or_default();
    let Differences {
        narrower, rules, ..
    } = differences(&json, desired);
    let changes = || join_first(&narrower, LISTED_MAX);
    let owner = installed.labels.get(LABEL_PLUGIN).map(|owner| &**owner);
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
    if installed.is_deleting() {
        return refused("is being deleted: wait until it is gone".to_owned());
    }
    let scopes = (
        text(json.get("spec"), "/scope"),
        text(desired.get("spec"), "/scope"),
    );
    // The API server never changes a definition's scope.
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
        None => Ok(Installed::Replaceable { new_rules: rules }),
        Some(_) if has_served && only_adds_fields(&json, desired) => Ok(Installed::Stays),
        Some(changes) => Err(Refusal(format!(
            "the schema of CustomResourceDefinition {name} would become narrower ({changes}): use a plugin with a compatible schema, set spec.crds: Ignore in the Plugin to keep the installed definition, or, if the change is intended, apply the CustomResourceDefinition that innkeeper manifests FILE prints, with kubectl apply --server-side --force-conflicts"
        ))),
    }
}

fn served_versions(crd: &Value) -> impl Iterator<Item = (&str, &Value)> {
    versions(crd.get("spec"))
        .filter(|version| is_served(version))
        .map(|version| (text(Some(version), "/name").unwrap_or_default(), version))
}

/// Returns a stored or served version that the new definition lacks.
fn version_gone(existing: &Value, desired: &Map<String, Value>) -> Option<String> {
    // The API server refuses to drop a version in which objects may be stored.
    let mut stored = existing
        .pointer("/status/storedVersions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let unstored = stored.find(|version| find_version(desired, version).is_none());
    // Clients that use this version would get 404.
    let unserved = || {
        served_versions(existing)
            .map(|(version, _)| version)
            .find(|version| !find_version(desired, version).is_some_and(is_served))
    };
    unstored.or_else(unserved).map(str::to_owned)
}

fn schema(version: &Value) -> Option<&Value> {
    version.pointer("/schema/openAPIV3Schema")
}

/// Returns true if the existing definition serves all desired versions, and the schemas differ only by more
/// optional fields.
fn only_adds_fields(existing: &Value, desired: &Map<String, Value>) -> bool {
    versions(desired.get("spec"))
        .filter(|version| is_served(version))
        .all(|new| {
            let name = text(Some(new), "/name");
            served_versions(existing)
                .find(|(version, _)| Some(*version) == name)
                .and_then(|(_, old)| schema(old))
                .zip(schema(new))
                .is_some_and(|(old, new)| differences::only_adds_fields(old, new))
        })
}

/// Compares the schemas for the versions that both definitions have; only versions that the existing one serves count.
fn differences(existing: &Value, desired: &Map<String, Value>) -> Differences {
    let mut all = Differences::default();
    for (version, old) in served_versions(existing) {
        let new = find_version(desired, version);
        // `version_gone` reports versions that the new definition lacks.
        let (Some(old), Some(new)) = (schema(old), new.and_then(schema)) else {
            continue;
        };
        let differences = Differences::between(old, new);
        let with_version = |change: String| format!("{version} {change}");
        all.narrower
            .extend(differences.narrower.into_iter().map(with_version));
        all.rules
            .extend(differences.rules.into_iter().map(with_version));
    }
    all
}
