//! Parents and verdicts for testing the shipped plugins.
//!
//! A separate crate, because neither plugins nor authors need proptest.

use innkeeper_crd::{Admitted, RejectionCause, Schema, config};
use innkeeper_sdk::fault::Fault;
use proptest::{prelude::*, sample::select, string::string_regex};
use serde_json::{Map, Value, json};

/// Texts that are, or almost are, quantities, percentages, keys and names.
pub const TEXTS: [&str; 12] = [
    "",
    "0",
    "1",
    "1.5",
    "100m",
    "128Mi",
    "1e3",
    "-1Ki",
    "50%",
    "100%",
    "cpu",
    "a/b\u{0}\u{1d11e}",
];

/// Generates values of a schema's type, including ones that the rules reject.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// Texts to try besides random ones.
    pub texts: &'static [&'static str],
    /// The probability that an optional field is present.
    pub given: f64,
}

impl Default for Values {
    /// [`TEXTS`], and half of the optional fields.
    fn default() -> Self {
        Self {
            texts: &TEXTS,
            given: 0.5,
        }
    }
}

impl Values {
    /// Generates any value of a schema's type.
    ///
    /// # Panics
    ///
    /// Panics if a pattern in the schema is no regular expression.
    pub fn strategy(self, schema: &Value) -> BoxedStrategy<Value> {
        let text = || prop_oneof![select(self.texts).prop_map(str::to_owned), ".{0,8}"];
        if let Some(values) = schema["enum"].as_array() {
            return select(values.clone()).boxed();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            let number = any::<i32>().prop_map(Value::from);
            return prop_oneof![number, text().prop_map(Value::from)].boxed();
        }
        match schema["type"].as_str().unwrap_or_default() {
            "boolean" => any::<bool>().prop_map(Value::from).boxed(),
            "integer" => {
                let bound = |name: &str, default: i32| {
                    schema[name].as_i64().unwrap_or_else(|| default.into())
                };
                let least = bound("minimum", i32::MIN);
                let most = bound("maximum", i32::MAX);
                prop_oneof![Just(least), Just(most), least..=most]
                    .prop_map(Value::from)
                    .boxed()
            }
            "string" => match schema["pattern"].as_str() {
                // The generator produces whole texts and knows no anchors.
                Some(pattern) => {
                    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
                    let matching =
                        string_regex(inner).expect("the pattern is a regular expression");
                    matching.prop_map(Value::from).boxed()
                }
                None => text().prop_map(Value::from).boxed(),
            },
            "array" => prop::collection::vec(self.strategy(&schema["items"]), 0..4)
                .prop_map(Value::from)
                .boxed(),
            _ if schema.get("additionalProperties").is_some() => {
                let key = select(vec!["cpu", "memory", "a", "", "innkeeper.dev/key", "a/b"]);
                let value = self.strategy(&schema["additionalProperties"]);
                prop::collection::btree_map(key, value, 0..3)
                    .prop_map(|map| json!(map))
                    .boxed()
            }
            _ => self.object(schema),
        }
    }

    fn object(self, schema: &Value) -> BoxedStrategy<Value> {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let members = properties.map(|(name, schema)| {
            let is_required = required.contains(&json!(name));
            let name = name.clone();
            let presence = prop::bool::weighted(self.given);
            (self.strategy(schema), presence).prop_map(move |(value, is_given)| {
                (is_required || is_given).then(|| (name.clone(), value))
            })
        });
        let members: Vec<_> = members.collect();
        let object = |members: Vec<_>| Value::Object(members.into_iter().flatten().collect());
        members.prop_map(object).boxed()
    }
}

/// The object as the API server stores it, without the fields that it would reject; `leave_out` removes the fields
/// that a cause concerns.
pub fn admitted(
    schema: &Schema,
    mut object: Map<String, Value>,
    leave_out: impl Fn(&mut Map<String, Value>, &RejectionCause),
) -> Value {
    loop {
        let rejection = match schema.admit(object.clone()) {
            Ok(admitted) => return Value::Object(admitted.object),
            Err(rejection) => rejection,
        };
        for cause in rejection.causes() {
            leave_out(&mut object, cause);
        }
    }
}

/// Removes the spec field that a cause concerns, or these fields if a rule over several fields rejects the object.
pub fn leave_out_of_spec(
    object: &mut Map<String, Value>,
    cause: &RejectionCause,
    of_rules: &[&str],
) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else {
        return;
    };
    let field = cause.path.split(['.', '[']).nth(1).unwrap_or_default();
    if spec.remove(field).is_none() {
        spec.retain(|name, _| !of_rules.contains(&name.as_str()));
    }
}

/// The object as the API server stores it, or the verdict in one line.
///
/// # Errors
///
/// Returns the causes of a rejection.
pub fn admit(schema: &Schema, object: Map<String, Value>) -> Result<Admitted, String> {
    schema.admit(object).map_err(|rejection| {
        let causes: Vec<String> = rejection
            .causes()
            .iter()
            .map(ToString::to_string)
            // The note about skipped rules says nothing about the object.
            .filter(|cause| !cause.starts_with("the object: not all rules"))
            .collect();
        format!("rejected, {}", causes.join("; "))
    })
}

/// A plugin's one-line verdict on an admitted parent; the caller passes an answer as text.
pub fn verdict(admitted: &Admitted, answer: Result<String, Fault>) -> String {
    let verdict = match answer {
        Ok(answer) => answer,
        Err(fault) => format!("{:?}, {}", fault.kind, fault.message),
    };
    match &admitted.unknown_fields[..] {
        [] => verdict,
        fields => format!("{verdict} without {}", fields.join(", ")),
    }
}

/// The verdicts on the fields that every plugin's configuration has.
fn common_verdicts() -> [(Value, &'static str); 7] {
    [
        (json!({}), ""),
        (json!({"images": {}}), ""),
        (
            json!({"images": {"other": "a"}}),
            "/images: Additional properties are not allowed",
        ),
        (json!({"imags": {}}), "'imags' was unexpected"),
        (json!({"images": null}), "/images: null is not of type"),
        (
            json!({"tenants": {"images": "a"}}),
            "/tenants/images: \"a\" is not of type \"array\"",
        ),
        (
            json!({"tenants": {"images": [1]}}),
            "/tenants/images/0: 1 is not of type \"string\"",
        ),
    ]
}

/// Checks that the host accepts a configuration schema, and how it judges configurations: a part of the problem, or
/// empty for none. The plugin must be able to read each configuration that the host accepts. Also checks the fields
/// that all plugins share.
///
/// # Panics
///
/// Panics at the first difference.
pub fn check_configurations(
    schema: Option<&Value>,
    verdicts: &[(Value, &str)],
    reads: impl Fn(Value) -> bool,
) {
    let schema = schema.unwrap_or(&Value::Null);
    let checked = config::check_size(schema.to_string().len()).and_then(|()| config::check(schema));
    assert_eq!(checked, Ok(()), "the host refuses the schema");
    for (value, expected) in common_verdicts().iter().chain(verdicts) {
        let problems = config::problems(schema, value)
            .unwrap_or_else(|refusal| vec![refusal.to_string()])
            .join("; ");
        assert_eq!(
            problems.is_empty(),
            expected.is_empty(),
            "{value}: {problems}"
        );
        assert!(problems.contains(expected), "{value}: {problems}");
        assert!(
            !problems.is_empty() || reads(value.clone()),
            "{value} is not read"
        );
    }
}
