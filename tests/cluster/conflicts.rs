//! Another manager keeps changing a field that the plugin also sets, on the real API server.

use std::time::{Duration, Instant};

use innkeeper_tests::{Host, HostOptions, eventually, manifest::condition, user::Kind};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, is_applied, is_synced},
    suite::Target,
};

const PARENT: Target<'static> = ("cache.example.com/v1", "Memcached", "cache");
const DEPLOYMENT: Target<'static> = ("apps/v1", "Deployment", "cache");

/// Long enough for the repair after five seconds, too short for the one ten seconds later.
const CONFLICT_DURATION: Duration = Duration::from_secs(12);

fn replicas(stage: &Stage, namespace: &str) -> Value {
    stage.get(namespace, DEPLOYMENT)["spec"]["replicas"].clone()
}

/// Competes for `CONFLICT_DURATION`: sets seven replicas whenever the number differs; returns the
/// number of writes.
fn compete(stage: &Stage, namespace: &str) -> usize {
    let begin = Instant::now();
    let mut sets = 0;
    while begin.elapsed() < CONFLICT_DURATION {
        if replicas(stage, namespace) != 7 {
            let deployment = json!({
                "apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1,
                "metadata": {"name": DEPLOYMENT.2, "namespace": namespace},
                "spec": {"replicas": 7},
            });
            stage.plane.user().apply_as("scaler", &deployment).unwrap();
            sets += 1;
        }
    }
    sets
}

/// Counts the host's writes to the Deployment after a mark.
fn count_repairs(stage: &Stage, mark: usize) -> usize {
    let writes = stage.writes_since(mark);
    writes
        .iter()
        .filter(|write| write.line().contains("deployments.apps"))
        .count()
}

#[track_caller]
fn wait_conflict(stage: &Stage, host: &Host, namespace: &str) -> String {
    let contested = |parent: &Value| is_synced(parent, "False", "FieldConflict");
    let parent = stage.wait(host, namespace, PARENT, contested);
    condition(&parent, "Synced").unwrap_or_default()
}

/// The host restores a contested field at growing intervals and names the other manager in a
/// condition. Repairing every change at once would never end.
#[test]
fn a_contested_field_is_restored_at_growing_intervals() {
    let (stage, host) = Stage::serving(
        HostOptions::with_guests(&["memcached"]).unwrap().plugins,
        &["memcacheds.cache.example.com"],
    );
    let namespace = stage.namespace("conflict");
    let parent = json!({
        "apiVersion": PARENT.0, "kind": PARENT.1, "metadata": {"name": PARENT.2},
        "spec": {"size": 1},
    });
    stage.apply_new(&namespace, &parent);
    stage.wait(&host, &namespace, PARENT, is_applied);

    let mark = stage.mark();
    let sets = compete(&stage, &namespace);
    // Five immediate repairs, then one after five seconds; the next would come ten seconds later.
    assert!(
        (5..=7).contains(&count_repairs(&stage, mark)),
        "{}",
        count_repairs(&stage, mark)
    );
    assert!((5..=8).contains(&sets), "{sets}");
    let text = wait_conflict(&stage, &host, &namespace);
    for part in ["spec.replicas of", "cache", "(by scaler)"] {
        assert!(text.contains(part), "{text}");
    }

    // The conflict affects neither other parents nor this parent's spec.
    let other = json!({
        "apiVersion": PARENT.0, "kind": PARENT.1, "metadata": {"name": "other"},
        "spec": {"size": 1},
    });
    stage.apply_new(&namespace, &other);
    let other = (PARENT.0, PARENT.1, "other");
    stage.wait(&host, &namespace, other, is_applied);

    // The other manager has stopped: the host restores the plugin's value without a new event.
    let kind = Kind::new(DEPLOYMENT.0, DEPLOYMENT.1, &namespace);
    eventually("the Deployment has the plugin's number of replicas", || {
        let replicas = stage
            .plane
            .user()
            .get(kind, DEPLOYMENT.2)
            .unwrap()
            .unwrap_or_default()["spec"]["replicas"]
            .clone();
        if replicas == 1 {
            return Ok(());
        }
        Err(format!("{replicas}"))
    });
    wait_conflict(&stage, &host, &namespace);
}

/// Changes that come from the parent's spec never count as a conflict, however many there are.
#[test]
fn edits_of_the_parent_are_no_conflict() {
    let (stage, host) = Stage::serving(
        HostOptions::with_guests(&["memcached"]).unwrap().plugins,
        &["memcacheds.cache.example.com"],
    );
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
    stage.wait(&host, &namespace, PARENT, is_applied);
}
