//! The plugin's configuration.

use innkeeper_kit::prelude::*;

/// The administrator's settings for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents without an image.
    pub(crate) images: Images,
    /// Ingress class for parents without a class; the cluster's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ingress_class_name: Option<String>,
    /// Sets user and group on Pods; false lets the cluster assign them, as on OpenShift.
    pub(crate) assign_user: bool,
    /// Restrictions on parents.
    pub(crate) tenants: Tenants,
}

/// Restrictions on parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Tenants {
    /// Repositories whose images parents may use; an entry with a trailing slash matches everything below it. Empty:
    /// any image.
    #[schemars(inner(regex(pattern = image::REPOSITORIES)))]
    pub(crate) images: Vec<String>,
    /// Annotations that parents may set on their Ingress; an entry with a trailing slash matches all keys with that
    /// prefix. Empty: none.
    pub(crate) ingress_annotations: Vec<String>,
    /// Label and annotation keys that parents may set on their site's Pods.
    pub(crate) pod_metadata: PodMetadataLists,
    /// Annotations that parents may set on their Service; an entry with a trailing slash matches all keys with that
    /// prefix. Empty: none.
    pub(crate) service_annotations: Vec<String>,
    /// Service types that parents may set besides ClusterIP. Empty: none; a parent without routes and type still gets
    /// NodePort.
    pub(crate) service_types: Vec<ServiceType>,
    /// Allows parents to set code that Pods run: configExtra, any PHP and MySQL setting, and any variable.
    pub(crate) scripts: bool,
    /// Secrets and claims that parents may reference: shared (their own, unowned ones, and those with the annotation
    /// innkeeper.dev/shared-with) or namespace (all in their namespace).
    pub(crate) references: ReferenceScope,
}

/// Images for parents without an image.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// Site image.
    #[schemars(regex(pattern = image::REFERENCE))]
    pub(crate) wordpress: String,
    /// Database image.
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
