//! The Plugin resource on the real API server: its CRD, its rules, and the right to grant.
//!
//! The tests apply the objects that `deploy/` ships.

mod rules;

use std::{process::Command, sync::OnceLock};

use anyhow::{Result, ensure};
use innkeeper_tests::{
    ControlPlane, eventually,
    manifest::{self, condition_status},
    process::path_from_env,
    user::{Kind, User},
};
use serde_json::{Value, json};

const PLUGIN: Kind<'static> = Kind {
    api_version: "innkeeper.dev/v1alpha1",
    kind: "Plugin",
    namespace: None,
};

/// The users, named for their rights on Plugins beside writing them.
const EDITOR: &str = "plugin-editor";
const GRANTER: &str = "plugin-granter";
const GRANTER_OF_ONE: &str = "plugin-granter-of-one";

/// The only Plugin that the last user may grant.
const THE_ONE: &str = "the-one";

struct Users {
    plane: &'static ControlPlane,
    editor: User,
    granter: User,
    granter_of_one: User,
}

fn stage() -> &'static Users {
    static STAGE: OnceLock<Users> = OnceLock::new();
    STAGE.get_or_init(|| {
        let plane = ControlPlane::shared();
        let admin = plane.user();
        for path in [
            "deploy/crds/plugins.innkeeper.dev.yaml",
            "deploy/grant-policy.yaml",
        ] {
            for object in manifest::load(path).unwrap() {
                admin.apply(&object).unwrap();
            }
        }
        let crds = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        eventually("the CRD is established", || {
            let crd = admin.get(crds, "plugins.innkeeper.dev").unwrap().unwrap();
            match condition_status(&crd, "Established").as_str() {
                "True" => Ok(()),
                _ => Err(crd["status"].to_string()),
            }
        });
        let write = json!({
            "apiGroups": ["innkeeper.dev"], "resources": ["plugins"],
            "verbs": ["create", "delete", "get", "patch", "update"],
        });
        let grant = |names: &[&str]| {
            json!({
                "apiGroups": ["innkeeper.dev"], "resources": ["plugins"],
                "resourceNames": names, "verbs": ["grant"],
            })
        };
        let user = |name: &str, rules: Value| {
            allow(admin, name, &rules);
            User::connect_as(&plane.kubeconfig(), name).unwrap()
        };
        let stage = Users {
            plane,
            editor: user(EDITOR, json!([write])),
            granter: user(GRANTER, json!([write, grant(&[])])),
            granter_of_one: user(GRANTER_OF_ONE, json!([write, grant(&[THE_ONE])])),
        };
        // The API server enforces a policy only after a moment.
        eventually("the policy is in force", || {
            let probe = plugin("probe", json!({"grants": {}}));
            match stage.editor.create(&probe) {
                Err(error) if format!("{error:#}").contains("takes the verb grant") => Ok(()),
                Err(error) => Err(format!("{error:#}")),
                Ok(_) => {
                    admin.delete(PLUGIN, "probe").unwrap();
                    Err("it was created".to_owned())
                }
            }
        });
        stage
    })
}

/// Gives a user rights in the whole cluster.
fn allow(admin: &User, name: &str, rules: &Value) {
    for object in [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        }),
    ] {
        admin.apply(&object).unwrap();
    }
}

/// A Plugin with a source and a few more fields.
fn plugin(name: &str, more: Value) -> Value {
    let mut spec = json!({"source": {"file": {"path": "memcached.wasm"}}});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin",
        "metadata": {"name": name}, "spec": spec,
    })
}

fn kubectl(arguments: &[&str]) -> Result<String> {
    let plane = stage().plane;
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE")?)
        .arg("kubectl")
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .arg("--cache-dir")
        .arg(plane.directory().join("kubectl-cache"))
        .args(arguments)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Waits until `kubectl explain` prints this about a field; the API server publishes a schema a
/// moment after it serves the kind.
fn check_explained(field: &str, expected: &str) {
    eventually(&format!("{field} is explained"), || -> Result<()> {
        let explained = kubectl(&["explain", field])?;
        ensure!(explained.contains(expected), "{explained}");
        Ok(())
    });
}

#[test]
fn the_crd_is_served_with_defaults_columns_and_documentation() {
    let admin = stage().plane.user();
    let applied = admin.apply(&plugin("shown", json!({}))).unwrap();
    let spec = &applied["spec"];
    assert_eq!(spec["limits"]["memory"], "64Mi");
    assert_eq!(spec["limits"]["writesPerMinute"], 120);
    assert_eq!(spec["rollout"]["maxPrunes"], "20%");
    assert_eq!(spec["rollout"]["autoRollback"], true);
    assert_eq!(spec["crds"], "Install");
    assert_eq!(spec["suspend"], false);
    assert_eq!(spec["grants"], Value::Null, "nothing is granted by default");

    let now = "2026-01-01T00:00:00Z";
    let status = json!({"status": {
        "revision": "0123456789abcdef",
        "parents": {"total": 3, "synced": 3, "ready": 2, "paused": 0},
        "faults": {"count": 7, "last": [{
            "reason": "GuestTrapped", "message": "unreachable", "time": now,
            "parent": {"group": "cache.example.com", "kind": "Memcached", "namespace": "a", "name": "b"},
        }]},
        "conditions": [{
            "type": "Serving", "status": "True", "reason": "Serving", "message": "", "lastTransitionTime": now,
        }],
    }});
    admin.merge_status(PLUGIN, "shown", &status).unwrap();
    let table = kubectl(&["get", "plg", "shown"]).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let titles = ["NAME", "REVISION", "PARENTS", "FAULTS", "SERVING", "AGE"];
    assert_eq!(rows[0], titles, "{table}");
    let shown = ["shown", "0123456789abcdef", "3", "7", "True"];
    assert_eq!(rows[1][..5], shown, "{table}");
    let all = kubectl(&["get", "innkeeper"]).unwrap();
    assert!(all.contains("shown"), "{all}");

    check_explained(
        "plugins.spec.limits.memory",
        "Memory of one running instance",
    );
    check_explained("plugins.status.candidate.counts", "would delete");
    admin.delete(PLUGIN, "shown").unwrap();
}

#[test]
fn two_managers_keep_their_grants() {
    let admin = stage().plane.user();
    let granting = |kind: &str| {
        let grants = json!({"children": [{"group": "apps", "kind": kind}]});
        plugin("shared", json!({"grants": grants}))
    };
    admin.apply_as("one", &granting("Deployment")).unwrap();
    let both = admin.apply_as("two", &granting("StatefulSet")).unwrap();
    let children = both["spec"]["grants"]["children"].as_array().unwrap();
    let kinds: Vec<&str> = children
        .iter()
        .filter_map(|child| child["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["Deployment", "StatefulSet"]);
    admin.delete(PLUGIN, "shared").unwrap();
}

#[test]
fn a_spec_with_every_field_is_accepted() {
    let key = "-----BEGIN PUBLIC KEY-----\nMFkw+/=\n-----END PUBLIC KEY-----\n";
    let full = json!({
        "source": {
            "oci": {
                "reference": "registry.example:5000/plugins/memcached:1.4.0",
                "pullSecretRef": {"name": "registry"}, "insecure": true,
            },
            "pullPolicy": "Always", "pullInterval": "90s",
        },
        "digest": format!("sha256:{}", "0a".repeat(32)),
        "verify": {"keys": [key]},
        "fieldManager": "memcached-operator",
        "parents": {"namespaceSelector": {"matchLabels": {"team": "web"}}, "labelSelector": {}},
        "grants": {
            "parents": [
                {"group": "cache.example.com", "kind": "Memcached"},
                {"group": "apps", "kind": "Deployment", "builtin": true},
            ],
            "crds": [{"group": "gobackup.io", "kind": "Database"}],
            "children": [
                {"group": "apps", "kind": "Deployment", "adopt": true},
                {"kind": "Namespace", "privileged": true},
            ],
            "reads": [
                {"kind": "Secret", "access": "hash"},
                {"kind": "Secret", "access": "metadata", "scope": "Cluster", "labelSelector": "app=web"},
                {"kind": "ConfigMap", "access": "full", "scope": "Namespaces", "namespaces": ["a", "b"]},
            ],
            "serviceAccountRef": {"namespace": "plugins", "name": "memcached"},
        },
        "limits": {"memory": "1Gi", "deadline": "30s", "object": "1536Ki", "logs": "1"},
        "config": {"image": "memcached:1", "nested": {"any": [1, "two"]}},
        "crds": "Ignore",
        "rollout": {
            "mode": "Gated", "autoRollback": false, "maxPrunes": 0, "approve": "0123456789abcdef",
        },
        "suspend": true,
    });
    let admin = stage().plane.user();
    let applied = admin.apply(&plugin("full", full.clone())).unwrap();
    assert_eq!(applied["spec"]["config"], full["config"]);
    assert_eq!(applied["spec"]["rollout"], full["rollout"]);
    admin.delete(PLUGIN, "full").unwrap();
}

/// A grant of one kind of children.
fn children(kind: &str) -> Value {
    json!({"grants": {"children": [{"kind": kind}]}})
}

fn patch(spec: Value) -> Value {
    json!({"spec": spec})
}

/// Checks that the policy refused a write.
fn denied(result: Result<Value>) {
    let error = format!("{:#}", result.expect_err("the policy accepts the write"));
    let message = "setting or changing it takes the verb grant on plugins.innkeeper.dev";
    assert!(error.contains(message), "{error}");
}

#[test]
fn setting_or_changing_grants_requires_the_verb_grant() {
    let stage = stage();

    // A user without the right to grant creates it without grants, and a user with the right
    // grants.
    stage.editor.create(&plugin("granted", json!({}))).unwrap();
    denied(
        stage
            .editor
            .merge(PLUGIN, "granted", &patch(children("Pod"))),
    );
    denied(
        stage
            .editor
            .merge(PLUGIN, "granted", &patch(json!({"grants": {}}))),
    );
    let granter = &stage.granter;
    granter
        .merge(PLUGIN, "granted", &patch(children("Pod")))
        .unwrap();

    // Other fields are free; the policy protects the grants against every way to change them.
    let suspended = patch(json!({"suspend": true, "limits": {"children": 1}}));
    let kept = stage.editor.merge(PLUGIN, "granted", &suspended).unwrap();
    assert_eq!(kept["spec"]["grants"]["children"][0]["kind"], "Pod");
    denied(
        stage
            .editor
            .merge(PLUGIN, "granted", &patch(children("Secret"))),
    );
    denied(
        stage
            .editor
            .merge(PLUGIN, "granted", &patch(json!({"grants": null}))),
    );
    let more = patch(json!({"grants": {"reads": [{"kind": "Secret", "access": "full"}]}}));
    denied(stage.editor.merge(PLUGIN, "granted", &more));
    denied(stage.editor.apply(&plugin("granted", children("Secret"))));
    denied(stage.editor.create(&plugin("new", children("Pod"))));
    denied(stage.editor.apply(&plugin("new", children("Pod"))));

    stage.plane.user().delete(PLUGIN, "granted").unwrap();
}

#[test]
fn the_right_to_grant_one_plugin_does_not_extend_to_another() {
    let stage = stage();
    let of_one = &stage.granter_of_one;
    of_one.create(&plugin(THE_ONE, children("Pod"))).unwrap();
    let other = patch(children("Service"));
    of_one.merge(PLUGIN, THE_ONE, &other).unwrap();
    of_one.create(&plugin("another", json!({}))).unwrap();
    denied(of_one.merge(PLUGIN, "another", &other));
    let admin = stage.plane.user();
    for name in ["another", THE_ONE] {
        admin.delete(PLUGIN, name).unwrap();
    }
}
