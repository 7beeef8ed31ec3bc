//! Objects that were there before their parent become its children where both sides agree (A6), on the real API server.

use std::time::Duration;

use innkeeper_tests::{Host, manifest::condition};
use serde_json::{Value, json};

use crate::{
    moods::{API, Scene, config_map, name},
    stage::is_synced,
};

/// Well above the time of a pass and its watch events.
const QUIET: Duration = Duration::from_millis(800);

/// What works, with the right to adopt ConfigMaps.
fn adopting() -> Value {
    grants(true)
}

fn grants(adopt: bool) -> Value {
    json!({
        "config": {"mood": "good", "says": "one"},
        "grants": {
            "parents": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
            "children": [{"kind": "ConfigMap", "adopt": adopt}],
            "crds": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
        },
    })
}

/// Puts what somebody has made by hand where the child of a parent would be.
fn found(scene: &Scene, number: usize, owners: &Value) -> Value {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name(number), "ownerReferences": owners},
        "data": {"mine": "yes", "says": "hello"},
    });
    scene.site.stage.apply(&scene.site.namespace, &object)
}

pub(crate) fn child(scene: &Scene, number: usize) -> Value {
    let name = name(number);
    scene
        .site
        .stage
        .get(&scene.site.namespace, config_map(&name))
}

#[track_caller]
pub(crate) fn wait_synced(
    scene: &Scene,
    host: &Host,
    number: usize,
    status: &str,
    reason: &str,
) -> String {
    let name = name(number);
    let target = (API, "Moody", &*name);
    let namespace = &scene.site.namespace;
    let is = |parent: &Value| is_synced(parent, status, reason);
    let parent = scene.site.stage.wait(host, namespace, target, is);
    condition(&parent, "Synced").unwrap_or_default()
}

pub(crate) fn annotate(scene: &Scene, number: usize) {
    let name = name(number);
    let asks = json!({"metadata": {"annotations": {"innkeeper.dev/adopt": "true"}}});
    let target = (API, "Moody", &*name);
    scene.site.stage.merge(&scene.site.namespace, target, &asks);
}

#[test]
fn a6_what_nobody_owns_is_listed_first_and_adopted_once_both_sides_agree() {
    let scene = Scene::new(1);
    let host = scene.begin_with(&adopting());
    let other = scene.site.stage.get("", ("v1", "Namespace", "default"));
    let somebody = json!([{
        "apiVersion": "v1", "kind": "Namespace", "name": "default",
        "uid": other["metadata"]["uid"], "controller": true,
    }]);
    let free = found(&scene, 1, &json!([]));
    let taken = found(&scene, 2, &somebody);
    scene.put(1, &json!({}));
    scene.put(2, &json!({}));

    // Nothing is touched before the parent asks for it, and what would be is named.
    let said = wait_synced(&scene, &host, 1, "False", "AdoptionPending");
    for part in [
        "innkeeper.dev/adopt",
        &format!("ConfigMap {}", scene.site.namespace),
    ] {
        assert!(said.contains(part), "{said}");
    }
    wait_synced(&scene, &host, 2, "False", "ChildNotOwned");
    scene.site.stage.settle(QUIET);
    assert_eq!(
        [child(&scene, 1), child(&scene, 2)],
        [free.clone(), taken.clone()]
    );

    annotate(&scene, 1);
    annotate(&scene, 2);
    wait_synced(&scene, &host, 1, "True", "Applied");
    let adopted = child(&scene, 1);
    assert_eq!(adopted["metadata"]["uid"], free["metadata"]["uid"]);
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["kind"], "Moody");
    assert_eq!(adopted["data"]["says"], "one");
    assert_eq!(adopted["data"]["mine"], "yes");
    // What somebody controls is theirs, whatever the parent says.
    wait_synced(&scene, &host, 2, "False", "ChildNotOwned");
    scene.site.stage.settle(QUIET);
    assert_eq!(child(&scene, 2), taken);
}

#[test]
fn a6_a_parent_that_asks_waits_for_the_grant() {
    let scene = Scene::new(1);
    let host = scene.begin_with(&grants(false));
    let free = found(&scene, 1, &json!([]));
    let parent = json!({
        "apiVersion": API, "kind": "Moody", "spec": {},
        "metadata": {"name": name(1), "annotations": {"innkeeper.dev/adopt": "true"}},
    });
    scene.site.stage.apply_new(&scene.site.namespace, &parent);
    let said = wait_synced(&scene, &host, 1, "False", "AdoptionPending");
    assert!(said.contains("adopt: true"), "{said}");
    scene.site.stage.settle(QUIET);
    assert_eq!(child(&scene, 1), free);

    scene.apply(&adopting());
    wait_synced(&scene, &host, 1, "True", "Applied");
    assert_eq!(child(&scene, 1)["metadata"]["uid"], free["metadata"]["uid"]);
}
