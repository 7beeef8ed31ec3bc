//! The description that is embedded in a component, so that it can be read without running anything.
//!
//! It is JSON in the custom section `innkeeper:description` of the outermost component. Only the executed description
//! is trusted: a component with a different embedded description is refused.

use innkeeper_model::Manifest;
use serde_json::{Map, Value};
use wasm_encoder::{ComponentSection, CustomSection};
use wasmparser::{Parser, Payload};

mod preview;

use super::Error;
pub use preview::{Preview, check_schema, preview};

/// The section's name.
pub const SECTION: &str = "innkeeper:description";

/// The size of the longest description, in bytes; a parsed one takes many times as much memory. That of an answer by
/// default, in which the executed description has to fit.
const BYTES_MAX: usize = 4 << 20;

/// The factor by which indentation may make a description longer than the canonical text.
const INDENTED_FACTOR: usize = 4;

/// Returns a description as JSON: the same text for the same description.
pub fn value(manifest: &Manifest) -> Value {
    // Infallible: all keys are texts, and no plugin can request a namespace list, the only value without a JSON form.
    serde_json::to_value(manifest).unwrap_or_default()
}

/// Embeds a description in a component, which must not have one already.
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

/// A component's embedded description, unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Embedded {
    /// The text.
    Text(Box<[u8]>),
    /// It has more than 4 MiB, or is there several times.
    Unusable,
}

/// Returns the embedded description; none if there is no section.
pub fn embedded(component: &[u8]) -> Option<Embedded> {
    let mut texts = 0_usize;
    let mut first = None;
    outermost(component, |payload| {
        if let Payload::CustomSection(section) = payload
            && section.name() == SECTION
        {
            texts += 1;
            first.get_or_insert_with(|| section.data());
        }
    });
    let text = first?;
    // A component may hold as many texts as fit: none is parsed.
    if texts > 1 || text.len() > BYTES_MAX {
        return Some(Embedded::Unusable);
    }
    Some(Embedded::Text(text.into()))
}

/// Refuses a component whose embedded description differs from the executed one.
pub(super) fn check(embedded: Option<&Embedded>, manifest: &Manifest) -> Result<(), Error> {
    let differs = |at: &str| Err(Error::Embedded { at: at.to_owned() });
    let embedded = match embedded {
        None => return Ok(()),
        Some(Embedded::Unusable) => return differs("its size, or it is there several times"),
        Some(Embedded::Text(text)) => text,
    };
    let executed = value(manifest);
    let text = executed.to_string();
    if **embedded == *text.as_bytes() {
        return Ok(());
    }
    // Not parsed: a text may become many times as large in memory.
    if embedded.len() > text.len().saturating_mul(INDENTED_FACTOR) {
        return differs("its length");
    }
    // Another tool may have written the same description with other spaces.
    let embedded = serde_json::from_slice(embedded).unwrap_or_default();
    difference(&embedded, &executed).map_or(Ok(()), |at| differs(&at))
}

/// Returns the first field in which two descriptions differ.
fn difference(embedded: &Value, executed: &Value) -> Option<String> {
    let mut fields = [embedded, executed]
        .map(Value::as_object)
        .into_iter()
        .flatten()
        .flat_map(Map::keys);
    fields
        .find(|field| embedded.get(field) != executed.get(field))
        .cloned()
}

/// Visits the outermost component's payloads, up to the first damaged one.
pub(super) fn outermost<'a>(component: &'a [u8], mut visit: impl FnMut(Payload<'a>)) {
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        let Ok(payload) = payload else { return };
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 1 => visit(payload),
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
        let text = value(&manifest).to_string();
        assert_eq!(
            embedded(&with),
            Some(Embedded::Text(text.as_bytes().into()))
        );
        // The component is still the same plugin, and loads.
        assert_eq!(*described(&engine, &with).manifest(), manifest);
        assert_eq!(embedded(&embed(&with, &manifest)), Some(Embedded::Unusable));
    }

    fn refusal(engine: &Engine, bytes: &[u8]) -> String {
        let limits = artifact::Limits::default();
        let compiled = artifact::compile(engine, bytes, &limits, None).unwrap();
        Described::load(engine, &compiled, &Limits::default())
            .err()
            .unwrap()
            .to_string()
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
    fn an_indented_description_is_the_same_and_a_long_one_is_not_parsed() {
        let engine = engine(Metering::Epochs);
        let manifest = described(&engine, &guest().build()).manifest().clone();
        let check_text =
            |text: String| check(Some(&Embedded::Text(text.as_bytes().into())), &manifest);
        let indented = format!("{:#}", value(&manifest));
        check_text(indented.clone()).unwrap();
        let long = format!("{indented}{}", " ".repeat(indented.len() * INDENTED_FACTOR));
        let error = check_text(long).unwrap_err().to_string();
        assert!(error.contains("in its length"), "{error}");
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
