//! Grants in files, for plugin files.

use innkeeper_model::{GroupKind, ReadScope};
use innkeeper_policy::{Grants, ReadGrant, makes_pods};
use serde_json::{Map, Value, json};

use super::{Error, Plugin, ReadPlace, convert::admit};

/// The fields' path in the resource; messages about a file omit it.
const PREFIX: &str = "spec.grants.";

/// The subject in messages about the whole file.
const FILE: &str = "the grants";

/// Reads grants from a file: the same form as `spec.grants` in a Plugin, with the same rules.
///
/// # Errors
///
/// Returns all broken rules, or the first field that does not exist.
pub fn grants_of_file(grants: &Map<String, Value>) -> Result<Grants, Error> {
    if grants.contains_key("serviceAccountRef") {
        let problem = "name serviceAccountRef, which only a Plugin resource may: leave it out";
        return Err(Error::field(FILE, problem));
    }
    // The rules are for whole resources, so the grants get a valid source.
    let spec = json!({"source": {"file": {"path": "file.wasm"}}, "grants": grants});
    let admitted = admit("file", &spec)?.map_err(|causes| {
        // The other causes only report that not every rule was checked.
        let causes: Vec<String> = causes
            .iter()
            .filter(|cause| cause.path.starts_with(PREFIX))
            .map(ToString::to_string)
            .collect();
        let causes = causes.join("; ").replace(PREFIX, "");
        Error::field(FILE, format!("break rules: {causes}"))
    })?;
    if let Some(field) = admitted.unknown_fields.first() {
        let field = field.replace(PREFIX, "");
        let problem = format!("hold \"{field}\", which does not exist: leave it out");
        return Err(Error::field(FILE, problem));
    }
    let text = Value::Object(admitted.object).to_string();
    let plugin = Plugin::read(&text)?;
    plugin.spec.grants.unwrap_or_default().grants("grants")
}

/// Returns grants in the form of `spec.grants`, without fields that have their default.
pub fn file_of_grants(grants: &Grants) -> Map<String, Value> {
    let parents = grants.parents.iter().map(|(kind, grant)| {
        let flags = [
            ("builtin", grant.built_in),
            ("privileged", grant.privileged),
        ];
        entry(kind, &flags)
    });
    let crds = grants
        .crds
        .iter()
        .map(|(kind, grant)| entry(kind, &[("privileged", grant.privileged)]));
    let children = grants.children.iter().map(|(kind, grant)| {
        let flags = [("adopt", grant.adopt), ("privileged", grant.privileged)];
        let mut entry = entry(kind, &flags);
        if grant.depth > 0 {
            entry["depth"] = json!(grant.depth);
        }
        entry
    });
    let mut fields = Map::from_iter([
        ("parents".to_owned(), parents.collect()),
        ("crds".to_owned(), crds.collect()),
        ("children".to_owned(), children.collect()),
        ("reads".to_owned(), grants.reads.iter().map(read).collect()),
        ("serviceAccounts".to_owned(), json!(grants.service_accounts)),
        (
            "systemNamespaces".to_owned(),
            json!(grants.system_namespaces),
        ),
    ]);
    fields.retain(|_, list| list.as_array().is_some_and(|list| !list.is_empty()));
    // The level concerns Pods alone.
    if grants.children.keys().any(makes_pods) {
        let level = json!(grants.pod_security.as_str());
        fields.insert("podSecurity".to_owned(), level);
    }
    fields
}

/// Returns a kind's entry with the flags that are true.
pub(super) fn entry(kind: &GroupKind, flags: &[(&str, bool)]) -> Value {
    let mut entry = json!({"group": &*kind.group, "kind": &*kind.kind});
    for (flag, _) in flags.iter().filter(|(_, is_set)| *is_set) {
        entry[*flag] = true.into();
    }
    entry
}

/// Returns the entry for a read grant.
pub(super) fn read(grant: &ReadGrant) -> Value {
    let mut entry = entry(&grant.kind, &[("privileged", grant.privileged)]);
    entry["access"] = json!(grant.access.to_string());
    let place = match &grant.scope {
        ReadScope::ParentNamespace => ReadPlace::ParentNamespace,
        ReadScope::Cluster => ReadPlace::Cluster,
        ReadScope::Namespaces(names) => {
            let names = names.iter().map(|name| Value::from(&**name));
            entry["namespaces"] = names.collect();
            ReadPlace::Namespaces
        }
    };
    entry["scope"] = json!(place);
    if !grant.label_selector.selects_all() {
        entry["labelSelector"] = grant.label_selector.to_string().into();
    }
    entry
}
