//! The writes of a plan by their effect.

use innkeeper_model::{ObjectId, Operation};

use super::Plan;

/// The writes of one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The children to create.
    pub creates: Vec<ObjectId>,
    /// The children to apply, or whose ownership is transferred.
    pub updates: Vec<ObjectId>,
    /// The children to delete.
    pub deletes: Vec<ObjectId>,
    /// True if the host's finalizer is added to the parent or removed from it.
    pub finalizer: bool,
}

impl Changes {
    /// Returns true if there is no write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Plan {
    /// Returns the writes by their effect.
    pub fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        for operation in &self.operations {
            match operation {
                Operation::Create { id, .. } => changes.creates.push(id.clone()),
                Operation::Update { id, .. } | Operation::Transfer { id, .. } => {
                    changes.updates.push(id.clone());
                }
                Operation::Prune { id, .. } => changes.deletes.push(id.clone()),
                Operation::AddFinalizer | Operation::RemoveFinalizer => changes.finalizer = true,
            }
        }
        changes
    }

    /// Removes the operations that another plan for the same parent has, too.
    pub fn subtract(&mut self, other: &Self) {
        self.operations
            .retain(|operation| !other.operations.contains(operation));
    }
}
