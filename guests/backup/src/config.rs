//! The configuration of the plugin.

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the administrator for all parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents without one.
    pub(crate) images: Images,
    /// Requests and limits of the run for parents without any. Default: requests of cpu 100m and memory
    /// 128Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_resources: Option<ResourceRequirements>,
    /// Secrets for pulling images, for parents without any.
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
}

/// Images for parents without one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// Image with gobackup and the client programs of the databases.
    pub(crate) gobackup: String,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            gobackup: "huacnlee/gobackup:latest".to_owned(),
        }
    }
}
