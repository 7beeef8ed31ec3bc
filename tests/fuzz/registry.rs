//! The answers of a registry: a manifest, a challenge, a token, a signature; and the texts that users give for one.

use std::sync::LazyLock;

use innkeeper_model::{Digest, error_chain};
use innkeeper_source::{DockerConfig, Expectation, PublicKey, Reference, hostile, tests::P256_PUB};

use super::run::run;

/// The longest text of a refusal, in bytes: the server chose a part of it, and it goes into a condition.
const REFUSAL_BYTES_MAX: usize = 8 << 10;

/// A key that signed nothing of the corpus, and the digest of no manifest in it.
static EXPECTATION: LazyLock<Expectation> = LazyLock::new(|| Expectation {
    keys: vec![PublicKey::from_pem(P256_PUB).unwrap()],
    ..Expectation::default()
});

#[test]
fn an_answer_of_a_registry_is_refused_or_safe_to_use() {
    run("registry", check);
}

fn check(input: &[u8]) {
    short(hostile::plugin_of_manifest(input));
    short(hostile::token(input));
    short(DockerConfig::from_json(input));
    let manifest = Digest::of(b"another manifest");
    for judged in hostile::signatures(input, "AAAA", &manifest, &EXPECTATION) {
        assert_eq!(short(judged), None, "a signature without a key");
    }
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    for line in text.lines() {
        check_line(line);
    }
    short(PublicKey::from_pem(text));
}

fn check_line(line: &str) {
    if let Ok(reference) = line.parse::<Reference>() {
        assert_eq!(reference.to_string(), line);
        let mut parts = reference.repository().split('/');
        assert!(!parts.any(|part| part == ".."), "{line}");
    }
    for insecure in [false, true] {
        if let Some(Some(address)) = short(hostile::token_address(line, insecure)) {
            assert!(insecure || address.starts_with("https://"), "{address}");
        }
    }
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
