//! Compiled code that the tests share: compiling the guests for every test would take a third of
//! the suite's time.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use innkeeper_model::Digest;
use innkeeper_tests::process::path_from_env;
use tempfile::TempDir;

/// The guests' compiled code, from tests that have finished.
static SHARED: LazyLock<TempDir> = LazyLock::new(|| directory("innkeeper-compiled-"));

/// Digests of the guests that `tests/setup` builds. A test's own components are compiled by that
/// test's host.
static GUESTS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let directories = ["INNKEEPER_GUESTS", "INNKEEPER_TEST_GUESTS"]
        .map(|variable| path_from_env(variable).expect("the guests are built"));
    directories
        .iter()
        .flat_map(|directory| entries(directory))
        .filter(|file| {
            file.extension()
                .is_some_and(|extension| extension == "wasm")
        })
        .map(|file| Digest::hash(&fs::read(file).expect("a guest can be read")).to_hex())
        .collect()
});

/// A cache directory for the hosts in one test.
pub(crate) struct CacheDirectory(TempDir);

impl CacheDirectory {
    /// Creates a directory with the compiled code from earlier tests.
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
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir()
        .expect("a directory can be made")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .expect("a directory can be read")
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Links compiled guests. Hosts replace files and never write into them, so the links stay
/// identical.
fn link(from: &Path, to: &Path) {
    for file in entries(from) {
        let Some(name) = file.file_name().and_then(OsStr::to_str) else {
            continue;
        };
        // Files with other extensions hold verdicts, which depend on the host's limits.
        let is_code = file
            .extension()
            .is_some_and(|extension| extension == "cwasm" || extension == "sum");
        let digest = name.split('.').next().unwrap_or_default();
        if is_code && GUESTS.contains(digest) {
            // Another test may have linked the file in the meantime, or a host may have removed it.
            drop(fs::hard_link(&file, to.join(name)));
        }
    }
}
