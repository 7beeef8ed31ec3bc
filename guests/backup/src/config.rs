//! The plugin's configuration.

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an administrator sets for all parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents that name none.
    pub(crate) images: Images,
    /// Requests and limits for parents that give none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_resources: Option<ResourceRequirements>,
    /// Secrets for pulling images, for parents that name none.
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
}

/// Images for parents that name none.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// gobackup with the clients of the databases.
    pub(crate) gobackup: String,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            gobackup: "huacnlee/gobackup:latest".to_owned(),
        }
    }
}
