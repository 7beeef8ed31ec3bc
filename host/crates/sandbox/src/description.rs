//! The description that is embedded in a component, so that it can be read without running anything.
//!
//! It is JSON in the custom section `innkeeper:description` of the outermost component. Only the executed description is
//! trusted: a component with a different embedded description is refused.

use innkeeper_model::Manifest;
use serde_json::{Map, Value};
use wasm_encoder::{ComponentSection, CustomSection};
use wasmparser::{Parser, Payload};

use super::{Error, manifest};

/// The name of the section.
pub const SECTION: &str = "innkeeper:description";

/// The size of the longest description, in bytes; a parsed one takes many times as much memory. That of an answer by
/// default, in which the executed description has to fit.
const BYTES_MAX: usize = 4 << 20;

/// Returns a description as JSON: the same text for the same description.
pub fn value(manifest: &Manifest) -> Value {
    // Infallible: all keys are texts, and no plugin can request a list of namespaces, the only value without a JSON form.
    serde_json::to_value(manifest).unwrap_or_default()
}

/// Returns a component with its description embedded; the component must not have one already.
///
/// The same component and description give the same bytes.
pub fn embed(component: &[u8], manifest: &Manifest) -> Vec<u8> {
    let mut bytes = component.to_vec();
    // serde_json's maps are sorted, so that the text is canonical.
    let text = value(manifest).to_string();
    let section = CustomSection {
        name: SECTION.into(),
        data: text.as_bytes().into(),
    };
    section.append_to_component(&mut bytes);
    bytes
}

/// Returns the embedded description; none if there is no section, `null` if it is not JSON, has more than 4 MiB or is
/// there several times.
pub fn embedded(component: &[u8]) -> Option<Value> {
    let mut found = Vec::new();
    outermost(component, |payload| {
        if let Payload::CustomSection(section) = payload
            && section.name() == SECTION
        {
            found.push(section.data());
        }
    });
    match *found {
        [] => None,
        [text] if text.len() <= BYTES_MAX => {
            serde_json::from_slice(text).ok().or(Some(Value::Null))
        }
        // A component may hold as many texts as fit into it: none of them is parsed.
        _ => Some(Value::Null),
    }
}

/// Returns the embedded description as a manifest; none if there is no valid one.
///
/// Not trusted: it serves only to decide if the component is compiled, whose executed description then has to be the same.
pub fn embedded_manifest(component: &[u8]) -> Option<Manifest> {
    let manifest: Manifest = serde_json::from_value(embedded(component)?).ok()?;
    manifest::check_counts(
        &manifest.parents,
        &manifest.crds,
        &manifest.children,
        &manifest.reads,
    )
    .and_then(|()| manifest::check(&manifest))
    .ok()?;
    Some(manifest)
}

/// Refuses a component whose embedded description differs from the executed one.
pub(super) fn check(embedded: Option<&Value>, manifest: &Manifest) -> Result<(), Error> {
    let difference = embedded.and_then(|embedded| difference(embedded, &value(manifest)));
    difference.map_or(Ok(()), |at| Err(Error::Embedded { at }))
}

/// Returns the first field in which two descriptions differ.
fn difference(embedded: &Value, executed: &Value) -> Option<String> {
    let mut fields = [embedded, executed]
        .map(Value::as_object)
        .into_iter()
        .flatten()
        .flat_map(Map::keys);
    let field = fields.find(|field| embedded.get(field) != executed.get(field));
    field.cloned()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Described, Engine, Metering, artifact,
        testing::{described, engine, guest},
    };
    use innkeeper_model::Limits;
    use serde_json::json;

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
        assert_eq!(embedded_manifest(&with), Some(manifest.clone()));
        assert_eq!(embedded_manifest(&bytes), None);
        // The component is still the same plugin, and loads.
        assert_eq!(*described(&engine, &with).manifest(), manifest);
        assert_eq!(embedded(&embed(&with, &manifest)), Some(Value::Null));
    }

    /// Returns a component with this text as its embedded description.
    fn with_text(text: &[u8]) -> Vec<u8> {
        let mut bytes = guest().build();
        let section = CustomSection {
            name: SECTION.into(),
            data: text.into(),
        };
        section.append_to_component(&mut bytes);
        bytes
    }

    #[test]
    fn an_embedded_description_that_breaks_a_rule_is_no_manifest() {
        let valid = r#"{"name": "web", "version": "1", "finalize": false, "readsOwnStatus": false, "crds": [], "children": [], "reads": [],
            "parents": [{"apiVersion": "a/v1", "kind": "Web", "plural": "webs", "scope": "Namespaced"}]}"#;
        assert!(embedded_manifest(&with_text(valid.as_bytes())).is_some());
        for (from, to) in [
            (r#""web""#, r#""We b""#),
            (r#""version": "1""#, r#""version": """#),
            (r#""a/v1""#, r#""a/b/v1""#),
            (r#""Web""#, r#""web""#),
            (r#""webs""#, r#""We bs""#),
            (r#"[{"apiVersion""#, r#"[], "other": [{"apiVersion""#),
            ("{", "["),
        ] {
            let text = valid.replacen(from, to, 1);
            assert_eq!(
                embedded_manifest(&with_text(text.as_bytes())),
                None,
                "{text}"
            );
        }
        let long = format!("{valid}{}", " ".repeat(BYTES_MAX));
        assert_eq!(embedded(&with_text(long.as_bytes())), Some(Value::Null));
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
