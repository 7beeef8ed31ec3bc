//! The plugin's configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an administrator sets for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images.
    pub(crate) images: Images,
    /// Where the images of `spec.version` are found, without tag.
    pub(crate) image_repository: String,
}

/// Images.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// For parents that name neither image nor version.
    pub(crate) etcd: String,
    /// Must hold a static `/bin/busybox`.
    pub(crate) tools: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images::default(),
            image_repository: "quay.io/coreos/etcd".to_owned(),
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
