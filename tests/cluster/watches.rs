//! The host's watches: one per kind and selector, no lost change after a new list, and a forbidden kind
//! delays only the plugins that need it.

use std::{collections::BTreeMap, fs};

use innkeeper_tests::{Host, HostOptions, eventually, helm, manifest::condition, user::Kind};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, is_applied, is_synced},
    suite::Target,
};

const MEMCACHED: Target<'static> = ("cache.example.com/v1", "Memcached", "example-memcached");
const WORDPRESS: Target<'static> = ("example.com/v1", "Wordpress", "example-wordpress");
const SERVICE: Target<'static> = ("v1", "Service", "example-memcached");

/// The kind that both `wordpress` and `etcd` read.
const READ_BY_TWO: &str = "/api/v1/persistentvolumeclaims?";

const CRDS: [&str; 3] = [
    "memcacheds.cache.example.com",
    "wordpresses.example.com",
    "etcdclusters.etcd.ydzs.io",
];

fn stage(guests: &[&str]) -> Stage {
    Stage::api_only(HostOptions::with_guests(guests).unwrap().plugins)
}

/// Counts the host's open watches by path and selectors.
fn open_watches(stage: &Stage) -> BTreeMap<String, usize> {
    let path = stage.plane.directory().join("log/apiserver.audit");
    let mut open = BTreeMap::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        let Ok(entry) = serde_json::from_str::<Value>(line) else {
            // The API server is still writing the last line.
            continue;
        };
        let is_host = entry["userAgent"]
            .as_str()
            .is_some_and(|agent| agent.starts_with("innkeeper"));
        if entry["verb"] == "watch" && is_host {
            let id = entry["auditID"].to_string();
            if entry["stage"] == "ResponseComplete" {
                open.remove(&id);
            } else {
                open.insert(id, watched(entry["requestURI"].as_str().unwrap()));
            }
        }
    }
    let mut counts = BTreeMap::new();
    for watched in open.into_values() {
        *counts.entry(watched).or_default() += 1;
    }
    counts
}

/// Returns a watch's path and selectors.
fn watched(uri: &str) -> String {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let is_selector = |part: &&str| part.contains("Selector=");
    let mut selectors: Vec<&str> = query.split('&').filter(is_selector).collect();
    selectors.sort_unstable();
    selectors.dedup();
    format!("{path}?{}", selectors.join("&"))
}

/// All parents and plugins share one watch per kind, because one watch per parent would overload the
/// API server.
#[test]
fn plugins_and_parents_share_one_watch_per_kind_and_selector() {
    let stage = stage(&["memcached", "wordpress", "etcd"]);
    let host = stage.host_serving(&CRDS);
    for _ in 0..3 {
        let namespace = stage.namespace("watches");
        for guest in ["memcached", "wordpress", "etcd"] {
            stage.apply_example(&namespace, &format!("examples/{guest}/01-article.yaml"));
        }
        stage.wait(&host, &namespace, MEMCACHED, is_applied);
        stage.wait(&host, &namespace, WORDPRESS, is_applied);
    }
    let open = open_watches(&stage);
    // Parents in three namespaces, a plugin's children there, and a kind that two plugins read
    // cluster-wide.
    for watched in [
        "/apis/cache.example.com/v1/memcacheds?",
        "/api/v1/services?labelSelector=innkeeper.dev%2Fplugin%3Dmemcached",
        READ_BY_TWO,
    ] {
        assert_eq!(open.get(watched), Some(&1), "{watched}: {open:#?}");
    }
    assert!(open.values().all(|count| *count == 1), "{open:#?}");
}

/// After an outage, only a new list can reveal deletions whose events are lost.
#[test]
fn a_child_deleted_while_the_host_is_cut_off_comes_back() {
    let stage = stage(&["memcached"]);
    let kubeconfig = stage.plane.directory().join("kubeconfig-front");
    let host = Host::start(&kubeconfig, &stage.options).unwrap();
    stage.wait_served(&host, &CRDS[..1]);
    let namespace = stage.namespace("cut");
    stage.apply_example(&namespace, "examples/memcached/01-article.yaml");
    stage.wait(&host, &namespace, MEMCACHED, is_applied);
    let before = stage.get(&namespace, SERVICE);

    let control = |arguments: &[&str]| stage.plane.control(arguments).unwrap();
    control(&["cut", "front"]);
    stage.delete(&namespace, SERVICE);
    // Compaction and the restart remove the history and the watch cache, so the API server cannot
    // send the missed events.
    control(&["compact"]);
    control(&["restart", "apiserver"]);
    assert_eq!(stage.find(&namespace, SERVICE), None);
    control(&["mend", "front"]);
    let after = stage.wait(&host, &namespace, SERVICE, Value::is_object);
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    stage.wait(&host, &namespace, MEMCACHED, is_applied);
}

/// Returns the objects from the chart and from `innkeeper manifests`, bound to the tests' user.
fn roles(stage: &Stage) -> Vec<Value> {
    let files = r#"pluginFiles={"memcached":{},"wordpress":{}}"#;
    let values = ["--set", "namespace.create=true", "--set-json", files];
    let mut objects: Vec<Value> = helm::objects(&values)
        .unwrap()
        .into_iter()
        .filter(|object| object["kind"] != "Deployment")
        .collect();
    for role in stage.manifests(&[]) {
        // Without controllers, role aggregation does not work, so each role needs a binding.
        if role["kind"] == "ClusterRole" {
            objects.push(json!({
                "apiVersion": role["apiVersion"], "kind": "ClusterRoleBinding",
                "metadata": {"name": role["metadata"]["name"]},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": role["metadata"]["name"],
                },
                "subjects": [],
            }));
        }
        objects.push(role);
    }
    for object in &mut objects {
        if let Some(subjects) = object.get_mut("subjects") {
            *subjects = json!([{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "innkeeper",
            }]);
        }
    }
    objects
}

/// Only plugins that need the forbidden kind wait, and their parents report the missing permission.
#[test]
fn a_forbidden_kind_delays_only_the_plugins_that_need_it() {
    let stage = stage(&["memcached", "wordpress"]);
    let mut allowed = None;
    for mut object in roles(&stage) {
        if object["metadata"]["name"] == "innkeeper-plugin-wordpress"
            && object["kind"] == "ClusterRole"
        {
            allowed = Some(object.clone());
            for rule in object["rules"].as_array_mut().unwrap() {
                rule["resources"]
                    .as_array_mut()
                    .unwrap()
                    .retain(|resource| resource != "persistentvolumeclaims");
            }
        }
        stage.plane.user().apply(&object).unwrap();
    }
    let kubeconfig = stage.plane.directory().join("kubeconfig-innkeeper");
    let host = Host::start(&kubeconfig, &stage.options).unwrap();
    stage.wait_served(&host, &CRDS[..2]);
    let namespace = stage.namespace("forbidden");
    stage.apply_example(&namespace, "examples/memcached/01-article.yaml");
    stage.apply_example(&namespace, "examples/wordpress/01-article.yaml");
    stage.wait(&host, &namespace, MEMCACHED, is_applied);
    let waiting = stage.wait(&host, &namespace, WORDPRESS, |parent| {
        is_synced(parent, "Unknown", "WaitingForCache")
    });
    let text = condition(&waiting, "Synced").unwrap();
    for part in [
        "v1 PersistentVolumeClaim: may not be read by the host, grant it list and watch",
        "cannot list resource \"persistentvolumeclaims\"",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let children = |kind: Kind<'_>| {
        stage
            .plane
            .user()
            .list(kind, "innkeeper.dev/plugin=wordpress")
            .unwrap()
    };
    let secrets = children(Kind::new("v1", "Secret", &namespace));
    assert!(secrets.is_empty(), "{secrets:?}");

    stage
        .plane
        .user()
        .apply(&allowed.expect("the plugin has a role"))
        .unwrap();
    stage.wait(&host, &namespace, WORDPRESS, is_applied);
    eventually("the children are created", || {
        match children(Kind::new("v1", "PersistentVolumeClaim", &namespace)).len() {
            0 => Err("none"),
            _ => Ok(()),
        }
    });
}
