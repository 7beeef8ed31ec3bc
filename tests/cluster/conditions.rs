//! Transition times and observed generations in a parent's conditions.

use innkeeper_tests::eventually;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::faults::{Case, UNRULY};

fn condition<'a>(parent: &'a Value, kind: &str) -> &'a Value {
    parent["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|condition| condition["type"] == kind)
        .unwrap()
}

fn since(condition: &Value) -> Timestamp {
    condition["lastTransitionTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// `lastTransitionTime` changes with a condition's status, never with reason or message alone.
#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let case = Case::start(UNRULY);
    let mut before = case.parent(UNRULY, "parent");
    let ready = condition(&before, "Ready")["lastTransitionTime"].clone();
    for (behaviour, status, reason) in [
        ("keep", "True", "Applied"),
        ("retry", "False", "Retrying"),
        ("invalid", "False", "Invalid"),
        ("trap", "False", "GuestTrapped"),
        ("good", "True", "Applied"),
    ] {
        let synced = condition(&before, "Synced").clone();
        // Timestamps have whole seconds, so a change within the same second would be invisible.
        eventually("a second passes", || {
            match Timestamp::now().as_second() - since(&synced).as_second() {
                passed @ ..1 => Err(passed),
                _ => Ok(()),
            }
        });
        let generation = case.set_behaviour(UNRULY, "parent", behaviour);
        let after = case.wait_synced(UNRULY, "parent", &generation, (status, reason));
        let now = condition(&after, "Synced");
        let is_transition = synced["status"] != json!(status);
        assert_eq!(since(now) > since(&synced), is_transition, "{behaviour}");
        assert!(since(now) <= Timestamp::now(), "{behaviour}");
        // A fault does not change readiness.
        assert_eq!(condition(&after, "Ready")["lastTransitionTime"], ready);
        before = after;
    }
    let generation = &before["metadata"]["generation"];
    assert_eq!(
        condition(&before, "Ready")["observedGeneration"],
        *generation
    );
}
