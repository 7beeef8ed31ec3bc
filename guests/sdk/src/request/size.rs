//! A parent's size. Field bounds cannot limit it: their product is far larger than any sensible parent.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The longest part of a path that a message shows, in characters: a user may choose the keys of maps.
const PART_CHARS_MAX: usize = 64;

/// Checks that a parent has at most these bytes of JSON, apart from metadata and status.
pub(super) fn check(parent: &str, bytes_max: usize) -> Result<(), String> {
    if parent.len() <= bytes_max {
        return Ok(());
    }
    // The host sends an object; another text fails when it is parsed into the type.
    let mut parts = parts_of(parent);
    parts.retain(|(name, _)| !matches!(&**name, ".apiVersion" | ".kind" | ".metadata" | ".status"));
    let bytes: usize = parts.iter().map(|(_, value)| value.get().len()).sum();
    if bytes <= bytes_max {
        return Ok(());
    }
    let (path, part) = largest(parts);
    Err(format!(
        "the object is too large: {bytes} bytes besides metadata and status, at most {bytes_max} are allowed; {path} has {part} \
         bytes of them, make it smaller"
    ))
}

/// The members of an object or the items of a list, each with a path segment; not parsed.
type Parts<'a> = Vec<(String, &'a RawValue)>;

/// The path and size of the largest field: the deepest one that has more than half of the enclosing field's bytes.
fn largest(mut parts: Parts<'_>) -> (String, usize) {
    let mut path = String::new();
    let mut bytes = 0;
    while let Some((name, value)) = parts.into_iter().max_by_key(|(_, value)| value.get().len()) {
        let text = value.get();
        if text.len() * 2 <= bytes {
            break;
        }
        path.push_str(&name);
        bytes = text.len();
        parts = parts_of(text);
    }
    (path.trim_start_matches('.').to_owned(), bytes)
}

/// The parts of a JSON document; empty for a string, a number or invalid JSON.
fn parts_of(text: &str) -> Parts<'_> {
    if let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
        let named = |(name, value): (String, _)| (format!(".{}", shown(&name)), value);
        return members.into_iter().map(named).collect();
    }
    let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    let numbered = |(index, value)| (format!("[{index}]"), value);
    items.into_iter().enumerate().map(numbered).collect()
}

/// A name as a part of a path.
fn shown(name: &str) -> String {
    match name.char_indices().nth(PART_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check;

    #[test]
    fn names_the_largest_field_of_a_parent_that_is_too_large() {
        let text = |bytes: usize| "x".repeat(bytes);
        let list = vec![json!({ "name": "a", "value": "b" }); 60];
        let cases = [
            (
                json!({ "spec": { "a": text(700), "b": text(600) } }),
                "spec.a",
                702,
            ),
            (
                json!({ "spec": { "a": text(400), "b": text(400), "c": text(400) } }),
                "spec",
                1222,
            ),
            (json!({ "spec": { "a": 1, "env": list } }), "spec.env", 1501),
            (
                json!({ "spec": { "env": [{ "value": text(1200) }, 1] } }),
                "spec.env[0].value",
                1202,
            ),
            (json!({ "spec": { text(1200): 1 } }), "spec", 1206),
            (
                json!({ "spec": { text(600): text(700) } }),
                &*format!("spec.{}...", text(64)),
                702,
            ),
            (json!({ "refs": [text(1100)], "spec": {} }), "refs[0]", 1102),
        ];
        for (parent, path, bytes) in cases {
            let problem = check(&parent.to_string(), 1000).unwrap_err();
            let end = format!("; {path} has {bytes} bytes of them, make it smaller");
            assert!(problem.ends_with(&end), "{problem} instead of {end}");
        }
    }

    #[test]
    fn counts_neither_metadata_nor_status() {
        let parent = json!({
            "apiVersion": "v1", "kind": "Pond", "metadata": { "annotations": { "a": "x".repeat(2000) } },
            "spec": { "a": "x".repeat(900) }, "status": { "a": "x".repeat(2000) },
        });
        assert_eq!(check(&parent.to_string(), 1000), Ok(()));
        let problem = check(&parent.to_string(), 900).unwrap_err();
        let start = "the object is too large: 908 bytes besides metadata and status, at most 900 are allowed";
        assert!(problem.starts_with(start), "{problem}");
        assert_eq!(
            check(&Value::from("x".repeat(2000)).to_string(), 1000),
            Ok(()),
            "no object"
        );
    }
}
