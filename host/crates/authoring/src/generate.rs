//! Generates objects from a schema and a sequence of numbers, for plugin tests.
//!
//! The same numbers give the same object, and smaller or fewer numbers give a smaller object: without any number only
//! the required fields are there. So a test shrinks a failing object by the numbers alone. Rules, formats and keywords
//! over several fields are ignored: the caller admits the object and drops rejected ones.

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value, json};

/// The depth below which optional fields are omitted, for schemas as deep as a Pod's.
const DEPTH_MAX: usize = 6;

/// The most optional items in one list or map: with two items, their order can matter.
const MORE_MAX: u64 = 2;

/// Numbers that determine an object, followed by endless zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    numbers: Vec<u64>,
    next: usize,
}

impl Choices {
    /// Returns choices by these numbers.
    pub(crate) const fn new(numbers: Vec<u64>) -> Self {
        Self { numbers, next: 0 }
    }

    /// Returns this many random numbers, the same for each seed.
    pub(crate) fn random(seed: u64, count: u32) -> Self {
        let mut state = seed;
        // Knuth's linear generator, whose upper bits are random enough for tests.
        let numbers = (0..count).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        });
        Self::new(numbers.collect())
    }

    /// Returns choices for smaller objects, the smallest first: fewer numbers, zeros, and smaller numbers.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let count = self.numbers.len();
        let mut all: Vec<Self> = Vec::new();
        let shorter = std::iter::successors(Some(0), |length| {
            Some(length + (count - length).div_ceil(2))
        });
        all.extend(
            shorter
                .take_while(|length| *length < count)
                .map(|length| Self::new(self.numbers[..length].to_vec())),
        );
        for at in 0..count {
            let mut without = self.numbers.clone();
            without.remove(at);
            all.push(Self::new(without));
            for number in [0, self.numbers[at] % 2, self.numbers[at] % 3] {
                if number < self.numbers[at] {
                    let mut with = self.numbers.clone();
                    with[at] = number;
                    all.push(Self::new(with));
                }
            }
        }
        all
    }

    /// Returns the next number, below `bound`; zero if there is no choice.
    fn below(&mut self, bound: u64) -> u64 {
        let number = self.numbers.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        number.checked_rem(bound).unwrap_or_default()
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let at = self.below(u64::try_from(all.len()).ok()?);
        all.get(usize::try_from(at).ok()?)
    }
}

/// Returns a value for a CustomResourceDefinition schema.
pub(crate) fn generate(schema: &Value, choices: &mut Choices) -> Value {
    value(schema, choices, 0)
}

fn value(schema: &Value, choices: &mut Choices, depth: usize) -> Value {
    if let Some(listed) = schema["enum"].as_array() {
        return choices.pick(listed).cloned().unwrap_or_default();
    }
    if let Some(default) = schema.get("default")
        // Without numbers this is zero, so the smallest object has the defaults.
        && choices.below(4) == 0
    {
        return default.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        let all = [json!(1), json!("50%"), json!(0), json!("http"), json!(80)];
        return choices.pick(&all).cloned().unwrap_or_default();
    }
    match schema["type"].as_str() {
        Some("boolean") => json!(choices.below(2) == 1),
        Some("integer" | "number") => json!(integer(schema, choices)),
        Some("string") => json!(text(schema, choices)),
        Some("array") => {
            let length = length(schema, "minItems", "maxItems", choices);
            let item = |_| value(&schema["items"], choices, depth + 1);
            (0..length).map(item).collect()
        }
        _ => Value::Object(object(schema, choices, depth)),
    }
}

fn object(schema: &Value, choices: &mut Choices, depth: usize) -> Map<String, Value> {
    let required = schema["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|required| required == name));
    let mut object = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if is_required(name) || depth < DEPTH_MAX && choices.below(2) == 1 {
            object.insert(name.clone(), value(property, choices, depth + 1));
        }
    }
    if schema["additionalProperties"].is_object() {
        for number in 0..length(schema, "minProperties", "maxProperties", choices) {
            let value = value(&schema["additionalProperties"], choices, depth + 1);
            object.insert(format!("key-{number}"), value);
        }
    }
    object
}

/// Returns a list or map length within the bounds.
fn length(schema: &Value, least: &str, most: &str, choices: &mut Choices) -> u64 {
    let least = schema[least].as_u64().unwrap_or_default();
    let most = schema[most].as_u64().unwrap_or(u64::MAX);
    least + choices.below(most.saturating_sub(least).min(MORE_MAX) + 1)
}

/// Returns an integer: first the one closest to zero, then others near both bounds.
fn integer(schema: &Value, choices: &mut Choices) -> i64 {
    let bound = |name: &str, exclusive: &str, step: i64| {
        let bound = schema[name]
            .as_i64()
            // Definitions made from Rust types have bounds as floats.
            .or_else(|| schema[name].as_f64().map(whole))?;
        let moved = if schema[exclusive] == true { step } else { 0 };
        Some(bound.saturating_add(moved))
    };
    let usual = if schema["format"] == "int64" {
        i64::MAX
    } else {
        i64::from(i32::MAX)
    };
    let least = bound("minimum", "exclusiveMinimum", 1).unwrap_or(-usual);
    // `clamp` panics if the bounds contradict each other.
    let most = bound("maximum", "exclusiveMaximum", -1)
        .unwrap_or(usual)
        .max(least);
    let all = [0, 1, 2, 3, 80, -1, least, least.saturating_add(1), most]
        .map(|number| number.clamp(least, most));
    choices.pick(&all).copied().unwrap_or(least)
}

#[expect(
    clippy::as_conversions,
    reason = "saturates, and a schema states small bounds"
)]
#[expect(clippy::cast_possible_truncation, reason = "as above")]
const fn whole(number: f64) -> i64 {
    number as i64
}

fn text(schema: &Value, choices: &mut Choices) -> String {
    if schema["format"] == "date-time" {
        return "2030-01-31T08:00:00Z".to_owned();
    }
    if let Some(hir) = schema["pattern"]
        .as_str()
        .and_then(|pattern| regex_syntax::parse(pattern).ok())
    {
        let mut text = String::new();
        matching(&hir, choices, &mut text);
        return text;
    }
    let least = schema["minLength"].as_u64().unwrap_or_default();
    let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    let all = [
        "a",
        "example",
        "",
        "a-b.c/d:1",
        "A_b",
        "\u{e9}\u{4e16} \"'\\\n",
        "0",
    ];
    let chosen = choices.pick(&all).copied().unwrap_or_default();
    // In characters, as the API server counts.
    let mut text: String = chosen
        .chars()
        .zip(0..most)
        .map(|(character, _)| character)
        .collect();
    while u64::try_from(text.chars().count()).is_ok_and(|count| count < least) {
        text.push('a');
    }
    text
}

/// Appends a text that the expression matches; looks around are ignored.
fn matching(hir: &Hir, choices: &mut Choices, text: &mut String) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(Class::Unicode(class)) => {
            let range = choices.pick(class.ranges());
            text.extend(range.map(|range| plain(range.start(), range.end())));
        }
        HirKind::Class(Class::Bytes(class)) => {
            let range = choices.pick(class.ranges());
            text.extend(range.map(|range| plain(range.start().into(), range.end().into())));
        }
        HirKind::Repetition(repetition) => {
            let most = repetition
                .max
                .unwrap_or(u32::MAX)
                .saturating_sub(repetition.min);
            let more = choices.below(u64::from(most).min(MORE_MAX) + 1);
            for _ in 0..u64::from(repetition.min) + more {
                matching(&repetition.sub, choices, text);
            }
        }
        HirKind::Capture(capture) => matching(&capture.sub, choices, text),
        HirKind::Concat(all) => all.iter().for_each(|hir| matching(hir, choices, text)),
        HirKind::Alternation(all) => {
            if let Some(hir) = choices.pick(all) {
                matching(hir, choices, text);
            }
        }
    }
}

/// Returns a character from a range: `a` rather than the control character with which a negated class begins.
const fn plain(first: char, last: char) -> char {
    if first <= 'a' && 'a' <= last {
        'a'
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object_from(schema: &Value, numbers: &[u64]) -> Value {
        generate(schema, &mut Choices::new(numbers.to_vec()))
    }

    #[test]
    fn without_numbers_only_the_required_fields_are_there() {
        let schema = json!({"type": "object", "required": ["size", "name"], "properties": {
            "size": {"type": "integer", "minimum": 3},
            "name": {"type": "string", "pattern": "^[a-z]{2}(-[0-9]+)?$"},
            "mode": {"type": "string", "enum": ["Fast", "Slow"]},
        }});
        assert_eq!(object_from(&schema, &[]), json!({"size": 3, "name": "aa"}));
        // The properties in order: mode is there and Slow; then the name's two letters, and the option.
        let more = object_from(&schema, &[1, 1, 0, 0, 0, 1]);
        assert_eq!(more["mode"], "Slow");
        assert_eq!(more["name"], "aa-0");
    }

    #[test]
    fn values_stay_within_their_bounds() {
        let schema = json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {
            "type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 4.0,
        }});
        for number in 0..40 {
            let list = object_from(&schema, &[number; 4]);
            let list = list.as_array().unwrap();
            assert!((1..=2).contains(&list.len()));
            assert!(
                list.iter()
                    .all(|number| (2..=4).contains(&number.as_i64().unwrap())),
                "{list:?}"
            );
        }
        let text = json!({"type": "string", "minLength": 3, "maxLength": 4});
        for number in 0..9 {
            let length = object_from(&text, &[number])
                .as_str()
                .unwrap()
                .chars()
                .count();
            assert!((3..=4).contains(&length));
        }
    }
}
