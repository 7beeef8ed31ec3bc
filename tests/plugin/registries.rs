//! `push`, `pull`, `sign` and `verify` as processes: the exit code and message for each missing input.

use std::{fs, process::Command};

use innkeeper_tests::process::path_from_env;

/// A reference to a port without a listener.
const CLOSED: &str = "127.0.0.1:1/plugins/pond:1";

#[test]
fn names_the_missing_input_and_ends_with_its_own_code() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = path_from_env("INNKEEPER_TEST_GUESTS")
        .unwrap()
        .join("unruly.wasm");
    let plugin = plugin.to_str().unwrap();
    let broken = directory.path().join("broken");
    fs::write(&broken, "no key, no JSON").unwrap();
    let broken = broken.to_str().unwrap();
    for (arguments, code, expected) in [
        (&["push", plugin, CLOSED][..], 1, "failed to connect to"),
        (&["pull", CLOSED], 1, "failed to connect to"),
        (
            &["inspect", &format!("oci://{CLOSED}")],
            1,
            "failed to connect to",
        ),
        (
            &["push", plugin, "pond:1"],
            2,
            "it must start with a registry",
        ),
        (&["push", plugin, "127.0.0.1:1/pond"], 2, "give a tag"),
        (&["push", "/none", CLOSED], 2, "/none"),
        (&["verify", CLOSED], 2, "--key"),
        (
            &["verify", CLOSED, "--key", "/none"],
            2,
            "'/none' for '--key <FILE>': failed to read the file",
        ),
        (
            &["verify", CLOSED, "--key", broken],
            2,
            "this is not a public key",
        ),
        (
            &["sign", CLOSED, "--key", broken],
            2,
            "this is not a private key",
        ),
        (
            &["pull", CLOSED, "--docker-config", broken],
            2,
            "failed to use the credentials in",
        ),
        (
            &["pull", CLOSED, "--digest", "1"],
            2,
            "\"1\" is not a digest",
        ),
        (&["pull", CLOSED, "--ca-file", "/none"], 2, "/none"),
    ] {
        let output = Command::new(path_from_env("INNKEEPER_BIN").unwrap())
            .args(arguments)
            .args(if arguments[0] == "inspect" || code == 1 {
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
    // No pull wrote a file.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}
