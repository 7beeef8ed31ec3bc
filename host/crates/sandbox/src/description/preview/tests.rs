use std::thread;

use serde_json::{Value, json};
use wasm_encoder::{ComponentSection, CustomSection};

use super::*;
use crate::{
    Metering,
    description::{SECTION, embed},
    testing::{described, engine, guest},
};

/// A host thread's stack.
const STACK_BYTES: usize = 2 << 20;

/// Returns a component that has only this text as its embedded description.
fn with_text(text: &[u8]) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    let section = CustomSection {
        name: SECTION.into(),
        data: text.into(),
    };
    section.append_to_component(&mut bytes);
    bytes
}

fn web() -> Value {
    json!({
        "name": "web", "version": "1", "finalize": false, "readsOwnStatus": false, "crds": [],
        "parents": [{"apiVersion": "a/v1", "kind": "Web", "plural": "webs", "scope": "Namespaced"}],
        "children": [{"apiVersion": "apps/v1", "kind": "Deployment", "required": true, "readyCondition": null}],
        "reads": [{"apiVersion": "v1", "kind": "Secret", "access": "hash", "scope": "ParentNamespace", "labelSelector": "a=b"}],
    })
}

fn preview_of(description: &Value) -> Result<Preview, Error> {
    let read = preview(&with_text(description.to_string().as_bytes()))?;
    Ok(read.unwrap())
}

#[test]
fn the_preview_has_the_requests_of_the_description() {
    let engine = engine(Metering::Epochs);
    let bytes = guest().build();
    assert_eq!(preview(&bytes).unwrap(), None);
    let manifest = described(&engine, &bytes).manifest().clone();
    let read = preview(&embed(&bytes, &manifest)).unwrap().unwrap();
    assert_eq!(read.requests, Requests::from(&manifest));
    assert_eq!(
        (read.name, read.version),
        (manifest.name.clone(), manifest.version.clone())
    );
    assert!(preview(&embed(&embed(&bytes, &manifest), &manifest)).is_err());

    // A read without a selector reads all objects.
    let reads = json!([{"apiVersion": "v1", "kind": "Pod", "access": "full", "scope": "Cluster"}]);
    let whole = json!({"name": "web", "version": "1", "finalize": false, "crds": [], "configSchema": null,
        "parents": web()["parents"], "children": web()["children"], "reads": reads});
    let manifest: innkeeper_model::Manifest = serde_json::from_value(whole).unwrap();
    let read = preview(&embed(b"\0asm\x0d\0\x01\0", &manifest))
        .unwrap()
        .unwrap();
    assert_eq!(read.requests, Requests::from(&manifest));

    let mut web = web();
    web["crds"] =
        json!([{"spec": {"group": "b", "names": {"kind": "Pond"}, "versions": [{"schema": 7}]}}]);
    let requests = preview_of(&web).unwrap().requests;
    assert_eq!(requests.crds, [GroupKind::new("b", "Pond")]);
    assert_eq!(
        requests.children,
        [(GroupKind::new("apps", "Deployment"), true)]
    );
    assert_eq!(requests.reads[0].label_selector.to_string(), "a=b");
}

#[test]
fn a_description_that_breaks_a_rule_or_a_bound_has_no_preview() {
    let kind = |number: usize| json!({"apiVersion": "a/v1", "kind": format!("Web{number}"), "required": true, "access": "full", "scope": "Cluster", "spec": {"group": "a", "names": {"kind": "Web"}}});
    let kinds = |count: usize| (0..count).map(kind).collect::<Vec<_>>();
    preview_of(&json!({"name": "web", "version": "1", "parents": kinds(16), "crds": kinds(64), "children": kinds(128), "reads": kinds(128)})).unwrap();
    for (field, value, problem) in [
        ("name", json!("We b"), "is not a plugin name"),
        ("version", json!(""), "is not a version"),
        ("version", json!("1".repeat(129)), "is not a version"),
        ("parents", json!([]), "no kind of parent"),
        (
            "parents",
            json!([{"apiVersion": "a/b/v1", "kind": "Web"}]),
            "is not an apiVersion",
        ),
        (
            "parents",
            json!([{"apiVersion": "a/v1", "kind": "web"}]),
            "invalid kind",
        ),
        ("parents", json!(kinds(17)), "more than 16 entries"),
        ("crds", json!(kinds(65)), "more than 64 entries"),
        (
            "crds",
            json!([{"spec": {"group": "a", "names": {"kind": "\u{1b}[2J"}}}]),
            "invalid kind",
        ),
        ("children", json!(kinds(129)), "more than 128 entries"),
        (
            "children",
            json!([{"apiVersion": "a/b/v1", "kind": "Web", "required": true}]),
            "no valid apiVersion",
        ),
        ("reads", json!(kinds(129)), "more than 128 entries"),
        (
            "reads",
            json!([{"apiVersion": "v1", "kind": "Pod", "access": "x".repeat(10_000), "scope": "Cluster"}]),
            "unknown variant",
        ),
        (
            "reads",
            json!([{"apiVersion": "v1", "kind": "Pod", "access": "full", "scope": "Cluster", "labelSelector": "a,".repeat(4096)}]),
            "in at most 4096 bytes",
        ),
    ] {
        let mut web = web();
        web[field] = value;
        let error = preview_of(&web).unwrap_err();
        let text = innkeeper_model::error_chain(&error).to_string();
        assert!(text.contains(problem) && text.len() < 500, "{text}");
    }
    let text = web().to_string();
    for broken in [
        text.replacen('{', "[", 1),
        text.replacen("\"name\"", "\"name\":\"a\",\"name\"", 1),
    ] {
        assert!(preview(&with_text(broken.as_bytes())).is_err(), "{broken}");
    }
    let long = format!("{text}{}", " ".repeat(BYTES_MAX));
    let error = preview(&with_text(long.as_bytes()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("more than 4194304 bytes"), "{error}");
}

/// The host reads these texts before it knows if anything is granted. Built as values, some overflow the stack and
/// others take hundreds of MB.
#[test]
fn the_preview_skips_hostile_parts_without_building_them() {
    let web = web().to_string();
    let with = |field: &str, value: &str| format!("{{\"{field}\":{value},{}", &web[1..]);
    let many = |part: &str, bytes: usize| part.repeat(bytes / part.len());
    let deep = BYTES_MAX / 2 - 4096;
    let texts = [
        with("configSchema", &format!("{}{}", "[".repeat(deep), "]".repeat(deep))),
        with("configSchema", &format!("[{}0]", many("{\"\":0},", BYTES_MAX - 4096))),
        with("configSchema", &format!("{{{}\"a\":0}}", many("\"$ref\":{\"a\":0},", BYTES_MAX - 4096))),
        web.replacen("\"crds\":[]", &format!("\"crds\":[{{\"spec\":{{\"group\":\"a\",\"names\":{{\"kind\":\"Web\"}},\"versions\":{}{}}}}}]", "[".repeat(deep), "]".repeat(deep)), 1),
    ];
    let thread = thread::Builder::new().stack_size(STACK_BYTES);
    let read = thread.spawn(move || {
        for text in texts {
            let read = preview(&with_text(text.as_bytes())).unwrap().unwrap();
            assert_eq!(read.name.as_str(), "web");
        }
    });
    read.unwrap().join().unwrap();
}

#[test]
fn the_schema_of_a_configuration_is_refused_with_its_path_and_not_compiled() {
    let mut definitions: serde_json::Map<String, Value> = (0..1500)
        .map(|number| {
            let next = format!("#/$defs/a{}", number + 1);
            let schema = json!({"$ref": next, "unevaluatedProperties": false});
            (format!("a{number}"), schema)
        })
        .collect();
    definitions.insert("a1500".to_owned(), json!({"type": "object"}));
    let pattern =
        |number: usize| json!({"properties": {"k": {"pattern": format!("^\\w{{100}}a{number}$")}}});
    let patterns: Vec<Value> = (0..1000).map(pattern).collect();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let rows = [
        (
            json!({"$defs": definitions, "$ref": "#/$defs/a0"}).to_string(),
            "config-schema.$defs: ",
        ),
        (
            json!({"type": "object", "allOf": patterns}).to_string(),
            "config-schema.allOf: ",
        ),
        (
            json!({"type": "object", "description": "x".repeat(200_000)}).to_string(),
            "config-schema: it has ",
        ),
        (deep, "config-schema: it has "),
        ("[".repeat(1000) + &"]".repeat(1000), "config-schema: "),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}}).to_string(),
            "",
        ),
        ("null".to_owned(), ""),
    ];
    let web = web().to_string();
    for (schema, problem) in rows {
        let text = format!("{{\"configSchema\":{schema},{}", &web[1..]);
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        let checked = thread
            .spawn(move || check_schema(&with_text(text.as_bytes())))
            .unwrap()
            .join()
            .unwrap();
        let shown = checked.map_or_else(
            |error| innkeeper_model::error_chain(&error).to_string(),
            |()| String::new(),
        );
        assert!(shown.contains(problem), "{shown}");
        assert_eq!(shown.is_empty(), problem.is_empty(), "{shown}");
        assert!(shown.len() < 1000, "{shown}");
    }
}
