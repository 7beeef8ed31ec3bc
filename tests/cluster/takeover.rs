//! A plugin file cannot take over the cluster, neither without grants nor with ordinary ones.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    Host, HostOptions, eventually, manifest::condition, process::path_from_env, user::Kind,
};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, finalizers, is_applied, is_synced},
    suite::Target,
};

const API: &str = "test.innkeeper.dev/v1";
const CRD: &str = "takeovers.test.innkeeper.dev";
const HOST_NAMESPACE: &str = "innkeeper-system";

/// The guest's attacks: the behaviour, the child kind, and a part of the refusal with grants.
const ATTACKS: [(&str, &str, &str); 4] = [
    ("privileged-pod", "Pod", "podSecurity: restricted"),
    (
        "pod-of-admin",
        "Pod",
        "must be a service account that the grants name",
    ),
    ("account-token", "Secret", "is a credential of the cluster"),
    (
        "bootstrap-token",
        "Secret",
        "is a credential of the cluster",
    ),
];

fn stage(guest: &str) -> Stage {
    stage_with(&[guest])
}

/// A control plane, and a host without grants that serves this CRD.
fn serve(guest: &str, crd: &str) -> (Stage, Host) {
    let stage = stage(guest);
    let host = stage.host_serving(&[crd]);
    (stage, host)
}

fn stage_with(guests: &[&str]) -> Stage {
    let directory = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let file = |guest: &&str| directory.join(format!("{guest}.wasm"));
    Stage::api_only(guests.iter().map(file).collect())
}

/// Starts a host with this grants file for the guest.
fn host_with_grants(stage: &Stage, guest: &str, grants: &Value) -> Host {
    host_with_all_grants(stage, &[(guest, grants.clone())])
}

/// Starts a host with a grants file for each guest.
fn host_with_all_grants(stage: &Stage, grants: &[(&str, Value)]) -> Host {
    let arguments = grants.iter().flat_map(|(guest, grants)| {
        let file = stage.plane.directory().join(format!("{guest}-grants.json"));
        fs::write(&file, grants.to_string()).unwrap();
        ["--grants".to_owned(), format!("{guest}={}", file.display())]
    });
    let arguments = arguments.collect();
    let options = HostOptions {
        arguments,
        ..stage.options.clone()
    };
    Host::start(&stage.plane.kubeconfig(), &options).unwrap()
}

/// Applies a cluster-scoped parent with this behaviour, and waits until the host refuses the child
/// with a message that contains `expected`.
#[track_caller]
fn check_refused(stage: &Stage, host: &Host, behaviour: &str, namespace: &str, expected: &str) {
    let parent = json!({
        "apiVersion": API, "kind": "Takeover", "metadata": {"name": behaviour},
        "spec": {"behaviour": behaviour, "namespace": namespace},
    });
    stage.apply_new("", &parent);
    let target: Target<'_> = (API, "Takeover", behaviour);
    let refused = stage.wait(host, "", target, |parent| {
        is_synced(parent, "False", "ChildForbidden")
    });
    let message = condition(&refused, "Synced").unwrap();
    assert!(
        message.contains(expected),
        "{behaviour} in {namespace}: {message}"
    );
}

/// Checks that no attack created a child in a namespace.
#[track_caller]
fn check_clean(stage: &Stage, namespace: &str) {
    for (behaviour, kind, _) in ATTACKS {
        for name in [&*format!("{behaviour}-child"), "bootstrap-token-abcdef"] {
            let child = stage.find(namespace, ("v1", kind, name));
            assert_eq!(child, None, "{kind} {name} in {namespace}");
        }
    }
}

#[test]
fn a_plugin_without_grants_cannot_take_over_the_cluster() {
    let (stage, host) = serve("takeover", CRD);
    let tenant = stage.namespace("takeover");
    for namespace in ["kube-system", HOST_NAMESPACE, &tenant] {
        for (behaviour, kind, _) in ATTACKS {
            let expected = if kind == "Pod" {
                "not granted children of kind v1 Pod"
            } else {
                "a plugin without grants makes children in the namespace of their parent only"
            };
            check_refused(&stage, &host, behaviour, namespace, expected);
        }
        let elsewhere =
            "a plugin without grants makes children in the namespace of their parent only";
        check_refused(&stage, &host, "good", namespace, elsewhere);
        check_clean(&stage, namespace);
    }
}

#[test]
fn a_granted_plugin_gets_neither_privileged_pods_nor_credentials_nor_system_namespaces() {
    let stage = stage("takeover");
    let grants = json!({
        "parents": [{"group": "test.innkeeper.dev", "kind": "Takeover"}],
        "children": [{"kind": "ConfigMap"}, {"kind": "Pod"}, {"kind": "Secret"}],
    });
    let host = host_with_grants(&stage, "takeover", &grants);
    stage.wait_served(&host, &[CRD]);
    let tenant = stage.namespace("takeover");
    for (behaviour, _, expected) in ATTACKS {
        for namespace in ["kube-system", HOST_NAMESPACE] {
            check_refused(&stage, &host, behaviour, namespace, "systemNamespaces");
            check_clean(&stage, namespace);
        }
        check_refused(&stage, &host, behaviour, &tenant, expected);
    }
    check_clean(&stage, &tenant);
    // The same plugin can create ordinary children.
    let parent = json!({
        "apiVersion": API, "kind": "Takeover", "metadata": {"name": "good"},
        "spec": {"behaviour": "good", "namespace": tenant},
    });
    stage.apply_new("", &parent);
    stage.wait(&host, "", (API, "Takeover", "good"), is_applied);
    assert!(
        stage
            .find(&tenant, ("v1", "ConfigMap", "good-child"))
            .is_some()
    );
}

#[test]
fn parents_in_system_namespaces_are_served_only_when_the_grants_name_them() {
    const PARENT: Target<'static> = (API, "Unruly", "parent");

    let (stage, host) = serve("unruly", "unrulies.test.innkeeper.dev");
    let tenant = stage.namespace("system");
    let parent = json!({
        "apiVersion": API, "kind": PARENT.1, "metadata": {"name": PARENT.2}, "spec": {"behaviour": "good"},
    });
    let system = ["kube-public", HOST_NAMESPACE];
    for namespace in system {
        stage.apply_new(namespace, &parent);
    }
    // Applied last, so the host has observed the other parents before it serves this one.
    stage.apply_new(&tenant, &parent);
    stage.wait(&host, &tenant, PARENT, is_applied);
    for namespace in system {
        let ignored = stage.get(namespace, PARENT);
        assert_eq!(ignored["status"], Value::Null, "{namespace}");
        assert_eq!(finalizers(&ignored), [""; 0], "{namespace}");
        let children = Kind::new("v1", "ConfigMap", namespace);
        let children = stage
            .plane
            .user()
            .list(children, "innkeeper.dev/plugin=unruly")
            .unwrap();
        assert_eq!(children.len(), 0, "{namespace}");
    }
    Stage::stop(host);

    let grants = |namespaces: &[&str]| {
        json!({
            "parents": [{"group": "test.innkeeper.dev", "kind": "Unruly"}],
            "children": [{"kind": "ConfigMap"}],
            "systemNamespaces": namespaces,
        })
    };
    let host = host_with_grants(&stage, "unruly", &grants(&system));
    for namespace in system {
        stage.wait(&host, namespace, PARENT, is_applied);
    }
    Stage::stop(host);

    // A parent whose namespace loses the grant keeps the children and reports the reason.
    let host = host_with_grants(&stage, "unruly", &grants(&["kube-public"]));
    let released = stage.wait(&host, HOST_NAMESPACE, PARENT, |parent| {
        is_synced(parent, "Unknown", "NotSelected")
    });
    let message = condition(&released, "Synced").unwrap();
    assert!(
        message.contains("spec.grants.systemNamespaces"),
        "{message}"
    );
    stage.wait(&host, "kube-public", PARENT, is_applied);
}

/// Without limits, one object became 8,448 in 24 s. The default limits stop this within seconds, even
/// with a grant for the largest depth. Another test checks that they do not limit 10,000 ordinary
/// parents.
#[test]
fn a_plugin_that_multiplies_its_own_parents_comes_to_a_bound() {
    /// The default for `nestedParentsPerNamespace`, plus two children for each concurrent pass.
    const OBJECTS_MAX: usize = 1_000 + 8;
    /// Time limit for the last object to appear on a busy machine.
    const LIMITED_WITHIN: Duration = Duration::from_secs(45);
    const QUIET: Duration = Duration::from_secs(2);

    let stage = stage("garbage");
    let grants = json!({
        "parents": [{"group": "test.innkeeper.dev", "kind": "Garbage"}],
        "children": [
            {"group": "", "kind": "ConfigMap"},
            {"group": "test.innkeeper.dev", "kind": "Garbage", "depth": 16},
        ],
    });
    let host = host_with_grants(&stage, "garbage", &grants);
    stage.wait_served(&host, &["garbages.test.innkeeper.dev"]);
    let tenant = stage.namespace("multiply");
    let parent = json!({
        "apiVersion": API, "kind": "Garbage", "metadata": {"name": "one"},
        "spec": {"behaviour": "fork-bomb"},
    });
    stage.apply_new(&tenant, &parent);
    let begin = Instant::now();
    let all = || {
        let kind = Kind::new(API, "Garbage", &tenant);
        stage.plane.user().list(kind, "").unwrap()
    };
    let message = eventually("a parent is over the bound", || {
        let parents = all();
        parents
            .iter()
            .find(|parent| is_synced(parent, "False", "QuotaExceeded"))
            .and_then(|parent| condition(parent, "Synced"))
            .ok_or_else(|| format!("{} parents", parents.len()))
    });
    assert!(message.contains("nestedParentsPerNamespace"), "{message}");
    let mut count = all().len();
    let mut since = Instant::now();
    while since.elapsed() < QUIET {
        assert!(
            begin.elapsed() < LIMITED_WITHIN,
            "{count} objects, and more come"
        );
        thread::sleep(Duration::from_millis(100));
        let now = all().len();
        if now != count {
            count = now;
            since = Instant::now();
        }
    }
    println!("{count} objects after {:?}", begin.elapsed());
    assert!(count <= 1 + OBJECTS_MAX, "{count} objects");
    stage.settle(QUIET);
    assert_eq!(all().len(), count);
}

/// Each plugin creates only the other's parents, so no grant has a depth. The host counts the depth
/// across plugins.
#[test]
fn two_plugins_that_make_parents_of_each_other_come_to_a_bound() {
    /// The largest depth below the user's parent.
    const DEPTH_MAX: usize = 16;

    let stage = stage_with(&["garbage", "unruly"]);
    let grants = |parent: &str, child: &str| {
        let group = "test.innkeeper.dev";
        json!({
            "parents": [{"group": group, "kind": parent}],
            "children": [{"kind": "ConfigMap"}, {"group": group, "kind": child}],
        })
    };
    let grants = [
        ("garbage", grants("Garbage", "Unruly")),
        ("unruly", grants("Unruly", "Garbage")),
    ];
    let host = host_with_all_grants(&stage, &grants);
    let crds = ["garbages.test.innkeeper.dev", "unrulies.test.innkeeper.dev"];
    stage.wait_served(&host, &crds);
    let tenant = stage.namespace("ring");
    let parent = json!({
        "apiVersion": API, "kind": "Garbage", "metadata": {"name": "one"},
        "spec": {"behaviour": "ring"},
    });
    stage.apply_new(&tenant, &parent);
    let all = || {
        let kinds = ["Garbage", "Unruly"].map(|kind| Kind::new(API, kind, &tenant));
        let user = stage.plane.user();
        kinds.map(|kind| user.list(kind, "").unwrap()).concat()
    };
    let message = eventually("a parent at the largest depth makes no child", || {
        let parents = all();
        let refused = |parent: &&Value| is_synced(parent, "False", "ChildForbidden");
        parents
            .iter()
            .find(refused)
            .and_then(|parent| condition(parent, "Synced"))
            .ok_or_else(|| format!("{} parents: {:?}", parents.len(), host.log()))
    });
    assert!(message.contains("end the ring of plugins"), "{message}");
    stage.settle(Duration::from_secs(2));
    assert_eq!(all().len(), 1 + DEPTH_MAX);
}
