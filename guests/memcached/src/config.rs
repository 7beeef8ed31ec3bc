//! The plugin's configuration.

use innkeeper_kit::prelude::*;

/// The administrator's settings for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents without `spec.image`.
    pub(crate) images: Images,
    /// Sets user and group on Pods; false lets the cluster assign them, as on OpenShift.
    pub(crate) assign_user: bool,
    /// Restrictions on parents.
    pub(crate) tenants: Tenants,
}

/// Restrictions on parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Tenants {
    /// Repositories whose images parents may name; an entry that ends with a slash stands for all that
    /// start with it. Empty: any image.
    #[schemars(inner(regex(pattern = image::REPOSITORIES)))]
    pub(crate) images: Vec<String>,
    /// Options that parents may state in memcached.extraArgs, besides those that reach nothing outside of memcached: `-e`,
    /// `--memory-file`, or `ext_path` for one in the value of `-o`. Each may read, write or run files. Empty: none.
    pub(crate) extra_args: Vec<String>,
    /// Annotations that parents may set on their Service; an entry that ends with a slash stands for all
    /// that start with it. Empty: none.
    pub(crate) service_annotations: Vec<String>,
}

/// Images for parents without `spec.image`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// The image of memcached.
    #[schemars(regex(pattern = image::REFERENCE))]
    pub(crate) memcached: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images::default(),
            assign_user: true,
            tenants: Tenants::default(),
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
