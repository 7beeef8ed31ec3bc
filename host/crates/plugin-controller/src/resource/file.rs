//! Grants from a file, for plugins that are given as files.

use innkeeper_policy::Grants;
use innkeeper_schema::{Rejection, Schema};
use serde_json::{Map, Value, json};

use super::{Error, Plugin, crd};

/// The path of the grants in the resource; messages about a file omit it.
const PREFIX: &str = "spec.grants";

/// The subject of messages about the whole file.
const FILE: &str = "the grants";

/// Reads the grants in a file: the same form as `spec.grants` of a Plugin, under the same rules.
///
/// # Errors
///
/// Returns all broken rules, or the first field that does not exist.
pub fn grants_of_file(grants: &Map<String, Value>) -> Result<Grants, Error> {
    if grants.contains_key("serviceAccountRef") {
        let problem = "name serviceAccountRef, which only a Plugin resource may: leave it out";
        return Err(Error::field(FILE, problem));
    }
    let schema =
        Schema::new(&crd(), "v1alpha1").map_err(|source| Error::Definition(Box::new(source)))?;
    // The schema has only whole resources, so the grants get valid other fields.
    let Value::Object(object) = json!({
        "apiVersion": "innkeeper.dev/v1alpha1",
        "kind": "Plugin",
        "metadata": {"name": "file"},
        "spec": {"source": {"file": {"path": "file.wasm"}}, "grants": grants},
    }) else {
        return Ok(Grants::default());
    };
    let admitted = schema.admit(object);
    let admitted = admitted.map_err(|rejection| Error::field(FILE, broken(&rejection)))?;
    if let Some(field) = admitted.unknown_fields.first() {
        let field = without_prefix(field);
        let problem = format!("hold \"{field}\", which does not exist: leave it out");
        return Err(Error::field(FILE, problem));
    }
    let text = Value::Object(admitted.object).to_string();
    let plugin = Plugin::read(&text)?;
    plugin.spec.grants.unwrap_or_default().grants("grants")
}

fn broken(rejection: &Rejection) -> String {
    let causes = rejection.causes().iter();
    let causes: Vec<String> = causes
        // The other causes only say that not every rule was checked.
        .filter(|cause| cause.path.starts_with(PREFIX))
        .map(|cause| format!("{}: {}", without_prefix(&cause.path), cause.message))
        .collect();
    format!("break rules: {}", causes.join("; "))
}

fn without_prefix(field: &str) -> &str {
    let rest = field.strip_prefix(PREFIX).unwrap_or(field);
    rest.strip_prefix('.').unwrap_or(rest)
}
