//! Signatures from cosign, from openssl, and from the host itself.

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;

use super::{
    registry::{Registry, SignIn},
    server::Reply,
    *,
};
use crate::{InvalidKey, Package, signature};

const P384_PUB: &str = include_str!("fixtures/p384.pub");
/// The only statement that is a signature.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// The public key that cosign made, and a signature with the private key.
const COSIGN_PUB: &str = include_str!("fixtures/cosign/cosign.pub");
const COSIGN_SIGNATURE: &str = include_str!("fixtures/cosign/plugin.txt.sig");
const COSIGN_BUNDLE: &str = include_str!("fixtures/cosign/plugin.txt.bundle");
/// An artifact that oras pushed, with the signature that cosign put beside it and the bundle that refers to it.
const ARTIFACT: &str = include_str!("fixtures/cosign/artifact.json");
const BESIDE: &str = include_str!("fixtures/cosign/signature.json");
const DOCUMENT: &str = include_str!("fixtures/cosign/document.json");
const BUNDLE_MANIFEST: &str = include_str!("fixtures/cosign/bundle-manifest.json");
const BUNDLE: &str = include_str!("fixtures/cosign/bundle.json");

/// A bundle's type in referrer lists.
const BUNDLE_KIND: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The type that some registries give every artifact without a configuration.
const EMPTY_KIND: &str = "application/vnd.oci.empty.v1+json";

fn signing(pem: &str) -> SigningKey {
    SigningKey::from_pem(pem).unwrap()
}

fn check_blob(text: &str, bytes: &[u8], pems: &[&str]) -> Result<Digest, String> {
    let digest = Digest::hash(bytes);
    signature::check_blob(text.as_bytes(), bytes, &digest, &expect_keys(pems))
        .map_err(|failure| failure.to_string())
}

/// A bundle as cosign writes it, with a statement signed by a key.
fn bundle(key: &SigningKey, predicate: &str, payload_type: &str, sha256: &str) -> String {
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": sha256}, "annotations": {}}],
        "predicateType": predicate,
        "predicate": {},
    })
    .to_string();
    let length = (payload_type.len(), statement.len());
    let message = format!(
        "DSSEv1 {} {payload_type} {} {statement}",
        length.0, length.1
    );
    json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": "x"}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": STANDARD.encode(statement),
            "payloadType": payload_type,
            "signatures": [{"sig": key.sign(message.as_bytes()).unwrap(), "keyid": ""}],
        },
    })
    .to_string()
}

#[test]
fn signatures_of_openssl_and_cosign_are_understood() {
    assert_eq!(
        check_blob(SIGNATURE, PLUGIN, &[P256_PUB]).ok(),
        Some(key_id(P256_PUB))
    );
    assert_eq!(
        check_blob(ED25519_SIGNATURE, PLUGIN, &[P256_PUB, ED25519_PUB]).ok(),
        Some(key_id(ED25519_PUB))
    );
    let message = json!({"messageSignature": {"signature": SIGNATURE}}).to_string();
    assert_eq!(
        check_blob(&message, PLUGIN, &[P256_PUB]).ok(),
        Some(key_id(P256_PUB))
    );
}

#[test]
fn files_that_cosign_signed_are_by_its_key() {
    for text in [COSIGN_SIGNATURE, COSIGN_BUNDLE] {
        let signed_by = check_blob(text, PLUGIN, &[P256_PUB, COSIGN_PUB]);
        assert_eq!(signed_by.ok(), Some(key_id(COSIGN_PUB)));
        for (bytes, pem) in [(PLUGIN, P256_PUB), (b"other".as_slice(), COSIGN_PUB)] {
            let error = check_blob(text, bytes, &[pem]).unwrap_err();
            assert_eq!(error, "none of the expected keys made the signature");
        }
    }
}

/// A registry with the artifact that cosign signed, and the list of manifests that refer to it.
async fn signed_by_cosign(beside: bool, referrers: &[serde_json::Value]) -> Registry {
    let registry = Registry::start(SignIn::Token).await;
    registry.kept.lock().referrers = false;
    for blob in [PLUGIN, DOCUMENT.as_bytes(), BUNDLE.as_bytes()] {
        registry.put_blob(blob);
    }
    let hex = registry.put_manifest("1", ARTIFACT).to_hex();
    if beside {
        registry.put_manifest(&format!("sha256-{hex}.sig"), BESIDE);
    }
    registry.put_manifest("bundle", BUNDLE_MANIFEST);
    let index = json!({"schemaVersion": 2, "manifests": referrers});
    registry.put_manifest(&format!("sha256-{hex}"), index.to_string());
    registry
}

/// A list entry for a manifest.
fn referrer(manifest: &str, kind: &str) -> serde_json::Value {
    json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": Digest::hash(manifest.as_bytes()).to_string(),
        "size": manifest.len(),
        "artifactType": kind,
    })
}

#[tokio::test]
async fn artifacts_that_cosign_signed_are_by_its_key() {
    for (beside, referrers) in [
        (true, vec![]),
        (false, vec![referrer(BUNDLE_MANIFEST, BUNDLE_KIND)]),
        // As a registry lists it that looks at configurations alone.
        (false, vec![referrer(BUNDLE_MANIFEST, EMPTY_KIND)]),
    ] {
        let registry = signed_by_cosign(beside, &referrers).await;
        let fetched = pull(&registry, &[P256_PUB, COSIGN_PUB]).await.unwrap();
        assert_eq!(fetched.bytes, PLUGIN);
        assert_eq!(fetched.signed_by, Some(key_id(COSIGN_PUB)));
        check_refused(
            pull(&registry, &[P256_PUB]).await,
            PluginReason::BadSignature,
            Retry::OnChange,
            &["none of the expected keys"],
        );
    }
    let registry = signed_by_cosign(false, &[]).await;
    check_refused(
        pull(&registry, &[COSIGN_PUB]).await,
        PluginReason::Unsigned,
        Retry::Backoff,
        &[],
    );
}

#[tokio::test]
async fn other_referrers_of_an_artifact_are_not_signatures() {
    let notes = json!({"schemaVersion": 2, "layers": []}).to_string();
    let about = SIGNED.replace("sign/v1", "notes/v1");
    let statement = BUNDLE_MANIFEST.replace(SIGNED, &about);
    for (manifest, kind) in [
        (&notes, EMPTY_KIND),
        (&notes, "text/markdown"),
        (&statement, EMPTY_KIND),
    ] {
        let registry = signed_by_cosign(false, &[referrer(manifest, kind)]).await;
        registry.put_manifest("other", manifest.clone());
        // So that a signature that comes later is found.
        check_refused(
            pull(&registry, &[COSIGN_PUB]).await,
            PluginReason::Unsigned,
            Retry::Backoff,
            &["no signature found"],
        );
    }
}

#[test]
fn a_mismatching_signature_is_refused() {
    for (text, bytes, pem) in [
        (SIGNATURE, PLUGIN, OTHER_PUB),
        (SIGNATURE, PLUGIN, ED25519_PUB),
        (SIGNATURE, b"other".as_slice(), P256_PUB),
        (ED25519_SIGNATURE, PLUGIN, P256_PUB),
        (ED25519_SIGNATURE, b"other", ED25519_PUB),
        ("AAAA", PLUGIN, P256_PUB),
        ("", PLUGIN, P256_PUB),
    ] {
        assert_eq!(
            check_blob(text, bytes, &[pem]),
            Err("none of the expected keys made the signature".to_owned())
        );
    }
    assert_eq!(
        check_blob("%", PLUGIN, &[P256_PUB]),
        Err("the signature is not base64".to_owned())
    );
    for text in ["{", "{}", r#"{"messageSignature": 1}"#] {
        assert!(
            check_blob(text, PLUGIN, &[P256_PUB])
                .unwrap_err()
                .contains("not a signature of cosign")
        );
    }
}

#[test]
fn a_signature_does_not_count_for_something_else() {
    let key = signing(P256_KEY);
    let hex = Digest::hash(PLUGIN).to_hex();
    let statement = "application/vnd.in-toto+json";
    let check = |bundle: &str| check_blob(bundle, PLUGIN, &[P256_PUB]);
    assert_eq!(
        check(&bundle(&key, SIGNED, statement, &hex)).ok(),
        Some(key_id(P256_PUB))
    );
    for (bundle, problem) in [
        (
            bundle(&key, "https://slsa.dev/provenance/v1", statement, &hex),
            "not a signature of cosign",
        ),
        (
            bundle(&key, SIGNED, "text/plain", &hex),
            "not a signature of cosign",
        ),
        (
            bundle(&key, SIGNED, statement, &"0".repeat(64)),
            "of other content",
        ),
        (
            bundle(&signing(OTHER_KEY), SIGNED, statement, &hex),
            "none of the expected keys",
        ),
    ] {
        let error = check(&bundle).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }

    let repository = "registry.test/plugins/pond";
    let manifest = Digest::hash(b"manifest");
    let document = signature::simple(repository, &manifest);
    expect_test::expect![[r#"{"critical":{"identity":{"docker-reference":"registry.test/plugins/pond"},"image":{"docker-manifest-digest":"sha256:05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f"},"type":"cosign container image signature"},"optional":null}"#]].assert_eq(str::from_utf8(&document).unwrap());
    let check_simple = |document: &[u8], manifest: &Digest| {
        let text = key.sign(document).unwrap();
        signature::check_simple(document, &text, manifest, &expect_keys(&[P256_PUB]))
            .map_err(|failure| failure.to_string())
    };
    assert_eq!(
        check_simple(&document, &manifest).ok(),
        Some(key_id(P256_PUB))
    );
    let refused = check_simple(&document, &Digest::hash(b"other")).unwrap_err();
    assert!(refused.contains("of other content"), "{refused}");
    let atomic = String::from_utf8(document)
        .unwrap()
        .replace("cosign container", "atomic container");
    let error = check_simple(atomic.as_bytes(), &manifest).unwrap_err();
    assert!(error.contains("not a signature of cosign"), "{error}");
}

#[test]
fn keys_are_read_and_shown() {
    for (private, public) in [(P256_KEY, P256_PUB), (ED25519_KEY, ED25519_PUB)] {
        let key = signing(private);
        assert_eq!(Ok(key.public()), PublicKey::from_pem(public));
        assert_eq!(Some(key.public().id()), Some(key_id(public)));
        let text = key.sign(PLUGIN).unwrap();
        assert_eq!(
            check_blob(&text, PLUGIN, &[public]).ok(),
            Some(key_id(public))
        );
        assert!(!format!("{key:?}").contains("BEGIN"));
    }
    for (text, expected) in [
        ("", InvalidKey::NotPublic),
        (P256_KEY, InvalidKey::NotPublic),
        (P384_PUB, InvalidKey::PublicKind),
    ] {
        assert_eq!(PublicKey::from_pem(text), Err(expected));
    }
    let encrypted = P256_KEY.replace("PRIVATE", "ENCRYPTED SIGSTORE PRIVATE");
    let sec1 = P256_KEY.replace("PRIVATE", "EC PRIVATE");
    let damaged = P384_PUB.replace("PUBLIC", "PRIVATE");
    for (text, expected) in [
        ("", InvalidKey::NotPrivate),
        (P256_PUB, InvalidKey::NotPrivate),
        (sec1.as_str(), InvalidKey::NotPrivate),
        (encrypted.as_str(), InvalidKey::Encrypted),
        (damaged.as_str(), InvalidKey::PrivateKind),
    ] {
        assert_eq!(SigningKey::from_pem(text).err(), Some(expected));
    }
}

/// A registry with a pushed plugin, and the manifest.
async fn pushed() -> (Registry, Digest) {
    let registry = Registry::start(SignIn::Token).await;
    let package = Package {
        bytes: PLUGIN.to_vec(),
        ..Package::default()
    };
    let pushed = fetcher(local())
        .push(&registry.private(":1"), &package)
        .await
        .unwrap();
    (registry, pushed.manifest_digest)
}

async fn pull(registry: &Registry, pems: &[&str]) -> Result<Fetched, Error> {
    let source = Source::Oci(registry.private(":1"));
    fetch(local(), &source, &expect_keys(pems)).await
}

#[tokio::test]
async fn a_signed_artifact_is_pulled_and_another_is_not() {
    let (registry, manifest) = pushed().await;
    let target = registry.private(":1");
    check_refused(
        pull(&registry, &[P256_PUB]).await,
        PluginReason::Unsigned,
        Retry::Backoff,
        &[&format!("sha256-{}.sig", manifest.to_hex())],
    );
    assert!(
        registry
            .requests()
            .iter()
            .all(|request| !request.starts_with("GET /v2/plugins/pond/blobs"))
    );

    fetcher(local())
        .sign(
            &target,
            &target.reference.name(),
            &manifest,
            &signing(P256_KEY),
        )
        .await
        .unwrap();
    let fetched = pull(&registry, &[OTHER_PUB, P256_PUB]).await.unwrap();
    assert_eq!(
        (fetched.bytes.as_slice(), fetched.signed_by),
        (PLUGIN, Some(key_id(P256_PUB)))
    );
    check_refused(
        pull(&registry, &[OTHER_PUB]).await,
        PluginReason::BadSignature,
        Retry::OnChange,
        &["none of the expected keys"],
    );

    // Another key signs, too; and each key only once.
    for key in [OTHER_KEY, OTHER_KEY, P256_KEY] {
        fetcher(local())
            .sign(&target, &target.reference.name(), &manifest, &signing(key))
            .await
            .unwrap();
    }
    for pem in [OTHER_PUB, P256_PUB] {
        assert_eq!(
            pull(&registry, &[pem]).await.unwrap().signed_by,
            Some(key_id(pem))
        );
    }
    let tag = format!("sha256-{}.sig", manifest.to_hex());
    let text = registry.kept.lock().manifests[&tag].clone();
    let signatures: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(signatures["layers"].as_array().unwrap().len(), 2);
}

/// An artifact is signed before it is copied to its repository.
#[tokio::test]
async fn a_signature_names_the_repository_that_was_asked_for() {
    let (registry, manifest) = pushed().await;
    let target = registry.private(":1");
    let named = "registry.example/plugins/pond";
    fetcher(local())
        .sign(&target, named, &manifest, &signing(P256_KEY))
        .await
        .unwrap();
    let source = Source::Oci(target.clone());
    let pull = |repository: &str| {
        let expectation = Expectation {
            repository: Some(repository.to_owned()),
            ..expect_keys(&[P256_PUB])
        };
        let source = source.clone();
        async move { fetch(local(), &source, &expectation).await }
    };
    let fetched = pull(named).await.unwrap();
    assert_eq!(fetched.signed_by, Some(key_id(P256_PUB)));
    check_refused(
        pull(&target.reference.name()).await,
        PluginReason::BadSignature,
        Retry::OnChange,
        &["the signature is not for the repository"],
    );
}

#[tokio::test]
async fn a_signature_of_another_artifact_is_not_taken() {
    let (registry, manifest) = pushed().await;
    let target = registry.private(":1");
    fetcher(local())
        .sign(
            &target,
            &target.reference.name(),
            &manifest,
            &signing(P256_KEY),
        )
        .await
        .unwrap();
    // An attacker moves the tag and copies the signature to it.
    let evil = registry.put_blob(b"evil");
    let layer = json!({"mediaType": "application/wasm", "digest": evil, "size": 4});
    let text = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    let moved = registry.put_manifest("1", text);
    let tag = |digest: &Digest| format!("sha256-{}.sig", digest.to_hex());
    let copied = registry.kept.lock().manifests[&tag(&manifest)].clone();
    registry.put_manifest(&tag(&moved), copied);
    check_refused(
        pull(&registry, &[P256_PUB]).await,
        PluginReason::BadSignature,
        Retry::OnChange,
        &["of other content"],
    );
}

/// Stores a list of layers beside a manifest, as signatures.
fn put_signatures(registry: &Registry, manifest: &Digest, layers: &[serde_json::Value]) {
    let tag = format!("sha256-{}.sig", manifest.to_hex());
    let text = json!({"schemaVersion": 2, "layers": layers}).to_string();
    registry.put_manifest(&tag, text);
}

/// A layer with the document that names a manifest, signed by a key.
fn simple_layer(registry: &Registry, key: &SigningKey, manifest: &Digest) -> serde_json::Value {
    let document = signature::simple(&registry.artifact(":1").reference.name(), manifest);
    json!({
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
        "digest": registry.put_blob(&document),
        "size": document.len(),
        "annotations": {"dev.cosignproject.cosign/signature": key.sign(&document).unwrap()},
    })
}

#[tokio::test]
async fn of_many_signatures_sixteen_are_checked_and_the_refusal_tells_it() {
    let (registry, manifest) = pushed().await;
    let right = simple_layer(&registry, &signing(P256_KEY), &manifest);
    let mut unsigned = right.clone();
    unsigned["annotations"] = json!({});
    let mut too_large = right.clone();
    too_large["size"] = json!(1 << 20);
    let mut unchecked = right.clone();
    unchecked["digest"] = json!("sha512:00");
    let wrong = [
        simple_layer(&registry, &signing(OTHER_KEY), &manifest),
        simple_layer(&registry, &signing(P256_KEY), &Digest::hash(b"other")),
        unsigned,
        too_large,
        unchecked,
    ];
    for (before, is_found) in [(0, true), (15, true), (16, false), (1000, false)] {
        let mut layers: Vec<_> = wrong.iter().cycle().take(before).cloned().collect();
        layers.extend([right.clone(), right.clone()]);
        put_signatures(&registry, &manifest, &layers);
        let request_count = registry.requests().len();
        let pulled = pull(&registry, &[P256_PUB]).await;
        if is_found {
            assert_eq!(
                pulled.unwrap().signed_by,
                Some(key_id(P256_PUB)),
                "{before}"
            );
        } else {
            let left_out = format!("{} more signatures are not checked", before - 14);
            check_refused(
                pulled,
                PluginReason::BadSignature,
                Retry::OnChange,
                &[&left_out],
            );
        }
        let requests = registry.requests().len() - request_count;
        assert!(requests < 30, "{requests} requests");
    }
}

#[tokio::test]
async fn a_signature_for_another_repository_is_not_taken() {
    let (registry, manifest) = pushed().await;
    let source = Source::Oci(registry.private(":1"));
    let name = registry.artifact(":1").reference.name();
    let required = |repository: &str| Expectation {
        repository: Some(repository.to_owned()),
        ..expect_keys(&[P256_PUB])
    };
    let target = registry.private(":1");
    fetcher(local())
        .sign(
            &target,
            &target.reference.name(),
            &manifest,
            &signing(P256_KEY),
        )
        .await
        .unwrap();
    let fetched = fetch(local(), &source, &required(&name)).await.unwrap();
    assert_eq!(fetched.signed_by, Some(key_id(P256_PUB)));
    check_refused(
        fetch(local(), &source, &required("registry.test/plugins/other")).await,
        PluginReason::BadSignature,
        Retry::OnChange,
        &["not for the repository registry.test/plugins/other"],
    );
    // The other forms cover bytes or a digest alone.
    for text in [SIGNATURE, COSIGN_BUNDLE] {
        let expectation = Expectation {
            repository: Some(name.clone()),
            ..expect_keys(&[P256_PUB, COSIGN_PUB])
        };
        let digest = Digest::hash(PLUGIN);
        let error = signature::check_blob(text.as_bytes(), PLUGIN, &digest, &expectation)
            .unwrap_err()
            .to_string();
        assert!(error.contains("names no repository"), "{error}");
    }
}

#[tokio::test]
async fn bytes_that_were_changed_behind_a_signature_are_not_taken() {
    let (registry, manifest) = pushed().await;
    let target = registry.private(":1");
    fetcher(local())
        .sign(
            &target,
            &target.reference.name(),
            &manifest,
            &signing(P256_KEY),
        )
        .await
        .unwrap();
    let layer = Digest::hash(PLUGIN).to_string();
    registry
        .kept
        .lock()
        .blobs
        .insert(layer, vec![0; PLUGIN.len()]);
    check_refused(
        pull(&registry, &[P256_PUB]).await,
        PluginReason::WrongDigest,
        Retry::OnChange,
        &[],
    );
}

#[tokio::test]
async fn bundles_that_refer_to_the_artifact_are_signatures() {
    for referrers in [true, false] {
        let (registry, manifest) = pushed().await;
        registry.kept.lock().referrers = referrers;
        let put = |predicate: &str, annotated: &str| {
            let key = signing(P256_KEY);
            let text = bundle(
                &key,
                predicate,
                "application/vnd.in-toto+json",
                &manifest.to_hex(),
            );
            let kind = "application/vnd.dev.sigstore.bundle.v0.3+json";
            let digest = registry.put_blob(text.as_bytes());
            let bundle = json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "artifactType": kind,
                "layers": [{"mediaType": kind, "digest": digest, "size": text.len()}],
                "subject": {"digest": manifest.to_string()},
                "annotations": {"dev.sigstore.bundle.predicateType": annotated},
            });
            let digest = registry.put_manifest("bundle", bundle.to_string());
            let entry = json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": digest.to_string(),
                "size": bundle.to_string().len(),
                "artifactType": kind,
            });
            let index = json!({"schemaVersion": 2, "manifests": [entry]});
            registry.put_manifest(&format!("sha256-{}", manifest.to_hex()), index.to_string());
        };
        put(
            "https://slsa.dev/provenance/v1",
            "https://slsa.dev/provenance/v1",
        );
        let error = pull(&registry, &[P256_PUB]).await.unwrap_err();
        assert!(
            [PluginReason::Unsigned, PluginReason::BadSignature].contains(&error.reason()),
            "{error:?}"
        );
        put(SIGNED, SIGNED);
        let fetched = pull(&registry, &[OTHER_PUB, P256_PUB]).await.unwrap();
        assert_eq!(fetched.signed_by, Some(key_id(P256_PUB)));
        let result = pull(&registry, &[OTHER_PUB]).await;
        check_refused(result, PluginReason::BadSignature, Retry::OnChange, &[]);
    }
}

#[tokio::test]
async fn a_registry_that_hides_signatures_is_asked_again() {
    let (registry, _) = pushed().await;
    registry.instead(".sig", Reply::new(500, ""));
    check_refused(
        pull(&registry, &[P256_PUB]).await,
        PluginReason::ServerFailed,
        Retry::Backoff,
        &[],
    );
}

proptest! {
    #[test]
    fn no_signature_makes_the_host_panic(text in ".{0,200}", bytes in any::<[u8; 8]>()) {
        prop_assert!(check_blob(&text, &bytes, &[P256_PUB, ED25519_PUB]).is_err());
        prop_assert!(PublicKey::from_pem(&text).is_err());
        prop_assert!(SigningKey::from_pem(&text).is_err());
    }
}
