//! Plugin files for commands that need no cluster: read, compiled and described in this process.

use std::{
    fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use innkeeper_command::{Exit, Failure, OrFail as _, runtime};
use innkeeper_model::Limits;
use innkeeper_sandbox::{
    self as plugin, Described, Engine, EngineSettings,
    artifact::{self, ConfigChecker, Program},
};
use innkeeper_source::{Expectation, RegistryArtifact};

use crate::args::{Inspected, RegistryArgs};

/// A failure to load a plugin; the command names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read, or is not a plugin that this host can load.
    #[error(transparent)]
    Artifact(#[from] artifact::Error),
    /// The sandbox cannot be set up, or the plugin cannot be started or described.
    #[error(transparent)]
    Plugin(#[from] plugin::Error),
}

impl Error {
    /// Returns the exit code for a command whose user named the file.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Artifact(_) => Exit::Usage,
            Self::Plugin(error) => exit_for(error),
        }
    }
}

/// Returns the exit code for a command that could not start or describe a plugin.
pub const fn exit_for(error: &plugin::Error) -> Exit {
    match error {
        plugin::Error::Link { .. }
        | plugin::Error::Describe { .. }
        | plugin::Error::Manifest { .. }
        | plugin::Error::Embedded { .. }
        | plugin::Error::ConfigSchema { .. } => Exit::Finding,
        plugin::Error::Config { .. } | plugin::Error::ConfigLimit { .. } => Exit::Usage,
        // Says nothing about the plugin or its configuration.
        plugin::Error::CheckConfig { .. }
        | plugin::Error::ConfigureEngine { .. }
        | plugin::Error::MapAgain { .. }
        | plugin::Error::StartThread { .. }
        | plugin::Error::PoolClosed => Exit::Failure,
    }
}

/// Reads a file, or fetches an artifact.
pub fn bytes(target: &Inspected, registry: &RegistryArgs) -> Result<Vec<u8>, Failure> {
    match target {
        Inspected::File(file) => {
            let message = format!("failed to read {}", file.display());
            read(file).or_fail(Exit::Usage, message)
        }
        Inspected::Artifact(reference) => {
            let artifact = RegistryArtifact::open(reference, &registry.settings())?;
            Ok(runtime::block_on(artifact.fetch(&Expectation::default()))?.bytes)
        }
    }
}

/// Reads and describes a file.
pub fn load(path: &Path, cache: Option<&artifact::Cache>) -> Result<(Vec<u8>, Described), Error> {
    let bytes = read(path)?;
    let described = describe(&bytes, cache)?;
    Ok((bytes, described))
}

/// Reads a file within the component size limit.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let limits = artifact::Limits::default();
    Ok(artifact::read_file(path, limits.bytes_max)?)
}

/// Checks, compiles and describes a component as the host does, so a command rejects each file that no host can run.
pub(crate) fn describe(bytes: &[u8], cache: Option<&artifact::Cache>) -> Result<Described, Error> {
    // One plugin is called at a time.
    describe_with(&EngineSettings::new(NonZeroU32::MIN), bytes, cache)
}

/// Describes a component, as [`describe`] does, with a new engine and a cache.
pub(crate) fn describe_with(
    settings: &EngineSettings,
    bytes: &[u8],
    cache: Option<&artifact::Cache>,
) -> Result<Described, Error> {
    describe_in(&Engine::new(settings)?, bytes, cache)
}

/// Describes a component, as [`describe`] does, in an engine that several components share.
pub fn describe_in(
    engine: &Engine,
    bytes: &[u8],
    cache: Option<&artifact::Cache>,
) -> Result<Described, Error> {
    let compiled = artifact::compile(engine, bytes, &artifact::Limits::default(), cache)?;
    Ok(Described::load(engine, &compiled, &Limits::default())?)
}

/// Returns the configuration checker, which starts this program again.
pub fn checker() -> &'static ConfigChecker {
    static CHECKER: LazyLock<ConfigChecker> =
        LazyLock::new(|| ConfigChecker::new(Program::current()));
    &CHECKER
}

/// Returns the only plugin that `innkeeper build` has built in a project.
pub(crate) fn built(project: &Path) -> Result<PathBuf, Failure> {
    let directory = project.join("target/plugins");
    let mut files: Vec<PathBuf> = fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "wasm")
        })
        .collect();
    let (found, remedy) = match (files.pop(), files.is_empty()) {
        (Some(file), true) => return Ok(file),
        (None, _) => ("no plugin", "run innkeeper build, or give a .wasm file"),
        (Some(_), false) => ("several plugins", "give one of them"),
    };
    let directory = directory.display();
    let message = format!("found {found} in {directory}: {remedy}");
    Err(Failure::new(Exit::Usage, message))
}
