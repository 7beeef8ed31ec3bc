//! The plugin's configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an administrator sets for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents that name none.
    pub(crate) images: Images,
    /// Whether pods state user and group; false where the cluster assigns them, as OpenShift does.
    pub(crate) assign_user: bool,
}

/// Images for parents that name none.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// The cache itself.
    pub(crate) memcached: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images::default(),
            assign_user: true,
        }
    }
}

impl Default for Images {
    fn default() -> Self {
        Self {
            memcached: "memcached:1.6".to_owned(),
        }
    }
}
