//! Walks a CRD schema: finds each value's schema, and each rule's place.

use serde_json::Value;

/// One step from a value to a nested value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To a named field.
    Field(String),
    /// To an item of a list.
    Item,
    /// To an entry of a map.
    Entry,
}

/// A validation rule and the place in the schema.
#[derive(Clone, Debug)]
pub(super) struct Rule<'s> {
    pub(super) steps: Vec<Step>,
    pub(super) text: &'s str,
    message: ExpectedMessage<'s>,
}

/// The API server's message for a broken rule.
#[derive(Clone, Debug)]
enum ExpectedMessage<'s> {
    Whole(&'s str),
    /// An expression builds the message from these texts and others.
    Parts(Vec<&'s str>),
}

impl<'s> Rule<'s> {
    /// Collects the rules that a create can break.
    pub(super) fn all(schema: &'s Value) -> Vec<Self> {
        let mut rules = Vec::new();
        collect(schema, &mut Vec::new(), &mut rules);
        rules
    }

    /// Returns true if this rule caused a rejection with this field and message.
    pub(super) fn is_said(&self, field: &str, message: &str) -> bool {
        let is_here = generic_place(field) == self.place();
        is_here
            && match &self.message {
                ExpectedMessage::Whole(text) => message.ends_with(text),
                ExpectedMessage::Parts(parts) => parts.iter().all(|part| message.contains(part)),
            }
    }

    /// Formats the place, with `[]` for any item or entry.
    pub(super) fn place(&self) -> String {
        let mut place = String::new();
        for step in &self.steps {
            match step {
                Step::Field(name) if place.is_empty() => place.push_str(name),
                Step::Field(name) => {
                    place.push('.');
                    place.push_str(name);
                }
                Step::Item | Step::Entry => place.push_str("[]"),
            }
        }
        place
    }

    /// Returns the fields that the rule uses, as paths below the place.
    pub(super) fn fields(&self) -> Vec<Vec<&'s str>> {
        let mut fields: Vec<Vec<&str>> = Vec::new();
        for (at, _) in self.text.match_indices("self.") {
            let rest = &self.text[at + "self.".len()..];
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let mut names: Vec<&str> = rest[..end].split('.').collect();
            if rest[end..].starts_with('(') {
                names.pop();
            }
            if !names.is_empty() && !fields.contains(&names) {
                fields.push(names);
            }
        }
        fields
    }

    /// Returns the quoted texts in the rule.
    pub(super) fn words(&self) -> Vec<&'s str> {
        quoted(self.text)
    }
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('\'').skip(1).step_by(2).collect()
}

/// Replaces indices and keys in an API server path with `[]`.
fn generic_place(field: &str) -> String {
    let mut place = String::new();
    for (index, part) in field.split('[').enumerate() {
        if index == 0 {
            place.push_str(part);
        } else {
            place.push_str("[]");
            place.push_str(part.split_once(']').map_or("", |(_, rest)| rest));
        }
    }
    if place == "<nil>" {
        place.clear();
    }
    place
}

fn collect<'s>(schema: &'s Value, steps: &mut Vec<Step>, rules: &mut Vec<Rule<'s>>) {
    let all = schema["x-kubernetes-validations"].as_array();
    for rule in all.into_iter().flatten() {
        let text = rule["rule"].as_str().expect("a rule has a text");
        if text.contains("oldSelf") {
            continue;
        }
        let message = match rule["messageExpression"].as_str() {
            Some(expression) => ExpectedMessage::Parts(quoted(expression)),
            None => {
                ExpectedMessage::Whole(rule["message"].as_str().expect("our rules have messages"))
            }
        };
        rules.push(Rule {
            steps: steps.clone(),
            text,
            message,
        });
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        steps.push(Step::Field(name.clone()));
        collect(inner, steps, rules);
        steps.pop();
    }
    for (name, step) in [("items", Step::Item), ("additionalProperties", Step::Entry)] {
        if schema[name].is_object() {
            steps.push(step);
            collect(&schema[name], steps, rules);
            steps.pop();
        }
    }
}

/// Returns a field's schema.
pub(super) fn below<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    schema["properties"].get(name).or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|schema| schema.is_object())
    })
}

/// Lists all nested values by JSON pointer, with the schema if there is one.
pub(super) fn places<'s>(object: &Value, schema: &'s Value) -> Vec<(String, Option<&'s Value>)> {
    let mut places = Vec::new();
    walk(object, Some(schema), "", &mut places);
    places
}

fn walk<'s>(
    value: &Value,
    schema: Option<&'s Value>,
    pointer: &str,
    found: &mut Vec<(String, Option<&'s Value>)>,
) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                let inner = schema.and_then(|schema| below(schema, name));
                found.push((pointer.clone(), inner));
                walk(value, inner, &pointer, found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                let pointer = format!("{pointer}/{index}");
                let inner = schema.and_then(|schema| schema.get("items"));
                found.push((pointer.clone(), inner));
                walk(value, inner, &pointer, found);
            }
        }
        _ => {}
    }
}
