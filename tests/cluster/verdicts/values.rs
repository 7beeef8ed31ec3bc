//! Generates values that fit a schema, and values that do not.

use fastrand::Rng;
use regex::Regex;
use serde_json::{Map, Value, json};

/// Texts that some schema, rule or parser treats specially, collected by experiment.
const WORDS: [&str; 62] = [
    "a",
    "web",
    "shop-2",
    "x-mcrouter",
    "1abc",
    "UPPER",
    "under_score",
    "a.b",
    "a/b",
    "example.com",
    "/var/lib/x",
    "relative/path",
    "../up",
    "-m64",
    "-v",
    "--port=1",
    "--memory-limit=1",
    "name",
    "initial-cluster",
    "-dash-",
    "0 2 * * *",
    "* * * *",
    "@daily",
    "@never",
    "day",
    "5m",
    "2h",
    "03:30",
    "25:61",
    "0",
    "1",
    "3",
    "9",
    "-1",
    "1Gi",
    "64Mi",
    "16m",
    "1024m",
    "512k",
    "100m",
    "1.5Gi",
    "1e3",
    "0%",
    "50%",
    "100%",
    "101%",
    "memory",
    "cpu",
    "DB1_HOST",
    "HOME",
    "latest",
    "nginx:1.27",
    "quo'te",
    "dou\"ble",
    "back\\slash",
    "<a>&b",
    "line\nfeed",
    "tab\t",
    "true",
    "null",
    "é",
    "\u{1d11e}",
];

/// Object names, valid and invalid.
const NAMES: [&str; 16] = [
    "web",
    "a",
    "shop-2",
    "x-mcrouter",
    "x-mysql",
    "x-mysql-exporter",
    "1abc",
    "a.b",
    "a..b",
    "-a",
    "a-",
    "Upper",
    "a_b",
    "a b",
    "é",
    "",
];

/// Name lengths around the limits in rules and for labels and names.
const NAME_LENGTHS: [usize; 12] = [40, 41, 44, 45, 50, 51, 52, 53, 63, 64, 253, 254];

#[derive(Debug)]
pub(super) struct Draw {
    pub(super) rng: Rng,
    /// The quoted texts in the rule that the generator targets.
    pub(super) hints: Vec<String>,
}

impl Draw {
    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.rng.u32(..times) == 0
    }

    pub(super) fn choose<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.rng.usize(..all.len())]
    }

    /// Returns an object name, valid or not.
    pub(super) fn name(&mut self) -> String {
        if self.one_in(2) {
            let length = *self.choose(&NAME_LENGTHS);
            return "a".repeat(length);
        }
        (*self.choose(&NAMES)).to_owned()
    }

    pub(super) fn word(&mut self) -> String {
        if !self.hints.is_empty() && self.one_in(2) {
            let hints = self.hints.clone();
            return self.choose(&hints).clone();
        }
        (*self.choose(&WORDS)).to_owned()
    }

    /// Tries to return a value that fits the schema.
    pub(super) fn value(&mut self, schema: &Value, depth: u32) -> Value {
        if let Some(options) = schema["enum"].as_array() {
            return self.choose(options).clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return match self.rng.u32(..3) {
                0 => json!(self.rng.i32(0..5)),
                _ => self.text(schema).into(),
            };
        }
        match schema["type"].as_str() {
            Some("boolean") => json!(self.rng.bool()),
            Some("integer") => json!(self.integer(schema)),
            Some("number") => json!(self.rng.f64()),
            Some("string") => self.text(schema).into(),
            Some("array") => {
                let min = size(&schema["minItems"]).unwrap_or(0);
                let max = size(&schema["maxItems"]).unwrap_or(usize::MAX);
                let count = self.rng.usize(min..=max.min(min + 2));
                (0..count)
                    .map(|_| self.value(&schema["items"], depth + 1))
                    .collect()
            }
            Some("object") => Value::Object(self.object(schema, depth)),
            _ => json!({ "free": self.word() }),
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Map<String, Value> {
        let mut map = Map::new();
        let required: Vec<&str> = strings(&schema["required"]);
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            if required.contains(&name.as_str()) || self.one_in(2 + 2 * depth) {
                map.insert(name.clone(), self.value(inner, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            let inner = &schema["additionalProperties"];
            for _ in 0..self.rng.u32(..3) {
                let key = self.word();
                map.insert(key, self.value(inner, depth + 1));
            }
        }
        map
    }

    fn integer(&mut self, schema: &Value) -> i64 {
        let min = bound(&schema["minimum"]).unwrap_or(0);
        let max = bound(&schema["maximum"]).unwrap_or_else(|| min.saturating_add(1000));
        match self.rng.u32(..4) {
            0 => min,
            1 => max,
            2 => self.rng.i64(min..=max),
            _ => self.rng.i64(min..=max.min(min.saturating_add(10))),
        }
    }

    /// Returns a text that fits the schema, or any text if no attempt fits.
    fn text(&mut self, schema: &Value) -> String {
        // Go and this crate agree on the patterns in our schemas.
        let pattern = schema["pattern"]
            .as_str()
            .map(|pattern| Regex::new(pattern).expect("a pattern of a schema is valid"));
        let min = size(&schema["minLength"]).unwrap_or(0);
        let max = size(&schema["maxLength"]).unwrap_or(usize::MAX);
        let mut text = self.word();
        for _ in 0..40 {
            let fits = (min..=max).contains(&text.chars().count())
                && pattern
                    .as_ref()
                    .is_none_or(|pattern| pattern.is_match(&text));
            if fits {
                break;
            }
            text = self.word();
        }
        text
    }

    /// Returns a value that probably does not fit the schema.
    pub(super) fn misfit(&mut self, schema: Option<&Value>) -> Value {
        let none = Value::Null;
        let schema = schema.unwrap_or(&none);
        if self.one_in(3)
            && let Some(value) = self.beyond(schema)
        {
            return value;
        }
        // No float without a fraction: `kubectl` sends it as an integer, and `render` reads it as one.
        let all = [
            json!(null),
            json!(true),
            json!(0),
            json!(-1),
            json!(1.5),
            json!(1e21),
            json!(1_u64 << 31),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(""),
            json!("5"),
            json!(self.word()),
            json!("x".repeat(300)),
            json!([]),
            json!([1, 1]),
            json!(["a", null]),
            json!([[]]),
            json!({}),
            json!({ "a": 1 }),
            json!([{ "a": {} }, { "name": "x" }]),
        ];
        self.choose(&all).clone()
    }

    /// Returns a value just beyond one of the schema's limits, if there are any.
    fn beyond(&mut self, schema: &Value) -> Option<Value> {
        let mut all = Vec::new();
        all.extend(bound(&schema["minimum"]).map(|min| json!(min.saturating_sub(1))));
        all.extend(bound(&schema["maximum"]).map(|max| json!(max.saturating_add(1))));
        if let Some(max) = size(&schema["maxLength"]) {
            all.extend([json!("y".repeat(max + 1)), json!("é".repeat(max))]);
        }
        all.extend(size(&schema["minLength"]).map(|_| json!("")));
        all.extend(
            schema["pattern"]
                .as_str()
                .map(|_| json!("no match, surely!")),
        );
        all.extend(schema["enum"].as_array().map(|_| json!("Other")));
        all.extend(size(&schema["minItems"]).map(|_| json!([])));
        if let Some(max) = size(&schema["maxItems"]).filter(|max| *max < 100) {
            let item = self.value(&schema["items"], 9);
            all.push(json!(vec![item; max + 1]));
        }
        (!all.is_empty()).then(|| self.choose(&all).clone())
    }
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Rounds a numeric limit to an integer.
fn bound(limit: &Value) -> Option<i64> {
    let float = || format!("{:.0}", limit.as_f64()?).parse().ok();
    limit.as_i64().or_else(float)
}

fn size(limit: &Value) -> Option<usize> {
    usize::try_from(limit.as_u64()?).ok()
}
