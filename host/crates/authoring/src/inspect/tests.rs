//! Files that are not plugins; the tests that build plugins inspect these.

use std::io::Write as _;

use expect_test::expect;
use innkeeper_model::{Digest, foreign::is_deceptive};
use innkeeper_sandbox::testing::{Description, guest};
use innkeeper_source::{Package, RegistryArtifact, tests::shared::TestRegistry};

use super::*;
use crate::{
    args::{Inspected, LoadArgs, RegistryArgs},
    tests::captured,
};

fn inspect(bytes: &[u8], output: ResultFormat) -> (Exit, String, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    look_at(Inspected::File(file.path().to_owned()), output)
}

fn look_at(target: Inspected, output: ResultFormat) -> (Exit, String, String) {
    look_at_in(RegistryArgs::default(), target, output)
}

fn look_at_in(
    registry: RegistryArgs,
    target: Inspected,
    output: ResultFormat,
) -> (Exit, String, String) {
    let args = InspectArgs {
        target,
        load: LoadArgs {
            registry,
            ..LoadArgs::default()
        },
        output,
    };
    captured(b"", |streams| run(&args, streams))
}

#[test]
fn describes_a_core_module() {
    let (exit, out, err) = inspect(b"\0asm\x01\0\0\0", ResultFormat::Text);
    assert_eq!(exit, Exit::Finding);
    expect![[r"
        what          core module
        size          8 bytes
        digest        sha256:93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476
    "]]
    .assert_eq(&out);
    expect![[r"
        error: failed to load the file as a plugin: this is a core WebAssembly module, not a component: make it one with wasm-tools component new, or build its crate with innkeeper-guest-build
    "]].assert_eq(&err);
}

#[test]
fn describes_any_other_file_as_json() {
    let (exit, out, err) = inspect(b"apiVersion: v1", ResultFormat::Json);
    assert_eq!(exit, Exit::Finding);
    expect![[r#"
        {
          "contract": null,
          "digest": "sha256:f15401546056c580a76c2c3fd86b1ad831a4d70b92c3d474fd6950935fff6f27",
          "embedded": false,
          "exports": [],
          "imports": [],
          "plugin": null,
          "producers": [],
          "size": 14,
          "what": "not WebAssembly"
        }
    "#]]
    .assert_eq(&out);
    expect![[r#"
        error: failed to load the file as a plugin: this is not WebAssembly: it starts with "apiVersion: v1"; give the .wasm file that the build made
    "#]].assert_eq(&err);
}

const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;x\u{7}\r\ndigest        sha256:forged\u{7f}\u{85}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{2028}\u{feff}";

/// Returns every form in which a file can get text into the output.
fn hostile_files() -> Vec<Vec<u8>> {
    let hostile = || HOSTILE.to_owned();
    let describing = |description| guest().describing(description).build();
    let description = Description::default;
    let crd = json!({"apiVersion": HOSTILE, "kind": HOSTILE, "metadata": {"name": HOSTILE}});
    let component = guest().build();
    let long = "\u{202e}".repeat(1_000_000);
    vec![
        HOSTILE.as_bytes().to_vec(),
        describing(Description {
            name: hostile(),
            ..description()
        }),
        describing(Description {
            name: long.clone(),
            ..description()
        }),
        describing(Description {
            version: hostile(),
            ..description()
        }),
        describing(Description {
            version: long,
            ..description()
        }),
        describing(Description {
            parents: vec![[hostile(), hostile(), hostile(), hostile()]],
            ..description()
        }),
        describing(Description {
            crds: vec![hostile()],
            ..description()
        }),
        describing(Description {
            crds: vec![crd.to_string()],
            ..description()
        }),
        describing(Description {
            children: vec![[hostile(), hostile()]],
            ..description()
        }),
        describing(Description {
            reads: vec![["v1".to_owned(), "Secret".to_owned(), hostile()]],
            ..description()
        }),
        describing(Description {
            config_schema: Some(hostile()),
            ..description()
        }),
        describing(Description {
            config_schema: Some(json!({"type": HOSTILE}).to_string()),
            ..description()
        }),
        with_producers(&component, HOSTILE),
    ]
}

#[test]
fn a_hostile_file_is_described_without_its_escape_sequences() {
    for bytes in hostile_files() {
        for format in [ResultFormat::Text, ResultFormat::Json] {
            let (_, out, err) = inspect(&bytes, format);
            for text in [&out, &err] {
                let deceives = |c: char| is_deceptive(c) && c != '\n';
                assert!(!text.contains(deceives), "{text:?}");
                assert!(text.len() < 64 * 1024, "{} bytes", text.len());
                let forged = text
                    .lines()
                    .filter(|line| line.starts_with("digest        sha256:f"));
                assert_eq!(forged.count(), 0, "{text}");
            }
        }
    }
    let (_, out, _) = inspect(
        &with_producers(&guest().build(), HOSTILE),
        ResultFormat::Json,
    );
    let value: Value = serde_json::from_str(&out).unwrap();
    let mut producers = value["producers"].as_array().unwrap().iter();
    assert!(producers.any(|tool| tool["name"] == HOSTILE && tool["version"] == HOSTILE));
}

/// Returns a component whose first section names a tool and its version.
fn with_producers(component: &[u8], tool: &str) -> Vec<u8> {
    let length = |bytes: usize| u8::try_from(bytes).unwrap();
    let mut section = vec![9];
    section.extend(b"producers");
    section.extend([1, 12]);
    section.extend(b"processed-by");
    section.push(1);
    for _ in ["name", "version"] {
        // Two bytes of LEB128, because the text has more than 127 bytes.
        section.extend([length(tool.len() % 128) | 0x80, length(tool.len() / 128)]);
        section.extend(tool.as_bytes());
    }
    let size = section.len();
    let mut custom = vec![0, length(size % 128) | 0x80, length(size / 128)];
    custom.extend(section);
    // Magic and version come first.
    let (header, sections) = component.split_at(8);
    [header, &custom, sections].concat()
}

#[test]
fn says_in_plain_words_the_power_that_a_plugin_asks_for() {
    let kinds = [["v1", "Service"], ["apps/v1", "Deployment"]];
    let description = Description {
        children: kinds.map(|kind| kind.map(str::to_owned)).to_vec(),
        reads: vec![["v1", "Secret", ""].map(str::to_owned)],
        ..Description::default()
    };
    let bytes = guest().describing(description).build();
    let (exit, out, err) = inspect(&bytes, ResultFormat::Text);
    assert_eq!(exit, Exit::Success, "{err}");
    let (_, powers) = out.split_once("amounts to    ").unwrap();
    let (powers, _) = powers.split_once("finalizes").unwrap();
    let powers: Vec<&str> = powers.lines().map(str::trim).collect();
    expect![[r"
        can run Pods with any image as the namespace's service account default, at podSecurity: restricted, through Deployment.apps
        can read every Secret and ConfigMap in its children's namespaces, by mounting them in Pods
        can redirect or block network traffic, through Service
        can read the values of all objects of Secret in its parents' namespaces"]].assert_eq(&powers.join("\n"));
    let (_, out, _) = inspect(&bytes, ResultFormat::Json);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["plugin"]["amountsTo"], json!(powers));
}

#[test]
fn the_error_names_a_missing_file() {
    let target = Inspected::File("/nowhere/pond.wasm".into());
    let (exit, _, message) = look_at(target, ResultFormat::Text);
    assert_eq!(exit, Exit::Usage);
    assert!(message.contains("/nowhere/pond.wasm"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn inspects_an_artifact_in_its_registry() {
    let server = TestRegistry::start(false).await;
    let registry = RegistryArgs {
        insecure: true,
        ..RegistryArgs::default()
    };
    let reference = server.reference(":1");
    let package = Package {
        bytes: guest().build(),
        ..Package::default()
    };
    let pushed = RegistryArtifact::open(&reference, &registry.settings())
        .unwrap()
        .push(&package)
        .await
        .unwrap();
    assert_eq!(pushed.digest, Digest::hash(&package.bytes));
    let look = |reference: String| {
        let registry = registry.clone();
        let target = Inspected::Artifact(reference);
        tokio::task::spawn_blocking(move || look_at_in(registry, target, ResultFormat::Json))
    };
    let (exit, out, err) = look(reference).await.unwrap();
    assert_eq!(exit, Exit::Success, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["digest"], pushed.digest.to_string());
    assert_eq!(report["plugin"]["name"], "web");
    assert_eq!(report["embedded"], json!(false));
    let (exit, _, err) = look(server.reference(":2")).await.unwrap();
    assert_eq!(exit, Exit::Failure, "{err}");
    let (exit, _, err) = look("pond".to_owned()).await.unwrap();
    assert_eq!(exit, Exit::Usage, "{err}");
}
