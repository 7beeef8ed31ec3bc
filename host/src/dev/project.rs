//! A plugin crate under development: sources, builds, and the Plugin resource for a build.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use innkeeper_authoring::{BuildArgs, build::Workspace, plugin_file};
use innkeeper_command::{Exit, Failure, OrFail as _, object_in};
use innkeeper_model::{Digest, Manifest};
use innkeeper_plugin_controller::{self as plugins, resource};
use innkeeper_policy::Grants;
use innkeeper_sandbox::artifact;
use serde_json::{Map, Value, json};
use walkdir::{DirEntry, WalkDir};

use super::examples::MANAGER;
use crate::config::DevArgs;

/// The plugin's configuration file, in the crate's directory.
const CONFIG: &str = "config.yaml";

/// The directory with cases for `innkeeper test`, which are not part of the plugin.
const CASES: &str = "tests";

/// The recommended label for tools, on Plugins that `dev` created.
pub(super) const LABEL_MANAGER: &str = "app.kubernetes.io/managed-by";

/// A plugin crate.
pub(super) struct Project {
    directory: PathBuf,
    workspace: Workspace,
    out_dir: PathBuf,
    cache: Option<artifact::Cache>,
    /// The user's grants, by plugin.
    grants: BTreeMap<String, Map<String, Value>>,
    default_grants: fn(&Manifest) -> Grants,
}

/// A crate's files with times and sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources {
    code: BTreeMap<PathBuf, (Option<SystemTime>, u64)>,
    config: Option<(Option<SystemTime>, u64)>,
}

impl Sources {
    /// Reads the state of a directory's files. An unreadable file counts as changed once it is readable.
    pub(super) fn read(directory: &Path) -> Self {
        let mut sources = Self::default();
        let entries = WalkDir::new(directory).into_iter();
        for entry in entries.filter_entry(is_source).flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if !metadata.is_file() {
                continue;
            }
            // Without the content, because `dev` looks four times a second.
            let state = (metadata.modified().ok(), metadata.len());
            // Apart from the code, because a changed configuration needs no build.
            if entry.depth() == 1 && entry.file_name() == CONFIG {
                sources.config = Some(state);
            } else {
                sources.code.insert(entry.into_path(), state);
            }
        }
        sources
    }

    /// Takes over lock files from later sources: cargo creates and completes them during a build.
    pub(super) fn with_lock_from(mut self, later: &Self) -> Self {
        let is_lock = |path: &Path| path.ends_with("Cargo.lock");
        let locks = later.code.iter().filter(|(path, _)| is_lock(path));
        self.code
            .extend(locks.map(|(path, state)| (path.clone(), *state)));
        self
    }

    /// Returns true if both sources give the same component.
    pub(super) fn has_same_code(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

/// A built component.
#[derive(Clone)]
pub(super) struct Built {
    digest: Digest,
    manifest: Manifest,
    file: String,
}

impl Built {
    /// The name of the plugin and its Plugin resource.
    pub(super) fn name(&self) -> &str {
        self.manifest.name.as_str()
    }

    /// The component's digest.
    pub(super) fn digest(&self) -> String {
        self.digest.to_string()
    }
}

impl Project {
    /// Finds the crate and the compiler.
    pub(super) fn open(args: &DevArgs, directory: &Path) -> Result<Self, Failure> {
        let build = BuildArgs::for_dev(directory);
        // Only `innkeeper build` names the compiler.
        let workspace = Workspace::open(&build, &mut |_| ())?;
        if let [first, second, ..] = workspace.guests() {
            let message = format!(
                "{} builds several plugins, for example {} and {}: give the directory of one of them",
                directory.display(),
                first.package,
                second.package
            );
            return Err(Failure::new(Exit::Usage, message));
        }
        let host = args.host();
        let out_dir = build.out_dir();
        let unusable = format!("failed to create {}", out_dir.display());
        fs::create_dir_all(&out_dir).or_fail(Exit::Failure, unusable)?;
        Ok(Self {
            directory: directory.to_owned(),
            workspace,
            out_dir,
            // Without a cache, each component is compiled twice.
            cache: artifact::Cache::open(&host.plugins.cache_dir).ok(),
            grants: host.plugins.grants(),
            default_grants: host.plugins.default_grants(),
        })
    }

    /// Reads the sources.
    pub(super) fn sources(&self) -> Sources {
        Sources::read(&self.directory)
    }

    /// Builds and describes the component; blocks. cargo's messages go to standard error.
    pub(super) fn build(&self) -> Result<Built, Failure> {
        let components = self.workspace.build(&self.out_dir)?;
        let component = components.first().ok_or_else(|| {
            let message = format!("no plugin was built in {}", self.directory.display());
            Failure::new(Exit::Failure, message)
        })?;
        // The host uses the compiled code in the same cache.
        let (bytes, described) = plugin_file::load(&component.path, self.cache.as_ref()).or_fail(
            Exit::Failure,
            format!("failed to load {} as a plugin", component.path.display()),
        )?;
        Ok(Built {
            digest: Digest::hash(&bytes),
            manifest: described.manifest().clone(),
            file: format!("{}.wasm", component.guest.name),
        })
    }

    /// Returns the Plugin for a component, with the crate's configuration. The revision `approved` may become active; other
    /// revisions wait for approval, so that `dev` can show their plan.
    pub(super) fn plugin(
        &self,
        built: &Built,
        approved: Option<&str>,
    ) -> Result<Map<String, Value>, Failure> {
        let grants = plugins::grants_of(&built.manifest, &self.grants, self.default_grants)
            .or_fail(Exit::Usage, "failed to parse the grants")?;
        let mut spec = json!({
            "source": {"file": {"path": built.file}},
            // Without it, the next build would not change the spec, because the file name stays the same.
            "digest": built.digest(),
            "grants": resource::file_of_grants(&grants),
            "rollout": {"mode": "Gated"},
        });
        if let Some(config) = self.config()? {
            spec["config"] = config.into();
        }
        if let Some(revision) = approved {
            spec["rollout"]["approve"] = revision.into();
        }
        let mut object = Map::new();
        let version = format!("{}/v1alpha1", resource::GROUP);
        object.insert("apiVersion".to_owned(), version.into());
        object.insert("kind".to_owned(), "Plugin".into());
        object.insert(
            "metadata".to_owned(),
            json!({"name": built.name(), "labels": {LABEL_MANAGER: MANAGER}}),
        );
        object.insert("spec".to_owned(), spec);
        Ok(object)
    }

    /// Reads the configuration; none without a file.
    fn config(&self) -> Result<Option<Map<String, Value>>, Failure> {
        let path = self.directory.join(CONFIG);
        if !path.exists() {
            return Ok(None);
        }
        object_in(&path.display().to_string())
            .map(Some)
            .map_err(|message| Failure::new(Exit::Failure, message))
    }
}

/// Returns true if a build may depend on the file: not for build output and hidden files.
fn is_source(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let is_output_or_cases = entry.depth() == 1 && (name == "target" || name == CASES);
    // The crate's own directory may have any name, also `.` or `target`.
    entry.depth() == 0 || !is_output_or_cases && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_cases_and_hidden_files_are_not_sources() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("Cargo.toml", true),
            ("src/lib.rs", true),
            ("src/tests/data.yaml", true),
            ("target/wasm/lib.rs", false),
            ("tests/example/parent.yaml", false),
            (".git/index", false),
            ("src/.lib.rs.swp", false),
        ];
        for (file, is_expected) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            let is_found = WalkDir::new(root.path())
                .into_iter()
                .filter_entry(is_source)
                .flatten()
                .any(|entry| entry.path() == path);
            assert_eq!(is_found, is_expected, "{file}");
        }
    }
}
