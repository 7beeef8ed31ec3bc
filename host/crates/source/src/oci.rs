//! Plugins as artifacts in registries: pull, push and signatures.
//!
//! The layout is CNCF's for WebAssembly: an image manifest with the configuration `application/vnd.wasm.config.v0+json`
//! and one layer `application/wasm`. Other tools write, or wrote, other media types; they are accepted as long as
//! exactly one layer is WebAssembly.

mod manifest;
mod push;
mod reference;
mod registry;
mod signatures;
mod token;

#[cfg(feature = "testing")]
#[path = "tests/hostile.rs"]
pub mod hostile;

use innkeeper_model::error_chain;

pub(super) use self::push::{push, sign};
use self::{
    manifest::OciManifest,
    registry::{ARTIFACT_TYPES, Registry},
};
pub use self::{
    push::{Package, Pushed},
    reference::{InvalidReference, Reference},
};
use super::{
    Expectation, Failure, Fetched, Oci, PLUGIN, Settings, error::check_size, transport::Transport,
};

/// Pulls a plugin from the registry's first mirror that has it, or else from the registry itself.
pub(super) async fn fetch(
    transport: &Transport,
    settings: &Settings,
    oci: &Oci,
    expectation: &Expectation,
) -> Result<Fetched, Failure> {
    let artifact = &oci.reference;
    let bytes_max = settings.bytes_max;
    for mirror in settings
        .mirrors
        .get(artifact.registry())
        .into_iter()
        .flatten()
    {
        match pull(transport, oci, Some(mirror), expectation, bytes_max).await {
            Ok(fetched) => return Ok(fetched),
            Err(failure) => {
                // Also for other bytes than expected: a bad mirror must not keep the plugin from starting.
                let failure = error_chain(&failure);
                tracing::info!(%mirror, %artifact, %failure, "a mirror does not have an artifact");
            }
        }
    }
    pull(transport, oci, None, expectation, bytes_max).await
}

/// Pulls a plugin: manifest, then signatures, then layer.
async fn pull(
    transport: &Transport,
    oci: &Oci,
    mirror: Option<&str>,
    expectation: &Expectation,
    bytes_max: u64,
) -> Result<Fetched, Failure> {
    let mut registry = Registry::open(transport, oci, mirror, "pull")?;
    let version = oci.reference.version();
    let (text, manifest_digest) = registry
        .manifest(&version, ARTIFACT_TYPES, "the artifact")
        .await?;
    let layer = OciManifest::parse(&text)?.plugin()?;
    // All checks come before the layer, which may be large.
    expectation.check_digest(&layer.digest)?;
    check_size(PLUGIN, layer.size, bytes_max)?;
    let signed_by = if expectation.keys.is_empty() {
        None
    } else {
        Some(signatures::check(&mut registry, &manifest_digest, expectation).await?)
    };
    let bytes = registry.blob(&layer, PLUGIN).await?;
    Ok(Fetched {
        bytes,
        digest: layer.digest,
        manifest_digest: Some(manifest_digest),
        signed_by,
    })
}
