//! Checks that the `after` lists form no cycle.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::Child;

use super::Rejection;

/// Checks that every `after` names another child in the answer, and that no child waits for itself through a cycle.
pub(super) fn check(children: &[Child]) -> Result<(), Rejection> {
    let keys: BTreeSet<&str> = children.iter().map(|child| child.key.as_str()).collect();
    for child in children {
        for key in &child.after {
            if *key == child.key {
                return Err(Rejection::output("its `after` names itself").in_child(&child.key));
            }
            if !keys.contains(key.as_str()) {
                return Err(Rejection::output(format!(
                    "its `after` names \"{key}\", which is not a key of the answer"
                ))
                .in_child(&child.key));
            }
        }
    }
    check_cycles(children)
}

/// Removes the children that wait for no remaining child, until none can be removed; the rest waits in a cycle.
///
/// The rest also has children that only wait for a child in the cycle.
fn check_cycles(children: &[Child]) -> Result<(), Rejection> {
    let mut missing: BTreeMap<&str, usize> = BTreeMap::new();
    let mut followers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for child in children {
        // A set: a key that is listed twice would be counted twice but removed once.
        let after: BTreeSet<&str> = child.after.iter().map(String::as_str).collect();
        missing.insert(&child.key, after.len());
        for key in after {
            followers.entry(key).or_default().push(&child.key);
        }
    }
    let is_free = |(_, count): &(&&str, &usize)| **count == 0;
    let mut free: Vec<&str> = missing
        .iter()
        .filter(is_free)
        .map(|(key, _)| *key)
        .collect();
    while let Some(key) = free.pop() {
        missing.remove(key);
        for follower in followers.remove(key).into_iter().flatten() {
            if let Some(count) = missing.get_mut(follower) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    free.push(follower);
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let keys: Vec<&str> = missing.keys().copied().collect();
    Err(Rejection::output(format!(
        "the children \"{}\" wait for each other in a cycle: remove one of them from an `after` list",
        keys.join("\", \"")
    )))
}
