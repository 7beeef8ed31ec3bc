//! Hosts that share a cluster by selecting Plugins by label.

use std::time::Duration;

use innkeeper_tests::{
    Host, eventually,
    manifest::{condition, is_ready},
    process::path_from_env,
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    plugins::{PLUGIN, cache_grants},
    stage::{Stage, lines, wait_logged},
    suite::Target,
};

const HOST_NAMESPACE: &str = "innkeeper-system";
const CACHE: Target<'static> = ("cache.example.com/v1", "Memcached", "example-memcached");
const DEPLOYMENT: Target<'static> = ("apps/v1", "Deployment", "example-memcached");

pub(crate) fn plugin(name: &str, guest: &str, grants: &Value, team: &str) -> Value {
    json!({
        "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind,
        "metadata": {"name": name, "labels": {"team": team}},
        "spec": {"source": {"file": {"path": format!("{guest}.wasm")}}, "grants": grants},
    })
}

fn host_of_team(stage: &Stage, team: &str) -> Host {
    let mut options = stage.options.clone();
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    options.plugins.clear();
    options.arguments = vec![
        "--source-dir".to_owned(),
        guests.to_str().unwrap().to_owned(),
        "--leader-elect".to_owned(),
        "--lease-identity".to_owned(),
        team.to_owned(),
        "--plugin-selector".to_owned(),
        format!("team={team}"),
    ];
    Host::start(&stage.plane.kubeconfig(), &options).unwrap()
}

/// Waits until a Plugin is served; a failure shows this host's log.
#[track_caller]
pub(crate) fn wait_serving(stage: &Stage, host: &Host, name: &str) {
    eventually(&format!("{name} is served"), || {
        let plugin = stage
            .plane
            .user()
            .get(PLUGIN, name)
            .unwrap()
            .unwrap_or_default();
        match condition(&plugin, "Serving") {
            Some(text) if text.starts_with("True/") => Ok(()),
            _ => Err(format!("{:#}\n{}", plugin["status"], host.log().unwrap())),
        }
    });
}

/// Returns the lease holders' `--lease-identity`.
fn holders(stage: &Stage) -> Vec<String> {
    let leases = Kind::new("coordination.k8s.io/v1", "Lease", HOST_NAMESPACE);
    let leases = stage.plane.user().list(leases, "").unwrap();
    let mut holders: Vec<String> = leases
        .iter()
        .map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap())
        .map(|holder| holder.split('_').next().unwrap().to_owned())
        .collect();
    holders.sort();
    holders
}

#[track_caller]
fn wait_released(host: &Host) {
    wait_logged(host, "a host releases a Plugin", "not chosen any more");
}

/// Labels select the only host that serves a Plugin. Two hosts with the same Plugin would overwrite
/// each other's changes.
#[test]
fn two_hosts_share_a_cluster_by_the_labels_of_plugins() {
    let stage = Stage::full(Vec::new());
    stage.install_plugin_crd();
    let red = host_of_team(&stage, "red");
    let blue = host_of_team(&stage, "blue");
    let grants = cache_grants();
    stage.apply_new("", &plugin("cache", "memcached", &grants, "red"));
    stage.apply_new("", &plugin("unselected", "wordpress", &json!({}), "green"));
    wait_serving(&stage, &red, "cache");
    stage.restart_collector();
    let namespace = stage.namespace("shared");
    stage.apply_example(&namespace, "examples/memcached/01-article.yaml");
    stage.wait(&red, &namespace, CACHE, is_ready);
    let deployment = stage.get(&namespace, DEPLOYMENT);

    // Both hosts write, each with a separate lease.
    assert_eq!(holders(&stage), ["blue", "red"]);
    let by_agent = |mark: usize, name: &str| -> Vec<String> {
        let agent = format!("({name}_");
        let writes: Vec<_> = stage
            .writes_since(mark)
            .into_iter()
            .filter(|write| write.user_agent.contains(&agent))
            .collect();
        lines(&writes)
    };
    assert!(!by_agent(0, "red").is_empty());
    let by_blue = by_agent(0, "blue");
    let is_for_plugin = |line: &&String| line.contains("plugins.") || line.contains("deployments.");
    assert_eq!(
        by_blue.iter().filter(is_for_plugin).count(),
        0,
        "{by_blue:?}"
    );
    let unselected = stage
        .plane
        .user()
        .get(PLUGIN, "unselected")
        .unwrap()
        .unwrap();
    assert_eq!(unselected["status"], Value::Null);

    // A new label moves the Plugin: one host releases it, the other takes over, and the children
    // stay.
    let relabel = json!({"metadata": {"labels": {"team": "blue"}}});
    stage.plane.user().merge(PLUGIN, "cache", &relabel).unwrap();
    wait_released(&red);
    wait_logged(&blue, "the other host serves", "serving plugin");
    let mark = stage.settle(Duration::from_secs(2));
    stage.merge(&namespace, CACHE, &json!({"spec": {"size": 4}}));
    stage.wait(&blue, &namespace, CACHE, |parent| {
        parent["status"]["readyReplicas"] == 4 && is_ready(parent)
    });
    assert_eq!(by_agent(mark, "red"), [""; 0], "it has released the Plugin");
    let after = stage.get(&namespace, DEPLOYMENT);
    assert_eq!(after["metadata"]["uid"], deployment["metadata"]["uid"]);

    // No host serves a Plugin that none selects, and the children stay.
    let relabel = json!({"metadata": {"labels": {"team": "green"}}});
    stage.plane.user().merge(PLUGIN, "cache", &relabel).unwrap();
    wait_released(&blue);
    let mark = stage.settle(Duration::from_secs(1));
    stage.merge(&namespace, CACHE, &json!({"spec": {"size": 2}}));
    stage.settle(Duration::from_secs(2));
    assert_eq!(lines(&stage.writes_since(mark)), [""; 0]);
    let last = stage.get(&namespace, DEPLOYMENT);
    assert_eq!(last["metadata"]["uid"], deployment["metadata"]["uid"]);
    assert_eq!(last["spec"]["replicas"], 4);
}
