//! The deletion of Plugins, on the real API server: no finalizer of theirs blocks anything, and
//! children stay (L1).

use std::{fs, time::Duration};

use innkeeper_tests::{Host, eventually, process::path_from_env};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    plugins::{PLUGIN, Site, WELL},
    stage::{Stage, is_synced, lines},
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
struct Scene(Site);

impl Scene {
    fn new() -> Self {
        let site = Site::new();
        site.define();
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        site.put_bytes(&fs::read(guests.join("farewell.wasm")).unwrap());
        Self(site)
    }

    /// Starts a host that serves the plugin.
    fn begin(&self) -> Host {
        let host = self.0.stage.host();
        let served = ["plugins.innkeeper.dev"];
        self.0.stage.wait_served(&host, &served);
        self.apply(false);
        self.0.wait_conditions_of(NAME, &host, &WELL);
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

    /// Creates parents of these names, whose guest traps in phase finalize, and waits until they
    /// have their children.
    fn parents(&self, host: &Host, names: &[&'static str]) {
        for name in names {
            let parent = json!({
                "apiVersion": API, "kind": "Farewell", "metadata": {"name": name},
                "spec": {"end": "trap"},
            });
            self.0.stage.apply_new(&self.0.namespace, &parent);
        }
        for name in names {
            let parent = self.wait(host, name, |parent| is_synced(parent, "True", "Applied"));
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
            let found = self.0.stage.find(&self.0.namespace, parent(name));
            let log = host.log().unwrap_or_default();
            found.map_or(Ok(()), |found| Err(format!("{found:#}\n{log}")))
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

fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array();
    let all = all.into_iter().flatten();
    all.filter_map(Value::as_str).collect()
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn kill(mut host: Host) {
    host.process().signal(Signal::KILL).unwrap();
    host.process().wait_for(Duration::from_secs(5)).unwrap();
}

/// The deletion of a Plugin releases its parents and deletes nothing else. A finalizer that stayed
/// would block the parents for ever.
#[test]
fn l1_a_deleted_plugin_removes_its_finalizers_and_leaves_children_and_crds() {
    let scene = Scene::new();
    let host = scene.begin();
    scene.parents(&host, &["stays", "hangs"]);
    assert_eq!(finalizers(&scene.0.plugin_of(NAME)), [HOLD]);
    let uid = scene.child_uid("stays");
    scene.delete("hangs");
    scene.wait(&host, "hangs", |parent| {
        is_deleting(parent) && is_synced(parent, "False", "GuestTrapped")
    });

    let mark = scene.0.stage.mark();
    scene.delete_plugin();
    scene.wait_gone(&host, "hangs");
    scene.wait_plugin_gone(&host);
    let stays = scene.wait(&host, "stays", |parent| finalizers(parent).is_empty());
    assert!(!is_deleting(&stays), "{stays:#}");
    assert_eq!(scene.child_uid("stays"), uid);
    scene.0.stage.settle(Duration::from_secs(1));
    let written = lines(&scene.0.stage.writes_since(mark));
    let deleted: Vec<&String> = written
        .iter()
        .filter(|line| line.starts_with("delete") || line.contains("customresourcedefinitions"))
        .collect();
    assert_eq!(deleted, Vec::<&String>::new());

    // Another Plugin of that name takes over the existing parents and children.
    scene.apply(false);
    scene.0.wait_conditions_of(NAME, &host, &WELL);
    scene.wait(&host, "stays", |parent| finalizers(parent) == [FINALIZER]);
    assert_eq!(finalizers(&scene.0.plugin_of(NAME)), [HOLD]);
    assert_eq!(scene.child_uid("stays"), uid);

    // A Plugin that is deleted while no host runs waits for a host, which does not need the
    // component to release it.
    kill(host);
    scene.0.put_bytes(b"broken");
    scene.delete("stays");
    scene.delete_plugin();
    assert!(is_deleting(&scene.0.plugin_of(NAME)));
    let host = scene.0.stage.host();
    scene.wait_gone(&host, "stays");
    scene.wait_plugin_gone(&host);
    Stage::stop(host);
}

/// The annotation releases parents of a suspended and of a missing Plugin, and only those that have
/// it.
#[test]
fn l1_skip_finalize_works_without_the_guest_and_without_the_plugin() {
    let scene = Scene::new();
    let host = scene.begin();
    scene.parents(&host, &["suspended", "orphan", "patient"]);
    scene.apply(true);
    let suspended = ["Serving=False/Suspended", "Degraded=False/AsDeclared"];
    scene.0.wait_conditions_of(NAME, &host, &suspended);
    scene.delete("suspended");
    scene.skip("suspended");
    scene.wait_gone(&host, "suspended");

    // The Plugin is deleted by force while no host runs.
    kill(host);
    let by_force = json!({"metadata": {"finalizers": null}});
    let user = scene.0.stage.plane.user();
    user.merge(PLUGIN, NAME, &by_force).unwrap();
    scene.delete_plugin();
    assert_eq!(scene.0.plugin_of(NAME), Value::Null);
    scene.delete("orphan");
    scene.delete("patient");
    let host = scene.0.stage.host();
    scene.skip("orphan");
    scene.wait_gone(&host, "orphan");
    // A parent without the annotation waits for a plugin.
    let patient = scene.0.stage.get(&scene.0.namespace, parent("patient"));
    assert_eq!(finalizers(&patient), [FINALIZER]);
    scene.skip("patient");
    scene.wait_gone(&host, "patient");
    Stage::stop(host);
}
