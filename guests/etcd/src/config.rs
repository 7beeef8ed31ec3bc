//! The plugin's configuration.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;

/// The administrator's settings for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// The plugin's images.
    pub(crate) images: Images,
    /// Image repository for `spec.version`, without a tag.
    #[schemars(regex(pattern = image::REPOSITORY))]
    pub(crate) image_repository: String,
    /// The Kubernetes cluster's domain, for names in certificates.
    pub(crate) cluster_domain: String,
    /// Restrictions on parents.
    pub(crate) tenants: Tenants,
    /// ServiceMonitor settings.
    pub(crate) monitoring: Monitoring,
}

/// ServiceMonitor settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Monitoring {
    /// Labels for each ServiceMonitor, such as those with which Prometheus selects them.
    pub(crate) labels: BTreeMap<String, String>,
}

/// Restrictions on parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Tenants {
    /// Repositories whose images parents may use; an entry with a trailing slash matches everything below it. Empty:
    /// any image.
    #[schemars(inner(regex(pattern = image::REPOSITORIES)))]
    pub(crate) images: Vec<String>,
    /// Flags that parents may set in options, besides those that involve no file and no address and keep the data,
    /// such as `log-outputs`. Empty: none.
    pub(crate) options: Vec<String>,
    /// Label and annotation keys that parents may set on their members' Pods.
    pub(crate) pod_metadata: PodMetadataLists,
    /// Taint keys that parents may let their Pods tolerate; an entry with a trailing slash matches all keys with that
    /// prefix, and * allows a toleration without a key, which tolerates every taint. Empty: none.
    pub(crate) tolerations: Vec<String>,
    /// PriorityClasses that parents may use. Empty: none.
    pub(crate) priority_classes: Vec<String>,
    /// Annotations that parents may set on their Services; an entry with a trailing slash matches all keys with that
    /// prefix. Empty: none.
    pub(crate) service_annotations: Vec<String>,
    /// Types that parents may set for their client Service, besides ClusterIP. Empty: none.
    pub(crate) service_types: Vec<ServiceType>,
    /// Names of ClusterIssuers, and of issuers outside the group cert-manager.io, that parents may use. Empty: none.
    pub(crate) cluster_issuers: Vec<String>,
    /// Secrets and claims that parents may use: shared (their own, unowned ones, and those with the annotation
    /// innkeeper.dev/shared-with) or namespace (all in their namespace).
    pub(crate) references: ReferenceScope,
}

impl Tenants {
    /// The restrictions on Pod metadata and placement.
    pub(crate) fn pod_template(&self) -> PodTemplateLists<'_> {
        PodTemplateLists {
            metadata: &self.pod_metadata,
            tolerations: &self.tolerations,
            priority_classes: &self.priority_classes,
        }
    }
}

/// The plugin's images.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// etcd image for parents with neither image nor version.
    #[schemars(regex(pattern = image::REFERENCE))]
    pub(crate) etcd: String,
    /// Image of the init container; it must contain a static `/bin/busybox`.
    #[schemars(regex(pattern = image::REFERENCE))]
    pub(crate) tools: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images::default(),
            image_repository: "quay.io/coreos/etcd".to_owned(),
            cluster_domain: "cluster.local".to_owned(),
            tenants: Tenants::default(),
            monitoring: Monitoring::default(),
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
