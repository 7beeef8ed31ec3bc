//! Manifests, as far as plugins need them.

use std::collections::BTreeMap;

use innkeeper_model::Digest;
use serde::{Deserialize, Serialize};

use crate::{Failure, FailureKind};

/// Media type for an artifact manifest.
pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type for a manifest list.
pub(super) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// A manifest or a manifest list.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OciManifest {
    pub(super) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<BlobDescriptor>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) layers: Vec<BlobDescriptor>,
    /// The manifests in a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) manifests: Vec<BlobDescriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// The reference to a blob in a manifest, or to a manifest in a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlobDescriptor {
    pub(super) media_type: String,
    /// As text: an unused part may have a digest with another algorithm.
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// A blob that can be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) digest: Digest,
    /// In bytes.
    pub(super) size: u64,
}

impl OciManifest {
    pub(super) fn parse(text: &[u8]) -> Result<Self, Failure> {
        // The whole parse error would quote the text, which the server chose.
        serde_json::from_slice(text).map_err(|error| {
            let line = error.line();
            let column = error.column();
            FailureKind::ArtifactMalformed.failure(format!(
                "failed to parse the manifest: no JSON of a manifest at line {line} column {column}"
            ))
        })
    }

    /// Returns the only WebAssembly layer.
    pub(super) fn plugin(&self) -> Result<Blob, Failure> {
        let joined = |descriptors: &[BlobDescriptor], part: fn(&BlobDescriptor) -> &str| {
            descriptors.iter().map(part).collect::<Vec<_>>().join(", ")
        };
        if !self.manifests.is_empty() {
            let digests = joined(&self.manifests, |entry| &entry.digest);
            return Err(Failure::not_a_plugin(&format!(
                "it is a list of other artifacts, name one of them by its digest: {digests}"
            )));
        }
        let mut wasm = self.layers.iter().filter(|layer| layer.is_wasm());
        match (wasm.next(), wasm.next()) {
            (Some(layer), None) => layer.blob(),
            (Some(_), Some(_)) => Err(Failure::not_a_plugin(
                "it has several layers of WebAssembly: push one alone",
            )),
            (None, _) => {
                let types = joined(&self.layers, |layer| &layer.media_type);
                let media_types = if types.is_empty() { "no layer" } else { &types };
                Err(Failure::not_a_plugin(&format!(
                    "it has no layer application/wasm, it has {media_types}"
                )))
            }
        }
    }
}

impl BlobDescriptor {
    pub(super) fn new(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::hash(bytes).to_string(),
            size: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            artifact_type: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Returns the blob, if its digest can be checked.
    pub(super) fn blob(&self) -> Result<Blob, Failure> {
        let digest = self.digest.parse().map_err(|invalid| {
            Failure::not_a_plugin(&format!("a part of it cannot be checked: {invalid}"))
        })?;
        Ok(Blob {
            digest,
            size: self.size,
        })
    }

    /// `application/wasm` and its predecessors: `application/vnd.wasm.content.layer.v1+wasm` and others.
    fn is_wasm(&self) -> bool {
        matches!(
            self.media_type.strip_prefix("application/"),
            Some(subtype) if subtype == "wasm" || subtype.ends_with("+wasm")
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        /// Any text from a registry is either an error or a layer that can be checked.
        #[test]
        fn no_manifest_is_a_panic(
            text in proptest::collection::vec(any::<u8>(), 0..200),
            size in any::<u64>(),
            kind in "(application/(.{0,9}\\+)?wasm|.{0,40})",
            digest in "(sha256:[0-9a-f]{63,65}|.{0,20})",
        ) {
            prop_assert!(OciManifest::parse(&text).is_err());
            let layer = json!({"mediaType": kind, "digest": digest, "size": size});
            let text = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
            if let Ok(found) = OciManifest::parse(text.as_bytes()).and_then(|manifest| manifest.plugin()) {
                prop_assert!(kind.ends_with("wasm"));
                prop_assert_eq!(found.digest.to_string(), digest);
                prop_assert_eq!(found.size, size);
            }
        }
    }
}
