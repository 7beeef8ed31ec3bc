//! One cluster's names, addresses, labels, Secrets and image.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;

use crate::{
    api::{EtcdClusterSpec, Medium},
    config::Config,
    secrets::Secrets,
    version::Version,
};

/// The label on every child and Pod: the cluster's name.
pub(crate) const CLUSTER_LABEL: &str = "etcd.ydzs.io/cluster";

/// The label on every claim and the annotation on the StatefulSet: the number of members. It survives a lost record, and
/// an adoption needs every member's claim.
pub(crate) const MEMBERS_LABEL: &str = "etcd.ydzs.io/members";

/// The label on every claim: the UID of the parent that created it.
pub(crate) const CLUSTER_UID_LABEL: &str = "etcd.ydzs.io/cluster-uid";

/// The annotation on the StatefulSet and every claim: the cluster is formed. It survives a lost record and status.
pub(crate) const FORMED: &str = "etcd.ydzs.io/formed";

/// The annotation on a parent and its members' Pods: a new value restarts them one by one.
pub(crate) const RESTART_TRIGGER: &str = "etcd.ydzs.io/restart-trigger";

/// The annotation on a parent: `true` lets a rollout continue while another member is down, which can cost the quorum.
const ALLOW_UNSAFE_ROLLOUT: &str = "etcd.ydzs.io/allow-unsafe-rollout";

/// The largest size that the CRD accepts.
pub(crate) const MEMBERS_MAX: i32 = 9;

/// One cluster: the parent, and values derived from it alone.
#[derive(Clone)]
pub(crate) struct Cluster<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) spec: &'a EtcdClusterSpec,
    pub(crate) config: &'a Config,
    /// The certificate Secrets.
    pub(crate) secrets: Secrets,
    /// The members' image.
    pub(crate) image: String,
    /// The version in the spec, otherwise the one in the image's tag; `None` if the tag has none.
    pub(crate) target: Option<Version>,
    /// The version of `image` while the members write snapshots for an upgrade from it.
    pub(crate) preparing: Option<Version>,
    /// The value of the parent's annotation that restarts the members.
    pub(crate) restart_trigger: Option<&'a str>,
    /// True if the user lets a rollout continue while another member is down.
    pub(crate) allows_unsafe_rollout: bool,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(request: &'a Request, spec: &'a EtcdClusterSpec, config: &'a Config) -> Self {
        let image = match (&spec.image, &spec.version) {
            (Some(image), _) => image.clone(),
            (None, Some(version)) => {
                format!(
                    "{}:v{}",
                    config.image_repository,
                    version.trim_start_matches('v')
                )
            }
            (None, None) => config.images.etcd.clone(),
        };
        let stated = spec.version.as_deref().and_then(Version::parse);
        Self {
            name: request.name(),
            namespace: request.namespace(),
            uid: request.uid(),
            spec,
            config,
            secrets: Secrets::new(request.name(), spec.tls.as_ref()),
            target: stated.or_else(|| Version::from_image(&image)),
            image,
            preparing: None,
            restart_trigger: request.annotation(RESTART_TRIGGER),
            allows_unsafe_rollout: request.annotation(ALLOW_UNSAFE_ROLLOUT) == Some("true"),
        }
    }

    /// The members' version.
    pub(crate) fn version(&self) -> Option<Version> {
        self.preparing.or(self.target)
    }

    /// The spec field that sets the version.
    pub(crate) fn version_field(&self) -> &'static str {
        if self.spec.version.is_some() {
            "spec.version"
        } else {
            "spec.image"
        }
    }

    pub(crate) fn is_persistent(&self) -> bool {
        self.spec.storage.medium == Medium::Persistent
    }

    /// A child's labels.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        let mut labels = base_labels("etcd", self.name, component);
        labels.insert(CLUSTER_LABEL.to_owned(), self.name.to_owned());
        labels
    }

    /// The members' selector: only the four shared labels, because a StatefulSet's selector is immutable.
    pub(crate) fn selector(&self) -> BTreeMap<String, String> {
        base_labels("etcd", self.name, "member")
    }

    pub(crate) fn member(&self, ordinal: i32) -> String {
        format!("{}-{ordinal}", self.name)
    }

    pub(crate) fn claim(&self, ordinal: i32) -> String {
        format!("data-{}-{ordinal}", self.name)
    }

    pub(crate) fn record(&self) -> String {
        format!("{}-cluster-state", self.name)
    }

    pub(crate) fn client_service(&self) -> String {
        format!("{}-client", self.name)
    }

    /// A member's URL for other members.
    pub(crate) fn peer_url(&self, ordinal: i32) -> String {
        format!(
            "https://{}.{}.{}.svc:2380",
            self.member(ordinal),
            self.name,
            self.namespace
        )
    }

    /// The scheme of client addresses.
    pub(crate) fn scheme(&self) -> &'static str {
        self.secrets.client.as_ref().map_or("http", |_| "https")
    }

    /// A member's URL for clients.
    pub(crate) fn client_url(&self, ordinal: i32) -> String {
        format!(
            "{}://{}.{}.{}.svc:2379",
            self.scheme(),
            self.member(ordinal),
            self.name,
            self.namespace
        )
    }
}

/// The number of members that form a majority.
pub(crate) const fn quorum(members: usize) -> usize {
    members / 2 + 1
}
