//! Claims whose growth is stuck.

use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;

/// Longest storage message in a warning, in characters.
const WORDS_CHARS_MAX: usize = 300;

/// Why a growing claim is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// The volume has grown. The kubelet grows the file system, for some classes only when the next Pod mounts it.
    FileSystemPending,
    /// The storage failed to grow the volume; this is the message.
    Failed(String),
}

impl Growth {
    /// Reads the state from a claim's status; `None` if nothing is stuck.
    pub(super) fn read(status: &PersistentVolumeClaimStatus) -> Option<Self> {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let condition = |types: &[&str]| {
            conditions
                .iter()
                .filter(|condition| condition.status == "True")
                .find(|condition| types.contains(&&*condition.type_))
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
        // Kubernetes before 1.31 uses the second suffix.
        let is_failed =
            |status: &&String| status.ends_with("Infeasible") || status.ends_with("Failed");
        if let Some(allocated) = allocated.filter(is_failed) {
            return Some(Self::Failed(allocated.clone()));
        }
        condition(&["FileSystemResizePending"]).map(|_| Self::FileSystemPending)
    }
}
