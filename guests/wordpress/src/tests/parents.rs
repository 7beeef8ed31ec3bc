//! Parents that the definition admits, made from its schema.

use innkeeper_schema::RejectionCause;
use proptest::{prelude::*, sample::select, string::string_regex};
use serde_json::{Map, Value, json};

use super::{manifest, parent, schema};

/// Texts that are quantities, percentages, keys and names, or nearly so.
const TEXTS: [&str; 12] = [
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

/// A parent as the API server stores it. Each field of the spec that it would reject is left out.
pub(super) fn admitted(name: impl Strategy<Value = String>) -> impl Strategy<Value = Value> {
    let properties =
        &manifest().crds[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    (name, value(&properties["spec"])).prop_map(|(name, mut spec)| {
        loop {
            let object = parent(&name, &spec).as_object().unwrap().clone();
            let rejection = match schema().admit(object) {
                Ok(admitted) => return Value::Object(admitted.object),
                Err(rejection) => rejection,
            };
            let fields = spec.as_object_mut().unwrap();
            rejection
                .causes()
                .iter()
                .for_each(|it| leave_out(fields, it));
        }
    })
}

/// Removes the field that a cause is about, or those that the message of a rule over several fields names.
fn leave_out(fields: &mut Map<String, Value>, cause: &RejectionCause) {
    let field = cause.path.split(['.', '[']).nth(1).unwrap_or_default();
    if fields.remove(field).is_some() {
        return;
    }
    let message = cause.to_string().to_lowercase();
    let before = fields.len();
    fields.retain(|name, _| !message.contains(&name.to_lowercase()));
    if fields.len() == before {
        // The messages that name no field that is there.
        fields.remove("replicas");
        fields.remove("env");
    }
}

/// Any value of a schema's type, also one that its rules refuse.
fn value(schema: &Value) -> BoxedStrategy<Value> {
    let text = || prop_oneof![select(&TEXTS[..]).prop_map(str::to_owned), ".{0,8}"];
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
            let bound =
                |name: &str, default: i32| schema[name].as_i64().unwrap_or_else(|| default.into());
            let (least, most) = (bound("minimum", i32::MIN), bound("maximum", i32::MAX));
            let number = prop_oneof![Just(least), Just(most), least..=most];
            number.prop_map(Value::from).boxed()
        }
        "string" => match schema["pattern"].as_str() {
            // The generator makes whole texts, and knows no anchors.
            Some(pattern) => {
                let inner = pattern.trim_start_matches('^').trim_end_matches('$');
                string_regex(inner).unwrap().prop_map(Value::from).boxed()
            }
            None => text().prop_map(Value::from).boxed(),
        },
        "array" => prop::collection::vec(value(&schema["items"]), 0..4)
            .prop_map(Value::from)
            .boxed(),
        _ if schema.get("additionalProperties").is_some() => {
            let key = select(vec!["cpu", "memory", "a", "", "innkeeper.dev/key", "a/b"]);
            let members =
                prop::collection::btree_map(key, value(&schema["additionalProperties"]), 0..3);
            members.prop_map(|it| json!(it)).boxed()
        }
        _ => object(schema),
    }
}

fn object(schema: &Value) -> BoxedStrategy<Value> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let members = properties.map(|(name, schema)| {
        let (name, is_required) = (name.clone(), required.contains(&json!(name)));
        (value(schema), any::<bool>()).prop_map(move |(value, is_given)| {
            (is_required || is_given).then(|| (name.clone(), value))
        })
    });
    let members: Vec<_> = members.collect();
    let object = |it: Vec<_>| Value::Object(it.into_iter().flatten().collect());
    members.prop_map(object).boxed()
}
