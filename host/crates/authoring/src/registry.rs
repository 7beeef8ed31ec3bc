//! Plugins in registries: `innkeeper push`, `pull`, `sign` and `verify`.
//!
//! [`innkeeper_source`] talks to the registry and checks artifacts; this module reads the commands' arguments and
//! prints their results.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use innkeeper_command::{Exit, Failure, OrFail as _, Output, ResultFormat, Streams, file, runtime};
use innkeeper_model::Digest;
use innkeeper_sandbox::artifact;
use innkeeper_source::{Expectation, Package, PublicKey, Reference, RegistryArtifact};
use serde_json::Value;

use crate::{
    args::{CacheArgs, FetchArgs, PullArgs, PushArgs, SignArgs, VerifyArgs},
    plugin_file,
};

/// Pushes a plugin.
pub fn push(args: &PushArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    // First, so that a mistake in the reference is reported before the plugin is compiled.
    let artifact = RegistryArtifact::open(&args.reference, &args.load.registry.settings())?;
    let (package, size) = package(&args.file, &args.load.cache)?;
    let pushed = runtime::block_on(artifact.push(&package))?;
    let facts = [
        (
            "reference",
            artifact.pinned(Some(&pushed.manifest_digest)).into(),
        ),
        ("manifestDigest", pushed.manifest_digest.to_string().into()),
        ("digest", pushed.digest.to_string().into()),
        ("size", size.into()),
    ];
    write(streams, args.output, &facts)
}

/// Fetches a plugin, checks it, and writes it to a file.
pub fn pull(args: &PullArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let PullArgs { fetch, keys, to } = args;
    let path = |reference: &Reference| to.clone().unwrap_or_else(|| named(reference));
    check(fetch, keys, Some(&path), streams)
}

/// Fetches a plugin and checks it.
pub fn verify(args: &VerifyArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    check(&args.fetch, &args.keys, None, streams)
}

/// Loads a file as the host would, so that a plugin that no host can serve is rejected before the push.
fn package(file: &Path, cache: &CacheArgs) -> Result<(Package, usize), Failure> {
    let message = format!("failed to load {}", file.display());
    let cache = cache.open()?;
    let loaded = plugin_file::load(file, cache.as_ref());
    let (bytes, described) = loaded.or_fail_by(plugin_file::Error::exit, message)?;
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

/// Fetches and checks a plugin, and writes it to the file for this reference.
fn check(
    args: &FetchArgs,
    keys: &[PublicKey],
    path: Option<&dyn Fn(&Reference) -> PathBuf>,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
    let expectation = Expectation {
        digest: args.digest.clone(),
        keys: keys.to_vec(),
        ..Expectation::default()
    };
    let artifact = RegistryArtifact::open(&args.reference, &args.registry.settings())?;
    let fetched = runtime::block_on(artifact.fetch(&expectation))?;
    let mut facts = vec![
        (
            "reference",
            artifact.pinned(fetched.manifest_digest.as_ref()).into(),
        ),
        ("manifestDigest", shown(fetched.manifest_digest.as_ref())),
        ("digest", fetched.digest.to_string().into()),
        ("size", fetched.bytes.len().into()),
        ("signedBy", shown(fetched.signed_by.as_ref())),
    ];
    if let Some(path) = path {
        let path = path(artifact.reference());
        let message = format!("failed to write {}", path.display());
        file::replace(&path, &fetched.bytes).or_fail(Exit::Failure, message)?;
        facts.push(("file", path.display().to_string().into()));
    }
    write(streams, args.output, &facts)
}

/// Returns the default file name: the repository's last part.
fn named(reference: &Reference) -> PathBuf {
    let repository = reference.repository();
    let last = repository.rsplit('/').next().unwrap_or(repository);
    PathBuf::from(format!("{last}.wasm"))
}

/// Signs a plugin, or any artifact that the reference names by manifest digest.
pub fn sign(args: &SignArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let SignArgs {
        fetch: args,
        key,
        repository,
    } = args;
    let expectation = Expectation {
        digest: args.digest.clone(),
        ..Expectation::default()
    };
    let artifact = RegistryArtifact::open(&args.reference, &args.registry.settings())?;
    let pinned = artifact.reference().digest().cloned();
    let (manifest, digest) = if let Some(manifest) = pinned.filter(|_| args.digest.is_none()) {
        // The name alone decides about the content, which may be an image or a chart.
        (manifest, None)
    } else {
        // Fetch and check the bytes as well, so the signature covers the real content and not only a manifest.
        let fetched = runtime::block_on(artifact.fetch(&expectation))?;
        let Some(manifest) = fetched.manifest_digest else {
            // Unreachable: every artifact in a registry has a manifest.
            return Ok(Exit::Success);
        };
        (manifest, Some(fetched.digest))
    };
    runtime::block_on(artifact.sign(repository.as_deref(), &manifest, key))?;
    let facts = [
        ("reference", artifact.pinned(Some(&manifest)).into()),
        ("manifestDigest", manifest.to_string().into()),
        ("digest", shown(digest.as_ref())),
        ("signedBy", key.public().id().to_string().into()),
    ];
    write(streams, args.output, &facts)
}

fn shown(digest: Option<&Digest>) -> Value {
    digest.map_or(Value::Null, |digest| digest.to_string().into())
}

fn write(
    streams: &mut Streams<'_>,
    output: ResultFormat,
    facts: &[(&'static str, Value)],
) -> Result<Exit, Failure> {
    let output = match output {
        ResultFormat::Json => {
            let object: serde_json::Map<String, Value> = facts
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect();
            Output::json(&object)?
        }
        ResultFormat::Text => {
            let mut output = Output::default();
            for (name, value) in facts.iter().filter(|(_, value)| !value.is_null()) {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                output.line(format!("{name:<15} {value}"));
            }
            output
        }
    };
    streams.print(&output)?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests;
