//! The Plugin CRD and the admission policy for the verb `grant`, on the real API server.
//!
//! The tests apply the objects that `deploy/` ships.

mod metadata;
mod rules;
mod signatures;

use std::{
    collections::BTreeSet,
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

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

/// Users who may write Plugins, named for their additional permissions.
const EDITOR: &str = "plugin-editor";
const GRANTER: &str = "plugin-granter";
const GRANTER_OF_ONE: &str = "plugin-granter-of-one";
const KEEPER: &str = "plugin-keeper";

/// The only Plugin for which `GRANTER_OF_ONE` has the verb `grant`.
const THE_ONE: &str = "the-one";

struct Users {
    plane: &'static ControlPlane,
    editor: User,
    granter: User,
    granter_of_one: User,
    keeper: User,
}

fn stage() -> &'static Users {
    static STAGE: OnceLock<Users> = OnceLock::new();
    STAGE.get_or_init(|| {
        let plane = ControlPlane::shared();
        let admin = plane.user();
        let editor = restricted_editor(plane);
        let write = write_rule();
        let grant = |names: &[&str]| {
            json!({
                "apiGroups": ["innkeeper.dev"], "resources": ["plugins"],
                "resourceNames": names, "verbs": ["grant"],
            })
        };
        let finalizers = json!({
            "apiGroups": ["innkeeper.dev"], "resources": ["plugins/finalizers"], "verbs": ["update"],
        });
        let user = |name: &str, rules: Value| {
            allow(admin, name, &rules);
            User::connect_as(&plane.kubeconfig(), name).unwrap()
        };
        Users {
            plane,
            editor,
            granter: user(GRANTER, json!([write, grant(&[])])),
            granter_of_one: user(GRANTER_OF_ONE, json!([write, grant(&[THE_ONE])])),
            keeper: user(KEEPER, json!([write, finalizers])),
        }
    })
}

fn write_rule() -> Value {
    json!({
        "apiGroups": ["innkeeper.dev"], "resources": ["plugins"],
        "verbs": ["create", "delete", "get", "patch", "update"],
    })
}

/// Installs the Plugin CRD and the admission policy, waits until they are in force, and returns a user
/// who may write Plugins without the verb `grant`.
pub(crate) fn restricted_editor(plane: &ControlPlane) -> User {
    let admin = plane.user();
    let parts = [
        "CustomResourceDefinition",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    for object in manifest::load("deploy/install.yaml").unwrap() {
        if parts.iter().any(|kind| object["kind"] == *kind) {
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
    allow(admin, EDITOR, &json!([write_rule()]));
    let editor = User::connect_as(&plane.kubeconfig(), EDITOR).unwrap();
    // The API server enforces a policy only after a moment.
    eventually("the policy is in force", || {
        let probe = plugin("probe", json!({"grants": {}}));
        match editor.create(&probe) {
            Err(error) if format!("{error:#}").contains("requires the verb grant") => Ok(()),
            Err(error) => Err(format!("{error:#}")),
            Ok(_) => {
                admin.delete(PLUGIN, "probe").unwrap();
                Err("it was created".to_owned())
            }
        }
    });
    editor
}

/// Gives a user cluster-wide permissions.
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

/// Waits until `kubectl explain` prints this text for a field: the API server publishes a schema
/// a moment after it serves the kind.
fn check_explained(field: &str, expected: &str) {
    eventually(&format!("{field} is explained"), || -> Result<()> {
        let text = kubectl(&["explain", field])?;
        ensure!(text.contains(expected), "{text}");
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
        "version": "1.2.0",
        "parents": {"total": 3, "synced": 3, "ready": 2, "paused": 0},
        "faults": {"count": 7, "last": [{
            "reason": "GuestTrapped", "message": "unreachable", "time": now,
            "parent": {"group": "cache.example.com", "kind": "Memcached", "namespace": "a", "name": "b"},
        }]},
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "NotFound", "message": "", "lastTransitionTime": now,
        }],
    }});
    admin.merge_status(PLUGIN, "shown", &status).unwrap();
    let table = kubectl(&["get", "plg", "shown"]).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let titles = ["NAME", "READY", "REASON", "VERSION", "PARENTS", "AGE"];
    assert_eq!(rows[0], titles, "{table}");
    let shown = ["shown", "False", "NotFound", "1.2.0", "3"];
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
    let kinds: Vec<&str> = both["spec"]["grants"]["children"]
        .as_array()
        .unwrap()
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

/// A spec that grants one child kind.
fn children(kind: &str) -> Value {
    json!({"grants": grants(kind)})
}

fn grants(kind: &str) -> Value {
    json!({"children": [{"kind": kind}]})
}

fn patch(spec: Value) -> Value {
    json!({"spec": spec})
}

/// Checks that the policy denied a write, and that the message names these spec fields.
#[track_caller]
fn denied(result: Result<Value>, fields: &[&str]) {
    let error = format!("{:#}", result.expect_err("the policy accepts the write"));
    for field in fields {
        assert!(error.contains(&format!("spec.{field}")), "{error}");
    }
    let message = "requires the verb grant on plugins.innkeeper.dev";
    assert!(error.contains(message), "{error}");
}

/// Every spec field with two values, and whether a user without the verb `grant` may change it in a
/// Plugin with grants.
fn fields() -> Vec<(&'static str, Value, Value, bool)> {
    let selector = |team: &str| json!({"labelSelector": {"matchLabels": {"team": team}}});
    let digest = |byte: &str| json!(format!("sha256:{}", byte.repeat(32)));
    let file = |path: &str| json!({"file": {"path": path}});
    let deadline = |time: &str| json!({"deadline": time});
    let image = |name: &str| json!({"image": name});
    vec![
        ("source", file("a.wasm"), file("b.wasm"), false),
        ("digest", digest("0a"), digest("0b"), false),
        ("verify", keys("MFkw"), keys("MFkx"), false),
        ("fieldManager", json!("one"), json!("other"), false),
        ("parents", selector("web"), selector("shop"), false),
        ("grants", grants("Pod"), grants("Secret"), false),
        // A longer deadline keeps a host thread busy.
        ("limits", deadline("1s"), deadline("30s"), false),
        ("config", image("a"), image("b"), false),
        ("crds", json!("Ignore"), json!("Install"), false),
        // An approval overrides the limit on deletes.
        (
            "rollout",
            json!({"mode": "Gated"}),
            json!({"approve": "0123456789abcdef"}),
            false,
        ),
        ("suspend", json!(true), json!(false), true),
    ]
}

fn keys(text: &str) -> Value {
    let key = format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
    json!({"keys": [key]})
}

/// Checks one change to a Plugin with this spec by a user without the verb `grant`. A denied change
/// must succeed for a user with the verb, to exclude other rules as the reason.
#[track_caller]
fn check_change(spec: &Value, change: &Value, refused: &[&str]) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    let stage = stage();
    let name = &*format!("changed-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    stage.granter.create(&plugin(name, spec.clone())).unwrap();
    let changed = stage.editor.merge(PLUGIN, name, &patch(change.clone()));
    if refused.is_empty() {
        assert!(changed.is_ok(), "{change} of {spec}: {changed:?}");
    } else {
        denied(changed, refused);
        let changed = stage.granter.merge(PLUGIN, name, &patch(change.clone()));
        assert!(changed.is_ok(), "{change} of {spec}: {changed:?}");
    }
    stage.editor.delete(PLUGIN, name).unwrap();
}

/// A user who could change a Plugin's code, configuration or limits would exercise its grants.
#[test]
fn a_user_without_the_verb_grant_can_only_suspend_a_plugin_with_grants() {
    let definition = manifest::load("deploy/crds/plugins.innkeeper.dev.yaml").unwrap();
    let schema = &definition[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let declared: BTreeSet<&str> = schema["properties"]["spec"]["properties"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let tested: BTreeSet<&str> = fields().iter().map(|(field, ..)| *field).collect();
    assert_eq!(declared, tested);

    let all: Value = fields()
        .iter()
        .map(|(field, before, ..)| ((*field).to_owned(), before.clone()))
        .collect();
    let mut ungranted = all.clone();
    ungranted.as_object_mut().unwrap().remove("grants");
    for (field, before, after, is_free) in fields() {
        let refused: &[&str] = if is_free { &[] } else { &[field] };
        let to = |value: &Value| json!({field: value});
        check_change(&all, &to(&after), refused);
        if field != "source" {
            check_change(&all, &to(&Value::Null), refused);
            let mut without = all.clone();
            without.as_object_mut().unwrap().remove(field);
            check_change(&without, &to(&before), refused);
        }
        // A plugin without grants has no permissions, so anyone may change these fields.
        if field != "grants" {
            check_change(&ungranted, &to(&after), &[]);
        }
    }
    let mut both = children("Pod");
    both["suspend"] = json!(true);
    check_change(&json!({}), &both, &["grants"]);
    // Removing the grants in the same write must not allow other changes.
    check_change(
        &all,
        &json!({"grants": null, "config": {"image": "b"}}),
        &["config", "grants"],
    );
}

#[test]
fn a_plugin_with_grants_cannot_be_created_without_the_verb_grant() {
    let stage = stage();
    denied(
        stage.editor.create(&plugin("new", children("Pod"))),
        &["grants"],
    );
    denied(
        stage.editor.apply(&plugin("new", children("Pod"))),
        &["grants"],
    );
    let empty = plugin("new", json!({"grants": {}}));
    denied(stage.editor.create(&empty), &["grants"]);
    // A user without the verb may delete the Plugin, but not create it again with grants.
    stage
        .granter
        .create(&plugin("new", children("Pod")))
        .unwrap();
    denied(
        stage.editor.apply(&plugin("new", children("Secret"))),
        &["grants"],
    );
    stage.editor.delete(PLUGIN, "new").unwrap();
    denied(
        stage.editor.create(&plugin("new", children("Pod"))),
        &["grants"],
    );
    stage.editor.create(&plugin("new", json!({}))).unwrap();
    // Anyone may change annotations.
    let annotated = json!({"metadata": {"annotations": {"team": "web"}}});
    stage
        .granter
        .merge(PLUGIN, "new", &patch(children("Pod")))
        .unwrap();
    stage.editor.merge(PLUGIN, "new", &annotated).unwrap();
    stage.plane.user().delete(PLUGIN, "new").unwrap();
}

#[test]
fn the_right_to_grant_one_plugin_does_not_extend_to_another() {
    let stage = stage();
    let of_one = &stage.granter_of_one;
    of_one.create(&plugin(THE_ONE, children("Pod"))).unwrap();
    let other = patch(children("Service"));
    of_one.merge(PLUGIN, THE_ONE, &other).unwrap();
    of_one.create(&plugin("another", json!({}))).unwrap();
    denied(of_one.merge(PLUGIN, "another", &other), &["grants"]);
    let admin = stage.plane.user();
    for name in ["another", THE_ONE] {
        admin.delete(PLUGIN, name).unwrap();
    }
}
