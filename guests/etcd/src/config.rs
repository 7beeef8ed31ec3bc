//! The configuration of the plugin.

use std::collections::BTreeMap;

use innkeeper_kit::{
    image,
    placement::PodTemplateLists,
    pod::{PodMetadataLists, ServiceType},
    tenants::ReferenceScope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the administrator for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images of the plugin.
    pub(crate) images: Images,
    /// Repository of the images for `spec.version`, without a tag.
    #[schemars(regex(pattern = image::REPOSITORY))]
    pub(crate) image_repository: String,
    /// Domain of the Kubernetes cluster, in the names of certificates.
    pub(crate) cluster_domain: String,
    /// Limits for those who create parents.
    pub(crate) tenants: Tenants,
    /// Settings of ServiceMonitors.
    pub(crate) monitoring: Monitoring,
}

/// Settings of ServiceMonitors.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Monitoring {
    /// Labels of each ServiceMonitor, such as those by which Prometheus selects them.
    pub(crate) labels: BTreeMap<String, String>,
}

/// Limits for those who create parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Tenants {
    /// Repositories whose images parents may name; an entry that ends with a slash stands for all that
    /// start with it. Empty: any image.
    #[schemars(inner(regex(pattern = image::REPOSITORIES)))]
    pub(crate) images: Vec<String>,
    /// Flags that parents may state in options, besides those that name no file and no address and keep the data:
    /// `log-outputs` for example. Empty: none.
    pub(crate) options: Vec<String>,
    /// Keys of labels and annotations that parents may set on the Pods of their members.
    pub(crate) pod_metadata: PodMetadataLists,
    /// Keys of taints that the Pods may tolerate if parents say so; an entry that ends with a slash stands for
    /// all that start with it, and * for a toleration without a key, which tolerates each taint. Empty: none.
    pub(crate) tolerations: Vec<String>,
    /// PriorityClasses that parents may name. Empty: none.
    pub(crate) priority_classes: Vec<String>,
    /// Annotations that parents may set on their Services; an entry that ends with a slash stands for all
    /// that start with it. Empty: none.
    pub(crate) service_annotations: Vec<String>,
    /// Types that parents may state for their client Service, besides ClusterIP. Empty: none.
    pub(crate) service_types: Vec<ServiceType>,
    /// Names of ClusterIssuers, and of issuers of other groups than cert-manager.io, that parents may use. Empty:
    /// none.
    pub(crate) cluster_issuers: Vec<String>,
    /// Secrets and claims that parents may use: shared (their own, those of no parent, and those with
    /// the annotation innkeeper.dev/shared-with) or namespace (all of their namespace).
    pub(crate) references: ReferenceScope,
}

impl Tenants {
    /// The limits for the metadata and the placement of Pods.
    pub(crate) fn pod_template(&self) -> PodTemplateLists<'_> {
        PodTemplateLists {
            metadata: &self.pod_metadata,
            tolerations: &self.tolerations,
            priority_classes: &self.priority_classes,
        }
    }
}

/// Images of the plugin.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// Image of etcd for parents with neither image nor version.
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
