//! The form of an object: unknown fields go, defaults come.
//!
//! The defaults of `kube-cel` are not used: they do not reach into a default that was just filled in, and take no
//! account of nulls.

use serde_json::{Map, Value};

use super::node::{Additional, Node, child, item};

/// Fields of every object, which no schema needs to name.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops what the schema does not know, and names it.
pub(super) fn prune(object: &mut Map<String, Value>, root: &Node) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_map(object, root, root.preserves_unknown, "", &mut unknown);
    unknown.sort();
    unknown
}

fn prune_value(value: &mut Value, node: Option<&Node>, path: &str, unknown: &mut Vec<String>) {
    let keeps = node.is_some_and(|node| node.preserves_unknown);
    prune_inside(value, node, keeps, path, unknown);
}

fn prune_inside(
    value: &mut Value,
    node: Option<&Node>,
    keeps: bool,
    path: &str,
    unknown: &mut Vec<String>,
) {
    match (value, node) {
        (Value::Object(map), Some(node)) => prune_map(map, node, keeps, path, unknown),
        (Value::Object(map), None) if !keeps => {
            unknown.extend(map.keys().map(|key| child(path, key)));
            map.clear();
        }
        (Value::Array(items), node) => {
            let inner = node.and_then(|node| node.items.as_deref());
            for (index, value) in items.iter_mut().enumerate() {
                let path = item(path, index);
                if keeps {
                    // Unknown fields are kept in all items of a list whose own node keeps them.
                    prune_inside(value, inner, true, &path, unknown);
                } else {
                    prune_value(value, inner, &path, unknown);
                }
            }
        }
        _ => {}
    }
}

fn prune_map(
    map: &mut Map<String, Value>,
    node: &Node,
    keeps: bool,
    path: &str,
    unknown: &mut Vec<String>,
) {
    map.retain(|key, value| {
        if node.is_object && OBJECT_FIELDS.contains(&key.as_str()) {
            return true;
        }
        let path = child(path, key);
        match (node.properties.get(key), &node.additional) {
            (Some(property), _) => prune_value(value, Some(property), &path, unknown),
            (None, Some(Additional::Of(inner))) => prune_value(value, Some(inner), &path, unknown),
            (None, Some(Additional::Any)) => prune_value(value, None, &path, unknown),
            (None, None) if keeps => {}
            (None, None) => {
                unknown.push(path);
                return false;
            }
        }
        true
    });
}

/// Drops nulls of fields that may not be null and have no default.
pub(super) fn drop_nulls(object: &mut Map<String, Value>, root: &Node) {
    drop_nulls_of_map(object, Some(root));
}

fn drop_nulls_of_map(map: &mut Map<String, Value>, node: Option<&Node>) {
    map.retain(|key, value| {
        let inner = node.and_then(|node| node.field(key));
        match value {
            Value::Null => inner.is_none_or(|node| node.nullable || node.default.is_some()),
            value => {
                drop_nulls_of_value(value, inner);
                true
            }
        }
    });
}

fn drop_nulls_of_value(value: &mut Value, node: Option<&Node>) {
    match value {
        Value::Object(map) => drop_nulls_of_map(map, node),
        Value::Array(items) => {
            let inner = node.and_then(|node| node.items.as_deref());
            for value in items {
                drop_nulls_of_value(value, inner);
            }
        }
        _ => {}
    }
}

/// Fills in defaults, also inside of defaults.
pub(super) fn fill_in(map: &mut Map<String, Value>, node: &Node) {
    for (name, property) in &node.properties {
        if let Some(default) = &property.default
            && !map.contains_key(name)
        {
            map.insert(name.clone(), default.clone());
        }
    }
    for (key, value) in map.iter_mut() {
        if let Some(inner) = node.field(key) {
            fill_in_value(value, inner);
        }
    }
}

fn fill_in_value(value: &mut Value, node: &Node) {
    // An explicit null stands only where the field may be null.
    if let Some(default) = &node.default
        && value.is_null()
        && !node.nullable
    {
        *value = default.clone();
    }
    match value {
        Value::Object(map) => fill_in(map, node),
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for value in items {
                    fill_in_value(value, inner);
                }
            }
        }
        _ => {}
    }
}
