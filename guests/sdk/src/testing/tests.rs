//! The fake host against the contract.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::{FakeHost, Read, TestRequest, answer_problems, definition_problems, selector};
use crate::answer::{Answer, Desired, Report};
use crate::child::Child;
use crate::fault::{Fault, FaultKind};
use crate::host::{Host, LogLevel, ReadError};
use crate::manifest::{Access, ChildKind, Manifest, ReadScope};

fn pod(name: &str, namespace: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"containers": []},
    })
}

#[test]
fn answers_reads_from_its_objects_in_order() {
    let fake = FakeHost::new().objects([
        pod("web-1", "demo", "web"),
        pod("web-0", "demo", "web"),
        pod("db-0", "demo", "db"),
        pod("web-0", "other", "web"),
    ]);
    let host: &dyn Host = &fake;
    let names = |pods: Vec<Pod>| -> Vec<String> {
        pods.into_iter()
            .filter_map(|pod| pod.metadata.name)
            .collect()
    };
    assert_eq!(
        names(host.list("demo", "app=web").unwrap()),
        ["web-0", "web-1"]
    );
    assert_eq!(
        names(host.list("demo", "").unwrap()),
        ["db-0", "web-0", "web-1"]
    );
    assert!(host.get::<Pod>("demo", "web-0").unwrap().is_some());
    assert!(host.get::<Pod>("demo", "web-9").unwrap().is_none());
    assert!(matches!(&fake.reads()[2], Read::Get(object) if object.name == "web-0"));
    assert_eq!(fake.reads().len(), 4);
}

#[test]
fn grants_the_reads_of_the_manifest_and_no_more() {
    let manifest = Manifest::new("ponds", "1")
        .read::<Secret>(Access::Hash, ReadScope::ParentNamespace)
        .read::<Pod>(Access::Metadata, ReadScope::ParentNamespace)
        .label_selector("app=web");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "demo"},
        "data": {"password": "aHVudGVyMg=="},
    });
    let fake = FakeHost::granting(&manifest)
        .object(&secret)
        .object(&pod("web-0", "demo", "web"))
        .object(&pod("db-0", "demo", "db"));
    let host: &dyn Host = &fake;
    let hashed = host.hashed_secret("demo", "a").unwrap().unwrap();
    assert!(
        hashed
            .hash_of("password")
            .unwrap()
            .starts_with("hmac-sha256:")
    );
    let pods: Vec<Pod> = host.list("demo", "").unwrap();
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].spec, None);
    let pods: Vec<PartialObjectMeta<Pod>> = host.list("demo", "").unwrap();
    assert_eq!(pods[0].metadata.name.as_deref(), Some("web-0"));

    let error = host.get::<ConfigMap>("demo", "a").unwrap_err();
    assert!(matches!(error, ReadError::NotDeclared { .. }));
    let fault = Fault::from(error);
    assert_eq!(fault.kind, FaultKind::Retry);
    assert_eq!(
        fault.message,
        "describe() does not declare reads of ConfigMap of v1"
    );
    let fake = FakeHost::granting(&manifest).not_granted("v1", "Secret");
    let host: &dyn Host = &fake;
    let error = host.hashed_secret("demo", "a").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the plugin is not granted to read Secret of v1"
    );
}

#[test]
fn refuses_a_kind_that_is_not_served() {
    let fake = FakeHost::new().not_served("monitoring.coreos.com/v1", "ServiceMonitor");
    let host: &dyn Host = &fake;
    let kind = "ServiceMonitor";
    let error = host
        .list_as::<Value>("monitoring.coreos.com/v1", kind, None, "")
        .unwrap_err();
    assert!(error.is_not_served());
}

#[test]
fn names_the_kind_that_does_not_parse() {
    let fake = FakeHost::new().object(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "demo"},
        "data": {"password": "no base64!"},
    }));
    let host: &dyn Host = &fake;
    let error = host.get::<Secret>("demo", "a").unwrap_err().to_string();
    assert!(error.starts_with("failed to parse Secret: "), "{error}");
}

#[test]
fn keeps_log_lines_and_questions_of_the_reconciler() {
    let fake = FakeHost::new().now(7);
    let host: &dyn Host = &fake;
    host.warn("careful");
    assert!(!fake.asked_now());
    assert_eq!(host.now_ms(), 7);
    assert!(fake.asked_now());
    assert_eq!(fake.log_lines(), [(LogLevel::Warn, "careful".to_owned())]);
    assert_eq!(host.random(4), FakeHost::new().random(4));
    assert_ne!(host.random(16), FakeHost::new().random(16));
}

#[test]
fn observes_the_children_of_an_answer() {
    let parent = json!({
        "apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "a"},
    });
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let job = json!({"kind": "Job", "metadata": {"name": "a"}});
    let answer = Desired::new()
        .child(
            Child::untyped("secret", &secret)
                .once()
                .retain()
                .generate("key", 8, "ab"),
        )
        .child(Child::untyped("map", &map))
        .child(Child::untyped("held", &job).hold())
        .into();
    let request = TestRequest::new(&parent)
        .answered(&answer)
        .answered(&answer)
        .build();
    assert_eq!(request.children.len(), 2);
    assert!(request.children.by_key("secret").unwrap().retained);
    let secret = request.children.hashed_secret("a").unwrap().unwrap();
    assert!(secret.hash_of("key").unwrap().starts_with("hmac-sha256:"));
    assert_eq!(
        request.children.by_key("map").unwrap().namespace(),
        "default"
    );
}

#[test]
fn understands_label_selectors() {
    let object = pod("web-0", "demo", "web");
    let cases = [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web", true),
        ("app!=web", false),
        ("tier!=x", true),
        ("app in (db, web)", true),
        ("app notin (db,web)", false),
        ("tier notin (x)", true),
        ("tier in (x)", false),
        ("app", true),
        ("!app", false),
        ("!tier,app in (web,db)", true),
        ("app=web,tier", false),
    ];
    for (text, expected) in cases {
        assert_eq!(selector::matches(Some(text), &object), expected, "{text}");
    }
    assert!(selector::matches(None, &object));
}

#[test]
fn tells_each_rule_of_the_host_that_an_answer_breaks() {
    let manifest = Manifest::new("ponds", "1").untyped_child(ChildKind::new("v1", "ConfigMap"));
    let parent = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pond", "namespace": "demo"},
    });
    let request = TestRequest::new(&parent).build();
    let object =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let child = |key: &str| Child::untyped(key, &object(key));
    let other = |field: &str, value: &str| {
        let mut object = object("a");
        object["metadata"][field] = json!(value);
        Child::untyped("a", &object)
    };
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let rows: [(Vec<Child>, &[&str]); 13] = [
        (vec![child("a"), child("b").after(["a"])], &[]),
        (vec![other("namespace", "demo")], &[]),
        (
            vec![Child::untyped("a", &secret)],
            &["child a: describe() does not declare children of kind v1 Secret"],
        ),
        (
            vec![child("a"), Child::untyped("a", &object("b"))],
            &["child a: another child has the same key"],
        ),
        (
            vec![child("a"), Child::untyped("b", &object("a"))],
            &["child b: it is the same object as child a"],
        ),
        (
            vec![Child::untyped("", &object("a"))],
            &["child : its key has 0 characters, and 1 to 253 are allowed"],
        ),
        (
            vec![child("a").after(["b"])],
            &["child a: there is no child b to wait for"],
        ),
        (
            vec![child("a").after(["b"]), child("b").after(["a"]), child("c")],
            &["the children a, b wait for each other"],
        ),
        (
            vec![other("namespace", "other")],
            &["child a: it is in the namespace other, and its parent in demo"],
        ),
        (
            vec![Child::untyped("a", &object("Upper"))],
            &["child a: \"Upper\" is not a valid name"],
        ),
        (
            vec![Child::untyped("a", &object("a-"))],
            &["child a: \"a-\" is not a valid name"],
        ),
        (
            vec![Child::untyped("a", &object("pond"))],
            &["child a: it is the parent itself"],
        ),
        (
            vec![other("uid", "1")],
            &["child a: leave out metadata.uid"],
        ),
    ];
    for (children, expected) in rows {
        let answer = Desired::new().children(children).into();
        assert_eq!(answer_problems(&manifest, &request, &answer), expected);
    }
}

#[test]
fn tells_that_only_a_parent_in_deletion_is_finalized() {
    let manifest = Manifest::new("ponds", "1").untyped_child(ChildKind::new("v1", "ConfigMap"));
    let parent = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pond", "namespace": "demo"},
    });
    let request = TestRequest::new(&parent).build();
    let finalized = Answer::finalized(Report::new());
    let problem = "finalized is an answer for a parent that is being deleted";
    assert_eq!(answer_problems(&manifest, &request, &finalized), [problem]);
    let request = TestRequest::new(&parent).finalizing().build();
    assert!(answer_problems(&manifest, &request, &finalized).is_empty());
}

/// A plugin whose parents have a status with many constraints.
fn constrained() -> Manifest {
    let status = json!({
        "type": "object",
        "required": ["url", "conditions"],
        "properties": {
            "url": {"type": "string", "maxLength": 8},
            "phase": {"type": "string", "enum": ["Open", "Closed"]},
            "ready": {"type": "integer", "minimum": 0},
            "port": {"x-kubernetes-int-or-string": true},
            "shores": {
                "type": "array",
                "maxItems": 1,
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            },
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "conditions": {"type": "array"},
        },
    });
    let crd = json!({
        "metadata": {"name": "ponds.example.com"},
        "spec": {
            "group": "example.com", "names": {"kind": "Pond"},
            "versions": [{
                "name": "v1",
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": status}}},
            }],
        },
    });
    Manifest {
        crds: vec![crd],
        ..Manifest::new("ponds", "1")
    }
}

#[test]
fn tells_a_status_that_the_definition_refuses() {
    let manifest = constrained();
    let parent = |api_version: &str| json!({"apiVersion": api_version, "kind": "Pond", "metadata": {"name": "a"}});
    let request = TestRequest::new(&parent("example.com/v1")).build();
    let rows = [
        (
            json!({"url": "a", "ready": 1, "port": "x", "free": {"x": 1}}),
            "",
        ),
        (
            json!({"url": "a", "ready": -1}),
            "status.ready: breaks minimum 0",
        ),
        (json!({"url": 7}), "status.url: 7 is not of the type string"),
        (
            json!({"url": "123456789"}),
            "status.url: breaks maxLength 8",
        ),
        (json!({"ready": 1}), "status.url: is required"),
        (
            json!({"url": "a", "uri": "b"}),
            "status.uri: the definition has no such field",
        ),
        (
            json!({"url": "a", "port": true}),
            "status.port: true is no integer and no text",
        ),
        (
            json!({"url": "a", "phase": "Ajar"}),
            r#"status.phase: "Ajar" is none of ["Open","Closed"]"#,
        ),
        (
            json!({"url": "a", "shores": [{}]}),
            "status.shores[0].name: is required",
        ),
        (
            json!({"url": "a", "shores": [{"name": "n"}, {"name": "s"}]}),
            "status.shores: breaks maxItems 1",
        ),
        (
            json!({"url": "a", "labels": {"a": 1}}),
            "status.labels.a: 1 is not of the type string",
        ),
    ];
    let refusal =
        r#"status has required ["url","conditions"], which may refuse the host's conditions"#;
    for (status, expected) in rows {
        let answer = Answer::keep(Report::new().status(&status));
        let own = Some(expected).filter(|problem| !problem.is_empty());
        let expected: Vec<&str> = [refusal].into_iter().chain(own).collect();
        let problems = answer_problems(&manifest, &request, &answer);
        assert_eq!(problems, expected, "{status}");
    }
    // An answer without a status removes the status fields.
    let answer = Answer::keep(Report::new());
    let problems = answer_problems(&manifest, &request, &answer);
    assert_eq!(problems, [refusal, "status.url: is required"]);
    let other = TestRequest::new(&parent("example.com/v2")).build();
    assert!(answer_problems(&manifest, &other, &answer).is_empty());
    let problems = definition_problems(&manifest);
    assert!(
        problems.contains(&format!("ponds.example.com: .{refusal}")),
        "{problems:?}"
    );
}
