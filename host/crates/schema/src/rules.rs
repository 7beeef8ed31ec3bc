//! Validation rules in CEL (`x-kubernetes-validations`).
//!
//! The `kube-cel` crate compiles and evaluates one rule at a time on the value that it is for. Finding those values, and
//! what the API server says of a failure, is done here, because the crate names neither the entries of maps nor the
//! values as the API server does. Transition rules are skipped as on a create.

mod compile;

use std::collections::BTreeMap;

use serde_json::Value;

pub use compile::CompileError;
use compile::Rule;

use super::{
    Error,
    cause::Cause,
    node::{child, entry, item},
};

/// The rules of a schema and of everything below it.
#[derive(Debug, Default)]
pub(super) struct RuleTree {
    rules: Vec<Rule>,
    properties: BTreeMap<String, Self>,
    additional: Option<Box<Self>>,
    items: Option<Box<Self>>,
    all_of: Vec<Self>,
}

impl RuleTree {
    /// Compiles all rules of a schema; none if it has none.
    pub(super) fn new(raw: &Value) -> Result<Option<Self>, Error> {
        Self::build(raw, raw, "", true)
    }

    /// `rules` is where rules are looked for: the schema itself, or one of its `allOf`, which names no types.
    fn build(
        rules: &Value,
        typed: &Value,
        path: &str,
        is_root: bool,
    ) -> Result<Option<Self>, Error> {
        let mut tree = Self {
            rules: compile::rules(rules, typed, path, is_root)?,
            ..Self::default()
        };
        if let Some(properties) = rules.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let inner = typed.get("properties").and_then(|all| all.get(name));
                if let Some(inner) = inner
                    && let Some(below) = Self::build(property, inner, &child(path, name), false)?
                {
                    tree.properties.insert(name.clone(), below);
                }
            }
        }
        let inner = |name: &str, path: String| -> Result<Option<Box<Self>>, Error> {
            match (rules.get(name), typed.get(name)) {
                (Some(rules @ Value::Object(_)), Some(typed @ Value::Object(_))) => {
                    Ok(Self::build(rules, typed, &path, false)?.map(Box::new))
                }
                _ => Ok(None),
            }
        };
        tree.additional = inner("additionalProperties", entry(path, "*"))?;
        tree.items = inner("items", entry(path, ""))?;
        for branch in rules
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            tree.all_of
                .extend(Self::build(branch, typed, path, is_root)?);
        }
        Ok((!tree.is_empty()).then_some(tree))
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty()
            && self.properties.is_empty()
            && self.additional.is_none()
            && self.items.is_none()
            && self.all_of.is_empty()
    }

    /// Every rule that does not hold.
    pub(super) fn check(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.walk(object, "", &mut causes);
        causes
    }

    fn walk(&self, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        // Rules are not for nulls: the surrounding schema has to speak of them.
        if value.is_null() {
            return;
        }
        causes.extend(self.rules.iter().filter_map(|rule| rule.check(value, path)));
        for branch in &self.all_of {
            branch.walk(value, path, causes);
        }
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(tree) = &self.additional {
                        tree.walk(value, &entry(path, key), causes);
                    }
                    if let Some(tree) = self.properties.get(key) {
                        tree.walk(value, &child(path, key), causes);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(tree) = &self.items {
                    for (index, value) in items.iter().enumerate() {
                        tree.walk(value, &item(path, index), causes);
                    }
                }
            }
            _ => {}
        }
    }
}
