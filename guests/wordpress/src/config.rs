//! The plugin's configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an administrator sets for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents that name none.
    pub(crate) images: Images,
    /// The class of Ingresses for parents that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ingress_class_name: Option<String>,
    /// Whether pods state user and group; false where the cluster assigns them, as OpenShift does.
    pub(crate) assign_user: bool,
}

/// Images for parents that name none.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// The site.
    pub(crate) wordpress: String,
    /// The database.
    pub(crate) mysql: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images::default(),
            ingress_class_name: None,
            assign_user: true,
        }
    }
}

impl Default for Images {
    fn default() -> Self {
        Self {
            wordpress: "wordpress:7.1-apache".to_owned(),
            mysql: "mysql:8.4".to_owned(),
        }
    }
}
