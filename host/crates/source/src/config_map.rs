//! A plugin in a ConfigMap object that the caller has read.

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::Digest;
use serde_json::Value;

use super::{ConfigMap, Expectation, Failure, Fetched, accept};

/// The name of a ConfigMap, for people.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or("without a name")
}

pub(super) fn fetch(
    map: &ConfigMap,
    expectation: &Expectation,
    bytes_max: u64,
) -> Result<Fetched, Failure> {
    let bytes = binary(&map.object, &map.key)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(Failure::TooLarge {
            what: "the plugin",
            max: bytes_max,
        });
    }
    let signature = if expectation.keys.is_empty() {
        None
    } else {
        Some(signature(&map.object, &format!("{}.sig", map.key))?)
    };
    let digest = Digest::of(&bytes);
    accept(bytes, digest, expectation, signature.as_deref())
}

/// The signature may also be in `data`: kubectl puts text there.
fn signature(object: &Value, key: &str) -> Result<Vec<u8>, Failure> {
    if let Some(text) = object["data"][key].as_str() {
        return Ok(text.as_bytes().to_vec());
    }
    match binary(object, key) {
        Err(Failure::KeyMissing { .. }) => Err(Failure::Unsigned {
            looked_for: format!("the key {key}"),
        }),
        found => found,
    }
}

fn binary(object: &Value, key: &str) -> Result<Vec<u8>, Failure> {
    let values = object["binaryData"].as_object();
    let Some(encoded) = values.and_then(|values| values.get(key)) else {
        return Err(Failure::KeyMissing {
            key: key.to_owned(),
            found: values.map_or_else(Vec::new, |values| values.keys().cloned().collect()),
            is_text: object["data"].get(key).is_some(),
        });
    };
    STANDARD
        .decode(encoded.as_str().unwrap_or_default())
        .map_err(|source| Failure::KeyNotBase64 {
            key: key.to_owned(),
            source,
        })
}
