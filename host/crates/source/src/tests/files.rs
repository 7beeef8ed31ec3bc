//! Plugins as files.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::*;
use crate::File;

/// A directory for plugins, in a directory with a secret.
fn directory() -> (TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("plugins");
    fs::create_dir_all(inner.join("below")).unwrap();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    fs::write(inner.join("below/pond.wasm"), PLUGIN).unwrap();
    (outer, inner)
}

async fn read(inner: &Path, path: &str, expectation: &Expectation) -> Result<Fetched, Error> {
    let settings = Settings {
        source_dir: Some(inner.to_owned()),
        bytes_max: 100,
        ..Settings::default()
    };
    let source = Source::File(File {
        path: path.to_owned(),
    });
    fetch(settings, &source, expectation).await
}

#[tokio::test]
async fn a_file_below_the_directory_is_read() {
    let (_outer, inner) = directory();
    // The layout for a mounted ConfigMap.
    symlink("below", inner.join("..data")).unwrap();
    symlink("..data/pond.wasm", inner.join("pond.wasm")).unwrap();
    for path in ["below/pond.wasm", "./below/./pond.wasm", "pond.wasm"] {
        let fetched = read(&inner, path, &expect_digest(PLUGIN)).await.unwrap();
        assert_eq!(fetched.bytes, PLUGIN, "{path}");
    }
}

#[tokio::test]
async fn no_file_elsewhere_is_read() {
    let (outer, inner) = directory();
    symlink("../secret", inner.join("out")).unwrap();
    symlink("..", inner.join("up")).unwrap();
    symlink(outer.path().join("secret"), inner.join("absolute")).unwrap();
    let absolute = outer.path().join("secret");
    for path in [
        "../secret",
        "below/../../secret",
        "below/../below/pond.wasm",
        "out",
        "up/secret",
        "absolute",
        absolute.to_str().unwrap(),
        "",
        "below",
        ".",
    ] {
        let result = read(&inner, path, &Expectation::default()).await;
        check_refused(
            result,
            PluginReason::SourceInvalid,
            Retry::OnChange,
            &["the path is refused"],
        );
    }
}

#[tokio::test]
async fn only_a_regular_file_within_the_limit_is_read() {
    let (_outer, inner) = directory();
    mknodat(CWD, inner.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    check_refused(
        read(&inner, "pipe", &Expectation::default()).await,
        PluginReason::SourceInvalid,
        Retry::OnChange,
        &["not a regular file"],
    );
    check_refused(
        read(&inner, "none.wasm", &Expectation::default()).await,
        PluginReason::NotFound,
        Retry::Backoff,
        &["file none.wasm", "no such file"],
    );
    fs::write(inner.join("large"), [0_u8; 101]).unwrap();
    check_refused(
        read(&inner, "large", &Expectation::default()).await,
        PluginReason::TooLarge,
        Retry::OnChange,
        &["100 bytes"],
    );
    let source = Source::File(File {
        path: "a".to_owned(),
    });
    check_refused(
        fetch(Settings::default(), &source, &Expectation::default()).await,
        PluginReason::SourceInvalid,
        Retry::Never,
        &["--source-dir"],
    );
}

#[tokio::test]
async fn the_signature_of_a_file_is_beside_it() {
    let (_outer, inner) = directory();
    let path = "below/pond.wasm";
    check_refused(
        read(&inner, path, &expect_keys(&[P256_PUB])).await,
        PluginReason::Unsigned,
        Retry::Backoff,
        &["below/pond.wasm.sig is missing"],
    );
    fs::write(inner.join("below/pond.wasm.sig"), SIGNATURE).unwrap();
    let fetched = read(&inner, path, &expect_keys(&[OTHER_PUB, P256_PUB]))
        .await
        .unwrap();
    assert_eq!(fetched.signed_by, Some(key_id(P256_PUB)));
    check_refused(
        read(&inner, path, &expect_keys(&[OTHER_PUB])).await,
        PluginReason::BadSignature,
        Retry::OnChange,
        &["none of the expected keys"],
    );
    fs::write(inner.join(path), "another plugin").unwrap();
    check_refused(
        read(&inner, path, &expect_keys(&[P256_PUB])).await,
        PluginReason::BadSignature,
        Retry::OnChange,
        &["none of the expected keys"],
    );
}
