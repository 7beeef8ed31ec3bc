//! Updates that take fields away, against an API server that fills in defaults.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use innkeeper_model::{
    Gvk, ManagedEntry, Object, ObjectId, Operation, PluginName, ResourceVersion, Resources, Uid,
};
use serde_json::{Value, json};

use super::{
    Cluster, object,
    scripted::{Answer, serve},
};
use crate::{Session, Target};

const LONG: Duration = Duration::from_secs(20);

fn kind() -> Gvk {
    Gvk::new("example.dev", "v1", "Gadget")
}

/// A child whose field `spec.a` has a value that the children's manager does not own.
fn live() -> Object {
    Object {
        managed: vec![ManagedEntry {
            manager: "own".into(),
            subresource: None,
            applied: true,
            fields: r#"{"f:spec":{"f:b":{}}}"#.into(),
        }],
        json: json!({"spec": {"a": {"x": 1}, "b": 1}}).to_string().into(),
        ..object("Gadget", "a", "u", 7)
    }
}

fn answer(version: u32, spec: Value) -> Answer {
    let managed =
        json!([{"manager": "own", "operation": "Apply", "fieldsV1": {"f:spec": {"f:b": {}}}}]);
    let metadata =
        json!({"uid": "u", "resourceVersion": version.to_string(), "managedFields": managed});
    Answer::Say(200, "", json!({"metadata": metadata, "spec": spec}))
}

/// Returns for each request of an update that states `spec.a` as absent what it says about the field.
async fn requests(answers: Vec<Answer>, observed: u64) -> (bool, Vec<String>) {
    let server = serve(answers).await;
    let id = ObjectId::new(kind().group_kind(), Some("demo"), "a");
    let child = live();
    let body = json!({
        "apiVersion": "example.dev/v1", "kind": "Gadget",
        "metadata": {"name": "a", "namespace": "demo"}, "spec": {"a": null, "b": 2},
    });
    let update = Operation::Update {
        restores: false,
        key: "a".to_owned(),
        id: id.clone(),
        kind: kind(),
        uid: Uid("u".into()),
        resource_version: ResourceVersion(observed),
        body: Arc::new(body.as_object().cloned().unwrap()),
        generate: Vec::new(),
    };
    let plugin = PluginName::new("web").unwrap();
    let live = BTreeMap::from([(id, child.clone())]);
    let secrets = BTreeMap::new();
    let mut session = Session {
        plugin: &plugin,
        manager: "own",
        account: None,
        resources: &Cluster,
        secrets: &secrets,
        live: &live,
        random: &mut |buffer: &mut [u8]| buffer.fill(0),
    };
    let mut target = Target::new(&child, &Cluster.resource(&kind()).unwrap());
    let written = server
        .writer(LONG, 4)
        .write(&update, &mut target, &mut session)
        .await;
    let requests = server.requests.lock();
    let about = |body: &Value| match body {
        Value::Array(patch) => patch
            .iter()
            .map(|change| change["path"].as_str().unwrap())
            .skip(2)
            .collect::<Vec<_>>()
            .join(" "),
        body => format!("apply {}", body["spec"]),
    };
    let lines = requests
        .iter()
        .map(|request| about(&request.body))
        .collect();
    (written.is_ok(), lines)
}

const OWN: &str = "/metadata/managedFields/0/fieldsV1";

#[tokio::test]
async fn a_field_that_stays_away_takes_two_requests() {
    let answers = vec![
        answer(8, json!({"a": {"x": 1}, "b": 1})),
        answer(9, json!({"b": 2})),
    ];
    let (is_ok, lines) = requests(answers, 7).await;
    assert!(is_ok);
    assert_eq!(lines, [OWN, r#"apply {"b":2}"#]);
}

#[tokio::test]
async fn a_default_that_comes_back_becomes_null_or_is_owned() {
    let handed = || answer(8, json!({"a": {"x": 1}, "b": 1}));
    // A map becomes null by a patch.
    let map = json!({"a": {"x": 1}, "b": 2});
    let nulled = json!({"a": null, "b": 2});
    let answers = vec![
        handed(),
        answer(9, map.clone()),
        answer(10, nulled.clone()),
        answer(10, nulled),
    ];
    let (is_ok, lines) = requests(answers, 7).await;
    assert!(is_ok);
    let null = format!("{OWN} /spec/a");
    let applied = r#"apply {"b":2}"#;
    let owned = r#"apply {"a":null,"b":2}"#;
    assert_eq!(lines, [OWN, applied, &null, owned]);
    // A kind that refuses the null keeps the default, and the write succeeds.
    let refused = || Answer::Say(422, "", json!({"message": "must be of type object"}));
    let answers = vec![handed(), answer(9, map), refused(), refused()];
    let (is_ok, lines) = requests(answers, 7).await;
    assert!(is_ok);
    assert_eq!(lines, [OWN, applied, &null, owned]);
    // An apply accepts null for a number.
    let number = json!({"a": 5, "b": 2});
    let answers = vec![
        handed(),
        answer(9, number),
        answer(10, json!({"a": null, "b": 2})),
    ];
    let (is_ok, lines) = requests(answers, 7).await;
    assert!(is_ok);
    assert_eq!(lines, [OWN, applied, owned]);
}

#[tokio::test]
async fn an_outdated_plan_takes_nothing_away() {
    let conflict = Answer::Say(409, "", json!({"message": "the object has been modified"}));
    let (is_ok, lines) = requests(vec![conflict], 6).await;
    assert!(!is_ok);
    assert_eq!(lines, [r#"apply {"b":2}"#]);
}
