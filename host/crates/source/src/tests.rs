//! Against real servers on loopback, and files on disk.

#![cfg_attr(
    not(test),
    expect(
        dead_code,
        unused_imports,
        reason = "the tests of other crates use a part of this"
    )
)]
#[cfg(test)]
mod files;
#[cfg(test)]
mod http;
#[cfg(test)]
mod oci;
mod registry;
mod server;
pub mod shared;
#[cfg(test)]
mod signatures;

use innkeeper_model::{Digest, PluginReason, Retry, error_chain};
use serde_json::json;

use super::{
    ConfigMap, Error, Expectation, FailureKind, Fetched, Fetcher, PublicKey, Settings, SigningKey,
    Source,
};

/// The content signed by `fixtures`.
const PLUGIN: &[u8] = include_bytes!("tests/fixtures/plugin.txt");
const SIGNATURE: &str = include_str!("tests/fixtures/plugin.txt.sig");
const ED25519_SIGNATURE: &str = include_str!("tests/fixtures/plugin.txt.ed25519.sig");
pub const P256_KEY: &str = include_str!("tests/fixtures/p256.key");
pub const P256_PUB: &str = include_str!("tests/fixtures/p256.pub");
const ED25519_KEY: &str = include_str!("tests/fixtures/ed25519.key");
const ED25519_PUB: &str = include_str!("tests/fixtures/ed25519.pub");
const OTHER_KEY: &str = include_str!("tests/fixtures/other.key");
pub const OTHER_PUB: &str = include_str!("tests/fixtures/other.pub");

/// Settings that allow servers on loopback.
fn local() -> Settings {
    Settings {
        allow_local: true,
        ..Settings::default()
    }
}

fn fetcher(settings: Settings) -> Fetcher {
    Fetcher::new(settings).unwrap()
}

fn expect_digest(bytes: &[u8]) -> Expectation {
    Expectation {
        digest: Some(Digest::hash(bytes)),
        ..Expectation::default()
    }
}

fn expect_keys(pems: &[&str]) -> Expectation {
    Expectation {
        digest: None,
        keys: pems
            .iter()
            .map(|pem| PublicKey::from_pem(pem).unwrap())
            .collect(),
        repository: None,
    }
}

fn key_id(pem: &str) -> Digest {
    PublicKey::from_pem(pem).unwrap().id()
}

async fn fetch(
    settings: Settings,
    source: &Source,
    expectation: &Expectation,
) -> Result<Fetched, Error> {
    fetcher(settings).fetch(source, expectation).await
}

/// Checks that a fetch fails, and that the error text holds the given parts.
#[track_caller]
fn check_refused(
    result: Result<Fetched, Error>,
    reason: PluginReason,
    retry: Retry,
    texts: &[&str],
) -> String {
    let error = result.expect_err("it should not be fetched");
    let message = error_chain(&error).to_string();
    assert_eq!(
        (error.reason(), error.retry()),
        (reason, retry),
        "{message}"
    );
    for text in texts {
        assert!(
            message.contains(text),
            "\"{text}\" is missing in: {message}"
        );
    }
    message
}

/// "a plugin, for signing" in gzip, as base64.
const GZIPPED: &str = "H4sIAAAAAAACA0tUKMgpTc/M01FIyy9SKM5Mz8vMS+cCAPxt4PoWAAAA";

fn config_map(binary_data: serde_json::Value, data: serde_json::Value, key: &str) -> Source {
    Source::ConfigMap(ConfigMap {
        object: json!({"metadata": {"name": "plugins"}, "binaryData": binary_data, "data": data}),
        key: key.to_owned(),
    })
}

#[tokio::test]
async fn a_config_map_gives_the_bytes_of_its_key() {
    // "a plugin, for signing" as base64.
    let encoded = "YSBwbHVnaW4sIGZvciBzaWduaW5nCg==";
    let source = config_map(json!({"pond.wasm": encoded}), json!({}), "pond.wasm");
    let fetched = fetch(local(), &source, &expect_digest(PLUGIN))
        .await
        .unwrap();
    assert_eq!(fetched.bytes, PLUGIN);
    assert_eq!(fetched.digest, Digest::hash(PLUGIN));
    assert_eq!((fetched.manifest_digest, fetched.signed_by), (None, None));

    for (binary_data, data) in [
        (
            json!({"pond.wasm": GZIPPED}),
            json!({"pond.wasm.sig": SIGNATURE}),
        ),
        (
            json!({"pond.wasm": encoded, "pond.wasm.sig": "Zm9v"}),
            json!({"pond.wasm.sig": SIGNATURE}),
        ),
        (
            json!({"pond.wasm": encoded}),
            json!({"pond.wasm.sig": format!("{SIGNATURE}\n")}),
        ),
    ] {
        let source = config_map(binary_data, data, "pond.wasm");
        let fetched = fetch(local(), &source, &expect_keys(&[P256_PUB]))
            .await
            .unwrap();
        assert_eq!(fetched.signed_by, Some(key_id(P256_PUB)));
        assert_eq!(fetched.digest, Digest::hash(PLUGIN));
    }
}

#[tokio::test]
async fn the_limit_holds_for_the_unpacked_bytes_of_a_config_map() {
    use std::io::Write as _;

    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use flate2::{Compression, write::GzEncoder};

    let gzip = |bytes: &[u8]| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let read = |bytes: &[u8]| {
        let encoded = STANDARD.encode(bytes);
        let source = config_map(json!({"pond.wasm": encoded}), json!({}), "pond.wasm");
        let settings = Settings {
            bytes_max: 1 << 20,
            ..local()
        };
        async move { fetch(settings, &source, &Expectation::default()).await }
    };
    let largest = vec![0; 1 << 20];
    assert_eq!(read(&gzip(&largest)).await.unwrap().bytes, largest);
    let bomb = gzip(&vec![0; 64 << 20]);
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let refused = read(&bomb).await;
    check_refused(
        refused,
        PluginReason::TooLarge,
        Retry::OnChange,
        &["1048576 bytes"],
    );
    let damaged = &bomb[..bomb.len() / 2];
    let result = read(&gzip(PLUGIN)[..20]).await;
    let words = ["the plugin is damaged: it cannot be unpacked with gzip"];
    check_refused(
        result,
        PluginReason::ArtifactMalformed,
        Retry::OnChange,
        &words,
    );
    // The limit ends the reading before the damage.
    check_refused(
        read(damaged).await,
        PluginReason::TooLarge,
        Retry::OnChange,
        &[],
    );
}

#[tokio::test]
async fn a_config_map_that_has_something_else_is_refused() {
    let refused = |binary_data, data, expectation| async move {
        let source = config_map(binary_data, data, "pond.wasm");
        fetch(local(), &source, &expectation).await
    };
    let none = Expectation::default;
    check_refused(
        refused(json!({"a": "", "b": ""}), json!({}), none()).await,
        PluginReason::NotFound,
        Retry::OnChange,
        &["ConfigMap key plugins/pond.wasm", "it has a, b"],
    );
    check_refused(
        refused(json!(null), json!({"pond.wasm": "text"}), none()).await,
        PluginReason::NotFound,
        Retry::OnChange,
        &["it has none", "put the file into binaryData"],
    );
    check_refused(
        refused(json!({"pond.wasm": "%"}), json!({}), none()).await,
        PluginReason::ArtifactMalformed,
        Retry::OnChange,
        &["not base64"],
    );
    check_refused(
        refused(
            json!({"pond.wasm": "AAAA"}),
            json!({}),
            expect_digest(PLUGIN),
        )
        .await,
        PluginReason::WrongDigest,
        Retry::OnChange,
        &[
            &Digest::hash(PLUGIN).to_string(),
            &Digest::hash(&[0; 3]).to_string(),
        ],
    );
    check_refused(
        refused(
            json!({"pond.wasm": "AAAA"}),
            json!({}),
            expect_keys(&[P256_PUB]),
        )
        .await,
        PluginReason::Unsigned,
        Retry::Backoff,
        &["ConfigMap key plugins/pond.wasm.sig is missing"],
    );
    let settings = Settings {
        bytes_max: 2,
        ..local()
    };
    let source = config_map(json!({"pond.wasm": "AAAA"}), json!({}), "pond.wasm");
    check_refused(
        fetch(settings, &source, &none()).await,
        PluginReason::TooLarge,
        Retry::OnChange,
        &["2 bytes"],
    );
}

#[test]
fn a_failure_never_shows_a_secret_of_its_address() {
    for (address, shown) in [
        ("https://u:p@host/a?token=s#f", "https://host/a"),
        (
            "https://u:p@host:notaport/",
            "an address that cannot be read",
        ),
        ("data:s?x", "data"),
    ] {
        assert_eq!(super::address::shown(address), shown);
    }
}

#[test]
fn settings_that_cannot_be_used_are_told_at_the_start() {
    let refused = |settings| {
        let error = Fetcher::new(settings)
            .err()
            .expect("the settings should be refused");
        assert_eq!(error.source.kind, FailureKind::SettingsInvalid);
        error_chain(&error).to_string()
    };
    let broken = b"-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n".to_vec();
    // Certificates that add no trust must be an error: the missing trust would show only much later.
    for unusable in [broken, b"no certificate".to_vec()] {
        let certificates = refused(Settings {
            certificates_pem: unusable,
            ..local()
        });
        assert!(certificates.contains("certificates"), "{certificates}");
    }
    let mut settings = local();
    settings.proxies.https = Some("ht tp://".to_owned());
    let client = refused(settings);
    assert!(client.contains("the HTTP client"), "{client}");
}

#[test]
fn a_fetch_can_move_between_threads() {
    fn check_send(_: impl Send) {}
    let fetcher = fetcher(local());
    let source = config_map(json!({}), json!({}), "a");
    check_send(fetcher.fetch(&source, &Expectation::default()));
}
