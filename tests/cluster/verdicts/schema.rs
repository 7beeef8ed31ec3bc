//! A CustomResourceDefinition's schema as the generator walks it: values with their schemas, and rules with their places.

use serde_json::Value;

/// One step from a value to one below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To a named field.
    Field(String),
    /// To an item of a list.
    Item,
    /// To an entry of a map.
    Entry,
}

/// A validation rule and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Rule<'s> {
    pub(super) steps: Vec<Step>,
    pub(super) text: &'s str,
    message: ExpectedMessage<'s>,
}

/// The message of the API server for a broken rule.
#[derive(Clone, Debug)]
enum ExpectedMessage<'s> {
    Whole(&'s str),
    /// Made by an expression, of which these are the texts.
    Parts(Vec<&'s str>),
}

impl<'s> Rule<'s> {
    /// Every rule of a schema that a create can break.
    pub(super) fn all(schema: &'s Value) -> Vec<Self> {
        let mut rules = Vec::new();
        collect(schema, &mut Vec::new(), &mut rules);
        rules
    }

    /// Tells whether a cause of a rejection is of this rule.
    pub(super) fn is_said(&self, field: &str, message: &str) -> bool {
        let is_here = places_of(field) == self.place();
        is_here
            && match &self.message {
                ExpectedMessage::Whole(text) => message.ends_with(text),
                ExpectedMessage::Parts(parts) => parts.iter().all(|part| message.contains(part)),
            }
    }

    /// The place with `[]` for any item or entry.
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

    /// The fields that the rule uses, as paths below its place.
    pub(super) fn fields(&self) -> Vec<Vec<&'s str>> {
        let mut found: Vec<Vec<&str>> = Vec::new();
        for (at, _) in self.text.match_indices("self.") {
            let rest = &self.text[at + "self.".len()..];
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let mut names: Vec<&str> = rest[..end].split('.').collect();
            if rest[end..].starts_with('(') {
                names.pop();
            }
            if !names.is_empty() && !found.contains(&names) {
                found.push(names);
            }
        }
        found
    }

    /// The texts in quotes that the rule compares with.
    pub(super) fn words(&self) -> Vec<&'s str> {
        quoted(self.text)
    }
}

/// The texts between single quotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('\'').skip(1).step_by(2).collect()
}

/// A path of the API server with `[]` for any item or entry.
fn places_of(field: &str) -> String {
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

/// The schema one step below.
pub(super) fn below<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    schema["properties"].get(name).or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|it| it.is_object())
    })
}

/// Every value of an object by its JSON pointer, with its schema where there is one; the object itself is left out.
pub(super) fn places<'s>(object: &Value, schema: &'s Value) -> Vec<(String, Option<&'s Value>)> {
    let mut found = Vec::new();
    walk(object, Some(schema), "", &mut found);
    found
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
