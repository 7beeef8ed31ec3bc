//! Whether the `after` lists of an answer can be followed.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::Child;

use super::Rejection;

/// Checks that every `after` names another child of the answer and that none waits for itself in a circle.
pub(super) fn check(children: &[Child]) -> Result<(), Rejection> {
    let keys: BTreeSet<&str> = children.iter().map(|child| child.key.as_str()).collect();
    for child in children {
        for key in &child.after {
            if *key == child.key {
                return Err(
                    Rejection::output("it is to be created after itself").in_child(&child.key)
                );
            }
            if !keys.contains(key.as_str()) {
                return Err(Rejection::output(format!(
                    "it is to be created after \"{key}\", which is not a key of the answer"
                ))
                .in_child(&child.key));
            }
        }
    }
    check_circles(children)
}

/// Takes away, again and again, the children that wait for nothing; what stays waits in a circle.
fn check_circles(children: &[Child]) -> Result<(), Rejection> {
    let mut waiting: BTreeMap<&str, BTreeSet<&str>> = children
        .iter()
        .map(|child| {
            let after = child.after.iter().map(String::as_str).collect();
            (child.key.as_str(), after)
        })
        .collect();
    loop {
        let free: Vec<&str> = waiting
            .iter()
            .filter(|(_, after)| !after.iter().any(|key| waiting.contains_key(key)))
            .map(|(key, _)| *key)
            .collect();
        if free.is_empty() {
            break;
        }
        for key in free {
            waiting.remove(key);
        }
    }
    if waiting.is_empty() {
        return Ok(());
    }
    let keys: Vec<&str> = waiting.keys().copied().collect();
    Err(Rejection::output(format!(
        "the children \"{}\" wait for each other in a circle: take one of them out of an `after` list",
        keys.join("\", \"")
    )))
}
