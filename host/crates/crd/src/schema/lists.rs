//! Lists that are sets or maps: no entry twice.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    cause::{RejectionCause, shown},
    node::{Node, item},
};

/// Names every repeated entry once, at the second appearance, as the API server does.
pub(super) fn check(items: &[Value], node: &Node, path: &str) -> Vec<RejectionCause> {
    let is_map = match node.x_kubernetes_list_type.as_deref() {
        Some("map") => true,
        Some("set") => false,
        _ => return Vec::new(),
    };
    // The check of types reports nulls.
    let is_other = |item: &Value| !item.is_object() && !item.is_null();
    if let Some(index) = items.iter().position(is_other).filter(|_| is_map) {
        let message = "must be an object, because the list is a map by keys";
        return vec![RejectionCause::new(item(path, index), message)];
    }
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut causes = Vec::new();
    for (index, entry) in items.iter().enumerate() {
        let keys = node.x_kubernetes_list_map_keys.iter().flatten();
        let set = |name: &String| Some((name.clone(), entry.get(name)?.clone()));
        let identity = if is_map {
            keys.filter_map(set).collect()
        } else {
            entry.clone()
        };
        let times = counts.entry(identity.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            let message = format!("{} is in the list twice", shown(&identity));
            causes.push(RejectionCause::new(item(path, index), message));
        }
    }
    causes
}
