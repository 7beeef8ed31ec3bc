//! Compares verdicts with those from a Kubernetes 1.36 API server.
//!
//! `tests/cases.yaml` was sent to it as creates with `dryRun=All` and `fieldValidation=Ignore`. `tests/answers.json` holds
//! the stored objects, without the fields that a server adds, and the failing paths. A path is missing where the API
//! server names it a second time in other words: the parts of a failed alternative, the number of replicas.

use std::{collections::BTreeSet, fmt::Write as _};

use expect_test::expect;
use regex::Regex;
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

/// A case is the object without `apiVersion` and `kind`.
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

/// The path as the API server has it: it does not name single entries of metadata.
fn comparable(path: &str) -> String {
    let path = path.replace('[', ".").replace(']', "");
    for field in ["labels", "annotations", "finalizers"] {
        let field = format!("metadata.{field}");
        if let Some((above, _)) = path.split_once(&format!("{field}.")) {
            return format!("{above}{field}");
        }
    }
    Regex::new(r"ownerReferences\.\d+")
        .unwrap()
        .replace(&path, "ownerReferences")
        .into_owned()
}

fn verdict(schema: &Schema, case: &Value) -> Value {
    let name = &case["name"];
    match schema.admit(widget(case)) {
        Ok(mut admitted) => {
            admitted.object.remove("status");
            json!({"name": name, "object": admitted.object})
        }
        Err(rejection) => {
            let causes = rejection.causes().iter();
            let paths: BTreeSet<String> = causes.map(|cause| comparable(&cause.path)).collect();
            json!({"name": name, "paths": paths})
        }
    }
}

#[test]
fn verdicts_and_paths_are_those_of_an_api_server() {
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
        if answer.get("undecodable").is_some() {
            // The API server stopped at the first field with a wrong type, and named no path.
            assert!(ours.get("paths").is_some(), "{} is rejected", case["name"]);
        } else if ours != *answer {
            writeln!(differences, "ours   {ours}\nserver {answer}\n").unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// Holds the whole text for one case per constraint.
#[test]
fn messages_name_path_and_problem() {
    let schema = widgets();
    let cases = innkeeper_model::yaml::read(include_str!("tests/cases.yaml"))
        .unwrap()
        .remove(0);
    let messages: Vec<String> = cases
        .as_array()
        .unwrap()
        .iter()
        .filter(|case| case["name"].as_str().unwrap().len() < 40)
        .filter_map(|case| schema.admit(widget(case)).err())
        .flat_map(|rejection| rejection.causes().to_vec())
        .map(|cause| cause.to_string())
        .collect();
    expect_test::expect_file!["tests/messages.txt"].assert_eq(&messages.join("\n"));
}

#[test]
fn dropped_fields_are_named() {
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
fn a_status_is_kept_and_not_validated() {
    let case =
        json!({"name": "live", "spec": {"image": "a"}, "status": {"replicas": "x", "old": 1}});
    let admitted = widgets().admit(widget(&case)).unwrap();
    assert_eq!(admitted.object["status"], json!({"replicas": "x"}));
}

#[test]
fn the_number_of_replicas_keeps_its_default() {
    let mut crd = Value::Object(crd());
    root(&mut crd)["properties"]["spec"]["properties"]["replicas"]["default"] = 2.into();
    let schema = Schema::new(&object(crd), "v1").unwrap();
    let case = json!({"name": "scaled", "spec": {"image": "a"}});
    let admitted = schema.admit(widget(&case)).unwrap();
    assert_eq!(admitted.object["spec"]["replicas"], 2);
}

#[test]
fn rules_in_all_of_are_checked() {
    let mut crd = Value::Object(crd());
    root(&mut crd)["properties"]["spec"]["properties"]["both"]["allOf"] = json!([{
        "x-kubernetes-validations": [{"rule": "self.a != 'bad'", "message": "a is bad"}],
        "properties": {"b": {"x-kubernetes-validations": [{"rule": "self != 'bad'"}]}},
    }]);
    let schema = Schema::new(&object(crd), "v1").unwrap();
    let case = json!({"name": "parts", "spec": {"image": "a", "both": {"a": "bad", "b": "bad"}}});
    let rejection = schema.admit(widget(&case)).unwrap_err();
    expect![[r#"Widget.test.innkeeper.dev "parts" is invalid: spec.both: a is bad; spec.both.b: failed rule: self != 'bad'"#]].assert_eq(&rejection.to_string());
}

#[test]
fn an_owner_that_is_there_twice_counts_once() {
    let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pond", "name": name, "uid": uid, "controller": true});
    let paths = |owners: Value| {
        let metadata = json!({"ownerReferences": owners});
        let case = json!({"name": "owned", "metadata": metadata, "spec": {"image": "a"}});
        verdict(&widgets(), &case)["paths"].clone()
    };
    let path = |field: &str| format!("metadata.ownerReferences{field}");
    assert_eq!(
        paths(json!([owner("a", "u"), owner("a", "u")])),
        Value::Null
    );
    assert_eq!(
        paths(json!([owner("", ""), owner("", "")])),
        json!([path(".name"), path(".uid")])
    );
    assert_eq!(
        paths(json!([owner("a", "u"), owner("b", "u")])),
        json!([path("")])
    );
}

#[test]
fn labels_must_be_a_map() {
    let case = json!({"name": "x", "metadata": {"labels": ""}, "spec": {"image": "a"}});
    assert!(widgets().admit(widget(&case)).is_err());
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
fn rejects_missing_field() {
    expect!["the CustomResourceDefinition has no valid spec/names/kind"]
        .assert_eq(&error_of(|crd| crd["spec"]["names"] = json!({})));
}

#[test]
fn rejects_missing_version() {
    expect!["the CustomResourceDefinition has no valid schema of version v1"].assert_eq(&error_of(
        |crd| crd["spec"]["versions"][0]["name"] = "v2".into(),
    ));
}

fn root(crd: &mut Value) -> &mut Value {
    &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

#[test]
fn rejects_schema() {
    expect![[r#"failed to compile the schema at "/properties/spec/maxProperties": ..."#]]
        .assert_eq(&error_of(|crd| {
            root(crd)["properties"]["spec"]["maxProperties"] = "x".into()
        }));
}

#[test]
fn rejects_rule() {
    expect![[r#"failed to compile the schema at "spec": ..."#]].assert_eq(&error_of(|crd| {
        root(crd)["properties"]["spec"]["x-kubernetes-validations"] =
            json!([{"rule": "self.a =="}]);
    }));
}

/// Returns what is wrong with a definition whose `spec` has this schema.
fn problem_of(spec: &Value) -> Option<String> {
    let definition = json!({"spec": {
        "group": "test.innkeeper.dev", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
    }});
    let error = Schema::new(&object(definition), "v1").err()?;
    Some(innkeeper_model::error_chain(&error).to_string())
}

/// Each of these ended the process, by a stack overflow or by gigabytes of error text or compiled patterns.
#[test]
fn refuses_rules_and_patterns_beyond_their_bounds() {
    let rule =
        |rule: String| json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
    let message = |text: String| json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "messageExpression": text}]});
    let patterns = |count: usize, pattern: &str| {
        let fields = (0..count).map(|field| {
            let pattern = format!("{pattern}a{field}");
            (
                format!("f{field}"),
                json!({"type": "string", "pattern": pattern}),
            )
        });
        json!({"type": "object", "properties": fields.collect::<Map<_, _>>()})
    };
    for (spec, problem) in [
        (
            rule(format!("{}1 > 0", "1+".repeat(5_000))),
            "operators, at most 1000",
        ),
        (
            rule(format!("has(self{})", ".a".repeat(5_000))),
            "operators, at most 1000",
        ),
        (
            rule(format!("'{}' == 'a'", "a".repeat(20_000))),
            "bytes, at most 16384",
        ),
        (
            rule(format!(
                "{}1{} == []",
                "[1].map(a, ".repeat(1_000),
                ")".repeat(1_000)
            )),
            "brackets, at most 128",
        ),
        (
            message(format!("{}'a'", "'a' + ".repeat(2_000))),
            "operators, at most 1000",
        ),
        (patterns(2_000, "^"), "2000 patterns, at most 1000"),
        (
            patterns(1, "^[\\p{L}\\p{N}]{900}"),
            "at most 262144 bytes of memory",
        ),
    ] {
        let text = problem_of(&spec).unwrap_or_default();
        assert!(text.contains(problem), "{problem}: {text}");
        assert!(text.len() < 4_000, "{} bytes", text.len());
    }
    for spec in [
        rule(vec!["self == self"; 100].join(" && ")),
        rule(format!("{}true{}", "(".repeat(25), ")".repeat(25))),
        patterns(500, "^[a-z0-9]([-a-z0-9]{0,250}[a-z0-9])?"),
    ] {
        assert_eq!(problem_of(&spec), None);
    }
}

#[test]
fn a_definition_with_fields_of_other_types_is_refused() {
    for spec in [
        json!({"type": "object", "properties": []}),
        json!({"type": "object", "properties": {"a": 1}}),
        json!({"type": "object", "required": "a"}),
    ] {
        let problem = problem_of(&spec).unwrap_or_default();
        assert!(
            problem.contains("failed to compile the schema"),
            "{spec}: {problem}"
        );
    }
    for root in [
        json!({"properties": []}),
        json!({"properties": {"metadata": []}}),
    ] {
        let mut definition = crd();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = root;
        assert!(Schema::new(&definition, "v1").is_err());
    }
    let mut definition = crd();
    definition["spec"]["versions"][0]["subresources"] =
        json!({"scale": {"specReplicasPath": "/type"}});
    assert!(Schema::new(&definition, "v1").is_ok());
}
