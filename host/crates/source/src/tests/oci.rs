//! Plugins in registries.

use std::{collections::BTreeMap, time::Duration};

use super::{
    registry::{IDENTITY, Registry, SignIn},
    server::{Manner, Reply, Server},
    *,
};
use crate::{Oci, Package};

fn package() -> Package {
    Package {
        bytes: PLUGIN.to_vec(),
        imports: vec!["innkeeper:plugin/host@0.1.0".to_owned()],
        exports: vec!["innkeeper:plugin/reconciler@0.1.0".to_owned()],
        annotations: BTreeMap::from([(
            "org.opencontainers.image.version".to_owned(),
            "1.0.0".to_owned(),
        )]),
    }
}

async fn pull(oci: Oci, expectation: &Expectation) -> Result<Fetched, Error> {
    fetch(local(), &Source::Oci(oci), expectation).await
}

async fn anything(oci: Oci) -> Result<Fetched, Error> {
    pull(oci, &Expectation::default()).await
}

/// A manifest with these layers, each a media type and bytes.
fn put_layers(registry: &Registry, layers: &[(&str, &[u8])]) -> Digest {
    let layers: Vec<serde_json::Value> = layers
        .iter()
        .map(|(kind, bytes)| {
            let digest = registry.put_blob(bytes);
            json!({"mediaType": kind, "digest": digest, "size": bytes.len()})
        })
        .collect();
    let manifest = json!({"schemaVersion": 2, "layers": layers});
    registry.put_manifest("1", manifest.to_string())
}

#[tokio::test]
async fn a_pushed_plugin_can_be_pulled() {
    for sign_in in [SignIn::Not, SignIn::Basic, SignIn::Token] {
        let registry = Registry::start(sign_in).await;
        let target = registry.private(":1");
        let pushed = fetcher(local()).push(&target, &package()).await.unwrap();
        assert_eq!(pushed.digest, Digest::hash(PLUGIN));
        for version in [":1".to_owned(), format!("@{}", pushed.manifest_digest)] {
            let fetched = pull(registry.private(&version), &expect_digest(PLUGIN))
                .await
                .unwrap();
            assert_eq!(fetched.bytes, PLUGIN);
            assert_eq!(fetched.digest, pushed.digest);
            assert_eq!(
                fetched.manifest_digest,
                Some(pushed.manifest_digest.clone())
            );
        }
    }
}

#[tokio::test]
async fn an_artifact_has_the_common_layout() {
    let registry = Registry::start(SignIn::Not).await;
    let pushed = fetcher(local())
        .push(&registry.artifact(":1"), &package())
        .await
        .unwrap();
    let content = registry.kept.lock();
    let text = str::from_utf8(&content.manifests["1"]).unwrap();
    assert_eq!(Digest::hash(text.as_bytes()), pushed.manifest_digest);
    expect_test::expect![[r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.wasm.config.v0+json","digest":"sha256:2bc1c91127ba8d69c6cc02ac695c667b734db0d78fb1fa5a36728a371ad8cdbd","size":279},"layers":[{"mediaType":"application/wasm","digest":"sha256:0bd6c5d238a3309a19d219103d6f23be446b67c905e04d4b39a4fa56640977ec","size":22}],"annotations":{"org.opencontainers.image.version":"1.0.0"}}"#]].assert_eq(text);
    let manifest: serde_json::Value = serde_json::from_str(text).unwrap();
    let config = &content.blobs[manifest["config"]["digest"].as_str().unwrap()];
    expect_test::expect![[r#"{"architecture":"wasm","component":{"exports":["innkeeper:plugin/reconciler@0.1.0"],"imports":["innkeeper:plugin/host@0.1.0"],"target":null},"created":"1970-01-01T00:00:00Z","layerDigests":["sha256:0bd6c5d238a3309a19d219103d6f23be446b67c905e04d4b39a4fa56640977ec"],"os":"wasip2"}"#]].assert_eq(str::from_utf8(config).unwrap());
}

#[tokio::test]
async fn a_layer_carries_the_file_name_of_its_plugin() {
    const TITLE: &str = "org.opencontainers.image.title";

    let registry = Registry::start(SignIn::Not).await;
    let mut package = package();
    package
        .annotations
        .insert(TITLE.to_owned(), "pond".to_owned());
    fetcher(local())
        .push(&registry.artifact(":1"), &package)
        .await
        .unwrap();
    let text = registry.kept.lock().manifests["1"].clone();
    let manifest: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(manifest["annotations"][TITLE], "pond");
    assert_eq!(manifest["layers"][0]["annotations"][TITLE], "pond.wasm");
}

#[tokio::test]
async fn pushing_again_sends_nothing_but_the_manifest() {
    let registry = Registry::start(SignIn::Not).await;
    let target = registry.artifact(":1");
    let first = fetcher(local()).push(&target, &package()).await.unwrap();
    let before = registry.requests().len();
    let second = fetcher(local()).push(&target, &package()).await.unwrap();
    assert_eq!(first, second);
    let methods: Vec<String> = registry.requests().split_off(before);
    let writes: Vec<&String> = methods
        .iter()
        .filter(|request| !request.starts_with("HEAD"))
        .collect();
    assert_eq!(writes, ["PUT /v2/plugins/pond/manifests/1"]);

    let by_digest = registry.artifact(&format!(":1@{}", first.manifest_digest));
    let error = fetcher(local())
        .push(&by_digest, &package())
        .await
        .unwrap_err();
    assert_eq!(
        (error.reason(), error.retry()),
        (PluginReason::SourceInvalid, Retry::OnChange)
    );
}

#[tokio::test]
async fn tokens_are_bought_with_the_login_of_the_pull_secret() {
    let registry = Registry::start(SignIn::Token).await;
    put_layers(&registry, &[("application/wasm", PLUGIN)]);
    for login in [
        json!({"identitytoken": IDENTITY}),
        json!({"registrytoken": "a-token"}),
    ] {
        let oci = Oci {
            docker_config: Some(registry.docker_config(&login)),
            ..registry.artifact(":1")
        };
        assert_eq!(anything(oci).await.unwrap().bytes, PLUGIN);
    }
    check_refused(
        anything(registry.artifact(":1")).await,
        PluginReason::Denied,
        Retry::Backoff,
        &["/token answered 401", "name a Secret"],
    );
    // A token is bought once for a whole fetch.
    let before = registry.requests().len();
    anything(registry.private(":1")).await.unwrap();
    let requests = registry.requests().split_off(before);
    let tokens = requests
        .iter()
        .filter(|request| request.ends_with("/token"))
        .count();
    assert_eq!((tokens, requests.len()), (1, 4), "{requests:?}");
}

#[tokio::test]
async fn a_registry_that_does_not_let_us_in_is_told() {
    for sign_in in [SignIn::Basic, SignIn::Token] {
        let registry = Registry::start(sign_in).await;
        let wrong = json!({"username": "user", "password": "hunter2"});
        let oci = Oci {
            docker_config: Some(registry.docker_config(&wrong)),
            ..registry.artifact(":1")
        };
        let shown = check_refused(
            anything(oci).await,
            PluginReason::Denied,
            Retry::Backoff,
            &["401", "the credentials are wrong"],
        );
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let registry = Registry::start(SignIn::Basic).await;
    let shown = check_refused(
        anything(registry.artifact(":1")).await,
        PluginReason::Denied,
        Retry::Backoff,
        &["manifests/1 answered 401", "name a Secret"],
    );
    assert!(!shown.contains("sign in"), "{shown}");
}

#[tokio::test]
async fn the_texts_of_registries_and_token_servers_are_not_shown() {
    const TEXT: &str = "hunter2 of another tenant";

    let error = json!({"errors": [{"code": TEXT, "message": TEXT, "detail": TEXT}]}).to_string();
    let token = json!({"error": TEXT, "error_description": TEXT, "details": TEXT}).to_string();
    let mut cases = Vec::new();
    for status in [400, 401, 403, 404, 429, 500, 503] {
        for path in ["/manifests/", "/blobs/", "/token"] {
            for text in [TEXT, &error, &token] {
                cases.push((path, status, text));
            }
        }
    }
    cases.extend([("/token", 200, TEXT), ("/token", 200, &token)]);
    for (path, status, text) in cases {
        let registry = Registry::start(SignIn::Token).await;
        put_layers(&registry, &[("application/wasm", &b"\0asm"[..])]);
        registry.instead(path, Reply::new(status, text));
        let error = anything(registry.private(":1")).await.unwrap_err();
        let message = format!("{} {error:?}", error_chain(&error));
        assert!(!message.contains("hunter2"), "{path} {status}: {message}");
        // The refusal is for this request.
        let step = path.trim_end_matches('/');
        assert!(message.contains(step), "{path} {status}: {message}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_sent_is_an_error_and_no_panic() {
    for answer in [
        "{}",
        "token",
        r#"{"token": 1}"#,
        r#"{"token": "a\nb"}"#,
        "\u{0}",
    ] {
        let registry = Registry::start(SignIn::Token).await;
        registry.instead("/token", Reply::new(200, answer));
        let error = anything(registry.private(":1")).await.unwrap_err();
        let reason = error.reason();
        assert!(
            [PluginReason::ServerFailed, PluginReason::SourceInvalid].contains(&reason),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn tokens_are_not_requested_over_plain_http() {
    let registry = Registry::start_tls(SignIn::Token).await;
    let settings = Settings {
        certificates_pem: include_bytes!("fixtures/ca.pem").to_vec(),
        ..local()
    };
    // Over TLS, the test registry names a plain-text token server.
    let source = Source::Oci(registry.private(":1"));
    check_refused(
        fetch(settings, &source, &Expectation::default()).await,
        PluginReason::SourceInvalid,
        Retry::OnChange,
        &["/token is refused", "without encryption"],
    );
    let requests = registry.server.requests();
    assert!(
        requests
            .iter()
            .all(|request| !request.headers.contains_key("authorization"))
    );
}

#[tokio::test]
async fn blobs_may_be_elsewhere_and_get_no_token_there() {
    let elsewhere = Server::start(|_| Reply::new(200, PLUGIN)).await;
    let registry = Registry::start(SignIn::Token).await;
    put_layers(&registry, &[("application/wasm", PLUGIN)]);
    registry.instead(
        "/blobs/",
        Reply::redirect(format!("{}/blob", elsewhere.origin)),
    );
    let fetched = anything(registry.private(":1")).await.unwrap();
    assert_eq!(fetched.bytes, PLUGIN);
    let requests = elsewhere.requests();
    assert_eq!(requests.len(), 1);
    assert!(!requests[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn layers_of_older_tools_are_read() {
    for layers in [
        vec![("application/vnd.wasm.content.layer.v1+wasm", PLUGIN)],
        vec![("application/vnd.module.wasm.content.layer.v1+wasm", PLUGIN)],
        vec![
            ("text/markdown", b"readme".as_slice()),
            ("application/wasm", PLUGIN),
        ],
    ] {
        let registry = Registry::start(SignIn::Not).await;
        put_layers(&registry, &layers);
        let fetched = anything(registry.artifact(":1")).await.unwrap();
        assert_eq!(fetched.bytes, PLUGIN);
    }
}

#[tokio::test]
async fn artifacts_that_are_no_plugins_are_told_apart() {
    let image = "application/vnd.oci.image.layer.v1.tar+gzip";
    for (layers, text) in [
        (vec![], "it has no layer"),
        (vec![(image, b"tar".as_slice())], image),
        (
            vec![
                ("application/wasm", PLUGIN),
                ("application/wasm", b"b".as_slice()),
            ],
            "several layers",
        ),
    ] {
        let registry = Registry::start(SignIn::Not).await;
        put_layers(&registry, &layers);
        let result = anything(registry.artifact(":1")).await;
        check_refused(
            result,
            PluginReason::ArtifactMalformed,
            Retry::OnChange,
            &["not a plugin", text],
        );
    }
    let registry = Registry::start(SignIn::Not).await;
    for (manifest, text) in [
        (
            r#"{"schemaVersion": 2, "manifests": [{"mediaType": "a", "digest": "sha256:b", "size": 1}]}"#,
            "sha256:b",
        ),
        (
            r#"{"schemaVersion": 2, "layers": [{"mediaType": "application/wasm", "digest": "md5:b", "size": 1}]}"#,
            "md5:b",
        ),
        ("<html>", "failed to parse the manifest"),
        ("", "failed to parse the manifest"),
    ] {
        registry.put_manifest("1", manifest);
        let result = anything(registry.artifact(":1")).await;
        check_refused(
            result,
            PluginReason::ArtifactMalformed,
            Retry::OnChange,
            &[text],
        );
    }
}

#[tokio::test]
async fn other_bytes_than_promised_are_refused() {
    let registry = Registry::start(SignIn::Not).await;
    let manifest = put_layers(&registry, &[("application/wasm", PLUGIN)]);
    let other = Digest::hash(b"other").to_string();

    // Before anything is pulled: the expected digest, and the digest of the reference.
    check_refused(
        pull(registry.artifact(":1"), &expect_digest(b"other")).await,
        PluginReason::WrongDigest,
        Retry::OnChange,
        &["the plugin has the digest", &other],
    );
    registry.instead(&format!("/manifests/{manifest}"), Reply::new(200, "{}"));
    check_refused(
        anything(registry.artifact(&format!(":1@{manifest}"))).await,
        PluginReason::WrongDigest,
        Retry::OnChange,
        &[
            "the manifest has the digest",
            &Digest::hash(b"{}").to_string(),
        ],
    );
    assert!(
        registry
            .requests()
            .iter()
            .all(|request| !request.contains("/blobs/"))
    );

    // After: the layer.
    let same_length = vec![0_u8; PLUGIN.len()];
    registry.instead("/blobs/", Reply::new(200, same_length));
    check_refused(
        anything(registry.artifact(":1")).await,
        PluginReason::WrongDigest,
        Retry::OnChange,
        &["the plugin has the digest"],
    );
}

#[tokio::test]
async fn a_layer_that_is_too_large_is_not_pulled() {
    let registry = Registry::start(SignIn::Not).await;
    let digest = Digest::hash(PLUGIN).to_string();
    let layer = json!({"mediaType": "application/wasm", "digest": digest, "size": 1 << 30});
    let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    registry.put_manifest("1", manifest);
    check_refused(
        anything(registry.artifact(":1")).await,
        PluginReason::TooLarge,
        Retry::OnChange,
        &["the plugin is larger than the 33554432 bytes"],
    );
    assert_eq!(registry.requests().len(), 1);

    let registry = Registry::start(SignIn::Not).await;
    put_layers(&registry, &[("application/wasm", PLUGIN)]);
    registry.instead(
        "/blobs/",
        Reply::new(200, vec![0_u8; 1000]).manner(Manner::Chunked),
    );
    check_refused(
        anything(registry.artifact(":1")).await,
        PluginReason::ServerFailed,
        Retry::Backoff,
        &["more bytes than the manifest says"],
    );
    for path in ["/manifests/", "/token"] {
        let registry = Registry::start(SignIn::Token).await;
        put_layers(&registry, &[("application/wasm", PLUGIN)]);
        registry.instead(
            path,
            Reply::new(200, "x").manner(Manner::Announced(1 << 30)),
        );
        let result = anything(registry.private(":1")).await;
        check_refused(result, PluginReason::TooLarge, Retry::OnChange, &[]);
    }
}

#[tokio::test]
async fn a_registry_that_fails_is_tried_again_later() {
    let cases = [
        (Reply::new(403, ""), PluginReason::Denied, Retry::Backoff),
        (Reply::new(404, ""), PluginReason::NotFound, Retry::Backoff),
        (
            Reply::new(429, "").header("retry-after", "3"),
            PluginReason::Throttled,
            Retry::At(Duration::from_secs(3)),
        ),
        (
            Reply::new(500, ""),
            PluginReason::ServerFailed,
            Retry::Backoff,
        ),
        (
            Reply::new(200, "{").manner(Manner::Announced(100)),
            PluginReason::Unreachable,
            Retry::Backoff,
        ),
        (
            Reply::new(200, "").manner(Manner::Silent),
            PluginReason::TooSlow,
            Retry::Backoff,
        ),
    ];
    for path in ["/manifests/", "/blobs/"] {
        for (reply, reason, retry) in cases.clone() {
            let registry = Registry::start(SignIn::Not).await;
            let layer = [0_u8; 100];
            put_layers(&registry, &[("application/wasm", layer.as_slice())]);
            registry.instead(path, reply);
            let settings = Settings {
                silence: Duration::from_millis(200),
                ..local()
            };
            let source = Source::Oci(registry.artifact(":1"));
            let result = fetch(settings, &source, &Expectation::default()).await;
            check_refused(result, reason, retry, &["artifact 127.0.0.1"]);
        }
    }
}

#[tokio::test]
async fn a_registry_that_sends_a_byte_at_a_time_is_given_up() {
    let drops = Manner::Drops(Duration::from_millis(20));
    for path in ["/manifests/", "/blobs/", "/token"] {
        let registry = Registry::start(SignIn::Token).await;
        let layer = vec![0_u8; 10_000];
        put_layers(&registry, &[("application/wasm", layer.as_slice())]);
        registry.instead(path, Reply::new(200, layer).manner(drops));
        let settings = Settings {
            silence: Duration::from_millis(200),
            rate_bytes_min: 1000,
            ..local()
        };
        let source = Source::Oci(registry.private(":1"));
        let result = fetch(settings, &source, &Expectation::default()).await;
        let texts = [path, "sends less than 1000 bytes per second"];
        check_refused(result, PluginReason::TooSlow, Retry::Backoff, &texts);
    }
}

#[tokio::test]
async fn a_registry_that_does_not_speak_http_is_tried_again_later() {
    for garbage in [
        b"\x15\x03\x03\x00\x02\x02\x46".as_slice(),
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nno header",
        b"",
    ] {
        for path in ["/manifests/", "/blobs/", "/token"] {
            let registry = Registry::start(SignIn::Token).await;
            put_layers(&registry, &[("application/wasm", PLUGIN)]);
            registry.instead(path, Reply::new(200, garbage).manner(Manner::Raw));
            let result = anything(registry.private(":1")).await;
            check_refused(
                result,
                PluginReason::Unreachable,
                Retry::Backoff,
                &[path, "broke"],
            );
        }
    }
}

#[tokio::test]
async fn a_local_registry_is_refused_unless_allowed() {
    let registry = Registry::start(SignIn::Not).await;
    let source = Source::Oci(registry.artifact(":1"));
    check_refused(
        fetch(Settings::default(), &source, &Expectation::default()).await,
        PluginReason::AddressRefused,
        Retry::Backoff,
        &["not a public address"],
    );
    assert!(registry.requests().is_empty());
}

#[tokio::test]
async fn mirrors_are_asked_first_and_the_registry_last() {
    let empty = Registry::start(SignIn::Not).await;
    let mirror = Registry::start(SignIn::Not).await;
    put_layers(&mirror, &[("application/wasm", PLUGIN)]);
    let registry = Registry::start(SignIn::Not).await;
    put_layers(&registry, &[("application/wasm", b"original".as_slice())]);
    let source = Source::Oci(registry.artifact(":1"));
    let with_mirrors = |mirrors: &[&Registry]| Settings {
        mirrors: BTreeMap::from([(
            registry.server.host().to_owned(),
            mirrors
                .iter()
                .map(|mirror| mirror.server.origin.clone())
                .collect(),
        )]),
        ..local()
    };
    let none = Expectation::default();
    let fetched = fetch(with_mirrors(&[&empty, &mirror]), &source, &none)
        .await
        .unwrap();
    assert_eq!(fetched.bytes, PLUGIN);
    assert_eq!((empty.requests().len(), registry.requests().len()), (1, 0));

    let fetched = fetch(with_mirrors(&[&empty]), &source, &none)
        .await
        .unwrap();
    assert_eq!(fetched.bytes, b"original");
    // A mirror with other bytes than expected is skipped.
    let expected = expect_digest(b"original");
    let fetched = fetch(with_mirrors(&[&mirror]), &source, &expected)
        .await
        .unwrap();
    assert_eq!(fetched.bytes, b"original");
}

#[tokio::test]
async fn a_refusal_is_short_whatever_the_registry_sends() {
    let registry = Registry::start(SignIn::Not).await;
    let digest = Digest::hash(b"another manifest");
    let entry = |kind: &str, digest: &str| json!({"mediaType": kind, "digest": digest, "size": 1});
    let wasm = "application/wasm";
    for manifest in [
        json!({"schemaVersion": 2, "manifests": vec![entry("a", &digest.to_string()); 20_000]}),
        json!({"schemaVersion": 2, "layers": vec![entry("text/plain", "x"); 20_000]}),
        json!({"schemaVersion": 2, "layers": [entry(wasm, &"é".repeat(1_000_000))]}),
    ] {
        registry.put_manifest("1", manifest.to_string());
        let error = anything(registry.artifact(":1")).await.unwrap_err();
        assert_eq!(error.reason(), PluginReason::ArtifactMalformed);
        let length = error_chain(&error).to_string().chars().count();
        assert!(length < 1200, "{length} characters");
    }
}
