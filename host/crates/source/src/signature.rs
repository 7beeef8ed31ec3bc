//! Parses signatures and checks them against the expected keys.
//!
//! Accepts three forms, all from `cosign sign --key` and `cosign sign-blob --key`: a signature for the bytes alone, a
//! signature for a small document that names a manifest (simple signing), and a bundle, which has a signature for the
//! bytes or for a statement about a digest. Transparency logs and certificates are not checked: only the key is
//! trusted.

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::Digest;
use serde_json::{Value, json};

use super::{Expectation, Failure, FailureKind, PublicKey};

/// The largest signature beside a file, in bytes: an upper limit for every known form.
pub(super) const FILE_BYTES_MAX: u64 = 64 * 1024;
/// The type in a simple signature's document.
const SIMPLE_TYPE: &str = "cosign container image signature";
/// A statement's payload type.
const STATEMENT_TYPE: &str = "application/vnd.in-toto+json";
/// The only predicate that is a signature. Other statements use the same keys: one may report a bad plugin.
pub(super) const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

const NOT_BASE64: &str = "the signature is not base64";
const OTHER_KEY: &str = "none of the expected keys made the signature";
const NOT_UNDERSTOOD: &str = "the signed content is not a signature of cosign";
const OTHER_CONTENT: &str = "the signature is of other content";

/// The document to sign for a manifest in a repository.
pub(super) fn simple(repository: &str, manifest: &Digest) -> Vec<u8> {
    let document = json!({
        "critical": {
            "identity": {"docker-reference": repository},
            "image": {"docker-manifest-digest": manifest.to_string()},
            "type": SIMPLE_TYPE,
        },
        "optional": null,
    });
    document.to_string().into_bytes()
}

/// Checks a simple signature, which covers a document that names the manifest. Returns the signer's key.
pub(super) fn check_simple(
    document: &[u8],
    signature: &str,
    manifest: &Digest,
    expectation: &Expectation,
) -> Result<Digest, Failure> {
    // The signature comes first: unsigned bytes are not even parsed.
    let key = signed_by(document, signature, &expectation.keys)?;
    let critical = &parse(document)?["critical"];
    if critical["type"] != SIMPLE_TYPE {
        return Err(bad(NOT_UNDERSTOOD));
    }
    if critical["image"]["docker-manifest-digest"] != manifest.to_string() {
        return Err(bad(OTHER_CONTENT));
    }
    match &expectation.repository {
        Some(required) if critical["identity"]["docker-reference"] != *required => Err(bad(
            &format!("the signature is not for the repository {required}"),
        )),
        _ => Ok(key),
    }
}

/// Checks a signature for bytes with this digest. Returns the signer's key.
pub(super) fn check_blob(
    signature: &[u8],
    bytes: &[u8],
    digest: &Digest,
    expectation: &Expectation,
) -> Result<Digest, Failure> {
    let text = str::from_utf8(signature)
        .map_err(|_| bad(NOT_BASE64))?
        .trim();
    if text.starts_with('{') {
        return check_bundle(text.as_bytes(), Some(bytes), digest, expectation);
    }
    signed_by(bytes, text, anywhere(expectation)?)
}

/// Checks a bundle about the bytes or, without bytes, about the manifest with that digest. Returns the signer's key.
pub(super) fn check_bundle(
    bundle: &[u8],
    bytes: Option<&[u8]>,
    digest: &Digest,
    expectation: &Expectation,
) -> Result<Digest, Failure> {
    let keys = anywhere(expectation)?;
    let bundle = parse(bundle)?;
    let message = bundle["messageSignature"]["signature"].as_str();
    match (message, &bundle["dsseEnvelope"], bytes) {
        (Some(signature), Value::Null, Some(bytes)) => signed_by(bytes, signature, keys),
        (None, envelope, _) => check_envelope(envelope, digest, keys),
        _ => Err(bad(NOT_UNDERSTOOD)),
    }
}

fn check_envelope(
    envelope: &Value,
    digest: &Digest,
    keys: &[PublicKey],
) -> Result<Digest, Failure> {
    let texts = [&envelope["payload"], &envelope["payloadType"]].map(Value::as_str);
    let ([Some(payload), Some(kind)], Some(signatures)) =
        (texts, envelope["signatures"].as_array())
    else {
        return Err(bad(NOT_UNDERSTOOD));
    };
    let payload = STANDARD.decode(payload).map_err(|_| bad(NOT_BASE64))?;
    // The signed message includes the type, so bytes cannot pass for another type (DSSE's pre-authentication encoding).
    let mut message = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    message.extend_from_slice(&payload);
    let mut signatures = signatures
        .iter()
        .filter_map(|signature| signature["sig"].as_str());
    let key = signatures
        .find_map(|signature| signed_by(&message, signature, keys).ok())
        .ok_or_else(|| bad(OTHER_KEY))?;
    let statement = parse(&payload)?;
    if kind != STATEMENT_TYPE || statement["predicateType"] != SIGNED {
        return Err(bad(NOT_UNDERSTOOD));
    }
    let hex = digest.to_hex();
    let mut subjects = statement["subject"].as_array().into_iter().flatten();
    if subjects.any(|subject| subject["digest"]["sha256"] == hex) {
        Ok(key)
    } else {
        Err(bad(OTHER_CONTENT))
    }
}

/// Returns the keys for signature forms that name no repository; an error if one is required.
fn anywhere(expectation: &Expectation) -> Result<&[PublicKey], Failure> {
    match &expectation.repository {
        None => Ok(&expectation.keys),
        Some(required) => Err(bad(&format!(
            "the signature names no repository, {required} is required: sign the artifact with `innkeeper sign`"
        ))),
    }
}

fn parse(text: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(text).map_err(|_| bad(NOT_UNDERSTOOD))
}

/// Returns the expected key that signed a message.
fn signed_by(message: &[u8], signature: &str, keys: &[PublicKey]) -> Result<Digest, Failure> {
    let signature = STANDARD.decode(signature).map_err(|_| bad(NOT_BASE64))?;
    keys.iter()
        .find(|key| key.verifies(message, &signature))
        .map(PublicKey::id)
        .ok_or_else(|| bad(OTHER_KEY))
}

fn bad(problem: &str) -> Failure {
    FailureKind::BadSignature.failure(problem)
}
