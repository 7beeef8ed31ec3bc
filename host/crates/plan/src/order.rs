//! The order in which the children of an answer may be created.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::{Child, ObjectId};

/// Sorts children so that each comes after those that it waits for, and otherwise by kind, namespace and name.
/// The order of the answer does not matter.
///
/// The policy check guarantees unique keys and no cycles.
/// A cycle would not block this function: its children would come last.
pub(super) fn sorted(children: &[Child]) -> Vec<&Child> {
    let mut waiting: BTreeMap<ObjectId, &Child> =
        children.iter().map(|child| (child.id(), child)).collect();
    let mut placed = BTreeSet::new();
    let mut order = Vec::with_capacity(children.len());
    while !waiting.is_empty() {
        let free = |child: &Child| child.after.iter().all(|key| placed.contains(key.as_str()));
        let next = waiting
            .iter()
            .find(|(_, child)| free(child))
            .or_else(|| waiting.iter().next())
            .map(|(id, _)| id.clone());
        let Some(child) = next.and_then(|id| waiting.remove(&id)) else {
            break;
        };
        placed.insert(child.key.as_str());
        order.push(child);
    }
    order
}
