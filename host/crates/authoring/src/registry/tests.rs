use std::{fs, sync::Arc};

use innkeeper_model::foreign::is_deceptive;
use innkeeper_sandbox::testing::guest;
use innkeeper_source::tests::{OTHER_PUB, P256_KEY, P256_PUB, shared::TestRegistry};
use innkeeper_source::{DockerConfigText, SigningKey};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{
    args::{LoadArgs, RegistryArgs},
    tests::captured,
};

/// A command's exit code and output.
#[derive(Debug)]
struct CommandOutput {
    exit: Exit,
    out: Value,
    error: String,
}

/// Runs a command in a thread, while the registry answers in this one.
async fn run(
    command: impl FnOnce(&mut Streams<'_>) -> Result<Exit, Failure> + Send + 'static,
) -> CommandOutput {
    let work = move || {
        let (exit, out, error) = captured(b"", command);
        CommandOutput {
            exit,
            out: serde_json::from_str(&out).unwrap_or_default(),
            error,
        }
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// A registry, and a directory with a plugin.
struct Site {
    registry: TestRegistry,
    directory: TempDir,
    settings: RegistryArgs,
}

impl Site {
    async fn start(is_private: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("pond.wasm"), guest().build()).unwrap();
        Self {
            registry: TestRegistry::start(is_private).await,
            directory,
            settings: RegistryArgs {
                insecure: true,
                ..RegistryArgs::default()
            },
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn push(&self, file: &str, version: &str) -> CommandOutput {
        let args = PushArgs {
            file: self.file(file),
            reference: self.registry.reference(version),
            load: LoadArgs {
                registry: self.settings.clone(),
                ..LoadArgs::default()
            },
            output: ResultFormat::Json,
        };
        run(move |streams| push(&args, streams)).await
    }

    fn fetch(&self, version: &str) -> FetchArgs {
        FetchArgs {
            reference: self.registry.reference(version),
            digest: None,
            registry: self.settings.clone(),
            output: ResultFormat::Json,
        }
    }

    async fn pull(&self, version: &str, digest: Option<Digest>) -> CommandOutput {
        let args = PullArgs {
            fetch: FetchArgs {
                digest,
                ..self.fetch(version)
            },
            keys: Vec::new(),
            to: Some(self.file("pulled.wasm")),
        };
        run(move |streams| pull(&args, streams)).await
    }

    async fn verify(&self, version: &str, keys: &[&str]) -> CommandOutput {
        let keys = keys.iter().map(|text| PublicKey::from_pem(text).unwrap());
        let args = VerifyArgs {
            fetch: self.fetch(version),
            keys: keys.collect(),
        };
        run(move |streams| verify(&args, streams)).await
    }

    async fn sign(&self, version: &str, key: &str) -> CommandOutput {
        let args = SignArgs {
            fetch: self.fetch(version),
            key: Arc::new(SigningKey::from_pem(key).unwrap()),
            repository: None,
        };
        run(move |streams| sign(&args, streams)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_plugin_is_pulled_by_tag_and_by_digest() {
    let site = Site::start(false).await;
    let bytes = fs::read(site.file("pond.wasm")).unwrap();
    let pushed = site.push("pond.wasm", ":1").await;
    assert_eq!(pushed.exit, Exit::Success, "{pushed:?}");
    assert_eq!(pushed.out["digest"], Digest::hash(&bytes).to_string());
    // A second push changes nothing.
    assert_eq!(site.push("pond.wasm", ":1").await.out, pushed.out);

    let manifest = pushed.out["manifestDigest"].as_str().unwrap();
    for version in [":1", &format!("@{manifest}")] {
        let pulled = site.pull(version, Some(Digest::hash(&bytes))).await;
        assert_eq!(pulled.exit, Exit::Success, "{pulled:?}");
        assert_eq!(pulled.out["manifestDigest"], manifest);
        assert_eq!(fs::read(site.file("pulled.wasm")).unwrap(), bytes);
        fs::remove_file(site.file("pulled.wasm")).unwrap();
    }

    let wrong = site.pull(":1", Some(Digest::hash(b"other"))).await;
    assert_eq!(wrong.exit, Exit::Finding, "{wrong:?}");
    assert!(!site.file("pulled.wasm").exists());
    let missing = site.pull(":2", None).await;
    assert_eq!(missing.exit, Exit::Failure, "{missing:?}");
    assert!(missing.error.contains("is not there"), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_valid_only_for_its_key() {
    let site = Site::start(false).await;
    site.push("pond.wasm", ":1").await;
    let unsigned = site.verify(":1", &[P256_PUB]).await;
    assert_eq!(unsigned.exit, Exit::Finding, "{unsigned:?}");
    assert!(
        unsigned.error.contains("no signature found"),
        "{unsigned:?}"
    );

    let signed = site.sign(":1", P256_KEY).await;
    assert_eq!(signed.exit, Exit::Success, "{signed:?}");
    let verified = site.verify(":1", &[OTHER_PUB, P256_PUB]).await;
    assert_eq!(verified.exit, Exit::Success, "{verified:?}");
    let key = PublicKey::from_pem(P256_PUB).unwrap().id().to_string();
    assert_eq!(verified.out["signedBy"], key);
    assert_eq!(signed.out["signedBy"], key);
    assert_eq!(verified.out["file"], Value::Null);
    let other = site.verify(":1", &[OTHER_PUB]).await;
    assert_eq!(other.exit, Exit::Finding, "{other:?}");
}

/// An image or a chart cannot be checked like a plugin, so the digest must be named.
#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_is_no_plugin_is_signed_by_the_digest_of_its_manifest() {
    let site = Site::start(false).await;
    site.push("pond.wasm", ":1").await;
    // A plugin's signatures are an artifact that is no plugin.
    let signed = site.sign(":1", P256_KEY).await;
    let plugin = signed.out["manifestDigest"].as_str().unwrap();
    let tag = format!(":{}.sig", plugin.replace(':', "-"));
    let unpinned = site.sign(&tag, P256_KEY).await;
    assert_eq!(unpinned.exit, Exit::Finding, "{unpinned:?}");
    let image = Digest::hash(b"an image");
    let pinned = site.sign(&format!("@{image}"), P256_KEY).await;
    assert_eq!(pinned.exit, Exit::Success, "{pinned:?}");
    assert_eq!(pinned.out["manifestDigest"], image.to_string());
    assert_eq!(pinned.out["digest"], Value::Null);
    // That signature has a separate tag, and the plugin keeps the other.
    let verified = site.verify(":1", &[P256_PUB]).await;
    assert_eq!(verified.exit, Exit::Success, "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_for_a_registry_comes_from_the_docker_config() {
    let mut site = Site::start(true).await;
    let stranger = site.push("pond.wasm", ":1").await;
    assert_eq!(stranger.exit, Exit::Failure, "{stranger:?}");
    assert!(stranger.error.contains("answered 401"), "{stranger:?}");
    site.settings.docker_config = Some(DockerConfigText {
        path: PathBuf::from("config.json"),
        text: site.registry.docker_config(),
        is_named: true,
    });
    let output = site.push("pond.wasm", ":1").await;
    assert_eq!(output.exit, Exit::Success, "{output:?}");
    let shown = format!("{:?}", site.settings);
    assert!(!shown.contains("pass"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_names_the_unusable_argument() {
    let site = Site::start(false).await;
    fs::write(site.file("text.wasm"), "apiVersion: v1").unwrap();
    let text = site.push("text.wasm", ":1").await;
    assert_eq!(text.exit, Exit::Usage, "{text:?}");
    assert!(
        text.error.contains("text.wasm: this is not WebAssembly"),
        "{text:?}"
    );
    let nothing = site.push("none.wasm", ":1").await;
    assert_eq!(nothing.exit, Exit::Usage, "{nothing:?}");
    let digest = format!(":1@{}", Digest::hash(b"x"));
    let pinned = site.push("pond.wasm", &digest).await;
    assert_eq!(pinned.exit, Exit::Usage, "{pinned:?}");
    assert!(
        pinned.error.contains("name one, and no digest"),
        "{pinned:?}"
    );
    let elsewhere = FetchArgs {
        reference: "127.0.0.1:1/plugins/pond:1".to_owned(),
        ..site.fetch(":1")
    };
    let args = VerifyArgs {
        fetch: elsewhere,
        keys: vec![PublicKey::from_pem(P256_PUB).unwrap()],
    };
    let elsewhere = run(move |streams| verify(&args, streams)).await;
    assert_eq!(elsewhere.exit, Exit::Failure, "{elsewhere:?}");
}

/// Answers every request with these bytes, until the process ends.
fn hostile_server(response: Vec<u8>) -> String {
    use std::io::{Read as _, Write as _};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 16 * 1024];
            // Requests during a fetch have no body and are small.
            let read = stream.read(&mut request);
            drop(read.and_then(|_| stream.write_all(&response)));
        }
    });
    format!("{address}/plugins/pond:1")
}

/// Returns responses with a hostile text in each place that a server chooses.
fn hostile_responses() -> Vec<Vec<u8>> {
    const HOSTILE: &str =
        "a\u{1b}[2J\r\nsignedBy        sha256:forged\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}";
    const TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

    let http = |status: &str, headers: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}")
            .into_bytes()
    };
    let manifest = |media_type: &str| {
        json!({
            "schemaVersion": 2, "mediaType": media_type, "artifactType": HOSTILE,
            "config": {"mediaType": HOSTILE, "digest": HOSTILE, "size": 2},
            "layers": [{"mediaType": HOSTILE, "digest": HOSTILE, "size": 1, "annotations": {HOSTILE: HOSTILE}}],
            "annotations": {HOSTILE: HOSTILE},
        })
        .to_string()
    };
    let wide = "\u{202e}\u{2066}\u{9b}31m";
    let errors = json!({"errors": [{"code": HOSTILE, "message": HOSTILE, "detail": HOSTILE}]});
    vec![
        HOSTILE.as_bytes().to_vec(),
        http("200 OK", "", HOSTILE),
        http(
            "200 OK",
            &format!("Content-Type: {TYPE}\r\n"),
            &manifest(TYPE),
        ),
        http(
            "200 OK",
            &format!("Content-Type: {TYPE}\r\n"),
            &manifest(HOSTILE),
        ),
        http(
            "200 OK",
            &format!("Content-Type: {wide}\r\n"),
            &manifest(TYPE),
        ),
        http(
            "200 OK",
            &format!("Docker-Content-Digest: {wide}\r\n"),
            &manifest(TYPE),
        ),
        http(&format!("500 {wide}"), "", HOSTILE),
        http("404 Not Found", "", &errors.to_string()),
        http("403 Forbidden", "", &errors.to_string()),
        http(
            "429 Too Many Requests",
            &format!("Retry-After: {wide}\r\n"),
            HOSTILE,
        ),
        http("302 Found", &format!("Location: http://{wide}/\r\n"), ""),
        http("302 Found", &format!("Location: /{wide}\r\n"), ""),
        http(
            "401 Unauthorized",
            &format!(
                "WWW-Authenticate: Bearer realm=\"http://127.0.0.1:1/{wide}\",service=\"{wide}\"\r\n"
            ),
            &errors.to_string(),
        ),
        http(
            "401 Unauthorized",
            &format!("WWW-Authenticate: {wide}\r\n"),
            HOSTILE,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_registry_writes_nothing_of_its_own_to_a_terminal() {
    for response in hostile_responses() {
        let text = String::from_utf8_lossy(&response).into_owned();
        let fetch = |output| FetchArgs {
            reference: hostile_server(response.clone()),
            digest: None,
            registry: RegistryArgs {
                insecure: true,
                ..RegistryArgs::default()
            },
            output,
        };
        let directory = tempfile::tempdir().unwrap();
        for output in [ResultFormat::Text, ResultFormat::Json] {
            let pulling = PullArgs {
                fetch: fetch(output),
                keys: Vec::new(),
                to: Some(directory.path().join("pulled.wasm")),
            };
            let verifying = VerifyArgs {
                fetch: fetch(output),
                keys: vec![PublicKey::from_pem(P256_PUB).unwrap()],
            };
            for ended in [
                run(move |streams| pull(&pulling, streams)).await,
                run(move |streams| verify(&verifying, streams)).await,
            ] {
                assert_ne!(ended.exit, Exit::Success, "{text:?}: {ended:?}");
                let deceives = |c: char| is_deceptive(c) && c != '\n';
                assert!(!ended.error.contains(deceives), "{text:?}: {ended:?}");
                assert!(!ended.error.contains("\nsignedBy"), "{text:?}: {ended:?}");
                assert!(ended.error.starts_with("error: "), "{text:?}: {ended:?}");
            }
        }
    }
}

#[test]
fn a_file_is_named_after_the_last_part_of_the_repository() {
    let reference: Reference = "ghcr.io/plugins/deep/pond:1".parse().unwrap();
    assert_eq!(named(&reference), Path::new("pond.wasm"));
}
