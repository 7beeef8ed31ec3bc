//! Grants from a file, for plugins that are given as files.

use innkeeper_policy::Grants;
use innkeeper_schema::RejectionCause;
use serde_json::{Map, Value, json};

use super::{Error, Plugin, convert::admit};

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
    // The rules are those of whole resources, so the grants get a valid source.
    let spec = json!({"source": {"file": {"path": "file.wasm"}}, "grants": grants});
    let admitted = admit("file", &spec)?.map_err(|causes| Error::field(FILE, broken(&causes)))?;
    if let Some(field) = admitted.unknown_fields.first() {
        let field = without_prefix(field);
        let problem = format!("hold \"{field}\", which does not exist: leave it out");
        return Err(Error::field(FILE, problem));
    }
    let text = Value::Object(admitted.object).to_string();
    let plugin = Plugin::read(&text)?;
    plugin.spec.grants.unwrap_or_default().grants("grants")
}

fn broken(causes: &[RejectionCause]) -> String {
    let causes: Vec<String> = causes
        .iter()
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
