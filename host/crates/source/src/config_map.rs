//! A plugin in a ConfigMap object that the caller has read.

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use innkeeper_model::Digest;
use serde_json::Value;

use super::{ConfigMap, Failure, FailureKind, Part};

/// The first bytes in a gzip file; no component starts with them.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// A readable ConfigMap name.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or("without a name")
}

/// Reads a plugin part. The signature may also be in `data`: kubectl puts text there.
///
/// Unpacks gzip values, because a ConfigMap holds 1 MiB and many components are larger. Size, digest and signature are
/// checked on the unpacked bytes.
pub(super) fn read(
    ConfigMap { object, key }: &ConfigMap,
    part: Part,
) -> Result<(Vec<u8>, Digest), Failure> {
    let key = format!("{key}{}", part.suffix);
    let text = object["data"][&key].as_str();
    let bytes = match text.filter(|_| part.is_signature()) {
        Some(text) => text.as_bytes().to_vec(),
        None => unpacked(binary(object, &key)?, part)?,
    };
    part.with_digest(bytes)
}

fn binary(object: &Value, key: &str) -> Result<Vec<u8>, Failure> {
    let values = object["binaryData"].as_object();
    let Some(encoded) = values.and_then(|values| values.get(key)) else {
        let names: Vec<&str> = values
            .into_iter()
            .flatten()
            .map(|(key, _)| &**key)
            .collect();
        let keys = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        let hint = if object["data"].get(key).is_some() {
            "; there is one in data, which holds text: put the file into binaryData"
        } else {
            ""
        };
        let message = format!("binaryData has no key {key}, it has {keys}{hint}");
        return Err(FailureKind::KeyMissing.failure(message));
    };
    let decoded = STANDARD.decode(encoded.as_str().unwrap_or_default());
    decoded.map_err(|source| {
        let message = format!("the value of {key} in binaryData is not base64");
        FailureKind::ArtifactMalformed.because(message, source)
    })
}

/// Unpacks gzip bytes, at most one byte beyond the limit.
fn unpacked(bytes: Vec<u8>, part: Part) -> Result<Vec<u8>, Failure> {
    if !bytes.starts_with(GZIP) {
        return Ok(bytes);
    }
    // 1 MiB of gzip can unpack to a gigabyte.
    part.read(GzDecoder::new(&*bytes)).map_err(|source| {
        let message = format!("{} is damaged: it cannot be unpacked with gzip", part.what);
        FailureKind::ArtifactMalformed.because(message, source)
    })
}
