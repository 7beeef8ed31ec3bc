//! Plans at the bounds, as tables.

use innkeeper_model::{Gvk, ResourceVersion};
use innkeeper_plan::tests::build::{key, observed};
use serde_json::json;

use super::*;

const DEMO: CacheSize = CacheSize {
    objects: 10,
    bytes: 1000,
};

fn object(name: &str, retained: bool) -> Value {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "demo", "uid": name, "resourceVersion": "1"},
    });
    if retained {
        let id = |text: &str| ObjectId::parse_identity(text).unwrap();
        let child = id(&format!("/ConfigMap/demo/{name}"));
        let mark = key().retained_for(&id("example.dev/Web/demo/shop"), &child);
        object["metadata"]["annotations"] = json!({ANNOTATION_RETAINED_FOR: mark});
    }
    object
}

fn create(name: &str, retained: bool) -> Operation {
    let Value::Object(body) = object(name, retained) else {
        panic!("an object was made");
    };
    let kind = Gvk::new("", "v1", "ConfigMap");
    Operation::Create {
        key: name.to_owned(),
        id: ObjectId::new(kind.group_kind(), Some("demo"), name),
        kind,
        body: Arc::new(body),
        generate: Vec::new(),
    }
}

/// Updates an observed object, which grows by `grows` bytes.
fn update(name: &str, grows: usize) -> Operation {
    let present = observed(&object(name, false));
    let mut body = serde_json::from_str::<Map<String, Value>>(&present.json).unwrap();
    let field = r#","data":"""#.len();
    if grows >= field {
        body.insert("data".to_owned(), "x".repeat(grows - field).into());
    }
    Operation::Update {
        restores: false,
        key: name.to_owned(),
        id: present.id(),
        kind: present.kind.clone(),
        uid: present.uid.clone(),
        resource_version: present.resource_version,
        body: Arc::new(body),
        generate: Vec::new(),
    }
}

fn prune(name: &str) -> Operation {
    let object = observed(&object(name, false));
    Operation::Prune {
        id: object.id(),
        kind: object.kind.clone(),
        uid: object.uid,
        resource_version: ResourceVersion(1),
    }
}

/// Returns the operations that stay, and the condition.
fn throttled(
    limits: &Limits,
    operations: Vec<Operation>,
    present: &[Object],
) -> (Vec<String>, String) {
    let mut plan = Plan {
        operations,
        ..Plan::default()
    };
    let quota = Quota {
        plugin: &PluginName::new("web").unwrap(),
        limits,
        observed: present,
        nested: &[GroupKind::new("example.dev", "Web")].into(),
    };
    let throttled = quota.throttle(&mut plan, |namespace| {
        assert_eq!(namespace, "demo");
        ChildUsage {
            all: DEMO,
            nested: 5,
        }
    });
    let allowed = plan.operations.iter().map(ToString::to_string).collect();
    let message = throttled.map_or_else(String::new, |throttled| {
        assert_eq!(throttled.wait, RECHECK);
        let synced = throttled.synced();
        format!("{}: {}", synced.reason, synced.message)
    });
    (allowed, message)
}

#[test]
fn creates_over_the_number_of_objects_wait_and_nothing_is_pruned() {
    let operations = || {
        vec![
            create("a", false),
            update("u", 0),
            create("b", false),
            prune("old"),
        ]
    };
    let present = [
        observed(&object("u", false)),
        observed(&object("old", false)),
    ];
    for (objects_max, left) in [
        (
            12,
            &[
                "create v1 ConfigMap demo/a",
                "update v1 ConfigMap demo/u",
                "create v1 ConfigMap demo/b",
                "prune v1 ConfigMap demo/old",
            ][..],
        ),
        (
            11,
            &["create v1 ConfigMap demo/a", "update v1 ConfigMap demo/u"][..],
        ),
        (10, &["update v1 ConfigMap demo/u"][..]),
        (3, &["update v1 ConfigMap demo/u"][..]),
    ] {
        let limits = Limits {
            namespace_objects_max: objects_max,
            ..Limits::default()
        };
        let (stay, message) = throttled(&limits, operations(), &present);
        assert_eq!(stay, left, "{objects_max}");
        assert_eq!(message.is_empty(), objects_max == 12, "{message}");
    }
    let limits = Limits {
        namespace_objects_max: 10,
        ..Limits::default()
    };
    let (_, message) = throttled(&limits, operations(), &present);
    assert_eq!(
        message,
        "QuotaExceeded: plugin web in namespace demo has reached its limit of 10 children; waiting: create v1 ConfigMap demo/a and 1 more; delete parents, or raise spec.limits.objectsPerNamespace of the Plugin"
    );
}

#[test]
fn children_that_are_parents_have_a_bound_of_their_own() {
    let nested = |name| {
        let Operation::Create {
            key,
            body,
            generate,
            ..
        } = create(name, false)
        else {
            panic!("an operation creates");
        };
        let kind = Gvk::new("example.dev", "v1", "Web");
        Operation::Create {
            key,
            id: ObjectId::new(kind.group_kind(), Some("demo"), name),
            kind,
            body,
            generate,
        }
    };
    for (nested_max, left) in [(7, 3), (6, 2), (5, 1), (0, 1)] {
        let limits = Limits {
            namespace_nested_max: nested_max,
            ..Limits::default()
        };
        let operations = vec![nested("n1"), create("a", false), nested("n2")];
        let (stay, message) = throttled(&limits, operations, &[]);
        assert_eq!(stay.len(), left, "{nested_max}: {stay:?}");
        if nested_max == 6 {
            assert_eq!(
                message,
                "QuotaExceeded: plugin web in namespace demo has reached its limit of 6 children that are parents; waiting: create example.dev/v1 Web demo/n2; delete parents, or raise spec.limits.nestedParentsPerNamespace of the Plugin"
            );
        }
    }
}

#[test]
fn creates_and_updates_over_the_size_of_all_objects_wait() {
    let size = object("a", false).to_string().len();
    let present = [observed(&object("u", false))];
    for (operation, bytes_max, stays) in [
        (create("a", false), 1000 + size, true),
        (create("a", false), 999 + size, false),
        (update("u", 100), 1100, true),
        (update("u", 100), 1099, false),
        // An update that does not grow is never held back, also over the bound.
        (update("u", 0), 10, true),
    ] {
        let limits = Limits {
            namespace_bytes_max: bytes_max,
            ..Limits::default()
        };
        let (left, message) = throttled(&limits, vec![operation], &present);
        assert_eq!(!left.is_empty(), stays, "{bytes_max}: {message}");
        assert_eq!(message.is_empty(), stays, "{bytes_max}: {message}");
    }
}

#[test]
fn a_parent_over_its_number_of_retained_objects_creates_only_others() {
    let retained = |name| observed(&object(name, true));
    let present = [
        retained("k1"),
        retained("k2"),
        observed(&object("o", false)),
    ];
    let operations = || vec![create("r1", true), create("r2", true), create("a", false)];
    let names = |names: &[&str]| -> Vec<String> {
        let line = |name| format!("create v1 ConfigMap demo/{name}");
        names.iter().map(line).collect()
    };
    for (retained_max, left) in [
        (4, &["r1", "r2", "a"][..]),
        (3, &["r1", "a"][..]),
        (2, &["a"][..]),
        (0, &["a"][..]),
    ] {
        let limits = Limits {
            retained_max,
            ..Limits::default()
        };
        let (stay, message) = throttled(&limits, operations(), &present);
        assert_eq!(stay, names(left), "{retained_max}");
        let is_reported = message.starts_with(&format!(
            "QuotaExceeded: this parent has reached its limit of {retained_max} retained children; waiting: create v1 ConfigMap demo/r"
        ));
        assert_eq!(is_reported, retained_max < 4, "{message}");
    }
}

#[test]
fn the_defaults_bind_no_small_plan() {
    let operations = (0..256).map(|index| create(&format!("a-{index}"), index % 2 == 0));
    let (left, message) = throttled(&Limits::default(), operations.collect(), &[]);
    assert_eq!((left.len(), &*message), (256, ""));
}
