//! The configuration of the plugin.

use innkeeper_sdk::tenants::ReferenceScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the administrator for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images of the plugin.
    pub(crate) images: Images,
    /// Repository of the images for `spec.version`, without a tag.
    pub(crate) image_repository: String,
    /// Limits for those who create parents.
    pub(crate) tenants: Tenants,
}

/// Limits for those who create parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Tenants {
    /// Repositories whose images parents may name; an entry that ends with a slash stands for all that
    /// start with it. Empty: any image.
    pub(crate) images: Vec<String>,
    /// Secrets and claims that parents may use: shared (their own, those of no parent, and those with
    /// the annotation innkeeper.dev/shared-with) or namespace (all of their namespace).
    pub(crate) references: ReferenceScope,
}

/// Images of the plugin.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// Image of etcd for parents with neither image nor version.
    pub(crate) etcd: String,
    /// Image of the init container; it must contain a static `/bin/busybox`.
    pub(crate) tools: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images::default(),
            image_repository: "quay.io/coreos/etcd".to_owned(),
            tenants: Tenants::default(),
        }
    }
}

impl Default for Images {
    fn default() -> Self {
        Self {
            etcd: "quay.io/coreos/etcd:v3.6.14".to_owned(),
            tools: "busybox:1.37.0-musl".to_owned(),
        }
    }
}
