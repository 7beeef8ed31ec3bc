//! Plugins as artifacts in registries: pull, push and signatures.
//!
//! The layout is that of the CNCF for WebAssembly: an image manifest with the configuration
//! `application/vnd.wasm.config.v0+json` and one layer `application/wasm`.
//! Other tools write, or wrote, other media types; they are read as long as exactly one layer is WebAssembly.

mod manifest;
mod push;
mod reference;
mod registry;
mod signatures;
mod token;

use self::{manifest::OciManifest, registry::ARTIFACT_TYPES};
pub use self::{
    push::{Package, Pushed},
    reference::{InvalidReference, Reference},
};
pub(super) use self::{
    push::{push, sign},
    registry::Registry,
};
use super::{Expectation, Failure, Fetched, Oci};

/// The name of the layer in errors.
const PLUGIN: &str = "the plugin";

/// Pulls a plugin: first the manifest, then the signatures, then the layer.
///
/// Signatures are checked before the layer is read: it may be large.
pub(super) async fn fetch(
    registry: &mut Registry<'_>,
    oci: &Oci,
    expectation: &Expectation,
    bytes_max: u64,
) -> Result<Fetched, Failure> {
    let (text, manifest_digest) = registry
        .manifest(&oci.reference.version(), ARTIFACT_TYPES, "the artifact")
        .await?
        .into_found()?;
    let layer = OciManifest::parse(&text)?.plugin()?;
    super::check_digest(&layer.digest, expectation)?;
    if layer.size > bytes_max {
        return Err(Failure::TooLarge {
            what: PLUGIN,
            max: bytes_max,
        });
    }
    let signed_by = if expectation.keys.is_empty() {
        None
    } else {
        Some(signatures::check(registry, &manifest_digest, &expectation.keys).await?)
    };
    let bytes = registry.blob(&layer.digest, PLUGIN, layer.size).await?;
    Ok(Fetched {
        bytes,
        digest: layer.digest,
        manifest_digest: Some(manifest_digest),
        signed_by,
    })
}
