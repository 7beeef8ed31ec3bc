//! Parents' and Plugins' health as deployment tools compute it: with kstatus, and with the script
//! for Argo CD.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use innkeeper_tests::{
    Host, eventually,
    manifest::root,
    process::{is_full, path_from_env},
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    plugins::{PLUGIN, cache_grants},
    sharing::plugin,
    stage::Stage,
};

const API: &str = "test.innkeeper.dev/v1";
const CONFIG_MAP: Kind<'static> = Kind {
    api_version: "v1",
    kind: "ConfigMap",
    namespace: Some("argocd"),
};

/// A parent's or Plugin's name, with the status in kstatus and in Argo CD.
type Row = (&'static str, &'static str, &'static str);

/// A control plane with a host, and the script from Argo CD's ConfigMap.
struct Health {
    host: Host,
    stage: Stage,
    namespace: String,
    script: PathBuf,
}

impl Health {
    fn start() -> Self {
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        let mut stage = Stage::api_only(vec![guests.join("unruly.wasm")]);
        let source = path_from_env("INNKEEPER_GUESTS").unwrap();
        let arguments = [
            "--plugin-resources",
            "--source-dir",
            source.to_str().unwrap(),
        ];
        stage.options.arguments = arguments.map(str::to_owned).to_vec();
        stage.install_plugin_crd();
        let script = script(&stage);
        let host = stage.host_serving(&["unrulies.test.innkeeper.dev", "plugins.innkeeper.dev"]);
        let namespace = stage.namespace("health");
        Self {
            host,
            stage,
            namespace,
            script,
        }
    }

    fn put(&self, name: &str, behaviour: &str) {
        let parent = json!({
            "apiVersion": API, "kind": "Unruly",
            "metadata": {"name": name, "finalizers": ["test/held"]},
            "spec": {"behaviour": behaviour},
        });
        self.stage.apply(&self.namespace, &parent);
    }

    /// Waits until a kind's objects have these states.
    #[track_caller]
    fn wait(&self, kind: Kind<'_>, rows: &[Row]) {
        for (name, kstatus, argo) in rows {
            eventually(&format!("{name} is {kstatus} and {argo}"), || {
                let object = self
                    .stage
                    .plane
                    .user()
                    .get(kind, name)
                    .unwrap()
                    .expect(name);
                let computed = self.compute(&object);
                if (&computed["kstatus"], &computed["argo"]["status"])
                    == (&json!(kstatus), &json!(argo))
                {
                    return Ok(());
                }
                Err(format!(
                    "{computed}\n{}\n{}",
                    object["status"],
                    self.host.log().unwrap()
                ))
            });
        }
    }

    fn compute(&self, object: &Value) -> Value {
        let mut running = Command::new(path_from_env("INNKEEPER_HEALTH").unwrap())
            .arg(&self.script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        running
            .stdin
            .take()
            .unwrap()
            .write_all(object.to_string().as_bytes())
            .unwrap();
        let output = running.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Patches Argo CD's ConfigMap as the page says, and writes the script to a file.
fn script(stage: &Stage) -> PathBuf {
    let user = stage.plane.user();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}});
    user.apply(&namespace).unwrap();
    let existing = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"url": "kept"},
        "metadata": {"name": "argocd-cm", "namespace": "argocd"},
    });
    user.apply(&existing).unwrap();
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .args(["kubectl", "--kubeconfig"])
        .arg(stage.plane.kubeconfig())
        .args("patch configmap argocd-cm --namespace argocd --patch-file".split(' '))
        .arg(root().join("deploy/argocd-cm.yaml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let patched = user.get(CONFIG_MAP, "argocd-cm").unwrap().unwrap();
    let mut data = patched["data"].as_object().unwrap().clone();
    assert_eq!(data.remove("url").unwrap(), "kept");
    let text = data["resource.customizations.health.innkeeper.dev_Plugin"].clone();
    assert!(
        data.values().all(|other| *other == text) && data.len() > 5,
        "{data:#?}"
    );
    let path = stage.plane.directory().join("health.lua");
    fs::write(&path, text.as_str().unwrap()).unwrap();
    path
}

/// Kstatus reports Failed for a parent that waits for a change (condition Stalled), and InProgress
/// for one that the host retries (Reconciling), even if the children are still ready. Argo CD
/// reports both as Degraded (Synced). Only in `tests/full`, which builds the program.
#[test]
fn kstatus_and_argo_cd_compute_the_health_of_parents_and_plugins() {
    if !is_full() {
        return;
    }
    let health = Health::start();
    for (name, behaviour) in [
        ("good", "good"),
        ("waiting", "retry"),
        ("invalid", "invalid"),
        ("broken-later", "good"),
        ("leaving", "good"),
        ("paused", "good"),
    ] {
        health.put(name, behaviour);
    }
    let parents = Kind::new(API, "Unruly", &health.namespace);
    health.wait(
        parents,
        &[
            ("good", "Current", "Healthy"),
            ("waiting", "InProgress", "Progressing"),
            ("invalid", "Failed", "Degraded"),
            ("broken-later", "Current", "Healthy"),
            ("paused", "Current", "Healthy"),
        ],
    );
    let user = health.stage.plane.user();
    health.put("broken-later", "trap");
    user.delete(parents, "leaving").unwrap();
    let pause = json!({"metadata": {"annotations": {"innkeeper.dev/paused": "true"}}});
    user.merge(parents, "paused", &pause).unwrap();
    health.wait(
        parents,
        &[
            ("broken-later", "InProgress", "Degraded"),
            ("paused", "Current", "Suspended"),
        ],
    );
    let leaving = user.get(parents, "leaving").unwrap().unwrap();
    assert_eq!(health.compute(&leaving)["kstatus"], "Terminating");
    check_plugin_conditions(&health);
    check_plugins(&health);
    Stage::stop(health.host);
}

/// Checks Plugin states.
#[track_caller]
fn check_plugins(health: &Health) {
    let grants = cache_grants();
    for (name, guest) in [("cache", "memcached"), ("missing", "none")] {
        health
            .stage
            .apply_new("", &plugin(name, guest, &grants, "a"));
    }
    health.wait(
        PLUGIN,
        &[
            ("cache", "Current", "Healthy"),
            ("missing", "InProgress", "Degraded"),
        ],
    );
    check_rollout(health);
    let user = health.stage.plane.user();
    let suspend = json!({"spec": {"suspend": true}});
    user.merge(PLUGIN, "cache", &suspend).unwrap();
    health.wait(PLUGIN, &[("cache", "InProgress", "Suspended")]);
}

/// Checks a parent during and after a rollout. No controller creates the Pods.
#[track_caller]
fn check_rollout(health: &Health) {
    const NAME: &str = "no-pods";
    let memcached = json!({
        "apiVersion": "cache.example.com/v1", "kind": "Memcached",
        "metadata": {"name": NAME}, "spec": {"size": 2},
    });
    health.stage.apply_new(&health.namespace, &memcached);
    let parents = Kind::new("cache.example.com/v1", "Memcached", &health.namespace);
    health.wait(parents, &[(NAME, "InProgress", "Progressing")]);
    let deployments = Kind::new("apps/v1", "Deployment", &health.namespace);
    let user = health.stage.plane.user();
    let deployment = eventually("the Deployment exists", || {
        user.get(deployments, NAME).unwrap().ok_or("no Deployment")
    });
    let status = json!({"status": {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": 2, "updatedReplicas": 2, "unavailableReplicas": 2,
    }});
    user.merge_status(deployments, NAME, &status).unwrap();
    health.wait(parents, &[(NAME, "InProgress", "Degraded")]);
}

/// Checks conditions that only the plugin sets.
#[track_caller]
fn check_plugin_conditions(health: &Health) {
    for (ready, stated, kstatus, argo) in [
        ("False", &["Stalled"][..], "Failed", "Degraded"),
        ("True", &["Degraded"], "Current", "Degraded"),
        (
            "True",
            &["Degraded", "Progressing"],
            "Current",
            "Progressing",
        ),
        ("True", &["Progressing"], "Current", "Healthy"),
    ] {
        let conditions: Vec<Value> = [condition("Synced", "True"), condition("Ready", ready)]
            .into_iter()
            .chain(stated.iter().map(|kind| condition(kind, "True")))
            .collect();
        let object = json!({
            "apiVersion": API, "kind": "Unruly",
            "metadata": {"name": "stated", "namespace": "default", "generation": 1},
            "status": {"conditions": conditions},
        });
        let computed = health.compute(&object);
        let states = (&computed["kstatus"], &computed["argo"]["status"]);
        assert_eq!(
            states,
            (&json!(kstatus), &json!(argo)),
            "{computed}\n{object:#}"
        );
    }
}

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": kind, "message": "by the test", "observedGeneration": 1,
    })
}
