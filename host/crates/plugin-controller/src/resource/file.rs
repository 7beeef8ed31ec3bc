//! Grants from a file, for plugins that are given as files.

use innkeeper_policy::Grants;
use serde_json::{Map, Value, json};

use super::{Error, Plugin, convert::admit};

/// The path of the fields in the resource; messages about a file omit it.
const PREFIX: &str = "spec.grants.";

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
    let admitted = admit("file", &spec)?.map_err(|causes| {
        // The other causes only say that not every rule was checked.
        let causes = causes.iter().filter(|cause| cause.path.starts_with(PREFIX));
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
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
