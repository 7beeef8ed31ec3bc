//! Definitions against the Rust types that they are made of.

use std::collections::BTreeMap;

use expect_test::expect;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Crd;
use crate::manifest::Manifest;
use crate::testing::definition_problems;

/// A pond.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Pond",
    namespaced,
    status = "PondStatus",
    validation = Rule::new("self.metadata.name.size() <= 52").message("the name is too long")
)]
#[x_kube(validation = Rule::new("!has(self.ducks) || self.ducks > 0").message("no ducks"))]
#[serde(rename_all = "camelCase")]
struct PondSpec {
    /// The number of ducks.
    #[schemars(range(min = 0, max = 64))]
    ducks: Option<u32>,
    /// The way it is cleaned.
    #[serde(default)]
    mode: Mode,
    resources: Option<ResourceRequirements>,
    #[serde(default)]
    reeds: Reeds,
    extra: Option<Value>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
enum Mode {
    /// By hand.
    #[default]
    Hand,
    /// Never.
    Never,
}

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default)]
#[x_kube(validation = Rule::new("self.height < 10").message("too high"))]
#[serde(rename_all = "camelCase")]
struct Reeds {
    #[serde(default)]
    height: i32,
    #[serde(default)]
    kinds: Vec<String>,
    mode: Option<Mode>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
struct PondStatus {
    fish: i32,
    #[serde(default)]
    frogs: Vec<Reeds>,
    #[serde(default)]
    depth: i32,
}

/// A kind that is only read.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Lake",
    namespaced,
    doc = "A large pond."
)]
struct LakeSpec {
    pod: PodSpec,
}

/// A stream of water.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Brook",
    namespaced,
    status = "BrookStatus"
)]
struct BrookSpec {
    /// The way it is cleaned; by hand when absent.
    cleaning: Option<Cleaning>,
    /// The depth of the water in meters.
    depth: Option<Quantity>,
    /// The shore on the left.
    left: Option<Shore>,
}

/// A way to clean.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
enum Cleaning {
    /// By hand.
    Hand,
    /// Never.
    Never,
}

/// A shore.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
struct Shore {
    /// The way it is cleaned.
    cleaning: Option<Cleaning>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
struct BrookStatus {
    #[serde(default)]
    fish: i32,
    #[serde(default)]
    shores: Vec<ShoreStatus>,
    #[serde(default)]
    left: ShoreStatus,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
struct ShoreStatus {
    #[serde(default)]
    birds: i32,
}

fn check(schema: Option<&Value>, expected: expect_test::Expect) {
    let schema = schema.expect("a schema at the path");
    expected.assert_eq(&serde_json::to_string_pretty(schema).unwrap());
}

#[test]
fn describes_a_spec_as_its_types_do() {
    let crd = Crd::for_kind::<Pond>()
        .set("spec.extra", "x-kubernetes-preserve-unknown-fields", true)
        .edit_schema("spec.resources", serde_json::Map::clear);
    let expected = expect![[r#"
            {
              "description": "A pond.",
              "properties": {
                "ducks": {
                  "description": "The number of ducks.",
                  "format": "int64",
                  "maximum": 64,
                  "minimum": 0,
                  "type": "integer"
                },
                "extra": {
                  "x-kubernetes-preserve-unknown-fields": true
                },
                "mode": {
                  "default": "Hand",
                  "description": "The way it is cleaned.",
                  "enum": [
                    "Hand",
                    "Never"
                  ],
                  "type": "string"
                },
                "reeds": {
                  "default": {
                    "height": 0
                  },
                  "properties": {
                    "height": {
                      "default": 0,
                      "format": "int32",
                      "type": "integer"
                    },
                    "kinds": {
                      "items": {
                        "type": "string"
                      },
                      "type": "array"
                    },
                    "mode": {
                      "enum": [
                        "Hand",
                        "Never"
                      ],
                      "type": "string"
                    }
                  },
                  "type": "object",
                  "x-kubernetes-validations": [
                    {
                      "message": "too high",
                      "rule": "self.height < 10"
                    }
                  ]
                },
                "resources": {}
              },
              "type": "object",
              "x-kubernetes-validations": [
                {
                  "message": "no ducks",
                  "rule": "!has(self.ducks) || self.ducks > 0"
                }
              ]
            }"#]];
    check(crd.schema_at("spec"), expected);
}

#[test]
fn takes_quantities_as_numbers_too() {
    let crd = Crd::for_kind::<Pond>();
    let limits = crd.schema_at("spec.resources.limits{}").unwrap();
    assert_eq!(limits["x-kubernetes-int-or-string"], true);
    let parsed: ResourceRequirements =
        serde_json::from_value(json!({"limits": {"cpu": 1}})).unwrap();
    assert_eq!(parsed.limits.unwrap()["cpu"].0, "1");
}

#[test]
fn keeps_a_rule_of_the_root() {
    let crd = Crd::for_kind::<Pond>().rule("", "self.metadata.name != 'sea'", "a sea is no pond");
    let messages: Vec<&str> = crd.schema_at("").unwrap()["x-kubernetes-validations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["message"].as_str().unwrap())
        .collect();
    assert_eq!(messages, ["the name is too long", "a sea is no pond"]);
}

#[test]
fn has_conditions_as_a_list_map_below_a_status_of_its_own() {
    let crd = Crd::for_kind::<Pond>();
    assert_eq!(
        crd.value()["spec"]["versions"][0]["subresources"],
        json!({"status": {}})
    );
    let status = crd.schema_at("status").unwrap();
    // The host's conditions come without the plugin's fields.
    assert_eq!(status.get("required"), None);
    // A default would claim an observation that nothing has made.
    assert!(!status.to_string().contains("default"), "{status}");
    assert_eq!(
        status["properties"]["conditions"]["x-kubernetes-list-map-keys"],
        json!(["type"])
    );
}

#[test]
fn keeps_the_description_of_an_optional_field() {
    let crd = Crd::for_kind::<Brook>();
    let described = [
        (
            "spec.cleaning",
            "The way it is cleaned; by hand when absent.",
        ),
        ("spec.depth", "The depth of the water in meters."),
        ("spec.left", "The shore on the left."),
        ("spec.left.cleaning", "The way it is cleaned."),
    ];
    for (path, text) in described {
        assert_eq!(crd.schema_at(path).unwrap()["description"], text, "{path}");
    }
    let property = crd.property::<Option<Cleaning>>("", "cleaning");
    let schema = property.schema_at("cleaning").unwrap();
    assert_eq!(schema["description"], "A way to clean.");
    assert_structural("", property.schema_at("").unwrap());
}

#[test]
fn describes_the_root_by_its_spec_unless_the_author_does() {
    let text = |crd: Crd| crd.schema_at("").unwrap()["description"].clone();
    assert_eq!(text(Crd::for_kind::<Brook>()), "A stream of water.");
    assert_eq!(text(Crd::without_status::<Lake>()), "A large pond.");
}

#[test]
fn has_no_defaults_in_a_status() {
    let crd = Crd::for_kind::<Brook>();
    for path in ["fish", "shores[].birds", "left", "left.birds"] {
        let schema = crd.schema_at(&format!("status.{path}")).unwrap();
        assert_eq!(schema.get("default"), None, "{path}");
    }
    assert_eq!(crd.schema_at("status").unwrap().get("required"), None);
    assert_eq!(
        Crd::for_kind::<Pond>().schema_at("spec.mode").unwrap()["default"],
        "Hand"
    );
}

/// Checks that a schema is structural, as the API server requires for pruning: each type outside of
/// `allOf`, `anyOf` and `oneOf`.
fn assert_structural(path: &str, schema: &Value) {
    let Some(members) = schema.as_object() else {
        return;
    };
    assert!(!members.contains_key("$ref"), "a reference at {path}");
    let free = [
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
    ];
    let typed =
        members.contains_key("type") || free.iter().any(|keyword| members.contains_key(*keyword));
    assert!(typed, "no type at {path}: {schema}");
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for part in members
            .get(keyword)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            for forbidden in ["type", "description", "default", "properties"] {
                assert!(
                    part.get(forbidden).is_none(),
                    "{forbidden} in {keyword} at {path}"
                );
            }
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = members.get(keyword) {
            assert_structural(&format!("{path}.{keyword}"), below);
        }
    }
    for (name, below) in members
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        assert_structural(&format!("{path}.{name}"), below);
    }
}

#[test]
fn makes_structural_schemas_of_typed_blocks() {
    assert_structural("", Crd::for_kind::<Lake>().schema_at("").unwrap());
    let pond =
        Crd::for_kind::<Pond>().set("spec.extra", "x-kubernetes-preserve-unknown-fields", true);
    assert_structural("", pond.schema_at("").unwrap());
}

#[test]
fn leaves_a_kind_without_a_status_as_it_is() {
    let crd = Crd::without_status::<Lake>();
    assert_eq!(crd.schema_at("status"), None);
    assert!(
        Crd::for_kind::<Lake>()
            .schema_at("status.conditions")
            .is_some()
    );
}

#[test]
fn takes_properties_beside_the_spec() {
    let crd = Crd::for_kind::<Pond>()
        .property::<Vec<Reeds>>("", "reedRefs")
        .optional("", "spec")
        .set("reedRefs", "maxItems", 8);
    assert_eq!(crd.schema_at("reedRefs").unwrap()["maxItems"], 8);
    assert_eq!(
        crd.schema_at("reedRefs[].height").unwrap()["type"],
        "integer"
    );
    assert_eq!(crd.schema_at("").unwrap().get("required"), None);
}

#[test]
#[should_panic(expected = "there is no schema at \"spec.frogs\"")]
fn names_a_path_that_does_not_exist() {
    drop(Crd::for_kind::<Pond>().rule("spec.frogs", "true", ""));
}

#[test]
fn shortens_the_descriptions_of_kubernetes_types() {
    let size = |crd: &Crd| crd.value().to_string().len();
    let long = Crd::without_status::<Lake>();
    let short = long.clone().truncate_descriptions_below(4);
    assert!(size(&long) > 256 * 1024, "{}", size(&long));
    assert!(size(&short) < 128 * 1024, "{}", size(&short));
    let spec = short.schema_at("spec.pod.containers").unwrap();
    assert_eq!(
        spec["description"],
        "List of containers belonging to the pod. Containers cannot currently be added or removed. \
         There must be at least one container in a Pod. Cannot be updated.",
    );
}

/// Kinds of fields that have no bound of their own, and some that have one.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Canal",
    status = "CanalStatus"
)]
#[serde(rename_all = "camelCase")]
struct CanalSpec {
    name: String,
    lock_name: Option<String>,
    text: String,
    #[schemars(length(max = 16384))]
    script: String,
    mode: Mode,
    depth: Option<Quantity>,
    labels: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    #[schemars(extend("maxProperties" = 256))]
    data: BTreeMap<String, Vec<String>>,
    #[schemars(length(max = 2), inner(length(max = 8)))]
    gates: Vec<String>,
    ships: Vec<Vec<Shore>>,
    #[schemars(schema_with = "crate::schema::any_object")]
    block: Value,
    #[schemars(schema_with = "crate::schema::any_value")]
    anything: Value,
    width: i32,
    #[schemars(extend("format" = "date-time"))]
    opened: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
struct CanalStatus {
    text: String,
    ships: Vec<String>,
}

#[test]
fn each_text_list_and_map_has_a_bound() {
    let crd = Crd::for_kind::<Canal>()
        .property::<Vec<Shore>>("", "banks")
        .bounded();
    let cases = [
        ("spec.name", "maxLength", 253),
        ("spec.lockName", "maxLength", 253),
        ("spec.text", "maxLength", 4096),
        ("spec.script", "maxLength", 16_384),
        ("spec.depth", "maxLength", 64),
        ("spec.opened", "maxLength", 64),
        ("spec.labels", "maxProperties", 64),
        ("spec.labels{}", "maxLength", 63),
        ("spec.settings", "maxProperties", 64),
        ("spec.settings{}", "maxLength", 4096),
        ("spec.data", "maxProperties", 256),
        ("spec.data{}", "maxItems", 64),
        ("spec.data{}[]", "maxLength", 4096),
        ("spec.gates", "maxItems", 2),
        ("spec.gates[]", "maxLength", 8),
        ("spec.ships", "maxItems", 64),
        ("spec.ships[]", "maxItems", 64),
        ("spec.block", "maxProperties", 64),
        ("spec.anything", "maxLength", 4096),
        ("spec.anything", "maxItems", 64),
        ("spec.anything", "maxProperties", 64),
        ("banks", "maxItems", 64),
        ("status.text", "maxLength", 32_768),
        ("status.ships", "maxItems", 1024),
        ("status.conditions", "maxItems", 1024),
        ("status.conditions[].type", "maxLength", 316),
    ];
    for (path, keyword, max) in cases {
        let schema = crd.schema_at(path).unwrap();
        assert_eq!(schema[keyword], max, "{path} {keyword}");
    }
    for path in ["spec.mode", "spec.width", "spec.ships[][]"] {
        let schema = crd.schema_at(path).unwrap().to_string();
        assert!(!schema.contains("\"max"), "{path}: {schema}");
    }
    assert_eq!(crd.clone().bounded(), crd, "bounds are added once");
}

#[test]
fn the_types_of_kubernetes_have_bounds_too() {
    let manifest = Manifest::new("lakes", "1.0.0").crd(Crd::without_status::<Lake>());
    let problems = definition_problems(&manifest);
    let unbounded: Vec<&String> = problems
        .iter()
        .filter(|problem| problem.contains(" has no max"))
        .collect();
    assert_eq!(unbounded, Vec::<&String>::new());
    let raw = Crd::without_status::<Lake>().into_value();
    let manifest = Manifest {
        crds: vec![raw],
        ..manifest
    };
    let problems = definition_problems(&manifest);
    let name = "lakes.example.com: .spec.pod.containers[].name has no maxLength";
    assert!(problems.contains(&name.to_owned()), "{problems:?}");
}

#[test]
fn a_type_without_columns_shows_the_conditions_and_the_age() {
    let crd = Crd::for_kind::<Pond>();
    let columns = |crd: &Crd| {
        crd.value()["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| format!("{} {}", column["name"], column["jsonPath"]).replace('\\', ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        columns(&crd),
        [
            "\"Ready\" \".status.conditions[?(@.type==\"Ready\")].status\"",
            "\"Synced\" \".status.conditions[?(@.type==\"Synced\")].status\"",
            "\"Age\" \".metadata.creationTimestamp\"",
        ]
    );
    let own = Crd::for_kind::<Moat>();
    let depth = "\"Depth\" \".spec.depth\"";
    assert_eq!(columns(&own), [depth]);
    assert_eq!(
        columns(&own.with_condition_columns()),
        [
            "\"Ready\" \".status.conditions[?(@.type==\"Ready\")].status\"",
            "\"Reason\" \".status.conditions[?(@.type==\"Ready\")].reason\"",
            depth,
            "\"Age\" \".metadata.creationTimestamp\"",
        ]
    );
}

#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Moat",
    printcolumn(name = "Depth", type_ = "integer", json_path = ".spec.depth")
)]
struct MoatSpec {
    depth: i32,
}
