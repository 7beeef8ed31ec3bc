//! Deleting Plugins on the real API server: their finalizers block nothing, and children stay.

use std::{fs, time::Duration};

use innkeeper_tests::{Host, eventually, process::path_from_env};
use serde_json::{Value, json};

use crate::{
    plugins::{HEALTHY, PLUGIN, PluginSite},
    stage::{Stage, finalizers, is_applied, is_synced, lines},
    suite::Target,
};

const NAME: &str = "farewell";
const CRD: &str = "farewells.test.innkeeper.dev";
const API: &str = "test.innkeeper.dev/v1";
/// The plugin's finalizer on its parents.
const FINALIZER: &str = "innkeeper.dev/farewell";
/// The host's finalizer on the Plugin.
const HOLD: &str = "innkeeper.dev/innkeeper";

/// A control plane with a Plugin that finalizes its parents.
struct FarewellFixture(PluginSite);

impl FarewellFixture {
    fn new() -> Self {
        let site = PluginSite::new();
        site.define();
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        site.put_bytes(&fs::read(guests.join("farewell.wasm")).unwrap());
        Self(site)
    }

    /// A fixture, and a host that serves the plugin.
    fn started() -> (Self, Host) {
        let fixture = Self::new();
        let host = fixture.start();
        (fixture, host)
    }

    /// Starts a host that serves the plugin.
    fn start(&self) -> Host {
        let host = self.0.stage.host_serving(&["plugins.innkeeper.dev"]);
        self.apply(false);
        self.0.wait_conditions_of(NAME, &host, &HEALTHY);
        self.0.stage.wait_served(&host, &[CRD]);
        self.0.stage.restart_collector();
        host
    }

    fn apply(&self, suspend: bool) {
        let plugin = json!({
            "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind,
            "metadata": {"name": NAME},
            "spec": {
                "source": {"file": {"path": "plugin.wasm"}},
                "grants": {
                    "parents": [{"group": "test.innkeeper.dev", "kind": "Farewell"}],
                    "children": [{"kind": "ConfigMap"}],
                    "crds": [{"group": "test.innkeeper.dev", "kind": "Farewell"}],
                },
                "suspend": suspend,
            },
        });
        self.0.stage.apply_new("", &plugin);
    }

    /// Creates parents whose guest traps in phase finalize, and waits until they are applied.
    fn parents(&self, host: &Host, names: &[&'static str]) {
        for name in names {
            let parent = json!({
                "apiVersion": API, "kind": "Farewell", "metadata": {"name": name},
                "spec": {"end": "trap"},
            });
            self.0.stage.apply_new(&self.0.namespace, &parent);
        }
        for name in names {
            let parent = self.wait(host, name, is_applied);
            assert_eq!(finalizers(&parent), [FINALIZER]);
        }
    }

    #[track_caller]
    fn wait(&self, host: &Host, name: &str, check: impl Fn(&Value) -> bool) -> Value {
        let site = &self.0;
        site.stage.wait(host, &site.namespace, parent(name), check)
    }

    #[track_caller]
    fn wait_gone(&self, host: &Host, name: &str) {
        eventually(&format!("{name} is deleted"), || {
            let log = host.log().unwrap_or_default();
            self.0
                .stage
                .find(&self.0.namespace, parent(name))
                .map_or(Ok(()), |object| Err(format!("{object:#}\n{log}")))
        });
    }

    #[track_caller]
    fn wait_plugin_gone(&self, host: &Host) {
        eventually("the Plugin is deleted", || {
            let plugin = self.0.plugin_of(NAME);
            let log = host.log().unwrap_or_default();
            if plugin.is_null() {
                Ok(())
            } else {
                Err(format!("{plugin:#}\n{log}"))
            }
        });
    }

    fn delete(&self, name: &str) {
        self.0.stage.delete(&self.0.namespace, parent(name));
    }

    fn delete_plugin(&self) {
        self.0.stage.plane.user().delete(PLUGIN, NAME).unwrap();
    }

    fn child_uid(&self, name: &str) -> Value {
        let child = format!("{name}-hello");
        let child = self
            .0
            .stage
            .get(&self.0.namespace, ("v1", "ConfigMap", &child));
        child["metadata"]["uid"].clone()
    }

    fn skip(&self, name: &str) {
        let skip = json!({"metadata": {"annotations": {"innkeeper.dev/skip-finalize": "true"}}});
        self.0.stage.merge(&self.0.namespace, parent(name), &skip);
    }
}

fn parent(name: &str) -> Target<'_> {
    (API, "Farewell", name)
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// A deleted Plugin releases the parents: a remaining finalizer would block them for ever. Nothing
/// else is deleted.
#[test]
fn a_deleted_plugin_removes_its_finalizers_and_leaves_children_and_crds() {
    let (fixture, host) = FarewellFixture::started();
    fixture.parents(&host, &["stays", "hangs"]);
    assert_eq!(finalizers(&fixture.0.plugin_of(NAME)), [HOLD]);
    let uid = fixture.child_uid("stays");
    fixture.delete("hangs");
    fixture.wait(&host, "hangs", |parent| {
        is_deleting(parent) && is_synced(parent, "False", "GuestTrapped")
    });

    let mark = fixture.0.stage.mark();
    fixture.delete_plugin();
    fixture.wait_gone(&host, "hangs");
    fixture.wait_plugin_gone(&host);
    let stays = fixture.wait(&host, "stays", |parent| finalizers(parent).is_empty());
    assert!(!is_deleting(&stays), "{stays:#}");
    assert_eq!(fixture.child_uid("stays"), uid);
    fixture.0.stage.settle(Duration::from_secs(1));
    let written = lines(&fixture.0.stage.writes_since(mark));
    let deleted: Vec<&String> = written
        .iter()
        .filter(|line| line.starts_with("delete") || line.contains("customresourcedefinitions"))
        .collect();
    assert_eq!(deleted, Vec::<&String>::new());

    // A new Plugin with the same name adopts the existing parents and children.
    fixture.apply(false);
    fixture.0.wait_conditions_of(NAME, &host, &HEALTHY);
    fixture.wait(&host, "stays", |parent| finalizers(parent) == [FINALIZER]);
    assert_eq!(finalizers(&fixture.0.plugin_of(NAME)), [HOLD]);
    assert_eq!(fixture.child_uid("stays"), uid);

    // A Plugin that is deleted while no host runs waits for the next host, which can release it
    // without the component.
    Stage::kill(host);
    fixture.0.put_bytes(b"broken");
    fixture.delete("stays");
    fixture.delete_plugin();
    assert!(is_deleting(&fixture.0.plugin_of(NAME)));
    let host = fixture.0.stage.host();
    fixture.wait_gone(&host, "stays");
    fixture.wait_plugin_gone(&host);
    Stage::stop(host);
}

/// The annotation releases a parent even if the Plugin is suspended or missing.
#[test]
fn skip_finalize_works_without_the_guest_and_without_the_plugin() {
    let (fixture, host) = FarewellFixture::started();
    fixture.parents(&host, &["suspended", "orphan", "patient"]);
    fixture.apply(true);
    let suspended = ["Serving=False/Suspended", "Degraded=False/AsDeclared"];
    fixture.0.wait_conditions_of(NAME, &host, &suspended);
    fixture.delete("suspended");
    fixture.skip("suspended");
    fixture.wait_gone(&host, "suspended");

    // Removes the Plugin's finalizer by hand while no host runs.
    Stage::kill(host);
    let by_force = json!({"metadata": {"finalizers": null}});
    fixture
        .0
        .stage
        .plane
        .user()
        .merge(PLUGIN, NAME, &by_force)
        .unwrap();
    fixture.delete_plugin();
    assert_eq!(fixture.0.plugin_of(NAME), Value::Null);
    fixture.delete("orphan");
    fixture.delete("patient");
    let host = fixture.0.stage.host();
    fixture.skip("orphan");
    fixture.wait_gone(&host, "orphan");
    // A parent without the annotation waits for a plugin.
    let patient = fixture.0.stage.get(&fixture.0.namespace, parent("patient"));
    assert_eq!(finalizers(&patient), [FINALIZER]);
    fixture.skip("patient");
    fixture.wait_gone(&host, "patient");
    Stage::stop(host);
}
