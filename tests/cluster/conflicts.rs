//! Somebody who insists on another value of a field that a plugin states (A3), on the real API server.

use std::time::{Duration, Instant};

use innkeeper_tests::{Host, HostOptions, eventually, manifest::condition, user::Kind};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, is_synced},
    suite::Target,
};

const PARENT: Target<'static> = ("cache.example.com/v1", "Memcached", "cache");
const DEPLOYMENT: Target<'static> = ("apps/v1", "Deployment", "cache");

/// How long the two of them quarrel.
const QUARREL: Duration = Duration::from_secs(12);

fn replicas(stage: &Stage, namespace: &str) -> Value {
    stage.get(namespace, DEPLOYMENT)["spec"]["replicas"].clone()
}

/// Wants seven replicas, as often as there are others, for a while; how often it had to say so.
fn insist(stage: &Stage, namespace: &str) -> usize {
    let begin = Instant::now();
    let mut said = 0;
    while begin.elapsed() < QUARREL {
        if replicas(stage, namespace) != 7 {
            let wanted = json!({
                "apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1,
                "metadata": {"name": DEPLOYMENT.2, "namespace": namespace},
                "spec": {"replicas": 7},
            });
            stage.plane.user().apply_as("scaler", &wanted).unwrap();
            said += 1;
        }
    }
    said
}

/// The host's writes of the Deployment after a mark.
fn repairs(stage: &Stage, mark: usize) -> usize {
    let writes = stage.writes_since(mark);
    let repairs = writes
        .iter()
        .filter(|write| write.line().contains("deployments.apps"));
    repairs.count()
}

#[track_caller]
fn wait_conflict(stage: &Stage, host: &Host, namespace: &str) -> String {
    let contested = |parent: &Value| is_synced(parent, "False", "FieldConflict");
    let parent = stage.wait(host, namespace, PARENT, contested);
    condition(&parent, "Synced").unwrap_or_default()
}

#[test]
fn a3_a_field_that_another_manager_insists_on_is_put_back_less_and_less_often() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let host = stage.host();
    stage.wait_served(&host, &["memcacheds.cache.example.com"]);
    let namespace = stage.namespace("conflict");
    let parent = json!({
        "apiVersion": PARENT.0, "kind": PARENT.1, "metadata": {"name": PARENT.2},
        "spec": {"size": 1},
    });
    stage.apply_new(&namespace, &parent);
    let applied = |parent: &Value| is_synced(parent, "True", "Applied");
    stage.wait(&host, &namespace, PARENT, applied);

    let mark = stage.mark();
    let said = insist(&stage, &namespace);
    // Five times at once, and once more five seconds later; the next time is ten seconds after that.
    assert!(
        (5..=7).contains(&repairs(&stage, mark)),
        "{}",
        repairs(&stage, mark)
    );
    assert!((5..=8).contains(&said), "{said}");
    let text = wait_conflict(&stage, &host, &namespace);
    for part in ["spec.replicas of", "cache", "(by scaler)"] {
        assert!(text.contains(part), "{text}");
    }

    // Other parents have no part in it, nor has this parent's spec.
    let other = json!({
        "apiVersion": PARENT.0, "kind": PARENT.1, "metadata": {"name": "other"},
        "spec": {"size": 1},
    });
    stage.apply_new(&namespace, &other);
    let other = (PARENT.0, PARENT.1, "other");
    stage.wait(&host, &namespace, other, applied);

    // Whoever it was has given up: the plugin's value comes back by itself.
    let kind = Kind::new(DEPLOYMENT.0, DEPLOYMENT.1, &namespace);
    eventually("the Deployment is as the plugin wants it", || {
        let deployment = stage.plane.user().get(kind, DEPLOYMENT.2).unwrap();
        let replicas = deployment.unwrap_or_default()["spec"]["replicas"].clone();
        if replicas == 1 {
            return Ok(());
        }
        Err(format!("{replicas}"))
    });
    wait_conflict(&stage, &host, &namespace);
}

#[test]
fn a3_an_edit_of_the_parent_is_no_quarrel() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let host = stage.host();
    stage.wait_served(&host, &["memcacheds.cache.example.com"]);
    let namespace = stage.namespace("edits");
    for size in 1..=10 {
        let parent = json!({
            "apiVersion": PARENT.0, "kind": PARENT.1, "metadata": {"name": PARENT.2},
            "spec": {"size": size},
        });
        stage.apply_new(&namespace, &parent);
        let deployment = |object: &Value| object["spec"]["replicas"] == size;
        stage.wait(&host, &namespace, DEPLOYMENT, deployment);
    }
    stage.wait(&host, &namespace, PARENT, |parent| {
        is_synced(parent, "True", "Applied")
    });
}
