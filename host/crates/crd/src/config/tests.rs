use std::thread;

use serde_json::json;

use super::*;

/// A host thread's stack.
const STACK_BYTES: usize = 2 << 20;

/// Wraps a schema in this many others.
fn nested(levels: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(json!({"type": "string"}), |inner, _| wrap(inner))
}

/// Returns a schema with definitions that each refer to the next one in this way.
fn chain(levels: usize, refer: impl Fn(&str) -> Value) -> Value {
    let mut definitions = Map::new();
    for level in 0..levels {
        let next = format!("#/$defs/a{}", level + 1);
        definitions.insert(format!("a{level}"), refer(&next));
    }
    definitions.insert(format!("a{levels}"), json!({"type": "object"}));
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_schema_outside_of_the_accepted_form_is_refused_with_its_path_and_the_remedy() {
    let in_a = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let place = "state the schema in place of the reference";
    let nullable = "nullable: true";
    for (schema, at, remedy) in [
        (json!({"$ref": "#"}), "$ref", place),
        (json!({"$dynamicRef": "#a"}), "$dynamicRef", place),
        (json!({"$defs": {}}), "$defs", "where it is used"),
        (in_a(json!({"$ref": "#"})), "properties.a.$ref", place),
        (
            in_a(json!({"type": ["string", "null"]})),
            "properties.a.type",
            nullable,
        ),
        (
            in_a(json!({"type": "null"})),
            "properties.a.type",
            "one of array",
        ),
        (
            in_a(json!({"anyOf": [{"type": "null"}]})),
            "properties.a.anyOf",
            nullable,
        ),
        (in_a(json!({"allOf": []})), "properties.a.allOf", nullable),
        (in_a(json!({"oneOf": []})), "properties.a.oneOf", nullable),
        (in_a(json!({"not": {}})), "properties.a.not", nullable),
        (in_a(json!({"if": {}})), "properties.a.if", nullable),
        (
            in_a(json!({"const": 1})),
            "properties.a.const",
            "enum with one value",
        ),
        (
            in_a(json!({"prefixItems": []})),
            "properties.a.prefixItems",
            "one schema for all items",
        ),
        (
            in_a(json!({"patternProperties": {}})),
            "properties.a.patternProperties",
            "additionalProperties",
        ),
        (
            in_a(json!({"examples": [1]})),
            "properties.a.examples",
            "remove it; accepted are additionalProperties",
        ),
        (
            in_a(json!({"$schema": "x"})),
            "properties.a.$schema",
            "at the root only",
        ),
        (
            in_a(json!({"items": true})),
            "properties.a.items",
            "an object of keywords",
        ),
        (
            in_a(json!({"items": [{}]})),
            "properties.a.items",
            "an object of keywords",
        ),
        (
            in_a(json!({"exclusiveMinimum": 1})),
            "properties.a.exclusiveMinimum",
            "beside minimum",
        ),
        (
            in_a(json!({"exclusiveMinimum": true})),
            "properties.a.exclusiveMinimum",
            "beside minimum",
        ),
        (
            in_a(json!({"multipleOf": 0})),
            "properties.a.multipleOf",
            "above zero",
        ),
        (
            in_a(json!({"maxLength": -1})),
            "properties.a.maxLength",
            "from zero",
        ),
        (
            in_a(json!({"enum": []})),
            "properties.a.enum",
            "at least one",
        ),
        (
            in_a(json!({"required": true})),
            "properties.a.required",
            "a list of names",
        ),
        (
            in_a(json!({"nullable": 1})),
            "properties.a.nullable",
            "true or false",
        ),
        (in_a(json!({"title": 1})), "properties.a.title", "a text"),
        (
            in_a(json!({"pattern": 1})),
            "properties.a.pattern",
            "a text",
        ),
        (
            in_a(json!({"pattern": "a".repeat(1025)})),
            "properties.a.pattern",
            "at most 1024",
        ),
        (
            in_a(json!({"default": nested(17, |inner| json!([inner]))})),
            "properties.a.default",
            "a flatter one",
        ),
        (in_a(json!(7)), "properties.a", "an object of keywords"),
        (json!({"properties": []}), "properties", "schemas by name"),
        (
            json!({"unevaluatedProperties": false}),
            "unevaluatedProperties",
            "additionalProperties: false",
        ),
        (
            json!({"unevaluatedItems": false}),
            "unevaluatedItems",
            "one schema for all items",
        ),
        (
            json!({"additionalProperties": {"items": {"$ref": "#"}}}),
            "additionalProperties.items.$ref",
            place,
        ),
        (json!({"type": "string"}), "type", "state object"),
    ] {
        let refusal = check(&schema).unwrap_err();
        assert_eq!(refusal.at, format!("config-schema.{at}"), "{schema}");
        assert!(refusal.problem.contains(remedy), "{refusal}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn the_accepted_keywords_are_those_of_definitions() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Config",
        "description": "Settings.",
        "type": "object",
        "required": ["image"],
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 9,
        "properties": {
            "image": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a", "default": "a"},
            "mode": {"type": "string", "enum": ["a", "b"], "nullable": true, "format": "x"},
            "count": {"type": "integer", "minimum": 0, "maximum": 9, "exclusiveMaximum": true, "multipleOf": 3},
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3, "uniqueItems": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "port": {"x-kubernetes-int-or-string": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "flag": {"type": "boolean", "additionalProperties": true},
        },
    });
    check(&schema).unwrap();
    check(&json!({})).unwrap();
    let image = json!({"image": "a"});
    let with = |field: &str, value: Value| {
        let mut config = image.clone();
        config[field] = value;
        config
    };
    for good in [
        image.clone(),
        with("mode", json!(null)),
        with("mode", json!("b")),
        with("count", json!(6)),
        with("names", json!(["a", "b"])),
        with("labels", json!({"a": "b"})),
        with("port", json!(1)),
        with("port", json!("http")),
        with("any", json!([{"a": null}])),
        with("flag", json!(true)),
    ] {
        assert_eq!(problems(&schema, &good), Ok(Vec::new()), "{good}");
    }
    for (bad, problem) in [
        (json!({}), "\"image\" is a required property"),
        (
            with("image", json!(null)),
            "/image: null is not of type \"string\"",
        ),
        (with("image", json!("b")), "/image: \"b\" does not match"),
        (with("mode", json!("c")), "/mode: \"c\" is not one of"),
        (
            with("count", json!(9)),
            "/count: 9 is greater than or equal to the maximum of 9",
        ),
        (with("count", json!(4)), "/count: 4 is not a multiple of 3"),
        (
            with("names", json!(["a", "a"])),
            "/names: [\"a\",\"a\"] has non-unique elements",
        ),
        (
            with("names", json!([1])),
            "/names/0: 1 is not of type \"string\"",
        ),
        (
            with("labels", json!({"a": 1})),
            "/labels/a: 1 is not of type \"string\"",
        ),
        (
            with("port", json!(true)),
            "/port: true is not of types \"integer\", \"string\"",
        ),
        (with("other", json!(1)), "'other' was unexpected"),
    ] {
        let listed = problems(&schema, &bad).unwrap();
        assert!(
            listed.iter().any(|text| text.contains(problem)),
            "{listed:?}"
        );
    }
}

#[test]
fn a_schema_is_bounded_in_depth_and_parts() {
    // The root and the property are two levels.
    let deep = |levels: usize| {
        let inner = nested(levels - 2, |inner| json!({"items": inner}));
        json!({"properties": {"a": inner}})
    };
    check(&deep(DEPTH_MAX)).unwrap();
    let refusal = check(&deep(DEPTH_MAX + 1)).unwrap_err();
    assert!(refusal.problem.contains("32 levels"), "{refusal}");
    let wide = |count: usize| {
        let fields = (0..count).map(|number| (format!("a{number}"), json!({})));
        json!({"properties": fields.collect::<Map<_, _>>()})
    };
    check(&wide(NODES_MAX - 1)).unwrap();
    let refusal = check(&wide(NODES_MAX)).unwrap_err();
    assert!(refusal.problem.contains("4096 parts"), "{refusal}");
    check_size(BYTES_MAX).unwrap();
    assert!(
        check_size(BYTES_MAX + 1)
            .unwrap_err()
            .problem
            .contains("at most 131072")
    );
}

/// Each of these overflowed the compiler's stack or took gigabytes.
#[test]
fn chains_of_references_and_costly_patterns_are_refused_before_anything_is_compiled() {
    let refers: [fn(&str) -> Value; 10] = [
        |next| json!({"$ref": next}),
        |next| json!({"allOf": [{"$ref": next}]}),
        |next| json!({"not": {"$ref": next}}),
        |next| json!({"properties": {"a": {"$ref": next}}}),
        |next| json!({"items": {"$ref": next}}),
        |next| json!({"if": {"$ref": next}, "then": true}),
        |next| json!({"allOf": [{"$ref": next}], "unevaluatedProperties": false}),
        |next| json!({"$dynamicRef": next}),
        |next| json!({"anyOf": [{"$ref": next}, {"$ref": next}]}),
        |next| json!({"$ref": next, "unevaluatedProperties": false}),
    ];
    let mut schemas: Vec<Value> = refers.iter().map(|refer| chain(1500, refer)).collect();
    for pattern in [r"^\w{100}a", r"^[\p{L}\p{N}]{60}a"] {
        let part =
            |number| json!({"properties": {"k": {"pattern": format!("{pattern}{number}$")}}});
        let parts: Vec<Value> = (0..2000).map(part).collect();
        schemas.push(json!({"type": "object", "allOf": parts}));
    }
    let thread = thread::Builder::new().stack_size(STACK_BYTES);
    let refused = thread.spawn(move || {
        for schema in schemas {
            let refusal = check(&schema).unwrap_err();
            assert!(refusal.at.starts_with("config-schema."), "{refusal}");
        }
    });
    refused.unwrap().join().unwrap();
}

#[test]
fn a_pattern_that_is_wrong_or_large_is_a_fault_of_the_schema() {
    for (pattern, problem) in [
        ("(", "config-schema.properties.k.pattern: "),
        (r"(?=a)", "cannot look around"),
        (r"[\p{L}\p{N}]{60}", "at most 262144 bytes of memory"),
    ] {
        let schema = json!({"properties": {"k": {"pattern": pattern}}});
        check(&schema).unwrap();
        let refusal = problems(&schema, &json!({})).unwrap_err();
        assert!(refusal.to_string().contains(problem), "{refusal}");
    }
}

#[test]
fn problems_are_few_and_short() {
    let schema = json!({"additionalProperties": {"type": "string", "maxLength": 1}});
    let long = "a".repeat(10_000);
    let fields = (0..20).map(|number| (format!("a{number}"), json!(long)));
    let listed = problems(&schema, &Value::Object(fields.collect())).unwrap();
    assert_eq!(listed.len(), PROBLEMS_MAX);
    assert!(
        listed
            .iter()
            .all(|text| text.chars().count() <= bounds::PROBLEM_CHARS_MAX + 1)
    );
    let name = "\u{1b}[2J\n".repeat(100);
    let refusal = check(&json!({"properties": {name: 1}})).unwrap_err();
    assert!(
        refusal.at.len() < 400 && !refusal.at.contains(['\u{1b}', '\n']),
        "{refusal}"
    );
}
