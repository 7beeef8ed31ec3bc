use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ResourceRequirements;
use serde::{Deserialize, Serialize};

use super::*;
use crate::reconciler;

#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Config {
    /// The image.
    #[schemars(length(min = 1), regex(pattern = "^a"))]
    image: String,
    /// The mode of an option.
    mode: Option<Mode>,
    plain: Mode,
    /// The nested object of an option.
    inner: Option<Inner>,
    #[schemars(range(min = 1, max = 9))]
    count: Option<u16>,
    names: BTreeSet<String>,
    labels: BTreeMap<String, String>,
    resources: Option<ResourceRequirements>,
    #[schemars(example = true, extend("deprecated" = true))]
    old: Option<bool>,
    #[schemars(extend("exclusiveMinimum" = 0))]
    ratio: f64,
}

/// A mode.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
enum Mode {
    /// The first.
    #[default]
    First,
    /// The second.
    Second,
}

#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Inner {
    name: String,
}

#[test]
fn a_configuration_has_the_form_that_the_host_accepts() {
    let schema = schema_of::<Config>();
    let field = |name: &str| schema["properties"][name].clone();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(
        field("image"),
        json!({"description": "The image.", "type": "string", "default": "", "minLength": 1, "pattern": "^a"})
    );
    assert_eq!(
        field("mode"),
        json!({"description": "The mode of an option.", "type": "string", "enum": ["First", "Second"], "nullable": true, "default": null})
    );
    assert_eq!(field("plain")["enum"], json!(["First", "Second"]));
    let inner = field("inner");
    assert_eq!(inner["description"], "The nested object of an option.");
    assert_eq!(
        (&inner["type"], &inner["nullable"]),
        (&json!("object"), &json!(true))
    );
    assert_eq!(inner["required"], json!(["name"]));
    assert_eq!(inner["additionalProperties"], false);
    let count = field("count");
    assert_eq!(
        (&count["type"], &count["nullable"]),
        (&json!("integer"), &json!(true))
    );
    assert_eq!(
        (&count["minimum"], &count["maximum"]),
        (&json!(1), &json!(9))
    );
    assert_eq!(field("names")["uniqueItems"], true);
    assert_eq!(
        field("labels")["additionalProperties"],
        json!({"type": "string"})
    );
    let limits = &field("resources")["properties"]["limits"]["additionalProperties"];
    assert_eq!(limits["x-kubernetes-int-or-string"], true);
    assert!(field("old").get("example").is_none() && field("old").get("deprecated").is_none());
    let ratio = field("ratio");
    assert_eq!(
        (&ratio["minimum"], &ratio["exclusiveMinimum"]),
        (&json!(0), &json!(true))
    );
    assert_eq!(<Config as reconciler::Config>::schema(), Some(schema));
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Recursive {
    below: Vec<Self>,
}

#[test]
#[should_panic(expected = "the type contains itself")]
fn a_recursive_type_is_no_configuration() {
    schema_of::<Recursive>();
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Store {
    Path(String),
    Url { url: String },
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct WithData {
    store: Vec<Store>,
}

#[test]
#[should_panic(
    expected = "config-schema.properties.store.items has oneOf: an enum with data has several forms"
)]
fn an_enum_with_data_is_no_configuration() {
    schema_of::<WithData>();
}
