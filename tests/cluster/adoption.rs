//! Adoption of objects older than their parent, if the grant and the parent both allow it, on the
//! real API server.

use std::time::Duration;

use innkeeper_tests::{Host, manifest::condition};
use serde_json::{Value, json};

use crate::{
    moody::{API, MoodyFixture, config_map, name},
    stage::is_synced,
};

/// Well above one pass and the watch events that it causes.
const QUIET: Duration = Duration::from_millis(800);

/// Spec for a working plugin that may adopt ConfigMaps.
pub(crate) fn adopting() -> Value {
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

/// Creates an object with these owners by hand, under the name that a parent's child would get.
fn create_object(fixture: &MoodyFixture, number: usize, owners: &Value) -> Value {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name(number), "ownerReferences": owners},
        "data": {"mine": "yes", "says": "hello"},
    });
    fixture.site.stage.apply(&fixture.site.namespace, &object)
}

pub(crate) fn child(fixture: &MoodyFixture, number: usize) -> Value {
    let name = name(number);
    fixture
        .site
        .stage
        .get(&fixture.site.namespace, config_map(&name))
}

#[track_caller]
pub(crate) fn wait_synced(
    fixture: &MoodyFixture,
    host: &Host,
    number: usize,
    status: &str,
    reason: &str,
) -> String {
    let name = name(number);
    let target = (API, "Moody", &*name);
    let namespace = &fixture.site.namespace;
    let is = |parent: &Value| is_synced(parent, status, reason);
    let parent = fixture.site.stage.wait(host, namespace, target, is);
    condition(&parent, "Synced").unwrap_or_default()
}

pub(crate) fn annotate(fixture: &MoodyFixture, number: usize) {
    let name = name(number);
    let asks = json!({"metadata": {"annotations": {"innkeeper.dev/adopt": "true"}}});
    let target = (API, "Moody", &*name);
    fixture
        .site
        .stage
        .merge(&fixture.site.namespace, target, &asks);
}

/// The host adopts an object only if the grant and the parent's annotation allow it and no
/// controller owns it. Until then it reports the object and changes nothing.
#[test]
fn an_object_without_a_controller_is_adopted_once_grant_and_parent_agree() {
    let (fixture, host) = MoodyFixture::started_with(1, &adopting());
    let other = fixture.site.stage.get("", ("v1", "Namespace", "default"));
    let foreign_owner = json!([{
        "apiVersion": "v1", "kind": "Namespace", "name": "default",
        "uid": other["metadata"]["uid"], "controller": true,
    }]);
    let free = create_object(&fixture, 1, &json!([]));
    let taken = create_object(&fixture, 2, &foreign_owner);
    fixture.put(1, &json!({}));
    fixture.put(2, &json!({}));

    // Without the parent's annotation, the host only names the objects that it would adopt.
    let message = wait_synced(&fixture, &host, 1, "False", "AdoptionPending");
    for part in [
        "innkeeper.dev/adopt",
        &format!("ConfigMap {}", fixture.site.namespace),
    ] {
        assert!(message.contains(part), "{message}");
    }
    wait_synced(&fixture, &host, 2, "False", "ChildNotOwned");
    fixture.site.stage.settle(QUIET);
    assert_eq!(
        [child(&fixture, 1), child(&fixture, 2)],
        [free.clone(), taken.clone()]
    );

    annotate(&fixture, 1);
    annotate(&fixture, 2);
    wait_synced(&fixture, &host, 1, "True", "Applied");
    let adopted = child(&fixture, 1);
    assert_eq!(adopted["metadata"]["uid"], free["metadata"]["uid"]);
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["kind"], "Moody");
    assert_eq!(adopted["data"]["says"], "one");
    assert_eq!(adopted["data"]["mine"], "yes");
    // Another controller's object stays untouched, even if the parent asks for adoption.
    wait_synced(&fixture, &host, 2, "False", "ChildNotOwned");
    fixture.site.stage.settle(QUIET);
    assert_eq!(child(&fixture, 2), taken);
}

/// The parent's annotation alone is not enough; the host adopts the object once the plugin has the
/// grant.
#[test]
fn a_parent_that_asks_for_adoption_waits_for_the_grant() {
    let (fixture, host) = MoodyFixture::started_with(1, &grants(false));
    let free = create_object(&fixture, 1, &json!([]));
    let parent = json!({
        "apiVersion": API, "kind": "Moody", "spec": {},
        "metadata": {"name": name(1), "annotations": {"innkeeper.dev/adopt": "true"}},
    });
    fixture
        .site
        .stage
        .apply_new(&fixture.site.namespace, &parent);
    let message = wait_synced(&fixture, &host, 1, "False", "AdoptionPending");
    assert!(message.contains("adopt: true"), "{message}");
    fixture.site.stage.settle(QUIET);
    assert_eq!(child(&fixture, 1), free);

    fixture.apply(&adopting());
    wait_synced(&fixture, &host, 1, "True", "Applied");
    assert_eq!(
        child(&fixture, 1)["metadata"]["uid"],
        free["metadata"]["uid"]
    );
}
