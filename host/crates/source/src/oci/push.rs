//! Pushes plugins and their signatures to a registry.

use std::collections::BTreeMap;

use ::http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, LOCATION},
};
use bytes::Bytes;
use innkeeper_model::Digest;
use serde_json::json;

use super::{
    manifest::{BlobDescriptor, MANIFEST_TYPE, OciManifest},
    registry::{ManifestAnswer, Registry},
    signatures::{self, SIGNATURE_ANNOTATION, SIMPLE_TYPE},
};
use crate::{Failure, Oci, SigningKey, signature, transport::shown};

/// The configuration of an artifact that is WebAssembly.
const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
/// The type of an image configuration, as cosign uses it for signatures.
const IMAGE_CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
/// The layer of an artifact that is WebAssembly.
const LAYER_TYPE: &str = "application/wasm";
/// The constant time of all artifacts, so that the same bytes have the same manifest. Readers require a time.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// The title of an artifact; of a layer, the file name that clients use for it.
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
    /// The digest of the plugin's bytes.
    pub digest: Digest,
    /// The digest of the manifest.
    pub manifest_digest: Digest,
}

/// Pushes a plugin: layer, configuration, and the manifest last, so that it never refers to a missing blob.
pub(crate) async fn push(
    registry: &mut Registry<'_>,
    target: &Oci,
    package: &Package,
) -> Result<Pushed, Failure> {
    let (Some(tag), None) = (target.reference.tag(), target.reference.digest()) else {
        return Err(Failure::Target {
            problem: "a plugin is pushed to a tag: name one, and no digest",
        });
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
    let config = Bytes::from(config.to_string());
    let manifest = manifest(
        BlobDescriptor::new(CONFIG_TYPE, &config),
        vec![layer],
        annotations.clone(),
    )?;
    push_blob(registry, Bytes::from(bytes.clone())).await?;
    push_blob(registry, config).await?;
    push_manifest(registry, tag, manifest.clone()).await?;
    Ok(Pushed {
        digest: Digest::of(bytes),
        manifest_digest: Digest::of(&manifest),
    })
}

/// Adds a signature to those of a manifest, unless the key has already signed it.
///
/// If two clients sign at the same moment, one signature may be lost and must be made again: registries cannot append
/// to a manifest.
pub(crate) async fn sign(
    registry: &mut Registry<'_>,
    target: &Oci,
    signed: &Digest,
    key: &SigningKey,
) -> Result<(), Failure> {
    let keys = [key.public()];
    match signatures::check(registry, signed, &keys).await {
        Ok(_) => return Ok(()),
        Err(Failure::Unsigned { .. } | Failure::BadSignature { .. }) => {}
        Err(failure) => return Err(failure),
    }
    let tag = signatures::tag(signed);
    let found = registry
        .manifest(&tag, MANIFEST_TYPE, "the signature")
        .await?;
    let mut layers = match found {
        ManifestAnswer::Manifest(text, _) => OciManifest::parse(&text)?.layers,
        ManifestAnswer::Nothing(_) => Vec::new(),
    };
    let document = Bytes::from(signature::simple(&target.reference, signed));
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
    let config = Bytes::from(config.to_string());
    let manifest = manifest(
        BlobDescriptor::new(IMAGE_CONFIG_TYPE, &config),
        layers,
        BTreeMap::new(),
    )?;
    push_blob(registry, document).await?;
    push_blob(registry, config).await?;
    push_manifest(registry, &tag, manifest).await
}

fn manifest(
    config: BlobDescriptor,
    layers: Vec<BlobDescriptor>,
    annotations: BTreeMap<String, String>,
) -> Result<Bytes, Failure> {
    let manifest = OciManifest {
        schema_version: 2,
        media_type: Some(MANIFEST_TYPE.to_owned()),
        artifact_type: None,
        config: Some(config),
        layers,
        manifests: Vec::new(),
        annotations,
    };
    let text = serde_json::to_vec(&manifest).map_err(|source| Failure::Malformed {
        what: "the manifest",
        source,
    })?;
    Ok(Bytes::from(text))
}

/// Uploads a blob that the registry does not have, in one piece.
async fn push_blob(registry: &mut Registry<'_>, bytes: Bytes) -> Result<(), Failure> {
    let digest = Digest::of(&bytes);
    let url = registry.url(&format!("blobs/{digest}"))?;
    let answer = registry
        .call(Method::HEAD, url, HeaderMap::new(), Bytes::new())
        .await?;
    if answer.status() == StatusCode::OK {
        return Ok(());
    }
    let url = registry.url("blobs/uploads/")?;
    let answer = registry
        .call(Method::POST, url, HeaderMap::new(), Bytes::new())
        .await?;
    if answer.status() != StatusCode::ACCEPTED {
        return Err(answer.refusal("the repository").await);
    }
    let location = answer
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok());
    let upload = location.and_then(|location| answer.url().join(location).ok());
    let Some(mut upload) = upload else {
        return Err(Failure::Protocol {
            url: shown(answer.url().as_str()),
            problem: "it does not say where to upload to",
        });
    };
    upload
        .query_pairs_mut()
        .append_pair("digest", &digest.to_string());
    let octets = HeaderValue::from_static("application/octet-stream");
    put(registry, upload, octets, bytes, "the upload").await
}

async fn push_manifest(registry: &mut Registry<'_>, tag: &str, text: Bytes) -> Result<(), Failure> {
    let url = registry.url(&format!("manifests/{tag}"))?;
    let kind = HeaderValue::from_static(MANIFEST_TYPE);
    put(registry, url, kind, text, "the repository").await
}

async fn put(
    registry: &mut Registry<'_>,
    url: reqwest::Url,
    content_type: HeaderValue,
    body: Bytes,
    what: &'static str,
) -> Result<(), Failure> {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
    let answer = registry.call(Method::PUT, url, headers, body).await?;
    if answer.status() == StatusCode::CREATED {
        Ok(())
    } else {
        Err(answer.refusal(what).await)
    }
}
