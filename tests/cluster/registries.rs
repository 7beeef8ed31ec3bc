//! Plugins from registries: the active revision continues while the registry is down, slow, or
//! returns wrong content.

use std::fs;

use innkeeper_tests::{
    eventually,
    manifest::condition,
    registry::{Client, Proxy, Registry, RegistryOptions, docker_config, key_file},
};
use serde_json::{Value, json};

use crate::{
    moody::{MoodyFixture, NAME, guest},
    plugins::{HEALTHY, marked},
    stage::{Stage, wait_logged},
    web::Web,
};

const NO_DIGEST: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";
/// A host name in the certificates of test registries.
const HOST: &str = "registry.test";
/// The default namespace for a host outside a cluster.
const HOST_NAMESPACE: &str = "innkeeper-system";

/// A user who pushes and signs components, and applies Plugins for them.
struct Publisher {
    fixture: MoodyFixture,
    innkeeper: Client,
    flags: Vec<String>,
}

impl Publisher {
    fn new(registry: &Registry, flags: &[&str]) -> Self {
        let fixture = MoodyFixture::new(1);
        // The host shares the cache, so that it finds the code that a push compiles.
        let cache = fixture
            .site
            .stage
            .options
            .cache
            .as_ref()
            .unwrap()
            .to_str()
            .unwrap();
        let innkeeper = Client::innkeeper()
            .unwrap()
            .with("INNKEEPER_CACHE_DIR", cache);
        innkeeper
            .put("config.json", registry.docker_config())
            .unwrap();
        Self {
            fixture,
            innkeeper,
            flags: flags.iter().map(|&text| text.to_owned()).collect(),
        }
    }

    fn run(&self, arguments: &[&str]) -> Value {
        let flags = self.flags.iter().map(String::as_str);
        let arguments: Vec<&str> = arguments.iter().copied().chain(flags).collect();
        let printed = self.innkeeper.run(&arguments).unwrap();
        serde_json::from_str(&printed).unwrap_or_default()
    }

    /// Pushes a component, and returns the printed artifact description.
    fn push(&self, registry: &Registry, version: &str, bytes: &[u8]) -> Value {
        let file = self.innkeeper.put("moody.wasm", bytes).unwrap();
        let reference = registry.reference(version);
        self.run(&["push", &file, &reference, "-o", "json"])
    }

    fn sign(&self, registry: &Registry, version: &str, key: &str) {
        let reference = registry.reference(version);
        self.run(&["sign", &reference, "--key", &key_file(key), "-o", "json"]);
    }

    /// Applies a Plugin with this reference, whose children have this text.
    fn apply(&self, reference: &str, says: &str, more: &Value) {
        self.fixture.apply(&declared(reference, says, more));
    }

    /// Checks that the active revision is unchanged and still reconciles.
    #[track_caller]
    fn check_kept(&self, host: &innkeeper_tests::Host, first: &Value, expected: &[&str]) -> Value {
        let expected = [expected, &["Serving=True/Serving"]].concat();
        let status = self.fixture.wait(host, &expected);
        assert_eq!(status["revision"], first["revision"]);
        self.fixture.check_reconciles(host, &expected.join(" "));
        assert!(self.fixture.has_text("one"));
        status
    }
}

pub(crate) fn public_key(name: &str) -> String {
    fs::read_to_string(key_file(name)).unwrap()
}

/// A Plugin spec with a registry source. `more` is merged into the spec, and `more.oci` into the
/// source.
fn declared(reference: &str, says: &str, more: &Value) -> Value {
    let mut spec = json!({
        "source": {"oci": {"reference": reference, "insecure": true}},
        "config": {"mood": "good", "says": says},
    });
    for (field, value) in more.as_object().unwrap() {
        if field == "oci" {
            for (field, value) in value.as_object().unwrap() {
                spec["source"]["oci"][field] = value.clone();
            }
        } else {
            spec[field] = value.clone();
        }
    }
    spec
}

#[track_caller]
fn check_message(fixture: &MoodyFixture, kind: &str, texts: &[&str]) {
    let plugin = fixture.site.plugin_of(NAME);
    let message = condition(&plugin, kind).unwrap();
    for text in texts {
        assert!(
            message.contains(text),
            "\"{text}\" is missing in: {message}"
        );
    }
}

/// The active revision survives an outage and an empty registry, and the swap completes once the
/// registry has the artifact.
#[test]
fn an_unreachable_registry_does_not_affect_the_active_revision_even_after_a_restart() {
    let registry = Registry::start().unwrap();
    let address = registry.address().to_owned();
    let publisher = Publisher::new(&registry, &["--insecure"]);
    let fixture = &publisher.fixture;
    let pushed = publisher.push(&registry, ":1", &guest("moody"));
    let one = registry.reference(":1");
    let two = registry.reference(":2");
    let host = fixture.start_with(&declared(&one, "one", &json!({})));
    let first = fixture.status();
    assert_eq!(first["digest"], pushed["digest"]);
    fixture.wait_verdicts(&host, &["Good"]);

    // The registry goes down during a swap, and stays down while the host restarts.
    drop(registry);
    publisher.apply(&two, "two", &json!({}));
    let down = ["Fetched=False/Unreachable", "Degraded=True/Unreachable"];
    publisher.check_kept(&host, &first, &down);
    check_message(fixture, "Fetched", &["failed to connect to", &address]);
    let host = fixture.crash(host);
    publisher.check_kept(&host, &first, &down);

    // The registry comes back empty, and gets the requested version later.
    let options = RegistryOptions {
        address: Some(address),
        ..RegistryOptions::default()
    };
    let registry = Registry::start_with(&options).unwrap();
    publisher.check_kept(&host, &first, &["Fetched=False/NotFound"]);
    let pushed = publisher.push(&registry, ":2", &marked(&guest("moody")));
    let status = fixture.wait_healthy(&host);
    assert_eq!(status["digest"], pushed["digest"]);
    fixture.wait_text(&host, "two");
    Stage::stop(host);
}

/// The host checks a pinned digest before it compiles the component, so a moved tag cannot bring
/// other code into the cluster.
#[test]
fn an_artifact_with_another_digest_changes_nothing() {
    let registry = Registry::start().unwrap();
    let publisher = Publisher::new(&registry, &["--insecure"]);
    let fixture = &publisher.fixture;
    let pushed = publisher.push(&registry, ":1", &guest("moody"));
    let manifest = pushed["manifestDigest"].as_str().unwrap();
    // Pinned by the manifest digest and by the component digest.
    let pinned = registry.reference(&format!("@{manifest}"));
    let digest = json!({"digest": pushed["digest"]});
    let host = fixture.start_with(&declared(&pinned, "one", &digest));
    let first = fixture.status();
    fixture.wait_verdicts(&host, &["Good"]);

    let other = publisher.push(&registry, ":2", &marked(&guest("moody")));
    let two = registry.reference(":2");
    publisher.apply(&two, "two", &json!({"digest": NO_DIGEST}));
    let wrong = ["Verified=False/WrongDigest", "Degraded=True/WrongDigest"];
    publisher.check_kept(&host, &first, &wrong);
    let digest = other["digest"].as_str().unwrap();
    check_message(fixture, "Verified", &[NO_DIGEST, digest]);
    let missing = registry.reference(&format!("@{NO_DIGEST}"));
    publisher.apply(&missing, "two", &json!({}));
    publisher.check_kept(&host, &first, &["Fetched=False/NotFound"]);

    publisher.apply(&two, "two", &json!({"digest": digest}));
    assert_eq!(fixture.wait_healthy(&host)["digest"], other["digest"]);
    fixture.wait_text(&host, "two");
    Stage::stop(host);
}

/// The host activates only revisions with a signature by one of the stated keys, also after a
/// restart.
#[test]
fn a_revision_with_a_wrong_signature_changes_nothing() {
    let registry = Registry::start().unwrap();
    let publisher = Publisher::new(&registry, &["--insecure"]);
    let fixture = &publisher.fixture;
    publisher.push(&registry, ":1", &guest("moody"));
    publisher.sign(&registry, ":1", "p256.key");
    let verify = json!({"verify": {"keys": [public_key("p256.pub")]}});
    let one = registry.reference(":1");
    let two = registry.reference(":2");
    let host = fixture.start_with(&declared(&one, "one", &verify));
    let first = fixture.status();
    fixture.wait_verdicts(&host, &["Good"]);
    check_message(fixture, "Verified", &["signed by the key sha256:"]);

    // First without a signature, and then with one by another key.
    let other = publisher.push(&registry, ":2", &marked(&guest("moody")));
    publisher.apply(&two, "two", &verify);
    let unsigned = ["Verified=False/Unsigned", "Degraded=True/Unsigned"];
    publisher.check_kept(&host, &first, &unsigned);
    check_message(fixture, "Verified", &["no signature found", ".sig"]);
    publisher.sign(&registry, ":2", "other.key");
    let bad = ["Verified=False/BadSignature", "Degraded=True/BadSignature"];
    publisher.check_kept(&host, &first, &bad);
    let reason = "none of the expected keys made the signature";
    check_message(fixture, "Verified", &[reason]);
    check_message(fixture, "Degraded", &[reason]);
    let host = fixture.crash(host);
    wait_logged(&host, "the new host has checked the signature", reason);
    publisher.check_kept(&host, &first, &bad);

    // The artifact now has the right signature beside the wrong one. Any edit to the Plugin makes the
    // host check again.
    publisher.sign(&registry, ":2", "p256.key");
    let mut again = verify;
    again["limits"] = json!({"children": 3});
    publisher.apply(&two, "two", &again);
    assert_eq!(fixture.wait_healthy(&host)["digest"], other["digest"]);
    fixture.wait_text(&host, "two");
    Stage::stop(host);
}

/// A key may sign many artifacts. If the Plugin also pins repository, name or version, the host
/// refuses other artifacts with the same key.
#[test]
fn an_artifact_of_the_same_key_with_another_identity_changes_nothing() {
    let registry = Registry::start().unwrap();
    let publisher = Publisher::new(&registry, &["--insecure"]);
    let fixture = &publisher.fixture;
    let one = registry.reference(":1");
    let two = registry.reference(":2");
    let repository = one.strip_suffix(":1").unwrap();
    publisher.push(&registry, ":1", &guest("moody"));
    let other = publisher.push(&registry, ":2", &marked(&guest("moody")));
    for version in [":1", ":2"] {
        publisher.sign(&registry, version, "p256.key");
    }
    let verify = |repository: &str, name: &str, version: &str| {
        json!({"verify": {
            "keys": [public_key("p256.pub")],
            "repository": repository,
            "name": name,
            "minVersion": version,
        }})
    };
    let right = verify(repository, "moody", "0.1.0");
    let host = fixture.start_with(&declared(&one, "one", &right));
    let first = fixture.status();
    fixture.wait_verdicts(&host, &["Good"]);
    for (wrong, reason, text) in [
        (
            verify("registry.test/plugins/pond", "moody", "0.1.0"),
            "BadSignature",
            "not for the repository registry.test/plugins/pond",
        ),
        (
            verify(repository, "other", "0.1.0"),
            "OtherPlugin",
            "the plugin's name is moody",
        ),
        (
            verify(repository, "moody", "99.0.0"),
            "OldVersion",
            "spec.verify.minVersion is 99.0.0",
        ),
    ] {
        publisher.apply(&two, "two", &wrong);
        let verified = format!("Verified=False/{reason}");
        let degraded = format!("Degraded=True/{reason}");
        publisher.check_kept(&host, &first, &[&verified, &degraded]);
        check_message(fixture, "Verified", &[text]);
    }
    publisher.apply(&two, "two", &right);
    assert_eq!(fixture.wait_healthy(&host)["digest"], other["digest"]);
    fixture.wait_text(&host, "two");
    Stage::stop(host);
}

/// Without the annotation, a Plugin author could send any Secret in the host's namespace anywhere.
#[test]
fn a_secret_is_sent_only_to_the_web_servers_that_it_names() {
    let fixture = MoodyFixture::new(0);
    let stage = &fixture.site.stage;
    let url = fixture.web.url();
    let secret = |hosts: &str| {
        let annotations = json!({"innkeeper.dev/hosts": hosts});
        stage.apply_new(
            HOST_NAMESPACE,
            &json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "web", "annotations": annotations},
                "stringData": {"token": "of the inn"},
            }),
        );
    };
    let host = stage.host_serving(&["plugins.innkeeper.dev"]);
    secret("elsewhere.test");
    let source = json!({"http": {"url": url, "secretRef": {"name": "web"}}});
    fixture.apply(&json!({"source": source, "config": {"mood": "good", "says": "one"}}));
    fixture.wait(&host, &["Fetched=False/SecretNotForHost"]);
    check_message(&fixture, "Fetched", &["innkeeper.dev/hosts"]);
    assert_eq!(fixture.web.asked(), 0);
    secret(&format!("elsewhere.test, {}", fixture.web.address()));
    fixture.wait(&host, &HEALTHY);
    Stage::stop(host);
}

#[test]
fn a_private_registry_is_reached_with_its_certificate_authority_and_a_pull_secret() {
    let registry = Registry::start_with(&RegistryOptions {
        tls: true,
        private: true,
        ..RegistryOptions::default()
    })
    .unwrap();
    let authority = registry.ca_file().to_str().unwrap().to_owned();
    let mut publisher = Publisher::new(&registry, &["--ca-file", &authority]);
    publisher.push(&registry, ":1", &guest("moody"));
    let one = registry.reference(":1");
    let declared = |oci: Value| declared(&one, "one", &json!({"oci": oci}));
    publisher.fixture.parents = 0;
    let host = publisher.fixture.site.stage.host();
    let stage = &publisher.fixture.site.stage;
    stage.wait_served(&host, &["plugins.innkeeper.dev"]);
    publisher
        .fixture
        .apply(&declared(json!({"insecure": false})));
    publisher.fixture.wait(&host, &["Fetched=False/Untrusted"]);
    check_message(&publisher.fixture, "Fetched", &["--source-ca-file"]);
    Stage::stop(host);

    let trust = ["--source-ca-file".to_owned(), authority];
    publisher.fixture.site.stage.options.arguments.extend(trust);
    let fixture = &publisher.fixture;
    let stage = &fixture.site.stage;
    let host = stage.host();
    fixture.wait(&host, &["Fetched=False/Denied"]);
    check_message(fixture, "Fetched", &["answered 401", "name a Secret"]);
    let secret = |config: &str| {
        stage.apply_new(
            HOST_NAMESPACE,
            &json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
                "type": "kubernetes.io/dockerconfigjson",
                "stringData": {".dockerconfigjson": config},
            }),
        );
    };
    secret(&docker_config("elsewhere.test"));
    let named = json!({"insecure": false, "pullSecretRef": {"name": "pull"}});
    fixture.apply(&declared(named));
    fixture.wait(&host, &["Fetched=False/Denied"]);
    secret(&registry.docker_config());
    fixture.wait(&host, &HEALTHY);
    let log = host.log().unwrap();
    assert!(!log.contains("of the inn"), "{log}");
    Stage::stop(host);
}

#[test]
fn sources_use_the_proxies_of_the_environment_and_the_api_server_does_not() {
    let registry = Registry::start_with(&RegistryOptions {
        tls: true,
        ..RegistryOptions::default()
    })
    .unwrap();
    let proxy = Proxy::start(&registry).unwrap();
    let direct = Registry::start().unwrap();
    let authority = registry.ca_file().to_str().unwrap().to_owned();
    let mut publisher = Publisher::new(&registry, &["--ca-file", &authority]);
    publisher.push(&registry, ":1", &guest("moody"));
    publisher.flags = vec!["--insecure".to_owned()];
    let pushed = publisher.push(&direct, ":2", &marked(&guest("moody")));
    let options = &mut publisher.fixture.site.stage.options;
    let trust = ["--source-ca-file".to_owned(), authority];
    options.arguments.extend(trust);
    // No server listens on port 1, so requests to it fail.
    let unreachable = "http://127.0.0.1:1".to_owned();
    let environment = [
        ("HTTPS_PROXY", proxy.url()),
        ("HTTP_PROXY", unreachable),
        ("NO_PROXY", format!("localhost,{}", ip(&direct))),
    ]
    .map(|(name, value)| (name.to_owned(), value));
    options.environment.extend(environment);

    // Only the proxy can resolve this name.
    let fixture = &publisher.fixture;
    let elsewhere = format!("{HOST}/plugins/pond:1");
    let secure = json!({"oci": {"insecure": false}});
    let host = fixture.start_with(&declared(&elsewhere, "one", &secure));
    let requests = proxy.asked().unwrap();
    let tunnel = format!("CONNECT {HOST}:443");
    assert!(!requests.is_empty(), "nothing went through the proxy");
    assert!(
        requests.iter().all(|request| *request == tunnel),
        "{requests:?}"
    );

    // The host connects directly to a source in `NO_PROXY`.
    publisher.apply(&direct.reference(":2"), "two", &json!({}));
    assert_eq!(fixture.wait_healthy(&host)["digest"], pushed["digest"]);
    fixture.wait_text(&host, "two");
    assert_eq!(proxy.asked().unwrap().len(), requests.len());
    Stage::stop(host);
}

fn ip(registry: &Registry) -> &str {
    registry.address().split_once(':').unwrap().0
}

#[test]
fn a_mirror_is_asked_before_the_registry() {
    let mirror = Registry::start().unwrap();
    let mut publisher = Publisher::new(&mirror, &["--insecure"]);
    let pushed = publisher.push(&mirror, ":1", &guest("moody"));
    let flag = format!("--source-mirror={HOST}=http://{}", mirror.address());
    publisher.fixture.site.stage.options.arguments.push(flag);
    // The name does not resolve, so only the mirror can answer.
    let elsewhere = format!("{HOST}/plugins/pond:1");
    let secure = json!({"oci": {"insecure": false}});
    let host = publisher
        .fixture
        .start_with(&declared(&elsewhere, "one", &secure));
    assert_eq!(publisher.fixture.status()["digest"], pushed["digest"]);
    Stage::stop(host);
}

/// The host limits and checks a registry's answers, so a bad registry only affects Plugins that use
/// it.
#[test]
fn a_silent_malformed_or_oversized_answer_of_a_registry_changes_nothing() {
    let registry = Registry::start().unwrap();
    let publisher = Publisher::new(&registry, &["--insecure"]);
    let fixture = &publisher.fixture;
    publisher.push(&registry, ":1", &guest("moody"));
    let one = registry.reference(":1");
    let host = fixture.start_with(&declared(&one, "one", &json!({})));
    let first = fixture.status();
    fixture.wait_verdicts(&host, &["Good"]);

    // This server answers every request with the same bytes.
    let strange = Web::start_held(b"<html>".to_vec());
    let reference = |tag: &str| format!("{}/plugins/pond:{tag}", strange.address());
    publisher.apply(&reference("silent"), "two", &json!({}));
    eventually("the silent registry is asked", || match strange.asked() {
        0 => Err("it is not asked"),
        _ => Ok(()),
    });
    // Parents do not wait for the fetch.
    fixture.check_reconciles(&host, "while it is silent");
    strange.set_held(false);
    let malformed = ["Fetched=False/ArtifactMalformed"];
    publisher.check_kept(&host, &first, &malformed);
    check_message(fixture, "Fetched", &["failed to parse the manifest"]);

    let layer = json!({"mediaType": "application/wasm", "digest": NO_DIGEST, "size": 1 << 30});
    let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    strange.put(manifest.into_bytes());
    publisher.apply(&reference("large"), "two", &json!({}));
    publisher.check_kept(&host, &first, &["Fetched=False/TooLarge"]);
    // The host has fetched only the manifest, and not the 1 GiB layer.
    assert_eq!(strange.asked(), 2);

    let layer = json!({"mediaType": "application/wasm", "digest": NO_DIGEST, "size": 4096});
    let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    strange.put(manifest.into_bytes());
    publisher.apply(&reference("other"), "two", &json!({}));
    publisher.check_kept(&host, &first, &["Verified=False/WrongDigest"]);
    Stage::stop(host);
}
