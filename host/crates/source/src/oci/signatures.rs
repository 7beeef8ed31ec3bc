//! Finds an artifact's signatures: under the tag `sha256-<digest>.sig`, and in bundles that refer to the manifest.

use std::collections::BTreeMap;

use innkeeper_model::{Digest, Retry};

use super::{
    manifest::{BlobDescriptor, MANIFEST_TYPE, OciManifest},
    registry::Registry,
};
use crate::{
    Expectation, Failure, FailureKind,
    error::{check_size, optional},
    signature,
};

/// The media type for a document that names a manifest.
pub(super) const SIMPLE_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation that holds such a document's signature.
pub(super) const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// The media type prefix for bundles; a version follows.
const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle";
/// The type that some registries return for every artifact, because they tell artifacts apart only by their
/// configurations.
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// The annotation with a bundle's subject.
const PREDICATE_ANNOTATION: &str = "dev.sigstore.bundle.predicateType";
/// Maximum number of checked signatures in each form: a client that may push can push any number.
const SIGNATURES_MAX: usize = 16;
/// Size limit for a document; real ones have a few hundred bytes.
const SIMPLE_BYTES_MAX: u64 = 64 * 1024;
/// Size limit for a bundle, which may hold transparency log proofs.
const BUNDLE_BYTES_MAX: u64 = 1024 * 1024;

/// The tag for a manifest's signatures.
pub(super) fn tag(manifest: &Digest) -> String {
    format!("sha256-{}.sig", manifest.to_hex())
}

/// Looks for an expected signature for the manifest, and returns the key.
pub(super) async fn check(
    registry: &mut Registry<'_>,
    manifest: &Digest,
    expectation: &Expectation,
) -> Result<Digest, Failure> {
    let tag = tag(manifest);
    let mut problem = Failure::unsigned(&format!("{tag}, or a bundle that refers to the manifest"));
    let mut signatures = Vec::new();
    let mut left_out = 0;
    let mut consider = |found: Vec<Signature>| {
        left_out += found.len().saturating_sub(SIGNATURES_MAX);
        signatures.extend(found.into_iter().take(SIGNATURES_MAX));
    };
    let beside = registry
        .manifest(&tag, MANIFEST_TYPE, "the signature")
        .await;
    if let Some((text, _)) = optional(beside)? {
        let layers = OciManifest::parse(&text)?.layers;
        let simple = layers
            .into_iter()
            .filter(|layer| layer.media_type == SIMPLE_TYPE);
        consider(simple.map(Signature::Simple).collect());
    }
    if let Some(text) = registry.referrers(manifest).await? {
        let referrers = OciManifest::parse(&text)?.manifests;
        let mut bundles: Vec<BlobDescriptor> =
            referrers.into_iter().filter(may_be_signature).collect();
        // Certain bundles come first, so that the limit drops uncertain ones.
        bundles.sort_by_key(|bundle| !is_bundle(bundle.artifact_type.as_deref()));
        consider(bundles.into_iter().map(Signature::Bundle).collect());
    }
    for candidate in signatures {
        match candidate.check(registry, manifest, expectation).await {
            Ok(Some(key)) => return Ok(key),
            Ok(None) => {}
            // A wrong signature does not hide a valid one.
            Err(failure) if failure.retry() == Retry::OnChange => problem = failure,
            // A signature that cannot be read now may be the valid one.
            Err(failure) => return Err(failure),
        }
    }
    if left_out == 0 {
        return Err(problem);
    }
    Err(problem.kind.failure(format!(
        "{problem}; {left_out} more signatures are not checked, because at most {SIGNATURES_MAX} of each form are: remove those by other keys"
    )))
}

enum Signature {
    /// The layer with the document.
    Simple(BlobDescriptor),
    /// The bundle's manifest.
    Bundle(BlobDescriptor),
}

impl Signature {
    /// Returns the key that signed; none if the candidate is not a signature.
    async fn check(
        &self,
        registry: &mut Registry<'_>,
        manifest: &Digest,
        expectation: &Expectation,
    ) -> Result<Option<Digest>, Failure> {
        match self {
            Self::Simple(layer) => {
                let signature = layer.annotations.get(SIGNATURE_ANNOTATION).ok_or_else(|| {
                    let problem = "a signature has no annotation that holds it";
                    FailureKind::BadSignature.failure(problem)
                })?;
                let document = small_blob(registry, layer, SIMPLE_BYTES_MAX).await?;
                signature::check_simple(&document, signature, manifest, expectation).map(Some)
            }
            Self::Bundle(descriptor) => {
                let version = descriptor.blob()?.digest.to_string();
                let (text, _) = registry
                    .manifest(&version, MANIFEST_TYPE, "the bundle")
                    .await?;
                let referrer = OciManifest::parse(&text)?;
                // Some registries list neither type nor annotations: only the manifest shows what this is.
                if !is_about_signing(&referrer.annotations) {
                    return Ok(None);
                }
                let mut layers = referrer.layers.iter();
                let Some(bundle) = layers.find(|layer| is_bundle(Some(&layer.media_type))) else {
                    return if is_bundle(descriptor.artifact_type.as_deref()) {
                        let problem = "a bundle has no layer that holds it";
                        Err(FailureKind::BadSignature.failure(problem))
                    } else {
                        Ok(None)
                    };
                };
                let bundle = small_blob(registry, bundle, BUNDLE_BYTES_MAX).await?;
                signature::check_bundle(&bundle, None, manifest, expectation).map(Some)
            }
        }
    }
}

/// Returns true if a list entry is a bundle or may be one, unless the annotations name another subject.
fn may_be_signature(descriptor: &BlobDescriptor) -> bool {
    let kind = descriptor.artifact_type.as_deref();
    let is_unknown = kind.is_none_or(|kind| kind == EMPTY_TYPE);
    (is_bundle(kind) || is_unknown) && is_about_signing(&descriptor.annotations)
}

fn is_bundle(kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| kind.starts_with(BUNDLE_TYPE))
}

/// Returns true unless the annotations name another subject: bundles also contain software bills of materials.
fn is_about_signing(annotations: &BTreeMap<String, String>) -> bool {
    annotations
        .get(PREDICATE_ANNOTATION)
        .is_none_or(|about| about == signature::SIGNED)
}

async fn small_blob(
    registry: &mut Registry<'_>,
    descriptor: &BlobDescriptor,
    bytes_max: u64,
) -> Result<Vec<u8>, Failure> {
    let blob = descriptor.blob()?;
    check_size("the signature", blob.size, bytes_max)?;
    registry.blob(&blob, "the signature").await
}
