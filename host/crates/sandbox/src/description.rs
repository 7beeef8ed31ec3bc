//! The description that is embedded in a component, so that it can be read without running anything.
//!
//! It is JSON in the custom section `innkeeper:description` of the outermost component. Only the executed description is
//! trusted: a component with a different embedded description is refused.

use innkeeper_model::{Manifest, Scope};
use serde_json::{Map, Value, json};
use wasmparser::{Parser, Payload};

use super::Error;

/// The name of the section.
pub const SECTION: &str = "innkeeper:description";

/// The number of custom sections in the binary format.
const CUSTOM: u8 = 0;

/// Returns a description as JSON: the same text for the same description.
pub fn value(manifest: &Manifest) -> Value {
    let Manifest {
        name,
        version,
        parents,
        crds,
        children,
        reads,
        finalize,
        config_schema,
    } = manifest;
    let parents = parents.iter().map(|parent| {
        json!({
            "apiVersion": parent.kind.api_version(),
            "kind": &*parent.kind.kind,
            "plural": parent.plural,
            "scope": match parent.scope {
                Scope::Namespaced => "Namespaced",
                Scope::Cluster => "Cluster",
            },
        })
    });
    let children = children.iter().map(|child| {
        json!({
            "apiVersion": child.kind.api_version(),
            "kind": &*child.kind.kind,
            "required": child.required,
            "readyCondition": child.ready_condition,
        })
    });
    let reads = reads.iter().map(|read| {
        let labels = &read.label_selector;
        json!({
            "apiVersion": read.kind.api_version(),
            "kind": &*read.kind.kind,
            "access": read.access.to_string(),
            "scope": read.scope.to_string(),
            "labelSelector": (!labels.selects_all()).then(|| labels.to_string()),
        })
    });
    json!({
        "name": name.as_str(),
        "version": version,
        "finalize": finalize,
        "parents": parents.collect::<Vec<_>>(),
        "crds": crds,
        "children": children.collect::<Vec<_>>(),
        "reads": reads.collect::<Vec<_>>(),
        "configSchema": config_schema,
    })
}

/// Returns a component with its description embedded; the component must not have one already.
///
/// The same component and description give the same bytes.
pub fn embed(component: &[u8], manifest: &Manifest) -> Vec<u8> {
    let mut bytes = component.to_vec();
    // serde_json's maps are sorted, so that the text is canonical.
    let text = value(manifest).to_string();
    let mut content = Vec::new();
    leb128(&mut content, SECTION.len());
    content.extend_from_slice(SECTION.as_bytes());
    content.extend_from_slice(text.as_bytes());
    bytes.push(CUSTOM);
    leb128(&mut bytes, content.len());
    bytes.extend_from_slice(&content);
    bytes
}

/// Returns the embedded description; none if there is no section, `null` if it is not JSON or there are several.
pub fn embedded(component: &[u8]) -> Option<Value> {
    let mut found = Vec::new();
    outermost(component, |payload| {
        if let Payload::CustomSection(section) = payload
            && section.name() == SECTION
        {
            found.push(serde_json::from_slice(section.data()).unwrap_or_default());
        }
    });
    match found.len() {
        0 | 1 => found.pop(),
        _ => Some(Value::Null),
    }
}

/// Refuses a component whose embedded description differs from the executed one.
pub(super) fn check(embedded: Option<&Value>, manifest: &Manifest) -> Result<(), Error> {
    let Some(embedded) = embedded else {
        return Ok(());
    };
    let executed = value(manifest);
    match difference(embedded, &executed) {
        None => Ok(()),
        Some(at) => Err(Error::Embedded { at }),
    }
}

/// Returns the first field in which two descriptions differ.
fn difference(embedded: &Value, executed: &Value) -> Option<String> {
    if embedded == executed {
        return None;
    }
    let empty = Map::new();
    let embedded = embedded.as_object().unwrap_or(&empty);
    let executed = executed.as_object().unwrap_or(&empty);
    let mut fields = embedded.keys().chain(executed.keys());
    let field = fields.find(|field| embedded.get(*field) != executed.get(*field));
    Some(field.cloned().unwrap_or_default())
}

/// Visits the payloads of the outermost component, up to the first damaged one.
pub(super) fn outermost<'a>(component: &'a [u8], mut show: impl FnMut(Payload<'a>)) {
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        let Ok(payload) = payload else { return };
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 1 => show(payload),
            _ => {}
        }
    }
}

/// Appends a length in the encoding of the binary format.
fn leb128(out: &mut Vec<u8>, mut number: usize) {
    loop {
        let byte = u8::try_from(number & 0x7f).expect("seven bits should fit into a byte");
        number >>= 7;
        if number == 0 {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Described, Engine, Metering, artifact,
        fixture::{described, engine, guest},
    };
    use innkeeper_model::Limits;

    #[test]
    fn an_embedded_description_is_found_and_does_not_change_the_component() {
        let engine = engine(Metering::Epochs);
        let bytes = guest().build();
        assert_eq!(embedded(&bytes), None);
        let manifest = described(&engine, &bytes).manifest().clone();
        let with = embed(&bytes, &manifest);
        assert_eq!(with, embed(&bytes, &manifest));
        assert!(with.starts_with(&bytes));
        assert_eq!(embedded(&with), Some(value(&manifest)));
        // The component is still the same plugin, and loads.
        assert_eq!(*described(&engine, &with).manifest(), manifest);
        assert_eq!(embedded(&embed(&with, &manifest)), Some(Value::Null));
    }

    fn refusal(engine: &Engine, bytes: &[u8]) -> String {
        let limits = artifact::Limits::default();
        let compiled = artifact::compile(engine, bytes, &limits, None).unwrap();
        let loaded = Described::load(engine, &compiled, &Limits::default());
        loaded.err().unwrap().to_string()
    }

    #[test]
    fn refuses_an_embedded_description_that_differs_from_the_executed_one() {
        let engine = engine(Metering::Epochs);
        let bytes = guest().build();
        let mut other = described(&engine, &bytes).manifest().clone();
        let twice = embed(&embed(&bytes, &other), &other);
        other.children.clear();
        let error = refusal(&engine, &embed(&bytes, &other));
        assert!(error.contains("the executed one in children"), "{error}");
        let error = refusal(&engine, &twice);
        assert!(error.contains("the executed one in"), "{error}");
    }

    #[test]
    fn names_the_field_that_differs() {
        let one = json!({"name": "a", "version": "1"});
        assert_eq!(difference(&one, &one), None);
        let other = json!({"name": "a", "version": "2"});
        assert_eq!(difference(&one, &other).as_deref(), Some("version"));
        let more = json!({"name": "a", "version": "1", "reads": []});
        assert_eq!(difference(&more, &one).as_deref(), Some("reads"));
        assert_eq!(difference(&Value::Null, &one).as_deref(), Some("name"));
    }
}
