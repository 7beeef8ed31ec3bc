//! Compared with what an API server of Kubernetes 1.36 answered.
//!
//! `tests/cases.yaml` was sent to one as creates with `dryRun=All` and `fieldValidation=Ignore`, and `tests/answers.json`
//! is what came back, without what a server adds.

use std::fmt::Write as _;

use expect_test::expect;
use serde_json::{Map, Value, json};

use super::*;

fn crd() -> Map<String, Value> {
    match innkeeper_model::yaml::read(include_str!("tests/crd.yaml"))
        .unwrap()
        .remove(0)
    {
        Value::Object(crd) => crd,
        other => panic!("{other} is an object"),
    }
}

fn widgets() -> Schema {
    Schema::new(&crd(), "v1").unwrap()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is an object"),
    }
}

/// A case is the object without its type.
fn widget(case: &Value) -> Map<String, Value> {
    let mut widget = object(case.clone());
    let mut metadata = json!({"namespace": "default"});
    for (key, value) in widget
        .remove("metadata")
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        metadata[key] = value.clone();
    }
    metadata["name"] = widget.remove("name").unwrap();
    widget.insert("metadata".to_owned(), metadata);
    widget.insert("apiVersion".to_owned(), "test.innkeeper.dev/v1".into());
    widget.insert("kind".to_owned(), "Widget".into());
    widget
}

fn verdict(schema: &Schema, case: &Value) -> Value {
    let name = &case["name"];
    match schema.admit(widget(case)) {
        Ok(mut admitted) => {
            admitted.object.remove("status");
            json!({"name": name, "object": admitted.object})
        }
        Err(rejection) => {
            let mut causes: Vec<String> = rejection.causes().iter().map(Cause::to_string).collect();
            causes.sort();
            if causes.len() == 1 {
                json!({"name": name, "causes": causes, "message": rejection.to_string()})
            } else {
                json!({"name": name, "causes": causes})
            }
        }
    }
}

#[test]
fn answers_as_an_api_server() {
    let schema = widgets();
    let cases = innkeeper_model::yaml::read(include_str!("tests/cases.yaml"))
        .unwrap()
        .remove(0);
    let answers: Vec<Value> = serde_json::from_str(include_str!("tests/answers.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), answers.len());
    let mut differences = String::new();
    for (case, answer) in cases.iter().zip(&answers) {
        let ours = verdict(&schema, case);
        if answer.get("causes").is_none() && answer.get("message").is_some() {
            // The server could not even decode it; its words for that are its decoder's.
            assert!(ours.get("causes").is_some(), "{} is refused", case["name"]);
        } else if ours != *answer {
            writeln!(differences, "ours   {ours}\nserver {answer}\n").unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn names_what_it_drops() {
    let case = json!({
        "name": "pruned",
        "metadata": {"color": "red"},
        "other": 1,
        "spec": {"image": "a", "unknown": 1, "nested": {"x": {"y": 1}}, "list": [{"name": "a", "other": 1}], "free": {"x": 1, "known": {"b": 1}}},
    });
    let admitted = widgets().admit(widget(&case)).unwrap();
    expect![[r"
        metadata.color
        other
        spec.free.known.b
        spec.list[0].other
        spec.nested.x
        spec.unknown"]]
    .assert_eq(&admitted.unknown_fields.join("\n"));
}

#[test]
fn keeps_the_status_and_does_not_judge_it() {
    let case =
        json!({"name": "live", "spec": {"image": "a"}, "status": {"replicas": "x", "old": 1}});
    let admitted = widgets().admit(widget(&case)).unwrap();
    assert_eq!(admitted.object["status"], json!({"replicas": "x"}));
}

#[test]
fn a_prefix_may_end_in_a_dash() {
    let mut case = widget(&json!({"name": "x", "spec": {"image": "a"}}));
    for (prefix, good) in [("web-", true), ("-", false), ("Web-", false)] {
        case["metadata"]["generateName"] = prefix.into();
        assert_eq!(widgets().admit(case.clone()).is_ok(), good, "{prefix}");
    }
}

fn error_of(change: impl FnOnce(&mut Value)) -> String {
    let mut crd = Value::Object(crd());
    change(&mut crd);
    let error = Schema::new(&object(crd), "v1").unwrap_err();
    let source = std::error::Error::source(&error)
        .map(|_| ": ...")
        .unwrap_or_default();
    format!("{error}{source}")
}

#[test]
fn rejects_field() {
    expect!["the CustomResourceDefinition has no usable spec.names.kind"]
        .assert_eq(&error_of(|crd| crd["spec"]["names"] = json!({})));
}

#[test]
fn rejects_version() {
    expect!["the CustomResourceDefinition widgets.test.innkeeper.dev has no version v1"].assert_eq(
        &error_of(|crd| crd["spec"]["versions"][0]["name"] = "v2".into()),
    );
}

fn root(crd: &mut Value) -> &mut Value {
    &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

#[test]
fn rejects_schema() {
    expect![[r#"the schema of Widget is broken at "/properties/spec/maxProperties": "x" is not of type "integer""#]]
        .assert_eq(&error_of(|crd| root(crd)["properties"]["spec"]["maxProperties"] = "x".into()));
}

#[test]
fn rejects_rule() {
    expect![[r#"the rule "self.a ==" at "spec" does not compile: ..."#]].assert_eq(&error_of(
        |crd| {
            root(crd)["properties"]["spec"]["x-kubernetes-validations"] =
                json!([{"rule": "self.a =="}]);
        },
    ));
}
