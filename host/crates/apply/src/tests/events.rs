//! Events: O3.

use std::time::Duration;

use innkeeper_model::{Event, EventType, Object, PluginName};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    object,
    scripted::{Answer, Scripted, serve},
};
use crate::Events;

fn parent(uid: &str) -> Object {
    object("Web", "shop", uid, 10)
}

fn event(reason: &str) -> Event {
    Event {
        kind: EventType::Warning,
        reason: reason.to_owned(),
        message: "ä".repeat(600),
    }
}

struct Scene {
    server: Scripted,
    events: Events,
    now: Timestamp,
}

impl Scene {
    async fn new(answers: Vec<Answer>) -> Self {
        Self {
            server: serve(answers).await,
            events: Events::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    /// Records an event and says which requests that made.
    async fn record(
        &mut self,
        uid: &str,
        event: &Event,
        fresh: bool,
        later: SignedDuration,
    ) -> Vec<String> {
        self.now += later;
        let before = self.server.lines().len();
        let writer = self.server.writer(Duration::from_secs(20), 4);
        let plugin = PluginName::new("web").unwrap();
        let due = self
            .events
            .due(&plugin, &parent(uid), event, fresh, self.now);
        if let Some(write) = due {
            self.events.write(&writer, &write).await.unwrap();
        }
        let lines = self.server.lines().split_off(before);
        let verb = |line: String| line.split_whitespace().next().unwrap().to_owned();
        lines.into_iter().map(verb).collect()
    }

    fn last(&self) -> Value {
        self.server.requests.lock().last().unwrap().body.clone()
    }
}

fn fine() -> Vec<Answer> {
    vec![Answer::Say(200, "", json!({}))]
}

const SECOND: SignedDuration = SignedDuration::from_secs(1);

#[tokio::test]
async fn a_repeated_event_is_counted_o3() {
    let mut scene = Scene::new(fine()).await;
    let event = event("Waiting");
    assert_eq!(scene.record("p1", &event, true, SECOND).await, ["POST"]);
    let body = scene.last();
    assert_eq!(body["regarding"]["uid"], "p1");
    assert_eq!(body["reportingController"], "innkeeper.dev/web");
    assert_eq!(body["eventTime"], "2026-01-01T00:00:01.000000Z");
    // Cut where a character ends.
    assert_eq!(body["note"].as_str().unwrap().len(), 1024);
    assert_eq!(scene.record("p1", &event, true, SECOND).await, ["PATCH"]);
    assert_eq!(scene.last()["series"]["count"], 2);
    for _ in 0..5 {
        assert!(scene.record("p1", &event, true, SECOND).await.is_empty());
    }
    let minutes = SignedDuration::from_secs(358);
    assert_eq!(scene.record("p1", &event, true, minutes).await, ["PATCH"]);
    assert_eq!(scene.last()["series"]["count"], 8);
    // After a pause it is another event.
    let pause = SignedDuration::from_mins(7);
    assert_eq!(scene.record("p1", &event, true, pause).await, ["POST"]);
}

#[tokio::test]
async fn a_pass_that_changed_nothing_says_nothing_a1() {
    let mut scene = Scene::new(fine()).await;
    assert!(
        scene
            .record("p1", &event("Waiting"), false, SECOND)
            .await
            .is_empty()
    );
    assert_eq!(
        scene.record("p1", &event("Waiting"), true, SECOND).await,
        ["POST"]
    );
    assert!(
        scene
            .record("p1", &event("Waiting"), false, SECOND)
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn a_parent_gets_a_burst_and_then_a_trickle_o3() {
    let mut scene = Scene::new(fine()).await;
    let mut writes = 0;
    for number in 0..40 {
        writes += scene
            .record("p1", &event(&format!("R{number}")), true, SECOND)
            .await
            .len();
    }
    assert_eq!(writes, 25);
    // Another parent has a separate bucket.
    assert_eq!(
        scene.record("p2", &event("R"), true, SECOND).await,
        ["POST"]
    );
    let refill = SignedDuration::from_mins(5);
    assert_eq!(
        scene.record("p1", &event("Later"), true, refill).await,
        ["POST"]
    );
    assert!(
        scene
            .record("p1", &event("Too much"), true, SECOND)
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn an_event_that_expired_is_made_again() {
    let mut answers = fine();
    answers.push(Answer::Say(404, "", json!({})));
    answers.extend(fine());
    let mut scene = Scene::new(answers).await;
    assert_eq!(
        scene.record("p1", &event("Waiting"), true, SECOND).await,
        ["POST"]
    );
    assert_eq!(
        scene.record("p1", &event("Waiting"), true, SECOND).await,
        ["PATCH"]
    );
    assert_eq!(
        scene.record("p1", &event("Waiting"), true, SECOND).await,
        ["POST"]
    );
}
