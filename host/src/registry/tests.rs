use std::fs;

use innkeeper_sandbox::fixture::guest;
use innkeeper_source::tests::{OTHER_PUB, P256_KEY, P256_PUB, shared::TestRegistry};
use innkeeper_source::{DockerConfigText, RegistrySettings};
use tempfile::TempDir;

use super::*;

/// The exit code and the output of a command.
#[derive(Debug)]
struct Said {
    exit: Exit,
    out: Value,
    error: String,
}

/// Runs a command in a thread, while the registry answers in this one.
async fn run(command: impl FnOnce(&mut Streams<'_>) -> Exit + Send + 'static) -> Said {
    let work = move || {
        let (mut stdin, mut stdout, mut stderr) = (io::empty(), Vec::new(), Vec::new());
        let exit = command(&mut Streams {
            stdin: &mut stdin,
            stdout: &mut stdout,
            stderr: &mut stderr,
        });
        Said {
            exit,
            out: serde_json::from_slice(&stdout).unwrap_or_default(),
            error: String::from_utf8(stderr).unwrap(),
        }
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// A registry, and a directory with a plugin.
struct Site {
    registry: TestRegistry,
    directory: TempDir,
    settings: RegistrySettings,
}

impl Site {
    async fn start(is_private: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("pond.wasm"), guest().build()).unwrap();
        Self {
            registry: TestRegistry::start(is_private).await,
            directory,
            settings: RegistrySettings {
                insecure: true,
                ..RegistrySettings::default()
            },
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn push(&self, file: &str, version: &str) -> Said {
        let settings = PushSettings {
            file: self.file(file),
            reference: self.registry.reference(version),
            registry: self.settings.clone(),
            output: ResultFormat::Json,
        };
        run(move |streams| push(&settings, streams)).await
    }

    fn expecting(&self, version: &str, keys: &[&str]) -> PullSettings {
        let key = |text: &&str| KeyText {
            path: PathBuf::from("a.pub"),
            text: (*text).to_owned(),
        };
        PullSettings {
            reference: self.registry.reference(version),
            digest: None,
            keys: keys.iter().map(key).collect(),
            kept: None,
            registry: self.settings.clone(),
            output: ResultFormat::Json,
        }
    }

    async fn pull(&self, settings: PullSettings) -> Said {
        run(move |streams| pull(&settings, streams)).await
    }

    async fn sign(&self, version: &str, key: &str) -> Said {
        let settings = SignSettings {
            reference: self.registry.reference(version),
            key: KeyText {
                path: PathBuf::from("a.key"),
                text: key.to_owned(),
            },
            digest: None,
            registry: self.settings.clone(),
            output: ResultFormat::Json,
        };
        run(move |streams| sign(&settings, streams)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_plugin_is_pulled_by_tag_and_by_digest() {
    let site = Site::start(false).await;
    let bytes = fs::read(site.file("pond.wasm")).unwrap();
    let pushed = site.push("pond.wasm", ":1").await;
    assert_eq!(pushed.exit, Exit::Success, "{pushed:?}");
    assert_eq!(pushed.out["digest"], Digest::of(&bytes).to_string());
    // A second push changes nothing.
    assert_eq!(site.push("pond.wasm", ":1").await.out, pushed.out);

    let manifest = pushed.out["manifestDigest"].as_str().unwrap();
    for version in [":1", &format!("@{manifest}")] {
        let pulled = site
            .pull(PullSettings {
                digest: Some(Digest::of(&bytes).to_string()),
                kept: Some(KeptAs::File(site.file("pulled.wasm"))),
                ..site.expecting(version, &[])
            })
            .await;
        assert_eq!(pulled.exit, Exit::Success, "{pulled:?}");
        assert_eq!(pulled.out["manifestDigest"], manifest);
        assert_eq!(fs::read(site.file("pulled.wasm")).unwrap(), bytes);
        fs::remove_file(site.file("pulled.wasm")).unwrap();
    }

    let wrong = site
        .pull(PullSettings {
            digest: Some(Digest::of(b"other").to_string()),
            kept: Some(KeptAs::File(site.file("pulled.wasm"))),
            ..site.expecting(":1", &[])
        })
        .await;
    assert_eq!(wrong.exit, Exit::Finding, "{wrong:?}");
    assert!(!site.file("pulled.wasm").exists());
    let missing = site.pull(site.expecting(":2", &[])).await;
    assert_eq!(missing.exit, Exit::Failure, "{missing:?}");
    assert!(missing.error.contains("is not there"), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_valid_only_for_its_key() {
    let site = Site::start(false).await;
    site.push("pond.wasm", ":1").await;
    let unsigned = site.pull(site.expecting(":1", &[P256_PUB])).await;
    assert_eq!(unsigned.exit, Exit::Finding, "{unsigned:?}");
    assert!(
        unsigned.error.contains("no signature found"),
        "{unsigned:?}"
    );

    let signed = site.sign(":1", P256_KEY).await;
    assert_eq!(signed.exit, Exit::Success, "{signed:?}");
    let verified = site
        .pull(site.expecting(":1", &[OTHER_PUB, P256_PUB]))
        .await;
    assert_eq!(verified.exit, Exit::Success, "{verified:?}");
    let key = PublicKey::from_pem(P256_PUB).unwrap().id().to_string();
    assert_eq!(verified.out["signedBy"], key);
    assert_eq!(signed.out["signedBy"], key);
    assert_eq!(verified.out["file"], Value::Null);
    let other = site.pull(site.expecting(":1", &[OTHER_PUB])).await;
    assert_eq!(other.exit, Exit::Finding, "{other:?}");
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
    let known = site.push("pond.wasm", ":1").await;
    assert_eq!(known.exit, Exit::Success, "{known:?}");
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
    let digest = format!(":1@{}", Digest::of(b"x"));
    let pinned = site.push("pond.wasm", &digest).await;
    assert_eq!(pinned.exit, Exit::Usage, "{pinned:?}");
    assert!(
        pinned.error.contains("name one, and no digest"),
        "{pinned:?}"
    );
    let public = site.sign(":1", P256_PUB).await;
    assert_eq!(public.exit, Exit::Usage, "{public:?}");
    assert!(
        public.error.contains("a.key: this is not a private key"),
        "{public:?}"
    );
    let private = site.pull(site.expecting(":1", &[P256_KEY])).await;
    assert_eq!(private.exit, Exit::Usage, "{private:?}");
    let odd = PullSettings {
        digest: Some("sha256:1".to_owned()),
        ..site.expecting(":1", &[])
    };
    let odd = site.pull(odd).await;
    assert_eq!(odd.exit, Exit::Usage, "{odd:?}");
    let elsewhere = PullSettings {
        reference: "127.0.0.1:1/plugins/pond:1".to_owned(),
        ..site.expecting(":1", &[])
    };
    let elsewhere = site.pull(elsewhere).await;
    assert_eq!(elsewhere.exit, Exit::Failure, "{elsewhere:?}");
}

#[test]
fn a_file_is_named_after_the_last_part_of_the_repository() {
    let reference: Reference = "ghcr.io/plugins/deep/pond:1".parse().unwrap();
    assert_eq!(named(&reference), Path::new("pond.wasm"));
}
