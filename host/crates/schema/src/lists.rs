//! Lists that are sets or maps: no entry twice.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    cause::{Cause, CauseKind},
    go,
    node::{Additional, ListType, Node, child, entry, item},
};

/// Finds entries that are there twice.
pub(super) fn check(object: &Value, root: &Node) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(object, root, "", &mut causes);
    causes
}

fn walk(value: &Value, node: &Node, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(property) = node.properties.get(key) {
                    walk(value, property, &child(path, key), causes);
                }
                if let Some(Additional::Of(inner)) = &node.additional {
                    walk(value, inner, &entry(path, key), causes);
                }
            }
        }
        Value::Array(items) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => causes.extend(duplicates(items.iter().cloned(), path)),
                ListType::Map(keys) => check_map(items, keys, path, causes),
            }
            if let Some(inner) = &node.items {
                for (index, value) in items.iter().enumerate() {
                    walk(value, inner, &item(path, index), causes);
                }
            }
        }
        _ => {}
    }
}

fn check_map(items: &[Value], keys: &[String], path: &str, causes: &mut Vec<Cause>) {
    let no_object = items
        .iter()
        .enumerate()
        .find(|(_, item)| !item.is_object() && !item.is_null());
    if let Some((index, value)) = no_object {
        causes.push(Cause::invalid(
            &item(path, index),
            value,
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let key_of = |item: &Value| -> Value {
        let key: Map<String, Value> = keys
            .iter()
            .filter_map(|name| Some((name.clone(), item.get(name)?.clone())))
            .collect();
        Value::Object(key)
    };
    causes.extend(duplicates(items.iter().map(key_of), path));
}

/// The second appearance of every value that is there more than once.
fn duplicates(values: impl Iterator<Item = Value>, path: &str) -> Vec<Cause> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut causes = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            causes.push(Cause::with_value(
                CauseKind::Duplicate,
                &item(path, index),
                &go::value(&value),
                "",
            ));
        }
    }
    causes
}
