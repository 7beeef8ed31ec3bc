//! Signatures exchanged with the real cosign in both directions; only `tests/full` builds cosign.
//!
//! Signatures that cosign made once are in `host/crates/source/src/tests/fixtures/cosign`, for the short runs.

use innkeeper_tests::{
    process::is_full,
    registry::{Client, Registry, key_file},
};

use crate::artifacts::{check_refused, output_json, push};

/// Signs offline: with a key, without a transparency log.
const SIGN: [&str; 6] = [
    "sign",
    "--key=cosign.key",
    "--use-signing-config=false",
    "--tlog-upload=false",
    "--allow-http-registry",
    "--yes",
];
const VERIFY: [&str; 3] = [
    "verify",
    "--insecure-ignore-tlog=true",
    "--allow-http-registry",
];

/// A cosign client with a key pair, and the public key's path.
pub(crate) fn cosign() -> (Client, String) {
    let cosign = Client::cosign().unwrap();
    cosign.run(&["generate-key-pair"]).unwrap();
    let key = cosign
        .directory()
        .join("cosign.pub")
        .to_str()
        .unwrap()
        .to_owned();
    (cosign, key)
}

#[track_caller]
pub(crate) fn check_cosign(cosign: &Client, reference: &str, key: &str, is_signed: bool) {
    let key = format!("--key={key}");
    let verify = [&VERIFY[..], &[&key, reference]].concat();
    let output = cosign.output(&verify).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.success(), is_signed, "{stderr}");
    if !is_signed {
        let expected = ["no matching signatures", "no signatures found"];
        assert!(
            expected.iter().any(|text| stderr.contains(text)),
            "{stderr}"
        );
    }
}

#[test]
fn cosign_verifies_a_signature_of_innkeeper() {
    if !is_full() {
        return;
    }
    let (cosign, _) = cosign();
    let innkeeper = Client::innkeeper().unwrap();
    for (key, public) in [("p256.key", "p256.pub"), ("ed25519.key", "ed25519.pub")] {
        let registry = Registry::start().unwrap();
        push(&innkeeper, &registry, &["--insecure"]);
        let reference = registry.reference(":1");
        check_cosign(&cosign, &reference, &key_file(public), false);
        let sign = ["sign", &reference, "--insecure", "--key", &key_file(key)];
        innkeeper.run(&sign).unwrap();
        check_cosign(&cosign, &reference, &key_file(public), true);
        check_cosign(&cosign, &reference, &key_file("other.pub"), false);
    }
}

#[test]
fn innkeeper_verifies_a_signature_of_cosign() {
    if !is_full() {
        return;
    }
    let (cosign, public) = cosign();
    let innkeeper = Client::innkeeper().unwrap();
    // The older format stores the signature under a separate tag, the newer one as a referrer.
    for format in ["--new-bundle-format=false", "--new-bundle-format=true"] {
        let registry = Registry::start().unwrap();
        let pushed = push(&innkeeper, &registry, &["--insecure"]);
        let manifest = pushed["manifestDigest"].as_str().unwrap();
        let tagged = registry.reference(":1");
        let pinned = registry.reference(&format!("@{manifest}"));
        let verify = |key: &str| -> Vec<String> {
            ["verify", &tagged, "--insecure", "--key", key]
                .map(str::to_owned)
                .to_vec()
        };
        let none = ["no signature found"];
        check_refused(&innkeeper, &verify(&public), 3, &none);
        let sign = [&SIGN[..], &[format, &pinned]].concat();
        cosign.run(&sign).unwrap();
        let verified = output_json(&innkeeper, &verify(&public));
        assert_eq!(verified["manifestDigest"], manifest);
        let other = verify(&key_file("other.pub"));
        let texts = ["none of the expected keys made the signature"];
        check_refused(&innkeeper, &other, 3, &texts);

        // A second signer keeps the first one's signature.
        let sign = [
            "sign",
            &tagged,
            "--insecure",
            "--key",
            &key_file("p256.key"),
        ];
        innkeeper.run(&sign).unwrap();
        output_json(&innkeeper, &verify(&public));
        output_json(&innkeeper, &verify(&key_file("p256.pub")));
        check_cosign(&cosign, &tagged, &public, true);
    }
}
