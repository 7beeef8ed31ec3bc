//! Observed Pods, and why they are not ready.

use innkeeper_kit::prelude::*;

/// Why the first unready Pod is not ready, as part of a sentence.
pub(crate) fn cause(pods: &[Member]) -> Option<String> {
    pods.iter()
        .find_map(|pod| Some(format!("pod {}: {}", pod.metadata.name, pod.cause()?)))
}

/// Returns the Pods that are neither finished nor being deleted, sorted by name.
pub(crate) fn members(mut pods: Vec<Member>) -> Vec<Member> {
    pods.retain(Member::is_node);
    pods.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    pods
}

/// A Pod condition.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ObservedCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
    message: String,
}

impl ObservedCondition {
    fn is(&self, type_: &str, status: &str) -> bool {
        self.type_ == type_ && self.status == status
    }
}

/// The Pod fields that the plugin reads.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Member {
    metadata: MemberMetadata,
    status: MemberStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MemberMetadata {
    name: String,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MemberStatus {
    phase: String,
    conditions: Vec<ObservedCondition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    ready: bool,
    restart_count: i32,
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
}

impl Member {
    pub(crate) fn into_name(self) -> String {
        self.metadata.name
    }

    /// Without a phase, which a grant of metadata alone hides, a Pod counts as a node.
    fn is_node(&self) -> bool {
        let is_finished = matches!(&*self.status.phase, "Succeeded" | "Failed");
        self.metadata.deletion_timestamp.is_none() && !is_finished
    }

    /// Why the Pod is not ready; `None` if it is ready or the cause is unknown.
    fn cause(&self) -> Option<String> {
        let mut conditions = self.status.conditions.iter();
        if let Some(scheduled) = conditions.find(|condition| condition.is("PodScheduled", "False"))
        {
            return Some(format!("{}: {}", scheduled.reason, scheduled.message));
        }
        let container = self
            .status
            .container_statuses
            .iter()
            .find(|container| !container.ready)?;
        // Between crashes the kubelet also reports the container as running.
        if container.restart_count > 0 {
            return Some("CrashLoopBackOff".to_owned());
        }
        let cause = container.state.waiting.as_ref()?.cause()?;
        Some(cause.to_owned())
    }
}
