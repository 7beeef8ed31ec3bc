use std::collections::BTreeMap;

use innkeeper_model::{Access, ApplyPolicy, Gvk, Readiness, ResourceVersion, Uid};
use serde_json::json;

use super::*;

const PARENT_UID: &str = "parent";

fn object(kind: &str, name: &str, json: &Value) -> Object {
    Object {
        kind: Gvk::new("", "v1", kind),
        namespace: Some("a".into()),
        name: name.into(),
        uid: Uid(name.into()),
        resource_version: ResourceVersion(1),
        generation: None,
        deletion_timestamp: None,
        controller: Some(Uid(PARENT_UID.into())),
        finalizers: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::from([(ANNOTATION_KEY.into(), name.into())]),
        retained_for: None,
        managed: Vec::new(),
        form: Access::Full,
        json: json.to_string().into(),
    }
}

fn observation(children: &[Object]) -> Observation {
    Observation {
        parent: object("Web", PARENT_UID, &json!({})),
        children: children.to_vec(),
        unreadable: Vec::new(),
    }
}

fn stated(name: &str) -> Child {
    Child {
        key: name.to_owned(),
        kind: Gvk::new("", "v1", "ConfigMap"),
        namespace: Some("a".to_owned()),
        name: name.to_owned(),
        object: serde_json::Map::from_iter([(
            "data".to_owned(),
            json!({"unit": "l", "gone": null}),
        )]),
        generate: Vec::new(),
        apply: ApplyPolicy::Always,
        removal: RemovalPolicy::Delete,
        readiness: Readiness::Derive,
        after: Vec::new(),
    }
}

/// Returns true if a prediction holds, about the new child `web` with `data.size` 3, beside an old child.
fn holds(after: impl FnOnce(&mut Vec<Object>)) -> bool {
    let old = object("ConfigMap", "old", &json!({"data": {"size": 1}}));
    let mut children = vec![
        old.clone(),
        object(
            "ConfigMap",
            "web",
            &json!({"data": {"size": 3, "unit": "l"}, "status": {}}),
        ),
    ];
    after(&mut children);
    let predicted = PredictedChild {
        key: "web".to_owned(),
        parts: vec![
            ("/data/size".to_owned(), Some(json!(3))),
            ("/data/unit".to_owned(), None),
            ("/data/other".to_owned(), None),
            ("/data/gone".to_owned(), None),
        ],
    };
    agree(
        &observation(&[old]),
        &observation(&children),
        &[stated("old"), stated("web")],
        &[predicted],
    )
}

/// A change that makes the children differ from those that the prediction assumes.
type Change = fn(&mut Vec<Object>);

#[test]
fn a_prediction_holds_only_if_each_child_is_as_assumed() {
    assert!(holds(|_| {}));
    assert!(
        holds(
            |children| children[1].json = json!({"data": {"size": 3, "unit": "l", "x": 1}})
                .to_string()
                .into()
        ),
        "an unread field"
    );
    let changes: [(&str, Change); 13] = [
        ("a part that was read", |children| {
            children[1].json = json!({"data": {"size": 4, "unit": "l"}}).to_string().into();
        }),
        ("a stated part", |children| {
            children[1].json = json!({"data": {"size": 3, "unit": "g"}}).to_string().into();
        }),
        ("a stated part that is absent", |children| {
            children[1].json = json!({"data": {"size": 3}}).to_string().into();
        }),
        ("a part that should be absent", |children| {
            children[1].json = json!({"data": {"size": 3, "unit": "l", "other": 1}})
                .to_string()
                .into();
        }),
        ("a part that is stated absent", |children| {
            children[1].json = json!({"data": {"size": 3, "unit": "l", "gone": 1}})
                .to_string()
                .into();
        }),
        ("a child that was not created", |children| {
            children.remove(1);
        }),
        ("another key", |children| {
            children[1]
                .annotations
                .insert(ANNOTATION_KEY.into(), "x".into());
        }),
        ("a child that is being deleted", |children| {
            children[1].deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
        }),
        ("another version", |children| {
            children[1].kind = Gvk::new("", "v2", "ConfigMap");
        }),
        ("a retained child", |children| {
            children[1].controller = None;
            children[1].retained_for = Some("web".into());
        }),
        ("an old child that changed", |children| {
            children[0].json = json!({"data": {"size": 2}}).to_string().into();
        }),
        ("an old child that is gone", |children| {
            children.remove(0);
        }),
        ("one child more", |children| {
            children.push(object("ConfigMap", "third", &json!({})));
        }),
    ];
    for (change, after) in changes {
        assert!(!holds(after), "{change}");
    }
}
