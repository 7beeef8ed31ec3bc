//! The names, addresses, labels, Secrets and image of one cluster.

use std::collections::BTreeMap;

use innkeeper_kit::labels;
use innkeeper_sdk::prelude::*;

use crate::{
    api::{EtcdClusterSpec, Medium},
    config::Config,
    secrets::Secrets,
    version::Version,
};

/// The label on every child and Pod: the name of the cluster.
pub(crate) const CLUSTER_LABEL: &str = "etcd.ydzs.io/cluster";

/// The label on every claim, and the annotation on the StatefulSet: the number of members of the cluster. It holds when the
/// record is lost, and an adoption needs the claims of all of them.
pub(crate) const MEMBERS_LABEL: &str = "etcd.ydzs.io/members";

/// The label on every claim: the UID of the parent that made it.
pub(crate) const CLUSTER_UID_LABEL: &str = "etcd.ydzs.io/cluster-uid";

/// The annotation on the StatefulSet and on every claim: the cluster is formed. It holds when record and status are lost.
pub(crate) const FORMED: &str = "etcd.ydzs.io/formed";

/// The annotation on a parent and on the Pods of its members: another value restarts them one by one.
pub(crate) const RESTART_TRIGGER: &str = "etcd.ydzs.io/restart-trigger";

/// The annotation on a parent: with the value `true`, a roll-out goes on while another member is down, which can cost
/// the quorum.
const ALLOW_UNSAFE_ROLLOUT: &str = "etcd.ydzs.io/allow-unsafe-rollout";

/// The largest number of members that the schema accepts.
pub(crate) const MEMBERS_MAX: i32 = 9;

/// One cluster: the parent, and values that follow from it alone.
#[derive(Clone)]
pub(crate) struct Cluster<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) spec: &'a EtcdClusterSpec,
    pub(crate) config: &'a Config,
    /// The Secrets with certificates.
    pub(crate) secrets: Secrets,
    /// The image of the members.
    pub(crate) image: String,
    /// The version in the spec, else that of the image's tag; none if the tag names no version.
    pub(crate) target: Option<Version>,
    /// The version of that image while the members write snapshots for an upgrade from it.
    pub(crate) preparing: Option<Version>,
    /// The value of the parent's annotation that restarts the members when it changes.
    pub(crate) restart_trigger: Option<&'a str>,
    /// The user lets a roll-out go on although another member is down.
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
            target: stated.or_else(|| Version::of_image(&image)),
            image,
            preparing: None,
            restart_trigger: request.annotation(RESTART_TRIGGER),
            allows_unsafe_rollout: request.annotation(ALLOW_UNSAFE_ROLLOUT) == Some("true"),
        }
    }

    /// The version of the members.
    pub(crate) fn version(&self) -> Option<Version> {
        self.preparing.or(self.target)
    }

    /// The field of the spec that names the version.
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

    /// The labels of a child.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        let mut labels = labels::base_labels("etcd", self.name, component);
        labels.insert(CLUSTER_LABEL.to_owned(), self.name.to_owned());
        labels
    }

    /// The selector of the members: the four shared labels only, because the selector of a StatefulSet is immutable.
    pub(crate) fn selector(&self) -> BTreeMap<String, String> {
        labels::base_labels("etcd", self.name, "member")
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

    /// The URL of a member for the other members.
    pub(crate) fn peer_url(&self, ordinal: i32) -> String {
        format!(
            "https://{}.{}.{}.svc:2380",
            self.member(ordinal),
            self.name,
            self.namespace
        )
    }

    /// The scheme of the addresses for clients.
    pub(crate) fn scheme(&self) -> &'static str {
        self.secrets.client.as_ref().map_or("http", |_| "https")
    }

    /// The URL of a member for clients.
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
