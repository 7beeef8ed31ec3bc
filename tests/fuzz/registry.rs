//! A registry's answers (a manifest, a challenge, a token, a signature), and the texts with which users configure one.

use std::sync::LazyLock;

use innkeeper_model::{Digest, error_chain};
use innkeeper_source::{
    DockerConfig, Expectation, PublicKey, Reference, SigningKey, hostile, tests::P256_KEY,
};
use serde_json::Value;

use super::{run::run_with, shapes};

/// The longest refusal text, in bytes: the server chooses part of it, and it is written into a condition.
const REFUSAL_BYTES_MAX: usize = 8 << 10;

/// The manifest that the corpus signatures name; none of them is by the key.
const MANIFEST: &[u8] = b"another manifest";

static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::from_pem(P256_KEY).unwrap());

static EXPECTATION: LazyLock<Expectation> = LazyLock::new(|| Expectation {
    keys: vec![KEY.public()],
    ..Expectation::default()
});

#[test]
fn an_answer_of_a_registry_is_refused_or_safe_to_use() {
    run_with(
        "registry",
        Vec::new(),
        Some(|shape| shapes::answer(shape).into()),
    );
}

/// Reaches what follows a manifest, a token, credentials, a signature, a reference, a challenge and a key.
pub(super) fn check(input: &[u8]) -> [bool; 7] {
    let plugin = short(hostile::plugin_of_manifest(input));
    let token = short(hostile::token(input));
    let login = short(DockerConfig::from_json(input));
    let signed = check_signed(input);
    let manifest = Digest::hash(MANIFEST);
    for judged in hostile::signatures(input, "AAAA", &manifest, &EXPECTATION) {
        assert_eq!(short(judged), None, "a signature without a key");
    }
    let text = str::from_utf8(input).unwrap_or_default();
    let mut reference = false;
    let mut challenge = false;
    for line in text.lines() {
        let reached = check_line(line);
        reference |= reached.0;
        challenge |= reached.1;
    }
    let key = short(PublicKey::from_pem(text));
    [
        plugin.is_some(),
        token.is_some(),
        login.is_some(),
        signed,
        reference,
        challenge,
        key.is_some(),
    ]
}

/// Signs a document: it must name the manifest to be accepted. Returns true if it is.
fn check_signed(document: &[u8]) -> bool {
    let signature = KEY.sign(document).unwrap();
    let manifest = Digest::hash(MANIFEST);
    let [_, judged] = hostile::signatures(document, &signature, &manifest, &EXPECTATION);
    let accepted = short(judged).is_some();
    let is_named = || {
        let document: Value = serde_json::from_slice(document).unwrap();
        document.to_string().contains(&manifest.to_hex())
    };
    assert!(!accepted || is_named(), "a signature of other content");
    accepted
}

/// Returns true for a reference, and true for a challenge that asks for a token.
fn check_line(line: &str) -> (bool, bool) {
    let reference = line.parse::<Reference>();
    if let Ok(reference) = &reference {
        assert_eq!(reference.to_string(), line);
        let mut parts = reference.repository().split('/');
        assert!(!parts.any(|part| part == ".."), "{line}");
    }
    let mut is_challenge = false;
    for insecure in [false, true] {
        if let Some(Some(address)) = short(hostile::token_address(line, insecure)) {
            assert!(insecure || address.starts_with("https://"), "{address}");
            is_challenge = true;
        }
    }
    (reference.is_ok(), is_challenge)
}

/// Returns the value, or checks that the refusal is short.
fn short<T, E: std::error::Error + 'static>(result: Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| {
            let length = error_chain(error).to_string().len();
            assert!(length <= REFUSAL_BYTES_MAX, "a refusal of {length} bytes");
        })
        .ok()
}
