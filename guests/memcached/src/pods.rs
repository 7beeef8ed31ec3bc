//! The observed Pods, and what keeps them from becoming ready.

use serde::Deserialize;

/// The cause for which the first of these Pods is not ready, as a sentence part.
pub(crate) fn cause(pods: &[Member]) -> Option<String> {
    let named = |pod: &Member| Some(format!("pod {}: {}", pod.metadata.name, pod.cause()?));
    pods.iter().find_map(named)
}

/// The Pods that are neither being deleted nor finished, sorted by name.
pub(crate) fn members(mut pods: Vec<Member>) -> Vec<Member> {
    pods.retain(Member::is_node);
    pods.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    pods
}

/// A condition of a Pod.
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

/// The fields that are read of a Pod.
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
}

impl Member {
    pub(crate) fn into_name(self) -> String {
        self.metadata.name
    }

    /// An administrator may grant metadata only, and then there is no phase.
    fn is_node(&self) -> bool {
        let is_finished = matches!(&*self.status.phase, "Succeeded" | "Failed");
        self.metadata.deletion_timestamp.is_none() && !is_finished
    }

    /// The cause for which the Pod is not ready; none if it is, or if none is known.
    fn cause(&self) -> Option<String> {
        let mut conditions = self.status.conditions.iter();
        if let Some(scheduled) = conditions.find(|condition| condition.is("PodScheduled", "False"))
        {
            return Some(format!("{}: {}", scheduled.reason, scheduled.message));
        }
        let mut containers = self.status.container_statuses.iter();
        let container = containers.find(|container| !container.ready)?;
        // The kubelet alternates between the two.
        if container.restart_count > 0 {
            return Some("CrashLoopBackOff".to_owned());
        }
        let reason = &container.state.waiting.as_ref()?.reason;
        Some(reason.replace("ErrImagePull", "ImagePullBackOff"))
    }
}
