//! The content of signatures, and the check against the expected keys.
//!
//! Three forms are read, all of them made by `cosign sign --key` and `cosign sign-blob --key`:
//! a signature of the bytes alone, a signature of a small document that names a manifest (simple signing), and a bundle,
//! which holds one of the bytes or of a statement about a digest.
//! Transparency logs and certificates are not checked: only the key is trusted.

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::Digest;
use serde::{Deserialize, Serialize};

use super::{Failure, PublicKey, Reference};

/// The largest signature beside a file, in bytes: an upper limit for every known form.
pub(super) const FILE_BYTES_MAX: u64 = 64 * 1024;
/// The type that a simple signature names in its document.
const SIMPLE_TYPE: &str = "cosign container image signature";
/// The payload type of a statement.
const STATEMENT_TYPE: &str = "application/vnd.in-toto+json";
/// The only predicate that is a signature. Other statements use the same keys: one may say that a plugin is bad.
pub(super) const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

const NOT_BASE64: &str = "the signature is not base64";
const OTHER_KEY: &str = "none of the expected keys made the signature";
const NOT_UNDERSTOOD: &str = "the signed content is not a signature of cosign";
const OTHER_CONTENT: &str = "the signature is of other content";

/// The document of a simple signature.
#[derive(Deserialize, Serialize)]
struct Simple {
    critical: Critical,
    /// Free data of the signer.
    optional: Option<serde_json::Value>,
}

#[derive(Deserialize, Serialize)]
struct Critical {
    identity: Identity,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Identity {
    docker_reference: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    message_signature: Option<MessageSignature>,
    dsse_envelope: Option<Envelope>,
}

#[derive(Deserialize)]
struct MessageSignature {
    signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: Option<String>,
}

/// The document to sign for a manifest.
pub(super) fn simple(reference: &Reference, manifest: &Digest) -> Vec<u8> {
    let document = Simple {
        critical: Critical {
            identity: Identity {
                docker_reference: format!("{}/{}", reference.registry(), reference.repository()),
            },
            image: Image {
                docker_manifest_digest: manifest.to_string(),
            },
            kind: SIMPLE_TYPE.to_owned(),
        },
        optional: None,
    };
    // Serializing strings into a buffer cannot fail.
    serde_json::to_vec(&document).unwrap_or_default()
}

/// Checks a simple signature, which covers a document that names the manifest. Returns the key that signed.
pub(super) fn check_simple(
    document: &[u8],
    signature: &str,
    manifest: &Digest,
    keys: &[PublicKey],
) -> Result<Digest, Failure> {
    // The signature comes first: unsigned bytes are not even parsed.
    let key = signed_by(document, signature, keys)?;
    let simple: Simple = serde_json::from_slice(document).map_err(|_| bad(NOT_UNDERSTOOD))?;
    if simple.critical.kind != SIMPLE_TYPE {
        return Err(bad(NOT_UNDERSTOOD));
    }
    if simple.critical.image.docker_manifest_digest != manifest.to_string() {
        return Err(bad(OTHER_CONTENT));
    }
    Ok(key)
}

/// Checks a signature of bytes, which come with their digest. Returns the key that signed.
pub(super) fn check_blob(
    signature: &[u8],
    bytes: &[u8],
    digest: &Digest,
    keys: &[PublicKey],
) -> Result<Digest, Failure> {
    let text = str::from_utf8(signature)
        .map_err(|_| bad(NOT_BASE64))?
        .trim();
    if text.starts_with('{') {
        return check_bundle(text.as_bytes(), Some(bytes), digest, keys);
    }
    signed_by(bytes, text, keys)
}

/// Checks a bundle about the bytes or, without bytes, about the manifest with that digest. Returns the key that signed.
pub(super) fn check_bundle(
    bundle: &[u8],
    bytes: Option<&[u8]>,
    digest: &Digest,
    keys: &[PublicKey],
) -> Result<Digest, Failure> {
    let Bundle {
        message_signature,
        dsse_envelope,
    } = serde_json::from_slice(bundle).map_err(|_| bad(NOT_UNDERSTOOD))?;
    match (message_signature, dsse_envelope, bytes) {
        (Some(message), None, Some(bytes)) => signed_by(bytes, &message.signature, keys),
        (None, Some(envelope), _) => check_envelope(&envelope, digest, keys),
        _ => Err(bad(NOT_UNDERSTOOD)),
    }
}

fn check_envelope(
    envelope: &Envelope,
    digest: &Digest,
    keys: &[PublicKey],
) -> Result<Digest, Failure> {
    let payload = STANDARD
        .decode(&envelope.payload)
        .map_err(|_| bad(NOT_BASE64))?;
    let kind = &envelope.payload_type;
    // The signed message includes the type, so that bytes cannot be taken for another type (DSSE's pre-authentication
    // encoding).
    let mut message = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    message.extend_from_slice(&payload);
    let mut signatures = envelope.signatures.iter();
    let key = signatures
        .find_map(|signature| signed_by(&message, &signature.sig, keys).ok())
        .ok_or(bad(OTHER_KEY))?;
    let statement: Statement = serde_json::from_slice(&payload).map_err(|_| bad(NOT_UNDERSTOOD))?;
    if kind != STATEMENT_TYPE || statement.predicate_type != SIGNED {
        return Err(bad(NOT_UNDERSTOOD));
    }
    let hex = digest.to_hex();
    let mut subjects = statement.subject.iter();
    if subjects.any(|subject| subject.digest.sha256.as_ref() == Some(&hex)) {
        Ok(key)
    } else {
        Err(bad(OTHER_CONTENT))
    }
}

/// Returns the expected key that signed a message.
fn signed_by(message: &[u8], signature: &str, keys: &[PublicKey]) -> Result<Digest, Failure> {
    let signature = STANDARD.decode(signature).map_err(|_| bad(NOT_BASE64))?;
    keys.iter()
        .find(|key| key.verifies(message, &signature))
        .map(PublicKey::id)
        .ok_or(bad(OTHER_KEY))
}

const fn bad(problem: &'static str) -> Failure {
    Failure::BadSignature { problem }
}
