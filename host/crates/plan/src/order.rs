//! The order in which the host may create children.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::{Child, ObjectId};

/// Sorts children so that each comes after those that it waits for, and otherwise by kind, namespace and name.
/// The answer's own order does not matter.
///
/// The policy check guarantees unique keys and no cycles.
pub(super) fn sorted(children: &[Child]) -> Vec<&Child> {
    let by_id: BTreeMap<ObjectId, &Child> =
        children.iter().map(|child| (child.id(), child)).collect();
    // Each child is looked at once for each key that it waits for: an answer may have ten thousand children.
    let mut missing: BTreeMap<&ObjectId, usize> = BTreeMap::new();
    let mut followers: BTreeMap<&str, Vec<&ObjectId>> = BTreeMap::new();
    for (id, child) in &by_id {
        let after: BTreeSet<&str> = child.after.iter().map(String::as_str).collect();
        missing.insert(id, after.len());
        for key in after {
            followers.entry(key).or_default().push(id);
        }
    }
    let mut free: BTreeSet<&ObjectId> = BTreeSet::new();
    free.extend(
        missing
            .iter()
            .filter(|(_, count)| **count == 0)
            .map(|(id, _)| *id),
    );
    let mut order = Vec::with_capacity(children.len());
    // The second source is for cycles: the children in them come last, and the loop ends.
    while let Some(id) = free.pop_first().or_else(|| missing.keys().next().copied()) {
        missing.remove(id);
        let child = by_id[id];
        order.push(child);
        for follower in followers.remove(child.key.as_str()).into_iter().flatten() {
            if let Some(count) = missing.get_mut(follower) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    free.insert(follower);
                }
            }
        }
    }
    order
}
