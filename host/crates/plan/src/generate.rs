//! Generates random values for Secrets.

use std::collections::BTreeMap;

use innkeeper_model::Generated;

/// Random bytes per call to the random source.
const CHUNK_BYTES: usize = 64;

/// Returns the annotation `innkeeper.dev/generated`; none without a token, so that Secrets from plugins that
/// rotate nothing stay as they are.
pub(super) fn tokens(generate: &[Generated]) -> Option<String> {
    // A sorted map: the same entries in another order must not change the annotation.
    let tokens: BTreeMap<&str, &str> = generate
        .iter()
        .filter_map(|entry| Some((&*entry.key, entry.token.as_deref()?)))
        .collect();
    // Infallible: a map from texts to texts is JSON.
    (!tokens.is_empty()).then(|| serde_json::to_string(&tokens).unwrap_or_default())
}

/// Returns true if the token of a generated value is not the one for which the existing value was drawn; `annotation` is
/// `innkeeper.dev/generated` of the existing Secret.
pub fn is_rotated(entry: &Generated, annotation: Option<&str>) -> bool {
    let Some(token) = &entry.token else {
        return false;
    };
    let drawn: BTreeMap<String, String> = annotation
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    drawn.get(&entry.key) != Some(token)
}

/// Generates a value from random bytes, with the same probability for every character in the alphabet.
pub fn generate(entry: &Generated, random: &mut dyn FnMut(&mut [u8])) -> String {
    let alphabet = entry.alphabet.as_bytes();
    let length = usize::try_from(entry.length).unwrap_or(usize::MAX);
    let mut value = String::with_capacity(length);
    // The policy check refuses it; here it would divide by zero.
    if alphabet.is_empty() {
        return value;
    }
    // Bytes from the last whole multiple of the alphabet's length on are discarded; taken modulo the length, they would
    // make the first characters more likely.
    let fair = 256 - 256 % alphabet.len().min(256);
    let mut chunk = [0; CHUNK_BYTES];
    while value.len() < length {
        random(&mut chunk);
        let missing = length - value.len();
        let drawn = chunk
            .iter()
            .map(|byte| usize::from(*byte))
            .filter(|byte| *byte < fair)
            .filter_map(|byte| alphabet.get(byte % alphabet.len()))
            .take(missing)
            .map(|character| char::from(*character));
        value.extend(drawn);
    }
    value
}

#[cfg(test)]
mod tests {
    use innkeeper_model::Generated;

    use super::{is_rotated, tokens};

    fn entry(key: &str, token: Option<&str>) -> Generated {
        Generated {
            key: key.to_owned(),
            length: 8,
            alphabet: "ab".to_owned(),
            token: token.map(str::to_owned),
        }
    }

    #[test]
    fn a_value_is_drawn_again_exactly_if_its_token_changes() {
        let annotation = tokens(&[
            entry("b", Some("1")),
            entry("a", Some("x")),
            entry("c", None),
        ]);
        assert_eq!(annotation.as_deref(), Some(r#"{"a":"x","b":"1"}"#));
        for (key, token, expected) in [
            ("a", Some("x"), false),
            ("a", Some("y"), true),
            ("a", None, false),
            // An existing value gets a token for the first time.
            ("c", Some("1"), true),
            ("c", None, false),
        ] {
            let rotated = is_rotated(&entry(key, token), annotation.as_deref());
            assert_eq!(rotated, expected, "{key} {token:?}");
        }
        assert!(is_rotated(&entry("a", Some("x")), None));
        assert!(is_rotated(&entry("a", Some("x")), Some("[]")));
        assert_eq!(tokens(&[entry("a", None)]), None);
    }
}
