//! `push`, `pull`, `sign` and `verify` as processes: what they need, and what they end with where it is missing.

use std::{fs, process::Command};

use innkeeper_tests::process::path_from_env;

/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:1/plugins/pond:1";

#[test]
fn names_what_is_missing_and_ends_with_a_code_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let plugin = guests.join("unruly.wasm");
    let plugin = plugin.to_str().unwrap();
    let broken = directory.path().join("broken");
    fs::write(&broken, "no key, no JSON").unwrap();
    let broken = broken.to_str().unwrap();
    for (arguments, code, expected) in [
        (&["push", plugin, NOBODY][..], 5, "failed to connect to"),
        (&["pull", NOBODY], 5, "failed to connect to"),
        (
            &["inspect", &format!("oci://{NOBODY}")],
            5,
            "failed to connect to",
        ),
        (
            &["push", plugin, "pond:1"],
            4,
            "it must start with a registry",
        ),
        (&["push", plugin, "127.0.0.1:1/pond"], 4, "give a tag"),
        (&["push", "/none", NOBODY], 4, "/none"),
        (&["verify", NOBODY], 4, "--key"),
        (
            &["verify", NOBODY, "--key", "/none"],
            4,
            "failed to read /none, the key",
        ),
        (
            &["verify", NOBODY, "--key", broken],
            4,
            "this is not a public key",
        ),
        (
            &["sign", NOBODY, "--key", broken],
            4,
            "this is not a private key",
        ),
        (
            &["pull", NOBODY, "--docker-config", broken],
            4,
            "failed to use the credentials in",
        ),
        (
            &["pull", NOBODY, "--digest", "1"],
            4,
            "\"1\" is not a digest",
        ),
        (&["pull", NOBODY, "--ca-file", "/none"], 4, "/none"),
    ] {
        let mut command = Command::new(path_from_env("INNKEEPER_BIN").unwrap());
        let output = command
            .args(arguments)
            .args(if arguments[0] == "inspect" || code == 5 {
                &["--insecure"][..]
            } else {
                &[]
            })
            .env_remove("HTTP_PROXY")
            .env_remove("http_proxy")
            .env("DOCKER_CONFIG", directory.path())
            .current_dir(directory.path())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    // Nothing was pulled.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}
