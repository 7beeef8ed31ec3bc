//! Projects as texts; `tests/plugin/projects.rs` builds one.

use std::{fs, path::Path};

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn new(directory: &Path, change: impl FnOnce(&mut NewArgs)) -> (Result<Exit, Failure>, String) {
    let mut stdout = Vec::new();
    let mut stderr = Vec::new();
    let mut args = NewArgs {
        directory: directory.to_owned(),
        from_crd: None,
        kind: None,
        sdk: None,
    };
    change(&mut args);
    let code = run(
        &args,
        &mut Streams::new(&mut io::empty(), &mut stdout, &mut stderr),
    );
    (code, String::from_utf8(stdout).unwrap())
}

#[test]
fn a_project_is_complete_and_never_overwritten() {
    let around = tempfile::tempdir().unwrap();
    let directory = around.path().join("pond-keeper");
    let (ended, printed) = new(&directory, |_| ());
    assert_eq!(ended.unwrap(), Exit::Success);
    assert!(printed.contains("innkeeper build"), "{printed}");
    for file in [
        "Cargo.lock",
        "README.md",
        ".innkeeper/kit/src/lib.rs",
        ".innkeeper/sdk/src/lib.rs",
        ".innkeeper/sdk/wit/plugin.wit",
        "tests/example/parent.yaml",
    ] {
        assert!(directory.join(file).is_file(), "{file}");
    }
    let sdk = fs::read_to_string(directory.join(".innkeeper/sdk/Cargo.toml")).unwrap();
    let kit = fs::read_to_string(directory.join(".innkeeper/kit/Cargo.toml")).unwrap();
    assert!(kit.contains("path = \"../sdk\""), "{kit}");
    for manifest in [&sdk, &kit] {
        assert!(!manifest.contains("workspace = true"), "{manifest}");
    }
    assert!(sdk.contains("features = [\"derive\"]"), "{sdk}");
    let library = fs::read_to_string(directory.join("src/lib.rs")).unwrap();
    assert!(
        library.contains("PondKeeper") && !library.contains("{{"),
        "{library}"
    );
    // Only the project itself is left.
    assert_eq!(fs::read_dir(around.path()).unwrap().count(), 1);

    let (ended, _) = new(&directory, |_| ());
    let failure = ended.unwrap_err();
    assert_eq!(failure.exit(), Exit::Usage);
    assert!(
        failure.to_string().contains("exists: choose another name"),
        "{failure}"
    );
}

#[test]
fn names_that_cannot_be_a_plugin_and_a_crate_are_refused() {
    let around = tempfile::tempdir().unwrap();
    for name in ["Pond", "1st", "serde", "match", "..", "a_b"] {
        let failure = new(&around.path().join(name), |_| ()).0.unwrap_err();
        assert_eq!(failure.exit(), Exit::Usage, "{name}");
        assert!(
            failure.to_string().starts_with("failed to name"),
            "{failure}"
        );
    }
    assert_eq!(fs::read_dir(around.path()).unwrap().count(), 0);
}

/// The README's manifest block and a new project's manifest are one text, with this repository's versions.
#[test]
fn the_readme_of_the_sdk_has_the_whole_manifest() {
    let readme = include_str!("../../../../../guests/sdk/README.md");
    let (_, block) = readme.split_once("```toml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let version = Sdk::Version("0.1".parse().unwrap());
    let parents = ParentTypes::own(usual_kind("ponds"));
    let files = files(
        "ponds",
        &parents,
        &Dependencies::new(Some(&version)).unwrap(),
    )
    .unwrap();
    assert_eq!(files[0].1.replace("^0.1", "0.1"), block);
    let workspace = include_str!("../../../../../Cargo.toml");
    for line in block.lines().filter(|line| line.starts_with(['k', 's'])) {
        let name = line.split(' ').next().unwrap();
        let ours = workspace
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")))
            .unwrap();
        let version = |line: &str| line.split('"').nth(1).unwrap().to_owned();
        assert_eq!(version(line), version(ours), "{line}");
    }
}

#[test]
fn an_sdk_may_be_a_version_a_directory_or_a_commit() {
    let check = |origin: Sdk, expected: Expect| {
        let Dependencies { sdk, kit } = Dependencies::new(Some(&origin)).unwrap();
        expected.assert_eq(&format!("{sdk}\n{kit}"));
    };
    check(
        Sdk::Version("1.2.3".parse().unwrap()),
        expect![[r#"
            { version = "^1.2.3", features = ["v1_33"] }
            { version = "^1.2.3" }"#]],
    );
    let git = Sdk::Git {
        url: "https://git.example/sdk".to_owned(),
        rev: "abc".to_owned(),
    };
    check(
        git,
        expect![[r#"
            { git = "https://git.example/sdk", rev = "abc", features = ["v1_33"] }
            { git = "https://git.example/sdk", rev = "abc" }"#]],
    );
    assert!(Dependencies::new(Some(&Sdk::Path("/nowhere".into()))).is_err());
}

fn lake() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lakes.example.com", "uid": "1"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Lake", "plural": "lakes"},
            "versions": [{"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {
                    "type": "object",
                    "required": ["maxDepth"],
                    "x-kubernetes-validations": [{"rule": "has(self.type)"}],
                    "properties": {
                        "maxDepth": {"type": "integer", "format": "int32", "minimum": 2, "description": "In metres."},
                        "type": {"type": "string", "enum": ["fresh-water", "salt"]},
                        "port": {"x-kubernetes-int-or-string": true},
                        "fish": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                }},
            }}}],
        },
    })
}

#[test]
fn types_and_an_example_come_from_a_definition() {
    let around = tempfile::tempdir().unwrap();
    let file = around.path().join("lake.yaml");
    fs::write(&file, lake().to_string()).unwrap();
    let directory = around.path().join("lakes");
    let (ended, _) = new(&directory, |args| args.from_crd = Some(file.clone()));
    assert_eq!(ended.unwrap(), Exit::Success);
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let types = read("src/types.rs");
    expect![[r#"

        /// The Lake.
        #[derive(serde::Serialize, serde::Deserialize, Clone, Debug, PartialEq)]
        pub struct Lake {
            /// The metadata.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// The spec.
            #[serde(rename = "spec")]
            pub spec: LakeSpec,
        }

        /// The LakeSpecFish.
        #[derive(serde::Serialize, serde::Deserialize, Clone, Debug, PartialEq)]
        pub struct LakeSpecFish {
            /// The name.
            #[serde(rename = "name", default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
        }

        /// The values of LakeSpecType.
        #[derive(serde::Serialize, serde::Deserialize, Clone, Debug, PartialEq)]
        pub enum LakeSpecType {
            /// The text `fresh-water`.
            #[serde(rename = "fresh-water")]
            FreshWater,
            /// The text `salt`.
            #[serde(rename = "salt")]
            Salt,
        }

        /// The LakeSpec.
        #[derive(serde::Serialize, serde::Deserialize, Clone, Debug, PartialEq)]
        pub struct LakeSpec {
            /// The fish.
            #[serde(rename = "fish", default, skip_serializing_if = "Option::is_none")]
            pub fish: Option<Vec<LakeSpecFish>>,
            /// The labels.
            #[serde(rename = "labels", default, skip_serializing_if = "Option::is_none")]
            pub labels: Option<std::collections::BTreeMap<String, String>>,
            /// In metres.
            #[serde(rename = "maxDepth")]
            pub max_depth: i32,
            /// The port.
            #[serde(rename = "port", default, skip_serializing_if = "Option::is_none")]
            pub port: Option<k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>,
            /// The type.
            #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
            pub r#type: Option<LakeSpecType>,
        }
    "#]]
    .assert_eq(&types[types.find("\n/// The Lake.").unwrap()..]);
    expect![[r"
        apiVersion: example.com/v2
        kind: Lake
        metadata:
          name: example
          namespace: default
        spec:
          maxDepth: 2
          port: 80
          type: fresh-water
    "]]
    .assert_eq(&read("tests/example/parent.yaml"));
    assert!(!read("src/definition.json").contains("uid"));
}

#[test]
fn files_without_one_usable_definition_are_refused() {
    let around = tempfile::tempdir().unwrap();
    let file = around.path().join("crd.yaml");
    let refused = |text: &str, kind: Option<&str>| {
        fs::write(&file, text).unwrap();
        let kind = kind.map(|kind| Gvk::new("example.com", "v2", kind));
        let (ended, _) = new(&around.path().join("lakes"), |args| {
            args.from_crd = Some(file.clone());
            args.kind = kind;
        });
        let failure = ended.unwrap_err();
        assert_eq!(failure.exit(), Exit::Usage);
        failure.to_string()
    };
    let lake = lake();
    assert!(refused("{", None).contains("failed to parse"));
    assert!(refused("kind: ConfigMap", None).contains("failed to find one"));
    assert!(refused(&format!("{lake}\n---\n{lake}"), None).contains("--kind"));
    assert!(refused(&lake.to_string(), Some("Pond")).contains("failed to find one"));
    let mut spineless = lake;
    spineless["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({});
    assert!(refused(&spineless.to_string(), None).contains("failed to use"));
    fs::remove_file(&file).unwrap();
}
