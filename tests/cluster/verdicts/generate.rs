//! Generates parents from examples: adds fields, targets a rule, breaks something.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{
    schema::{Rule, Step, below, places},
    values::Draw,
};

/// Generates parents of one kind, deterministically for each seed.
pub(super) struct Generator<'s> {
    schema: &'s Value,
    rules: &'s [Rule<'s>],
    examples: &'s [Value],
    draw: Draw,
}

impl<'s> Generator<'s> {
    pub(super) fn new(
        schema: &'s Value,
        rules: &'s [Rule<'s>],
        examples: &'s [Value],
        seed: u64,
    ) -> Self {
        let draw = Draw {
            rng: Rng::with_seed(seed),
            hints: Vec::new(),
        };
        Self {
            schema,
            rules,
            examples,
            draw,
        }
    }

    /// Generates a parent. Two of three target one rule, and half of all get broken.
    pub(super) fn next(&mut self) -> Value {
        let mut parent = self.draw.choose(self.examples).clone();
        self.draw.hints.clear();
        for _ in 0..self.draw.rng.u32(..3) {
            self.grow(&mut parent);
        }
        if !self.rules.is_empty() && !self.draw.one_in(3) {
            let rule = self.draw.rng.usize(..self.rules.len());
            self.aim(&mut parent, &self.rules[rule]);
        }
        if self.draw.rng.bool() {
            for _ in 0..self.draw.rng.u32(1..4) {
                self.break_something(&mut parent);
            }
        }
        parent
    }

    /// Adds a missing field with a valid value.
    fn grow(&mut self, parent: &mut Value) {
        let mut missing: Vec<(String, &str, &Value)> = Vec::new();
        let inner = places(parent, self.schema);
        let whole = [(String::new(), Some(self.schema))];
        for (pointer, schema) in whole.into_iter().chain(inner) {
            let Some(map) = parent.pointer(&pointer).and_then(Value::as_object) else {
                continue;
            };
            let fields = schema.and_then(|schema| schema["properties"].as_object());
            for (name, inner) in fields.into_iter().flatten() {
                if !map.contains_key(name) && !is_server_made(&pointer, name) {
                    missing.push((pointer.clone(), name, inner));
                }
            }
        }
        if !missing.is_empty() {
            let (pointer, name, schema) = self.draw.choose(&missing).clone();
            let value = self.draw.value(schema, 1);
            if let Some(place) = parent.pointer_mut(&pointer) {
                place[name] = value;
            }
        }
    }

    /// Makes the API server evaluate a rule, with varying values in the rule's fields.
    fn aim(&mut self, parent: &mut Value, rule: &Rule<'_>) {
        self.draw.hints = rule.words().into_iter().map(str::to_owned).collect();
        let Some((place, schema)) = self.reach(parent, &rule.steps) else {
            return;
        };
        let fields = rule.fields();
        if fields.is_empty() {
            *place = self.draw.value(schema, 0);
        }
        let sets_all = self.draw.rng.bool();
        for names in fields {
            if names == ["metadata", "name"] {
                parent["metadata"]["name"] = self.draw.name().into();
                return;
            }
            let turn = if sets_all { 5 } else { self.draw.rng.u32(..6) };
            match turn {
                0 => drop(remove(place, &names)),
                1 | 2 => {}
                _ => self.set(place, schema, &names),
            }
        }
    }

    /// Returns the value at the end of the steps, and creates missing ones on the way.
    fn reach<'p>(
        &mut self,
        parent: &'p mut Value,
        steps: &[Step],
    ) -> Option<(&'p mut Value, &'s Value)> {
        let mut place = parent;
        let mut schema = self.schema;
        for step in steps {
            match step {
                Step::Field(name) => {
                    schema = below(schema, name)?;
                    let map = place.as_object_mut()?;
                    place = map
                        .entry(name)
                        .or_insert_with(|| self.draw.value(schema, 1));
                }
                Step::Item => {
                    schema = schema.get("items")?;
                    let items = place.as_array_mut()?;
                    if items.is_empty() {
                        items.push(self.draw.value(schema, 1));
                    }
                    let index = self.draw.rng.usize(..items.len());
                    place = items.get_mut(index)?;
                }
                Step::Entry => {
                    schema = schema.get("additionalProperties")?;
                    let map = place.as_object_mut()?;
                    if map.is_empty() {
                        map.insert(self.draw.word(), self.draw.value(schema, 1));
                    }
                    place = map.values_mut().next()?;
                }
            }
        }
        Some((place, schema))
    }

    /// Sets a nested field to a valid value.
    fn set(&mut self, mut place: &mut Value, mut schema: &Value, names: &[&str]) {
        for (index, name) in names.iter().enumerate() {
            let (Some(inner), Some(map)) = (below(schema, name), place.as_object_mut()) else {
                return;
            };
            schema = inner;
            let is_last = index + 1 == names.len();
            place = map.entry(*name).or_insert(Value::Null);
            if is_last || place.is_null() {
                *place = self.draw.value(schema, 1);
            }
        }
    }

    fn break_something(&mut self, parent: &mut Value) {
        if self.draw.one_in(5) {
            self.break_metadata(&mut parent["metadata"]);
            return;
        }
        let places: Vec<_> = places(parent, self.schema)
            .into_iter()
            .filter(|(pointer, _)| {
                !pointer.starts_with("/metadata") && pointer != "/kind" && pointer != "/apiVersion"
            })
            .collect();
        if places.is_empty() {
            return;
        }
        let (pointer, schema) = self.draw.choose(&places).clone();
        let Some(value) = parent.pointer_mut(&pointer) else {
            return;
        };
        match self.draw.rng.u32(..8) {
            0 => {
                let (above, name) = pointer.rsplit_once('/').unwrap_or_default();
                match parent.pointer_mut(above) {
                    Some(Value::Object(map)) => drop(map.remove(name)),
                    Some(Value::Array(items)) => drop(items.pop()),
                    _ => {}
                }
            }
            1 => match value {
                Value::Object(map) => drop(map.insert("unheardOf".to_owned(), json!({ "a": 1 }))),
                Value::Array(items) => items.extend(items.first().cloned()),
                other => *other = Value::Null,
            },
            2 => match value {
                Value::Object(map) => map.clear(),
                Value::Array(items) => items.clear(),
                other => *other = json!(""),
            },
            3 => *value = Value::Null,
            _ => *value = self.draw.misfit(schema),
        }
    }

    fn break_metadata(&mut self, metadata: &mut Value) {
        let word = self.draw.word();
        match self.draw.rng.u32(..10) {
            9 => {
                // The server reports an invalid prefix with a random suffix.
                metadata["name"] = Value::Null;
                metadata["generateName"] =
                    "g".repeat(*self.draw.choose(&[3, 57, 58, 59, 250])).into();
            }
            0..3 => metadata["name"] = self.draw.name().into(),
            3 => metadata["labels"] = json!({ word: self.draw.word() }),
            4 => metadata["annotations"] = json!({ word: self.draw.word() }),
            5 => metadata["finalizers"] = json!([word]),
            6 => metadata["ownerReferences"] = self.owners(),
            7 => metadata["labels"] = self.draw.misfit(None),
            _ => metadata["colour"] = json!("red"),
        }
    }

    fn owners(&mut self) -> Value {
        let owner = |draw: &mut Draw| {
            let mut owner = Map::new();
            for name in ["apiVersion", "kind", "name", "uid"] {
                if !draw.one_in(6) {
                    let value = if draw.one_in(6) { "" } else { "v1" };
                    owner.insert(name.to_owned(), value.into());
                }
            }
            if draw.rng.bool() {
                owner.insert("controller".to_owned(), true.into());
            }
            owner
        };
        let count = self.draw.rng.u32(1..3);
        (0..count).map(|_| owner(&mut self.draw)).collect()
    }
}

fn is_server_made(pointer: &str, name: &str) -> bool {
    pointer.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name)
}

fn remove(place: &mut Value, names: &[&str]) -> Option<Value> {
    let (last, above) = names.split_last()?;
    let mut place = place;
    for name in above {
        place = place.get_mut(name)?;
    }
    place.as_object_mut()?.remove(*last)
}
