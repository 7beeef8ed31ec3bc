//! The project's files and their texts.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use innkeeper_tests::manifest::root;

/// Returns the sorted paths below the root that are tracked, or new and not ignored.
pub(crate) fn tracked() -> Vec<String> {
    static TRACKED: OnceLock<Vec<String>> = OnceLock::new();
    TRACKED
        .get_or_init(|| {
            let output = Command::new("git")
                .args(["ls-files", "--cached", "--others", "--exclude-standard"])
                .current_dir(root())
                .output()
                .expect("git lists the files of the checkout");
            assert!(output.status.success(), "git ls-files failed: {output:?}");
            let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
            let paths: BTreeSet<String> = listed
                .lines()
                .filter(|path| root().join(path).exists())
                .map(str::to_owned)
                .collect();
            paths.into_iter().collect()
        })
        .clone()
}

/// Returns true if a path has this extension.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|found| found == extension)
}

/// Reads a file below the root.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a listed file can be read")
}

/// One Rust source file.
pub(crate) struct Source {
    /// The path below the root.
    pub(crate) path: String,
    /// The text.
    pub(crate) text: String,
}

impl Source {
    /// Returns all Rust files of the project.
    pub(crate) fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Source>> = OnceLock::new();
        ALL.get_or_init(|| {
            let sources: Vec<Self> = tracked()
                .into_iter()
                .filter(|path| has_extension(path, "rs"))
                .map(|path| Self {
                    text: read(&path),
                    path,
                })
                .collect();
            assert!(sources.len() > 10, "the tidy test looks in the wrong place");
            sources
        })
    }

    /// Returns true if the whole file is test code.
    pub(crate) fn is_test_file(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// Returns the number of lines before the file's test module.
    pub(crate) fn product_lines(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        lines
            .windows(2)
            .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests {"))
            .unwrap_or(lines.len())
    }
}

/// Returns the files below a crate's `src` that no parent module declares.
pub(crate) fn orphans() -> Vec<String> {
    let all: BTreeSet<&str> = Source::all()
        .iter()
        .map(|source| source.path.as_str())
        .collect();
    let named = named();
    Source::all()
        .iter()
        .filter(|source| source.path.contains("/src/"))
        .filter(|source| {
            let path = Path::new(&source.path);
            let stem = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            let directory = path.parent().expect("a file has a directory");
            let is_root = directory.ends_with("src") && ["lib", "main"].contains(&stem);
            !is_root && !is_declared(&all, directory, stem) && !named.contains(path)
        })
        .map(|source| source.path.clone())
        .collect()
}

/// Returns the files named in `path` attributes, as for test helpers that product code declares.
fn named() -> BTreeSet<PathBuf> {
    Source::all()
        .iter()
        .flat_map(|source| {
            let directory = Path::new(&source.path)
                .parent()
                .unwrap_or_else(|| Path::new(""));
            source.text.lines().filter_map(move |line| {
                let line = line.trim().strip_prefix("#[path = \"")?;
                Some(resolved(&directory.join(line.strip_suffix("\"]")?)))
            })
        })
        .collect()
}

/// Returns a relative path without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path {
        if part == ".." {
            resolved.pop();
        } else {
            resolved.push(part);
        }
    }
    resolved
}

/// Returns true if a parent of `directory/stem.rs` contains `mod stem;`.
fn is_declared(all: &BTreeSet<&str>, directory: &Path, stem: &str) -> bool {
    let parents = if directory.ends_with("src") {
        vec![directory.join("lib.rs"), directory.join("main.rs")]
    } else {
        vec![directory.with_extension("rs")]
    };
    parents
        .iter()
        .filter_map(|parent| parent.to_str())
        .filter(|parent| all.contains(parent))
        .any(|parent| {
            let declaration = format!("mod {stem};");
            read(parent)
                .lines()
                .any(|line| line.trim_start().ends_with(&declaration))
        })
}
