//! Adoption of objects that existed before their parent, if both the grant and the parent allow it
//! (A6), on the real API server.

use std::time::Duration;

use innkeeper_tests::{Host, manifest::condition};
use serde_json::{Value, json};

use crate::{
    moods::{API, Scene, config_map, name},
    stage::is_synced,
};

/// Well above the time of a pass and its watch events.
const QUIET: Duration = Duration::from_millis(800);

/// The spec of a working plugin that may adopt ConfigMaps.
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

/// Creates an object by hand under the name of a parent's child, with these owners.
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

/// The host adopts an object only if the grant and the parent's annotation allow it and no other
/// controller owns it. Until then it reports the object and changes nothing.
#[test]
fn a6_an_object_without_a_controller_is_adopted_once_grant_and_parent_agree() {
    let scene = Scene::new(1);
    let host = scene.begin_with(&adopting());
    let other = scene.site.stage.get("", ("v1", "Namespace", "default"));
    let foreign_owner = json!([{
        "apiVersion": "v1", "kind": "Namespace", "name": "default",
        "uid": other["metadata"]["uid"], "controller": true,
    }]);
    let free = found(&scene, 1, &json!([]));
    let taken = found(&scene, 2, &foreign_owner);
    scene.put(1, &json!({}));
    scene.put(2, &json!({}));

    // Without the parent's annotation, the host only names the objects that it would adopt.
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
    // An object of another controller stays untouched, even if the parent asks for its adoption.
    wait_synced(&scene, &host, 2, "False", "ChildNotOwned");
    scene.site.stage.settle(QUIET);
    assert_eq!(child(&scene, 2), taken);
}

/// The annotation of the parent alone is not enough; the adoption follows once the plugin has the
/// grant.
#[test]
fn a6_a_parent_that_asks_for_adoption_waits_for_the_grant() {
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
