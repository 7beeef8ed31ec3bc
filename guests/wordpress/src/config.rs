//! The plugin's configuration.

use innkeeper_kit::{
    image,
    pod::{PodMetadataLists, ServiceType},
    tenants::ReferenceScope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of an administrator for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents without an image.
    pub(crate) images: Images,
    /// The class of Ingresses for parents without a class; the cluster's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ingress_class_name: Option<String>,
    /// True if pods state user and group; false if the cluster assigns them, as OpenShift does.
    pub(crate) assign_user: bool,
    /// Limits for those who create parents.
    pub(crate) tenants: Tenants,
}

/// Limits for those who create parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Tenants {
    /// Repositories whose images parents may name; an entry that ends with a slash stands for all that
    /// start with it. Empty: any image.
    #[schemars(inner(regex(pattern = image::REPOSITORIES)))]
    pub(crate) images: Vec<String>,
    /// Annotations that parents may set on their Ingress; an entry that ends with a slash stands for all
    /// that start with it. Empty: none.
    pub(crate) ingress_annotations: Vec<String>,
    /// Keys of labels and annotations that parents may set on the Pods of their site.
    pub(crate) pod_metadata: PodMetadataLists,
    /// Annotations that parents may set on their Service; an entry that ends with a slash stands for all
    /// that start with it. Empty: none.
    pub(crate) service_annotations: Vec<String>,
    /// Types that parents may state for their Service, besides ClusterIP. Empty: none; a parent without
    /// routes and without a type has NodePort.
    pub(crate) service_types: Vec<ServiceType>,
    /// True if parents may state code that the Pods run: configExtra, any setting of PHP and MySQL, and
    /// any variable.
    pub(crate) scripts: bool,
    /// Secrets and claims that parents may name: shared (their own, those of no parent, and those with
    /// the annotation innkeeper.dev/shared-with) or namespace (all of their namespace).
    pub(crate) references: ReferenceScope,
}

/// Images for parents without an image.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// The image of the site.
    #[schemars(regex(pattern = image::REFERENCE))]
    pub(crate) wordpress: String,
    /// The image of the database.
    #[schemars(regex(pattern = image::REFERENCE))]
    pub(crate) mysql: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images::default(),
            ingress_class_name: None,
            assign_user: true,
            tenants: Tenants::default(),
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
