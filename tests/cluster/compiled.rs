//! Compiled code that the tests share: to compile the guests again for every test would be a third of the suite's work.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use innkeeper_model::Digest;
use innkeeper_tests::process::path_from_env;
use tempfile::TempDir;

/// The compiled code of the guests, as far as tests that have ended compiled them.
static SHARED: LazyLock<TempDir> = LazyLock::new(|| directory("innkeeper-compiled-"));

/// The digests of the guests that `tests/setup` builds. What a test makes itself is compiled by its own host.
static GUESTS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let directories = ["INNKEEPER_GUESTS", "INNKEEPER_TEST_GUESTS"]
        .map(|it| path_from_env(it).expect("the guests are built"));
    let components = directories
        .iter()
        .flat_map(|it| entries(it))
        .filter(|it| it.extension().is_some_and(|it| it == "wasm"));
    components
        .map(|it| Digest::hash(&fs::read(it).expect("a guest can be read")).to_hex())
        .collect()
});

/// A cache directory for the hosts of one test.
pub(crate) struct CacheDirectory(TempDir);

impl CacheDirectory {
    /// A directory with the compiled code that earlier tests left.
    pub(crate) fn warm() -> Self {
        let new = directory("innkeeper-cache-");
        link(SHARED.path(), new.path());
        Self(new)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for CacheDirectory {
    fn drop(&mut self) {
        link(self.path(), SHARED.path());
    }
}

fn directory(prefix: &str) -> TempDir {
    let directory = tempfile::Builder::new().prefix(prefix).tempdir();
    directory.expect("a directory can be made")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .expect("a directory can be read")
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Links the code of guests. A host replaces files and never writes into one, so that the links stay alike.
fn link(from: &Path, to: &Path) {
    for file in entries(from) {
        let Some(name) = file.file_name() else {
            continue;
        };
        // The file of another extension is a verdict, which depends on the limits of its host.
        let is_code = file
            .extension()
            .is_some_and(|it| it == "cwasm" || it == "sum");
        let digest = name.to_string_lossy();
        let digest = digest.split('.').next().unwrap_or_default();
        if is_code && GUESTS.contains(digest) {
            // Another test may have linked the file meanwhile, and a host may have removed it.
            drop(fs::hard_link(&file, to.join(name)));
        }
    }
}
