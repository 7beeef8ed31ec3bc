//! The growth of a claim that does not end by itself.

use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;

/// The longest words of the storage in a warning, in characters.
const WORDS_CHARS_MAX: usize = 300;

/// The state of a claim that is to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// The volume has grown. The kubelet grows its file system, with some classes only when a Pod mounts it the next time.
    FileSystemPending,
    /// The storage has failed to grow the volume, in its words.
    Failed(String),
}

impl Growth {
    /// The state in a claim's status; none if nothing hinders it.
    pub(super) fn read(status: &PersistentVolumeClaimStatus) -> Option<Self> {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let condition = |types: &[&str]| {
            let mut conditions = conditions
                .iter()
                .filter(|condition| condition.status == "True");
            conditions.find(|condition| types.contains(&&*condition.type_))
        };
        if let Some(error) = condition(&["ControllerResizeError", "NodeResizeError"]) {
            let message = error.message.as_deref().unwrap_or_default().trim();
            let words = if message.is_empty() {
                &error.type_
            } else {
                message
            };
            return Some(Self::Failed(words.chars().take(WORDS_CHARS_MAX).collect()));
        }
        let allocated = status
            .allocated_resource_statuses
            .as_ref()
            .and_then(|statuses| statuses.get("storage"));
        // The second ending is that of Kubernetes before 1.31.
        let is_failed =
            |status: &&String| status.ends_with("Infeasible") || status.ends_with("Failed");
        if let Some(allocated) = allocated.filter(is_failed) {
            return Some(Self::Failed(allocated.clone()));
        }
        condition(&["FileSystemResizePending"]).map(|_| Self::FileSystemPending)
    }
}
