//! The state of a Plugin, and decisions from it; the cluster tests cover passes.

use std::time::Duration;

use innkeeper_cluster::present;
use innkeeper_model::{Access, HashKey};
use innkeeper_sandbox::{
    Metering,
    fixture::{described, desired, engine, guest, owned_child},
};
use serde_json::json;

use super::*;
use crate::resource::Parents;

fn declare(spec: &serde_json::Value) -> Declared {
    let plugin = json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin",
        "metadata": {"name": "web"},
        "spec": {
            "source": {"file": {"path": "web.wasm"}},
            "grants": {
                "parents": [{"group": "example.com", "kind": "Web"}],
                "children": spec,
            },
        },
    });
    let read = Resource::read(&plugin.to_string()).unwrap();
    read.declared().unwrap()
}

fn granting() -> Declared {
    declare(&json!([{"kind": "ConfigMap"}]))
}

/// Returns the state after a component was loaded.
fn loaded(declared: &Declared) -> (Known, Digest) {
    let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}});
    let guest = guest().answering(desired(vec![owned_child("child", &child.to_string())]));
    let described = described(&engine(Metering::Epochs), &guest.build());
    let plugin = Arc::new(described.configure(&serde_json::Map::new()).unwrap());
    let revision = plugin.revision().clone();
    let attempt = Attempt {
        of: declared.clone(),
        component: None,
        ended: Ok(plugin),
        at: Instant::now(),
        retry_at: None,
    };
    let known = Known {
        attempt: Some(attempt),
        ..Known::default()
    };
    (known, revision)
}

#[tokio::test]
async fn what_is_not_granted_does_not_serve_and_says_which_lines_are_missing() {
    let declared = granting();
    let (known, revision) = loaded(&declared);
    assert_eq!(known.situation(&declared).next(), Step::Serve(revision));
    assert_eq!(known.problem(&declared), None);

    let less = declare(&json!([]));
    assert_eq!(known.situation(&less).next(), Step::Wait);
    let problem = known.problem(&less).unwrap();
    assert_eq!(problem.stage, Stage::Granted);
    assert!(problem.message.contains("kind: ConfigMap"), "{problem:?}");
}

#[tokio::test]
async fn a_refused_revision_is_not_tried_again_before_its_time() {
    let declared = granting();
    let (mut known, revision) = loaded(&declared);
    let failed = |retry| Failed::new(Stage::Serving, "ParentTaken", "taken", retry);
    known.refuse(revision.clone(), &declared, failed(Retry::OnChange));
    assert!(known.is_refused(&revision));
    assert_eq!(known.situation(&declared).next(), Step::Wait);
    assert_eq!(known.problem(&declared).unwrap().reason, "ParentTaken");
    assert_eq!(known.due_next(), None);

    let minute = Duration::from_mins(1);
    known.refuse(revision.clone(), &declared, failed(Retry::At(minute)));
    let due = known.due_next().unwrap();
    assert!(due >= Instant::now() + Duration::from_secs(59));
    assert!(!known.refusals[&revision].is_due());
}

#[tokio::test]
async fn a_source_that_is_to_be_asked_again_is() {
    let declared = granting();
    let (mut known, revision) = loaded(&declared);
    assert_eq!(known.due_next(), None);
    let attempt = known.attempt.as_mut().unwrap();
    attempt.of.pull_every = Some(Duration::from_mins(1));
    let step = |known: &Known| known.situation(&declared).next();
    assert_eq!(step(&known), Step::Serve(revision));
    assert!(known.due_next().is_some());
    let attempt = known.attempt.as_mut().unwrap();
    attempt.of.pull_every = Some(Duration::ZERO);
    assert_eq!(step(&known), Step::Load);
}

#[test]
fn conditions_of_an_earlier_generation_do_not_count() {
    let counts_with = |observed_generation| {
        let condition = |kind| {
            json!({
                "type": kind, "status": "True", "reason": kind, "message": "",
                "observedGeneration": observed_generation,
            })
        };
        let parent = json!({
            "apiVersion": "example.com/v1", "kind": "Web",
            "metadata": {"name": "a", "namespace": "demo", "generation": 2},
            "status": {"conditions": [condition("Synced"), condition("Ready")]},
        });
        let parent = present(
            parent.as_object().unwrap(),
            &Gvk::new("example.com", "v1", "Web"),
            Access::Full,
            &HashKey::new([0; 32]),
        );
        let mut counts = Parents::default();
        report::count(&mut counts, &parent.unwrap());
        (counts.total, counts.synced, counts.ready)
    };
    assert_eq!(counts_with(1), (1, 0, 0));
    assert_eq!(counts_with(2), (1, 1, 1));
}
