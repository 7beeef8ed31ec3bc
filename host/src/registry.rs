//! Plugins in registries: `innkeeper push`, `pull`, `sign` and `verify`.
//!
//! [`innkeeper_source`] speaks with the registry and checks artifacts; this module reads the arguments of these
//! commands and prints their results.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    path::{Path, PathBuf},
};

use innkeeper_model::Digest;
use innkeeper_sandbox::artifact;
use innkeeper_source::{
    self as source, Expectation, Package, PublicKey, Reference, RegistryArtifact,
};
use serde_json::{Value, json};

use crate::{
    config::{Exit, FetchArgs, PullArgs, PushArgs, ResultFormat, SignArgs, Streams, VerifyArgs},
    plugin_file, runtime,
};

/// A failure of one of these commands.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tokio runtime did not start.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// The file is not a plugin, or cannot be described.
    #[error("failed to load {}", path.display())]
    Plugin {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: plugin_file::Error,
    },
    /// The reference or the settings are invalid, the registry failed, or the artifact is not the expected one.
    #[error(transparent)]
    Source(Box<source::Error>),
    /// The file of the plugin cannot be written.
    #[error("failed to write {}", path.display())]
    Keep {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The result cannot be written.
    #[error("failed to write the result")]
    Write(#[source] io::Error),
}

impl From<source::Error> for Error {
    fn from(error: source::Error) -> Self {
        Self::Source(Box::new(error))
    }
}

impl Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Plugin { source, .. } => source.exit(),
            Self::Source(error) => Exit::of_blame(error.failure().blame()),
            Self::Runtime(_) | Self::Keep { .. } | Self::Write(_) => Exit::Failure,
        }
    }
}

/// Pushes a plugin.
pub fn push(args: &PushArgs, streams: &mut Streams<'_>) -> Exit {
    ended(try_push(args, streams), streams)
}

/// Fetches a plugin, checks it, and writes it to a file.
pub fn pull(args: &PullArgs, streams: &mut Streams<'_>) -> Exit {
    let PullArgs { fetch, keys, to } = args;
    let path = |reference: &Reference| to.clone().unwrap_or_else(|| named(reference));
    ended(check(fetch, keys, Some(&path), streams), streams)
}

/// Fetches a plugin and checks it.
pub fn verify(args: &VerifyArgs, streams: &mut Streams<'_>) -> Exit {
    let VerifyArgs { fetch, keys } = args;
    ended(check(fetch, keys, None, streams), streams)
}

/// Signs a plugin.
pub fn sign(args: &SignArgs, streams: &mut Streams<'_>) -> Exit {
    ended(try_sign(args, streams), streams)
}

fn ended(result: Result<(), Error>, streams: &mut Streams<'_>) -> Exit {
    streams.end(result.map(|()| Exit::Success), Error::exit)
}

fn try_push(args: &PushArgs, streams: &mut Streams<'_>) -> Result<(), Error> {
    let shelf = RegistryArtifact::open(&args.reference, &args.registry.settings())?;
    let (package, size) = package(&args.file)?;
    let pushed = block_on(shelf.push(&package))?;
    let found = [
        (
            "reference",
            shelf.pinned(Some(&pushed.manifest_digest)).into(),
        ),
        ("manifestDigest", pushed.manifest_digest.to_string().into()),
        ("digest", pushed.digest.to_string().into()),
        ("size", size.into()),
    ];
    write(streams, args.output, &found)
}

/// Loads a file as the host would, so that a plugin that no host can serve is rejected before the push.
fn package(file: &Path) -> Result<(Package, usize), Error> {
    let unusable = |source| Error::Plugin {
        path: file.to_owned(),
        source,
    };
    let bytes = plugin_file::read(file).map_err(unusable)?;
    let described = plugin_file::engine()
        .and_then(|engine| plugin_file::describe(&engine, &bytes))
        .map_err(unusable)?;
    let manifest = described.manifest();
    let inspection = artifact::inspect(&bytes);
    let annotation =
        |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
    let package = Package {
        imports: inspection.imports,
        exports: inspection.exports,
        annotations: BTreeMap::from([
            annotation("title", manifest.name.as_str()),
            annotation("version", &manifest.version),
        ]),
        bytes,
    };
    let size = package.bytes.len();
    Ok((package, size))
}

/// Fetches and checks a plugin, and writes it to the file of this reference.
fn check(
    args: &FetchArgs,
    keys: &[PublicKey],
    path: Option<&dyn Fn(&Reference) -> PathBuf>,
    streams: &mut Streams<'_>,
) -> Result<(), Error> {
    let expectation = Expectation {
        digest: args.digest.clone(),
        keys: keys.to_vec(),
        ..Expectation::default()
    };
    let shelf = RegistryArtifact::open(&args.reference, &args.registry.settings())?;
    let fetched = block_on(shelf.fetch(&expectation))?;
    let mut found = vec![
        (
            "reference",
            shelf.pinned(fetched.manifest_digest.as_ref()).into(),
        ),
        ("manifestDigest", shown(fetched.manifest_digest.as_ref())),
        ("digest", fetched.digest.to_string().into()),
        ("size", fetched.bytes.len().into()),
        ("signedBy", shown(fetched.signed_by.as_ref())),
    ];
    if let Some(path) = path {
        let path = path(shelf.reference());
        plugin_file::keep(&path, &fetched.bytes).map_err(|source| Error::Keep {
            path: path.clone(),
            source,
        })?;
        found.push(("file", path.display().to_string().into()));
    }
    write(streams, args.output, &found)
}

/// Returns the default file name: the last part of the repository.
fn named(reference: &Reference) -> PathBuf {
    let repository = reference.repository();
    let last = repository.rsplit('/').next().unwrap_or(repository);
    PathBuf::from(format!("{last}.wasm"))
}

fn try_sign(args: &SignArgs, streams: &mut Streams<'_>) -> Result<(), Error> {
    let SignArgs { fetch: args, key } = args;
    let expectation = Expectation {
        digest: args.digest.clone(),
        ..Expectation::default()
    };
    let shelf = RegistryArtifact::open(&args.reference, &args.registry.settings())?;
    // Fetch and check the bytes as well, so that the signature covers the real content and not only a manifest.
    let fetched = block_on(shelf.fetch(&expectation))?;
    let Some(manifest) = &fetched.manifest_digest else {
        // Unreachable: every artifact in a registry has a manifest.
        return Ok(());
    };
    block_on(shelf.sign(manifest, key))?;
    let found = [
        ("reference", shelf.pinned(Some(manifest)).into()),
        ("manifestDigest", manifest.to_string().into()),
        ("digest", fetched.digest.to_string().into()),
        ("signedBy", key.public().id().to_string().into()),
    ];
    write(streams, args.output, &found)
}

fn shown(digest: Option<&Digest>) -> Value {
    digest.map_or(Value::Null, |digest| digest.to_string().into())
}

fn write(
    streams: &mut Streams<'_>,
    output: ResultFormat,
    found: &[(&'static str, Value)],
) -> Result<(), Error> {
    let text = match output {
        ResultFormat::Json => {
            let object: serde_json::Map<String, Value> = found
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect();
            format!("{:#}\n", json!(object))
        }
        ResultFormat::Text => {
            let line = |(name, value): &(&str, Value)| {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                format!("{name:<15} {value}")
            };
            let found = found.iter().filter(|(_, value)| !value.is_null());
            let lines: Vec<String> = found.map(line).collect();
            lines.join("\n") + "\n"
        }
    };
    streams.write(text.as_bytes()).map_err(Error::Write)
}

fn block_on<T>(work: impl Future<Output = Result<T, source::Error>>) -> Result<T, Error> {
    let ended = runtime::block_on(work).map_err(Error::Runtime)?;
    Ok(ended?)
}

#[cfg(test)]
mod tests;
