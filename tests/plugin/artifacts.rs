//! Plugins in a published registry implementation, exchanged with the published client `oras`.

use std::fs;

use innkeeper_tests::{
    process::path_from_env,
    registry::{Client, Registry, RegistryOptions},
};
use serde_json::{Value, json};

/// A digest that no artifact has.
const NO_DIGEST: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";
const WASM: &str = "application/wasm";

/// A test plugin's bytes.
pub(crate) fn plugin() -> Vec<u8> {
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    fs::read(guests.join("moody.wasm")).unwrap()
}

/// Runs a command with `--output json` and parses the output.
#[track_caller]
pub(crate) fn output_json<S: AsRef<str>>(client: &Client, arguments: &[S]) -> Value {
    let arguments: Vec<&str> = arguments
        .iter()
        .map(AsRef::as_ref)
        .chain(["--output", "json"])
        .collect();
    serde_json::from_str(&client.run(&arguments).unwrap()).unwrap()
}

/// Pushes the plugin with the tag `1`; returns the output of `innkeeper push`.
pub(crate) fn push(innkeeper: &Client, registry: &Registry, how: &[&str]) -> Value {
    let file = innkeeper.put("pond.wasm", plugin()).unwrap();
    let reference = registry.reference(":1");
    output_json(innkeeper, &[&["push", &file, &reference], how].concat())
}

#[track_caller]
pub(crate) fn check_refused<S: AsRef<str>>(
    innkeeper: &Client,
    arguments: &[S],
    code: i32,
    texts: &[&str],
) {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let output = innkeeper.output(&arguments).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    for text in texts {
        assert!(error.contains(text), "\"{text}\" is missing in: {error}");
    }
}

#[test]
fn a_pushed_plugin_can_be_pulled_by_tag_and_by_digest() {
    let registry = Registry::start_with(&RegistryOptions {
        tls: true,
        private: true,
        ..RegistryOptions::default()
    })
    .unwrap();
    let innkeeper = Client::innkeeper().unwrap();
    let authority = registry.ca_file();
    let trust = ["--ca-file", authority.to_str().unwrap()];
    innkeeper
        .put("config.json", registry.docker_config())
        .unwrap();
    let pushed = push(&innkeeper, &registry, &trust);
    let digest = pushed["digest"].as_str().unwrap();
    let manifest = pushed["manifestDigest"].as_str().unwrap();

    let versions = [
        ":1".to_owned(),
        format!("@{manifest}"),
        format!(":1@{manifest}"),
    ];
    for version in versions {
        let reference = registry.reference(&version);
        let expected = ["pull", &reference, "--digest", digest, "--to", "back.wasm"];
        let pulled = output_json(&innkeeper, &[&expected[..], &trust].concat());
        assert_eq!(pulled["manifestDigest"], *manifest);
        let file = innkeeper.directory().join("back.wasm");
        assert_eq!(fs::read(&file).unwrap(), plugin());
        fs::remove_file(file).unwrap();
    }

    let tagged = registry.reference(":1");
    let none = format!("@{NO_DIGEST}");
    let missing = registry.reference(":2");
    let other = registry.reference(&none);
    for (arguments, code, texts) in [
        (
            &["pull", &tagged, "--digest", NO_DIGEST][..],
            3,
            &["the plugin has the digest", NO_DIGEST][..],
        ),
        (&["pull", &missing], 1, &["404", "is not there"]),
        (&["pull", &other], 1, &["404", "is not there"]),
    ] {
        let arguments = [arguments, &trust].concat();
        check_refused(&innkeeper, &arguments, code, texts);
    }
    let stranger = Client::innkeeper().unwrap();
    let arguments = [&["pull", &tagged][..], &trust].concat();
    check_refused(&stranger, &arguments, 1, &["answered 401", "name a Secret"]);
    // A client that does not trust the authority.
    let texts = ["not trusted", "--ca-file"];
    check_refused(&innkeeper, &["pull", &tagged], 1, &texts);
    // A failed pull leaves no file; a pull names the file after the repository.
    assert!(!stranger.directory().join("pond.wasm").exists());
}

#[test]
fn oras_pulls_an_artifact_pushed_by_innkeeper() {
    let registry = Registry::start().unwrap();
    let innkeeper = Client::innkeeper().unwrap();
    let pushed = push(&innkeeper, &registry, &["--insecure"]);
    let oras = Client::oras().unwrap();
    let reference = registry.reference(":1");

    let manifest = oras.run(&["manifest", "fetch", "--plain-http", &reference]);
    let manifest: Value = serde_json::from_str(&manifest.unwrap()).unwrap();
    let config = &manifest["config"]["mediaType"];
    assert_eq!(config, "application/vnd.wasm.config.v0+json");
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1);
    assert_eq!(layers[0]["mediaType"], WASM);
    assert_eq!(layers[0]["digest"], pushed["digest"]);
    let described = oras.run(&["resolve", "--plain-http", &reference]).unwrap();
    assert_eq!(described.trim(), pushed["manifestDigest"].as_str().unwrap());

    // `oras pull` writes only layers that carry a file name.
    oras.run(&["pull", "--plain-http", &reference]).unwrap();
    let file = fs::read(oras.directory().join("moody.wasm")).unwrap();
    assert_eq!(file, plugin());
}

#[test]
fn innkeeper_pulls_an_artifact_pushed_by_oras() {
    let registry = Registry::start().unwrap();
    let oras = Client::oras().unwrap();
    oras.put("pond.wasm", plugin()).unwrap();
    oras.put("notes.md", "a plugin").unwrap();
    oras.put("config.json.wasm", json!({"os": "wasip2"}).to_string())
        .unwrap();
    let layer = format!("pond.wasm:{WASM}");
    let config = "config.json.wasm:application/vnd.wasm.config.v0+json";
    let innkeeper = Client::innkeeper().unwrap();
    for (version, how) in [
        (":plain", &[layer.as_str()][..]),
        (":typed", &["--artifact-type", WASM, &layer]),
        (":config", &["--config", config, &layer]),
        (":notes", &[&layer, "notes.md:text/markdown"]),
        (
            ":older",
            &["pond.wasm:application/vnd.wasm.content.layer.v1+wasm"],
        ),
    ] {
        let reference = registry.reference(version);
        let push = ["push", "--plain-http", &reference];
        oras.run(&[&push[..], how].concat()).unwrap();
        let digest = oras.run(&["resolve", "--plain-http", &reference]).unwrap();
        for version in [version, &format!("@{}", digest.trim())] {
            let reference = registry.reference(version);
            let pull = ["pull", &reference, "--insecure", "--to", "back.wasm"];
            let pulled = output_json(&innkeeper, &pull);
            assert_eq!(pulled["manifestDigest"], digest.trim());
            let file = fs::read(innkeeper.directory().join("back.wasm")).unwrap();
            assert_eq!(file, plugin());
        }
        let shown = format!("oci://{reference}");
        let shown = innkeeper.run(&["inspect", &shown, "--insecure"]).unwrap();
        assert!(shown.contains("Moody"), "{shown}");
    }

    // An artifact that is not a plugin is rejected with the media type.
    let reference = registry.reference(":text");
    let text = ["push", "--plain-http", &reference, "notes.md:text/markdown"];
    oras.run(&text).unwrap();
    let pull = ["pull", &reference, "--insecure"];
    let texts = ["not a plugin", "text/markdown"];
    check_refused(&innkeeper, &pull, 3, &texts);
}
