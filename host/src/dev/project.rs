//! The plugin of a crate under development: its sources, its builds, and the Plugin resource of a build.

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

/// The file with the configuration of the plugin, in the directory of its crate.
const CONFIG: &str = "config.yaml";

/// The directory of the cases of `innkeeper test`, which are no part of the plugin.
const CASES: &str = "tests";

/// The label by which `dev` knows its own Plugins, as Kubernetes recommends it.
pub(super) const LABEL_MANAGER: &str = "app.kubernetes.io/managed-by";

/// The crate of a plugin.
pub(super) struct Project {
    directory: PathBuf,
    workspace: Workspace,
    out_dir: PathBuf,
    cache: Option<artifact::Cache>,
    /// The grants that the user gave, by plugin.
    grants: BTreeMap<String, Map<String, Value>>,
    usual_grants: fn(&Manifest) -> Grants,
}

/// The files of a crate, with their times and sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources {
    code: BTreeMap<PathBuf, (Option<SystemTime>, u64)>,
    config: Option<(Option<SystemTime>, u64)>,
}

impl Sources {
    /// Returns the state of the files in a directory. A file that cannot be read counts as changed once it can.
    pub(super) fn of(directory: &Path) -> Self {
        let mut sources = Self::default();
        let entries = WalkDir::new(directory).into_iter();
        for entry in entries.filter_entry(is_source).flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if !metadata.is_file() {
                continue;
            }
            let state = (metadata.modified().ok(), metadata.len());
            if entry.depth() == 1 && entry.file_name() == CONFIG {
                sources.config = Some(state);
            } else {
                sources.code.insert(entry.into_path(), state);
            }
        }
        sources
    }

    /// Returns the sources with the lock files of a later look: cargo makes and completes them in a build.
    pub(super) fn with_lock_of(mut self, later: &Self) -> Self {
        let is_lock = |path: &Path| path.ends_with("Cargo.lock");
        let locks = later.code.iter().filter(|(path, _)| is_lock(path));
        self.code
            .extend(locks.map(|(path, state)| (path.clone(), *state)));
        self
    }

    /// Returns true if the component is the same as that of other sources.
    pub(super) fn has_the_code_of(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

/// A component of the crate.
#[derive(Clone)]
pub(super) struct Built {
    digest: Digest,
    manifest: Manifest,
    file: String,
}

impl Built {
    /// The name of the plugin, which is the name of its Plugin resource.
    pub(super) fn name(&self) -> &str {
        self.manifest.name.as_str()
    }

    /// The digest of the component.
    pub(super) fn digest(&self) -> String {
        self.digest.to_string()
    }
}

impl Project {
    /// Finds the crate of one plugin and the compiler.
    pub(super) fn open(args: &DevArgs, directory: &Path) -> Result<Self, Failure> {
        let build = BuildArgs::for_dev(directory);
        // The display has no place for the compiler that is chosen; `innkeeper build` names it.
        let workspace = Workspace::open(&build, &mut |_| ())?;
        if let [first, second, ..] = workspace.guests() {
            let message = format!(
                "{} makes several plugins, for example {} and {}: give the directory of one of them",
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
            // Without it, each component is compiled twice.
            cache: artifact::Cache::open(&host.plugins.cache_dir).ok(),
            grants: host.plugins.grants(),
            usual_grants: host.plugins.default_grants(),
        })
    }

    /// Returns the state of the files.
    pub(super) fn sources(&self) -> Sources {
        Sources::of(&self.directory)
    }

    /// Builds the component and describes it; blocks. The messages of cargo go to standard error.
    pub(super) fn build(&self) -> Result<Built, Failure> {
        let built = self.workspace.build(&self.out_dir)?;
        let message = format!("no plugin was built in {}", self.directory.display());
        let component = built
            .first()
            .ok_or(message)
            .map_err(|message| Failure::new(Exit::Failure, message))?;
        let unusable = || format!("failed to load {} as a plugin", component.path.display());
        // The host takes the compiled code from the same cache.
        let loaded = plugin_file::load(&component.path, self.cache.as_ref());
        let (bytes, described) = loaded.or_fail(Exit::Failure, unusable())?;
        Ok(Built {
            digest: Digest::of(&bytes),
            manifest: described.manifest().clone(),
            file: format!("{}.wasm", component.guest.name),
        })
    }

    /// Returns the Plugin of a component, with the configuration of the crate; `approved` is a revision that may serve.
    ///
    /// Each revision waits for approval, so that its plan is known before it serves.
    pub(super) fn plugin(
        &self,
        built: &Built,
        approved: Option<&str>,
    ) -> Result<Map<String, Value>, Failure> {
        let grants = plugins::grants_of(&built.manifest, &self.grants, self.usual_grants)
            .or_fail(Exit::Usage, "failed to parse the grants")?;
        let mut spec = json!({
            "source": {"file": {"path": built.file}},
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

    /// Returns the configuration; none without a file.
    fn config(&self) -> Result<Option<Map<String, Value>>, Failure> {
        let path = self.directory.join(CONFIG);
        if !path.exists() {
            return Ok(None);
        }
        let read = object_in(&path.display().to_string());
        read.map(Some)
            .map_err(|message| Failure::new(Exit::Failure, message))
    }
}

/// Returns true for what a build may depend on: neither the output of builds nor hidden files.
fn is_source(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let is_beside = entry.depth() == 1 && (name == "target" || name == CASES);
    entry.depth() == 0 || !is_beside && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_cases_and_hidden_files_are_no_sources() {
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
            let entries = WalkDir::new(root.path()).into_iter();
            let found = entries
                .filter_entry(is_source)
                .flatten()
                .any(|entry| entry.path() == path);
            assert_eq!(found, is_expected, "{file}");
        }
    }
}
