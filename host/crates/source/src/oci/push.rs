//! Pushes plugins and their signatures to a registry.

use std::collections::BTreeMap;

use ::http::{Method, StatusCode, header::LOCATION};
use innkeeper_model::Digest;
use serde_json::{Value, json};

use super::{
    manifest::{BlobDescriptor, MANIFEST_TYPE, OciManifest},
    registry::Registry,
    signatures::{self, SIGNATURE_ANNOTATION, SIMPLE_TYPE},
};
use crate::{
    Expectation, Failure, FailureKind, Oci, SigningKey,
    error::optional,
    signature,
    transport::{Call, Transport},
};

/// Configuration media type for a WebAssembly artifact.
const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
/// Image configuration media type, as cosign uses it for signatures.
const IMAGE_CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
/// Layer media type for a WebAssembly artifact.
const LAYER_TYPE: &str = "application/wasm";
/// The same time in all artifacts, so the same bytes have the same manifest. Readers require a time.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// An artifact's title; for a layer, the file name in clients.
const TITLE_ANNOTATION: &str = "org.opencontainers.image.title";

/// A plugin to be pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// The component.
    pub bytes: Vec<u8>,
    /// The imported interfaces, for searches in a registry.
    pub imports: Vec<String>,
    /// The interfaces that it exports.
    pub exports: Vec<String>,
    /// The annotations: `org.opencontainers.image.version` and others.
    pub annotations: BTreeMap<String, String>,
}

/// A pushed artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The digest for the plugin's bytes.
    pub digest: Digest,
    /// The manifest digest.
    pub manifest_digest: Digest,
}

/// Pushes a plugin.
pub(crate) async fn push(
    transport: &Transport,
    target: &Oci,
    package: &Package,
) -> Result<Pushed, Failure> {
    let (Some(tag), None) = (target.reference.tag(), target.reference.digest()) else {
        let problem = "a plugin is pushed to a tag: name one, and no digest";
        return Err(FailureKind::SourceInvalid.failure(problem));
    };
    let Package {
        bytes,
        imports,
        exports,
        annotations,
    } = package;
    let mut layer = BlobDescriptor::new(LAYER_TYPE, bytes);
    if let Some(title) = annotations.get(TITLE_ANNOTATION) {
        let file = format!("{title}.wasm");
        layer.annotations.insert(TITLE_ANNOTATION.to_owned(), file);
    }
    let config = json!({
        "created": CREATED,
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [layer.digest],
        "component": {"imports": imports, "exports": exports, "target": null},
    });
    let mut registry = Registry::open(transport, target, None, "pull,push")?;
    push_blob(&mut registry, bytes.clone()).await?;
    let annotations = annotations.clone();
    let manifest_digest = push_manifest(
        &mut registry,
        tag,
        (CONFIG_TYPE, config),
        vec![layer],
        annotations,
    )
    .await?;
    Ok(Pushed {
        digest: Digest::hash(bytes),
        manifest_digest,
    })
}

/// Adds a signature to a manifest, unless the key has already signed it for the repository.
///
/// If two clients sign at the same moment, one signature may be lost and must be made again: registries cannot append
/// to a manifest.
pub(crate) async fn sign(
    transport: &Transport,
    target: &Oci,
    repository: &str,
    signed: &Digest,
    key: &SigningKey,
) -> Result<(), Failure> {
    let mut registry = Registry::open(transport, target, None, "pull,push")?;
    let expectation = Expectation {
        digest: None,
        keys: vec![key.public()],
        repository: Some(repository.to_owned()),
    };
    match signatures::check(&mut registry, signed, &expectation).await {
        Ok(_) => return Ok(()),
        Err(failure) => match failure.kind {
            FailureKind::Unsigned | FailureKind::BadSignature => {}
            _ => return Err(failure),
        },
    }
    let tag = signatures::tag(signed);
    let existing = registry
        .manifest(&tag, MANIFEST_TYPE, "the signature")
        .await;
    let mut layers = match optional(existing)? {
        Some((text, _)) => OciManifest::parse(&text)?.layers,
        None => Vec::new(),
    };
    let document = signature::simple(repository, signed);
    let mut layer = BlobDescriptor::new(SIMPLE_TYPE, &document);
    let signature = key.sign(&document)?;
    layer
        .annotations
        .insert(SIGNATURE_ANNOTATION.to_owned(), signature);
    layers.push(layer);

    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.digest.as_str()).collect();
    let config = json!({
        "created": CREATED,
        "architecture": "",
        "os": "",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    push_blob(&mut registry, document).await?;
    let config = (IMAGE_CONFIG_TYPE, config);
    push_manifest(&mut registry, &tag, config, layers, BTreeMap::new()).await?;
    Ok(())
}

/// Pushes a configuration, and then the manifest with layers that were pushed before, so the manifest never refers to a
/// missing blob. Returns the manifest digest.
async fn push_manifest(
    registry: &mut Registry<'_>,
    tag: &str,
    (config_type, config): (&str, Value),
    layers: Vec<BlobDescriptor>,
    annotations: BTreeMap<String, String>,
) -> Result<Digest, Failure> {
    let config = config.to_string().into_bytes();
    let manifest = OciManifest {
        schema_version: 2,
        media_type: Some(MANIFEST_TYPE.to_owned()),
        config: Some(BlobDescriptor::new(config_type, &config)),
        layers,
        annotations,
        ..OciManifest::default()
    };
    push_blob(registry, config).await?;
    let text = serde_json::to_vec(&manifest).map_err(|source| {
        FailureKind::ArtifactMalformed.because("failed to write the manifest", source)
    })?;
    let digest = Digest::hash(&text);
    let call = Call::new(Method::PUT, registry.url(&format!("manifests/{tag}"))?);
    upload(registry, call.body(MANIFEST_TYPE, text), "the repository").await?;
    Ok(digest)
}

/// Uploads a blob that the registry does not have, in one piece.
async fn push_blob(registry: &mut Registry<'_>, bytes: Vec<u8>) -> Result<(), Failure> {
    let digest = Digest::hash(&bytes);
    let call = Call::new(Method::HEAD, registry.url(&format!("blobs/{digest}"))?);
    // A plugin that is pushed again, or signed by another key, sends no blob twice.
    if registry.call(call).await?.status() == StatusCode::OK {
        return Ok(());
    }
    let call = Call::new(Method::POST, registry.url("blobs/uploads/")?);
    let answer = registry.call(call).await?;
    if answer.status() != StatusCode::ACCEPTED {
        return Err(answer.refusal("the repository"));
    }
    let location = answer
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        // The specification allows a relative address.
        .and_then(|location| answer.url().join(location).ok());
    let Some(mut url) = location else {
        let problem = "it does not say where to upload to";
        return Err(Failure::protocol(answer.url(), problem));
    };
    // Added, because a registry may keep the upload's state in the query.
    url.query_pairs_mut()
        .append_pair("digest", &digest.to_string());
    let call = Call::new(Method::PUT, url).body("application/octet-stream", bytes);
    upload(registry, call, "the upload").await
}

async fn upload(registry: &mut Registry<'_>, call: Call, what: &str) -> Result<(), Failure> {
    let answer = registry.call(call).await?;
    if answer.status() == StatusCode::CREATED {
        Ok(())
    } else {
        Err(answer.refusal(what))
    }
}
