//! The members' Pods.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_kit::prelude::*;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{admission, cluster::Cluster, jobs::milliseconds, version::Version};

/// Restarts after which a member counts as broken; with the kubelet's backoff, about three minutes.
const RESTARTS_BROKEN: i32 = 5;

/// Longest end of a member's log in a condition, in characters.
const WORDS_CHARS_MAX: usize = 300;

/// Longest scheduler message in a condition, in characters.
const SCHEDULER_CHARS_MAX: usize = 400;

/// Time after the grace period at which a Pod that is being deleted must have lost the node.
const LEAVING_MAX: Duration = Duration::from_mins(1);

/// The members' Pods by ordinal.
#[derive(Default)]
pub(crate) struct MemberPods {
    /// Pods that are not being deleted.
    pub(crate) pods: BTreeMap<i32, MemberPod>,
    /// Pods that are being deleted.
    pub(crate) leaving: BTreeMap<i32, LeavingPod>,
}

/// A member's Pod that is being deleted.
pub(crate) struct LeavingPod {
    pub(crate) node: Option<String>,
    /// The end of the grace period.
    pub(crate) until: Time,
    /// Time until it counts as stuck; zero if it does.
    pub(crate) left: Duration,
}

/// Why a Pod does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// No node accepts the Pod; this is the scheduler's message.
    Unschedulable(String),
    /// A container waits, for example with `ImagePullBackOff`.
    Waiting(String),
}

/// A member's Pod.
pub(crate) struct MemberPod {
    pub(crate) uid: String,
    /// Creation time in milliseconds since the Unix epoch.
    pub(crate) created_ms: u64,
    pub(crate) is_ready: bool,
    /// Time since which the Pod waits for data or an admission, in milliseconds since the Unix epoch.
    pub(crate) waiting_since_ms: Option<u64>,
    /// The Pod has started etcd.
    pub(crate) has_run: bool,
    /// etcd keeps exiting.
    pub(crate) is_broken: bool,
    /// The end of the log from an etcd that exited with an error.
    pub(crate) last_words: Option<String>,
    /// Why it does not start; `None` if it has started or the cause is unknown.
    pub(crate) obstacle: Option<Obstacle>,
    pub(crate) version: Option<Version>,
    /// The StatefulSet revision from which the Pod was created.
    pub(crate) revision: Option<String>,
}

type ObservedPod = Partial<Pod, ObservedPodSpec, ObservedPodStatus>;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObservedPodSpec {
    node_name: Option<String>,
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
    waiting: Option<Waiting>,
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
    /// The container keeps exiting, not for lack of memory: another start will hardly help.
    fn is_broken(&self) -> bool {
        let is_full = |state: &ContainerState| {
            state
                .terminated
                .as_ref()
                .is_some_and(|terminated| terminated.reason == "OOMKilled")
        };
        !self.ready
            && self.restart_count >= RESTARTS_BROKEN
            && !is_full(&self.state)
            && !is_full(&self.last_state)
    }

    /// The end of an unready container's log, if it exited with an error.
    fn last_words(&self) -> Option<String> {
        let message = [&self.state, &self.last_state]
            .into_iter()
            .find_map(|state| state.terminated.as_ref())
            .filter(|_| !self.ready)?
            .message
            .trim();
        (!message.is_empty()).then(|| job::tail(message, WORDS_CHARS_MAX).to_owned())
    }

    fn has_run(&self) -> bool {
        self.restart_count > 0 || self.state.running.is_some() || self.state.terminated.is_some()
    }
}

/// Reads the Pods by ordinal.
pub(super) fn read(host: &dyn Host, cluster: &Cluster<'_>) -> Result<MemberPods, Fault> {
    let selector = labels::selector_text(&cluster.selector());
    let prefix = format!("{}-", cluster.name);
    let mut member_pods = MemberPods::default();
    let mut member = |pod: ObservedPod| -> Option<(i32, MemberPod)> {
        let ordinal = pod
            .metadata
            .name
            .as_deref()?
            .strip_prefix(&prefix)?
            .parse()
            .ok()?;
        if let Some(until) = pod.metadata.deletion_timestamp {
            let since = Duration::from_millis(host.now_ms().saturating_sub(milliseconds(&until)));
            let leaving = LeavingPod {
                node: pod.spec.node_name,
                left: LEAVING_MAX.saturating_sub(since),
                until,
            };
            member_pods.leaving.insert(ordinal, leaving);
            return None;
        }
        let obstacle = obstacle(&pod.status);
        let mut conditions = pod.status.conditions.iter();
        let is_ready =
            conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let waiting = named(&pod.status.init_container_statuses, admission::CONTAINER)
            .and_then(|container| container.state.running.as_ref());
        let etcd = named(&pod.status.container_statuses, "etcd");
        let image = pod
            .spec
            .containers
            .into_iter()
            .find(|container| container.name == "etcd")
            .and_then(|container| container.image);
        let stated = cluster.spec.version.as_deref().and_then(Version::parse);
        let is_stated = image.as_deref() == Some(&*cluster.image);
        let tagged = image.as_deref().and_then(Version::from_image);
        let labels = pod.metadata.labels.as_ref();
        let created = pod.metadata.creation_timestamp.as_ref();
        Some((
            ordinal,
            MemberPod {
                uid: pod.metadata.uid.unwrap_or_default(),
                created_ms: created.map_or(0, milliseconds),
                is_ready,
                waiting_since_ms: waiting
                    .and_then(|waiting| waiting.started_at.as_ref().map(milliseconds)),
                has_run: etcd.is_some_and(ContainerStatus::has_run),
                is_broken: etcd.is_some_and(ContainerStatus::is_broken),
                obstacle,
                last_words: etcd.and_then(ContainerStatus::last_words),
                // The version in the spec only applies to the image in the spec.
                version: tagged.or_else(|| stated.filter(|_| is_stated)),
                revision: labels
                    .and_then(|labels| labels.get("controller-revision-hash"))
                    .cloned(),
            },
        ))
    };
    let pods = host
        .list::<ObservedPod>(cluster.namespace, &selector)?
        .into_iter()
        .filter_map(&mut member)
        .collect();
    Ok(MemberPods {
        pods,
        ..member_pods
    })
}

fn named<'a>(containers: &'a [ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    containers.iter().find(|container| container.name == name)
}

/// Why a Pod does not start.
fn obstacle(status: &ObservedPodStatus) -> Option<Obstacle> {
    let scheduled = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(message) = scheduled.and_then(|condition| condition.message.as_deref()) {
        let words = message.trim().chars().take(SCHEDULER_CHARS_MAX);
        return Some(Obstacle::Unschedulable(words.collect()));
    }
    let cause = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .find_map(|container| container.state.waiting.as_ref()?.cause())?;
    Some(Obstacle::Waiting(cause.to_owned()))
}
