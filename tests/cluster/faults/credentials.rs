//! Credentials that end while a host runs (F19, L6).

use std::{fs, path::Path, process::Command, time::Duration};

use innkeeper_tests::{
    ControlPlane, Host, HostOptions, eventually_for, manifest,
    process::{is_full, path_from_env},
};
use serde_json::{Value, json};

use crate::stage::{Stage, is_synced};

const API: &str = "cache.example.com/v1";

/// A token is read from its file once a minute, and the watches that it ended back off.
const ROTATED: Duration = Duration::from_secs(150);

/// An account that may do everything.
fn make_account(stage: &Stage, name: &str) {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": name, "namespace": "default" },
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": "default" }],
    });
    for object in [&account, &binding] {
        stage.plane.user().apply(object).unwrap();
    }
}

/// Puts a fresh token of an account into a file, at once.
fn write_token(plane: &ControlPlane, name: &str, file: &Path) {
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .args(["kubectl", "--kubeconfig"])
        .arg(plane.kubeconfig())
        .args(["create", "token", name, "--namespace", "default"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let new = file.with_extension("new");
    fs::write(&new, output.stdout.trim_ascii()).unwrap();
    fs::rename(&new, file).unwrap();
}

fn apply_cache(stage: &Stage, namespace: &str, name: &str) {
    let parent = json!({
        "apiVersion": API, "kind": "Memcached", "metadata": { "name": name }, "spec": { "size": 1 },
    });
    stage.apply(namespace, &parent);
}

/// Waits for a minute, as the client of the host does before it looks at the file again: only where there is time.
#[test]
fn f19_l6_a_token_that_ends_is_followed_by_the_one_in_the_file() {
    if !is_full() {
        return;
    }
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let file = stage.plane.directory().join("token");
    make_account(&stage, "first");
    write_token(&stage.plane, "first", &file);
    let text = fs::read_to_string(stage.plane.kubeconfig()).unwrap();
    let mut kubeconfig: Value = manifest::parse(&text).unwrap().remove(0);
    kubeconfig["users"] = json!([{ "name": "account", "user": { "tokenFile": file } }]);
    kubeconfig["contexts"][0]["context"]["user"] = json!("account");
    let path = stage.plane.directory().join("kubeconfig-account");
    fs::write(&path, kubeconfig.to_string()).unwrap();

    let host = Host::start(&path, &stage.options).unwrap();
    stage.wait_served(&host, &["memcacheds.cache.example.com"]);
    let namespace = stage.namespace("token");
    apply_cache(&stage, &namespace, "before");
    let is_applied = |parent: &Value| is_synced(parent, "True", "Applied");
    stage.wait(&host, &namespace, (API, "Memcached", "before"), is_applied);

    // With its account the first token ends.
    make_account(&stage, "second");
    write_token(&stage.plane, "second", &file);
    stage.delete("default", ("v1", "ServiceAccount", "first"));
    apply_cache(&stage, &namespace, "after");
    eventually_for(ROTATED, "the host goes on with the second token", || {
        let found = stage.find(&namespace, (API, "Memcached", "after"));
        match found {
            Some(parent) if is_applied(&parent) => Ok(()),
            other => Err(format!("{other:?}\n{}", host.log().unwrap())),
        }
    });
    let second = "system:serviceaccount:default:second";
    let writes = stage.writes_since(0);
    assert!(writes.iter().any(|write| write.user == second));
}
