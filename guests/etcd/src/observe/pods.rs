//! The Pods of the members.

use std::collections::BTreeMap;

use innkeeper_sdk::{job, partial::Partial, prelude::*};
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde::Deserialize;

use crate::{admission, cluster::Cluster, jobs::milliseconds, version::Version};

/// The restarts after which a member counts as broken; with the back-off of the kubelet, that takes about three minutes.
const RESTARTS_BROKEN: i32 = 5;

/// The longest end of a member's log in a condition, in characters.
const WORDS_CHARS_MAX: usize = 300;

/// A Pod of a member.
pub(crate) struct MemberPod {
    pub(crate) uid: String,
    /// The time of its creation in milliseconds since the Unix epoch.
    pub(crate) created_ms: u64,
    pub(crate) is_ready: bool,
    /// The time in milliseconds since the Unix epoch since which the Pod waits for data or an admission.
    pub(crate) waiting_since_ms: Option<u64>,
    /// The Pod has started etcd.
    pub(crate) has_run: bool,
    /// etcd keeps ending.
    pub(crate) is_broken: bool,
    /// The end of the log of an etcd that has ended with an error.
    pub(crate) last_words: Option<String>,
    pub(crate) version: Option<Version>,
    /// The revision of the StatefulSet from which the Pod was made.
    pub(crate) revision: Option<String>,
}

type ObservedPod = Partial<Pod, ObservedPodSpec, ObservedPodStatus>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObservedPodSpec {
    containers: Vec<ObservedContainer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObservedContainer {
    name: String,
    image: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObservedPodStatus {
    conditions: Vec<PodCondition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    ready: bool,
    restart_count: i32,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Option<Running>,
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Running {
    started_at: Option<Time>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Terminated {
    reason: String,
    message: String,
}

impl ContainerStatus {
    /// The container keeps ending, not for lack of memory: another start will hardly help.
    fn is_broken(&self) -> bool {
        let is_full = |state: &ContainerState| {
            let terminated = state.terminated.as_ref();
            terminated.is_some_and(|it| it.reason == "OOMKilled")
        };
        !self.ready
            && self.restart_count >= RESTARTS_BROKEN
            && !is_full(&self.state)
            && !is_full(&self.last_state)
    }

    /// The end of the log of a container that is not ready, if it has ended with an error.
    fn last_words(&self) -> Option<String> {
        let states = [&self.state, &self.last_state].into_iter();
        let mut ended = states.filter_map(|state| state.terminated.as_ref());
        let message = ended.next().filter(|_| !self.ready)?.message.trim();
        (!message.is_empty()).then(|| job::tail(message, WORDS_CHARS_MAX).to_owned())
    }

    fn has_run(&self) -> bool {
        self.restart_count > 0 || self.state.running.is_some() || self.state.terminated.is_some()
    }
}

/// Reads the Pods by ordinal.
pub(super) fn read(
    host: &dyn Host,
    cluster: &Cluster<'_>,
) -> Result<BTreeMap<i32, MemberPod>, Fault> {
    let selector = innkeeper_sdk::labels::selector_text(&cluster.selector());
    let prefix = format!("{}-", cluster.name);
    let member = |pod: ObservedPod| -> Option<(i32, MemberPod)> {
        let ordinal = pod
            .metadata
            .name
            .as_deref()?
            .strip_prefix(&prefix)?
            .parse()
            .ok()?;
        if pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let mut conditions = pod.status.conditions.iter();
        let is_ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
        let mut init = pod.status.init_container_statuses.iter();
        let admit = init.find(|it| it.name == admission::CONTAINER);
        let waiting = admit.and_then(|it| it.state.running.as_ref());
        let mut main = pod.status.container_statuses.iter();
        let etcd = main.find(|it| it.name == "etcd");
        let mut containers = pod.spec.containers.into_iter();
        let image = containers
            .find(|it| it.name == "etcd")
            .and_then(|it| it.image);
        let stated = cluster.spec.version.as_deref().and_then(Version::parse);
        let is_stated = image.as_deref() == Some(&*cluster.image);
        let tagged = image.as_deref().and_then(Version::of_image);
        let labels = pod.metadata.labels.as_ref();
        let created = pod.metadata.creation_timestamp.as_ref();
        Some((
            ordinal,
            MemberPod {
                uid: pod.metadata.uid.unwrap_or_default(),
                created_ms: created.map_or(0, milliseconds),
                is_ready,
                waiting_since_ms: waiting.and_then(|it| it.started_at.as_ref().map(milliseconds)),
                has_run: etcd.is_some_and(ContainerStatus::has_run),
                is_broken: etcd.is_some_and(ContainerStatus::is_broken),
                last_words: etcd.and_then(ContainerStatus::last_words),
                // The version in the spec is that of the image in the spec alone.
                version: tagged.or_else(|| stated.filter(|_| is_stated)),
                revision: labels
                    .and_then(|it| it.get("controller-revision-hash"))
                    .cloned(),
            },
        ))
    };
    Ok(host
        .list::<ObservedPod>(cluster.namespace, &selector)?
        .into_iter()
        .filter_map(member)
        .collect())
}
