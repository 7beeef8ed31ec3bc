//! Revisions that break parents, and the return from a revision whose CRD has more fields.

use std::cell::Cell;

use innkeeper_tests::{Host, eventually, manifest::condition};
use serde_json::{Value, json};

use crate::{
    moody::{API, MoodyFixture, NAME, config_map, good, guest, name},
    plugin_history::ROLLED_BACK,
    stage::{Stage, is_applied},
};

const REFUSED: [&str; 3] = [
    "Serving=True/Serving",
    "Ready=False/TooManyFaults",
    "Degraded=True/TooManyFaults",
];

/// A fixture whose parents have had a good pass with the first revision. `first` is the Plugin
/// status at that time.
struct Served {
    host: Host,
    fixture: MoodyFixture,
    first: Value,
}

impl Served {
    fn start(parents: usize) -> Self {
        let (fixture, host) = MoodyFixture::started(parents);
        fixture.wait_verdicts(&host, &["Good"]);
        let first = fixture.status();
        fixture.web.put(guest("successor"));
        Self {
            host,
            fixture,
            first,
        }
    }

    /// Applies the second revision with this configuration and rollout.
    fn succeed(&self, config: &Value, rollout: &Value) {
        let url = format!("{}?v=2", self.fixture.web.url());
        self.fixture.apply(&json!({
            "source": {"http": {"url": url}}, "config": config, "rollout": rollout,
        }));
    }

    /// Sets a parent's owner. For a moment after the CRD got the field, the API server drops it from
    /// writes and from events on older watches, so each attempt makes another change.
    #[track_caller]
    fn own(&self, number: usize) {
        let name = name(number);
        let stage = &self.fixture.site.stage;
        let namespace = &self.fixture.site.namespace;
        let attempts = Cell::new(0);
        eventually("the child has the owner of its parent", || {
            attempts.set(attempts.get() + 1);
            let note = attempts.get().to_string();
            self.fixture
                .put(number, &json!({"owner": "ann", "note": note}));
            let child = stage.get(namespace, config_map(&name));
            if child["data"]["owner"] == "ann" {
                Ok(())
            } else {
                Err(format!("{child:#}"))
            }
        });
    }

    /// Waits until the Plugin has these conditions while the first revision serves, and returns the
    /// status.
    #[track_caller]
    fn wait_first(&self, expected: &[&str]) -> Value {
        let status = self.fixture.wait(&self.host, expected);
        assert_eq!(status["revision"], self.first["revision"], "{status:#}");
        status
    }

    #[track_caller]
    fn check_message(&self, kind: &str, parts: &[&str]) {
        let plugin = self.fixture.site.plugin_of(NAME);
        let message = condition(&plugin, kind).unwrap();
        for part in parts {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[track_caller]
    fn wait_applied(&self) {
        for number in 0..self.fixture.parents {
            let name = name(number);
            let stage = &self.fixture.site.stage;
            let namespace = &self.fixture.site.namespace;
            stage.wait(&self.host, namespace, (API, "Moody", &*name), is_applied);
        }
    }
}

fn requiring() -> Value {
    json!({"says": "two", "requiresOwner": true})
}

#[test]
fn a_gate_names_the_parents_that_a_revision_breaks() {
    let served = Served::start(2);
    served.succeed(&requiring(), &json!({"mode": "Gated"}));
    let status = served.wait_first(&["Serving=True/Serving", "Ready=False/AwaitingApproval"]);
    let candidate = &status["candidate"];
    let counts = json!({"parents": 2, "creates": 0, "updates": 0, "deletes": 0, "faults": 2});
    assert_eq!(candidate["counts"], counts, "{candidate:#}");
    let faults = candidate["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "{candidate:#}");
    assert_eq!(faults[0]["parent"]["name"], name(0), "{candidate:#}");
    assert_eq!(faults[0]["reason"], "Invalid", "{candidate:#}");
    let text = "delete 0 children, and fails for 2 of 2 parents: Invalid: spec: missing field `owner`; set";
    served.check_message("Ready", &[text]);
    served.wait_applied();
    Stage::stop(served.host);
}

/// The dry run compares with the active revision's passes: neither a parent that was already Invalid
/// nor a single new fault among many parents blocks a revision.
#[test]
fn a_revision_that_breaks_more_than_a_fifth_of_the_parents_is_not_activated() {
    let served = Served::start(5);
    served.succeed(&requiring(), &json!({}));
    let status = served.wait_first(&REFUSED);
    assert_eq!(
        status["candidate"]["verdict"], "TooManyFaults",
        "{status:#}"
    );
    served.check_message(
        "Ready",
        &["fails for 5 of 5 parents: Invalid: spec: missing field `owner`"],
    );
    assert_eq!(served.fixture.verdicts(), ["Good"]);
    served.wait_applied();

    // The CRD of the revision that does not require the field already has it, so parents can set it.
    served.succeed(&json!({"says": "two"}), &json!({}));
    served
        .fixture
        .wait_verdicts(&served.host, &["Good", "Good"]);
    served.fixture.wait_text(&served.host, "two");
    for number in 1..5 {
        served.own(number);
    }
    served.wait_applied();
    let second = served.fixture.status()["revision"].clone();
    served.succeed(&requiring(), &json!({}));
    served.fixture.wait_healthy(&served.host);
    served
        .fixture
        .wait_verdicts(&served.host, &["Good", "Good", "Good"]);
    assert_ne!(served.fixture.status()["revision"], second);

    // The only parent that this revision breaks was broken before.
    let more = json!({"says": "three", "requiresOwner": true});
    served.succeed(&more, &json!({}));
    served
        .fixture
        .wait_verdicts(&served.host, &["Good", "Good", "Good", "Good"]);
    Stage::stop(served.host);
}

/// An approval activates a revision, but the rollback still applies to the first passes.
#[test]
fn a_revision_whose_first_passes_break_parents_is_rolled_back() {
    let served = Served::start(2);
    served.succeed(&requiring(), &json!({}));
    let status = served.wait_first(&REFUSED);
    let approved = json!({"approve": status["candidate"]["revision"]});
    served.succeed(&requiring(), &approved);
    served.wait_first(&ROLLED_BACK);
    assert_eq!(served.fixture.verdicts(), ["Good", "RolledBack"]);
    let text = "2 of the 2 first passes ended in a fault; the first fault was Invalid for ";
    served.check_message("RolledBack", &[text, "spec: missing field `owner`"]);
    served.wait_applied();

    // Without the rollback, the condition reports the faults, also after a restart.
    let mut staying = approved;
    staying["autoRollback"] = false.into();
    served.succeed(&requiring(), &staying);
    let faulty = ["Serving=True/Serving", "RolledBack=False/TooManyFaults"];
    served.fixture.wait(&served.host, &faulty);
    let Served { fixture, host, .. } = served;
    let host = fixture.crash(host);
    fixture.wait(&host, &faulty);
    assert_eq!(fixture.verdicts()[0], "Trial");
    fixture.apply(&good("one"));
    fixture.wait_text(&host, "one");
    Stage::stop(host);
}

/// An additional optional field in the CRD does not prevent the return to a revision without it.
#[test]
fn an_earlier_revision_keeps_a_definition_with_an_optional_field_more() {
    let served = Served::start(2);
    served.succeed(&json!({"says": "two"}), &json!({}));
    served
        .fixture
        .wait_verdicts(&served.host, &["Good", "Good"]);
    served.own(0);
    let mut back = good("one");
    back["digest"] = served.first["digest"].clone();
    served.fixture.apply(&back);
    let status = served.fixture.wait_healthy(&served.host);
    assert_eq!(status["revision"], served.first["revision"], "{status:#}");
    served.fixture.wait_text(&served.host, "one");
    served
        .fixture
        .wait_verdicts(&served.host, &["Good", "Good"]);

    let host = served.fixture.crash(served.host);
    let fixture = served.fixture;
    fixture.wait_healthy(&host);
    fixture.check_reconciles(&host, "restarted");
    // The parent keeps the field.
    let stage = &fixture.site.stage;
    let namespace = &fixture.site.namespace;
    let parent = stage.get(namespace, (API, "Moody", &*name(0)));
    assert_eq!(parent["spec"]["owner"], "ann", "{parent:#}");

    // A component that has never served must not drop the field.
    fixture.web.put(crate::plugins::marked(&guest("moody")));
    let url = format!("{}?v=3", fixture.web.url());
    let mut other = good("three");
    other["source"] = json!({"http": {"url": url}});
    fixture.apply(&other);
    let refused = ["Serving=True/Serving", "Ready=False/CrdRefused"];
    fixture.wait(&host, &refused);
    let plugin = fixture.site.plugin_of(NAME);
    let message = condition(&plugin, "Ready").unwrap();
    for part in ["v1 spec.owner is dropped", "spec.crds: Ignore"] {
        assert!(message.contains(part), "{message}");
    }
    Stage::stop(host);
}
