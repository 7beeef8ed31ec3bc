//! Answers with as many children as the default limit allows.

use std::time::{Duration, Instant};

use innkeeper_tests::{eventually_for, manifest::condition, user::Kind};
use serde_json::{Value, json};

use crate::{
    mirrored::{MIRRORS, mirror_guest},
    stage::{Stage, is_applied},
};

const MIRROR: (&str, &str, &str) = ("test.innkeeper.dev/v1", "Mirror", "many");
/// Default limit for children.
const CHILDREN: usize = 256;
/// Time limit for all writes from one answer: seconds on an idle machine, and far less than the
/// minute and a half that the rate limit for other writes would take.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);

fn parent(count: usize) -> Value {
    let child = |number: usize| {
        let child = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("many-{number}") },
            "data": { "number": number.to_string() },
        });
        child.to_string()
    };
    let (api_version, kind, name) = MIRROR;
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": { "name": name },
        "spec": { "children": (0..count).map(child).collect::<Vec<_>>() },
    })
}

/// The rate limit does not slow the writes from one answer, neither when all children are created
/// nor when all are pruned.
#[test]
fn all_children_of_one_answer_are_made_and_pruned_at_once() {
    let (stage, host) = Stage::serving(vec![mirror_guest()], &[MIRRORS]);
    let namespace = stage.namespace("many");
    for count in [CHILDREN, 1] {
        stage.apply_new(&namespace, &parent(count));
        let began = Instant::now();
        eventually_for(Duration::from_mins(3), "all children are as stated", || {
            let parent = stage.get(&namespace, MIRROR);
            let synced = condition(&parent, "Synced").unwrap_or_default();
            assert!(!synced.contains("Throttled"), "{synced}");
            if is_applied(&parent) {
                Ok(())
            } else {
                Err(synced)
            }
        });
        let took = began.elapsed();
        assert!(took <= WRITTEN_WITHIN, "{count} children took {took:?}");
        let kind = Kind::new("v1", "ConfigMap", &namespace);
        let selector = "innkeeper.dev/plugin=mirror";
        let live = stage
            .plane
            .user()
            .list(kind, selector)
            .unwrap()
            .iter()
            // No garbage collector completes the deletions here.
            .filter(|child| child["metadata"]["deletionTimestamp"].is_null())
            .count();
        assert_eq!(live, count);
    }
    Stage::stop(host);
}
