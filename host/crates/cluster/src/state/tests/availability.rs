//! Kinds that passes wait for, and optional kinds that they run without.

use std::time::Duration;

use super::*;
use crate::{
    state::{availability::OPTIONAL_KIND_WAIT, subscribers::FIRST_LISTS_WAIT},
    wire::WireFailure,
};

#[test]
fn passes_wait_for_required_kinds_only() {
    let mut harness = Harness::new();
    harness.add_subscriber();
    let kinds = |harness: &Harness| -> Vec<String> {
        harness
            .waiting()
            .into_iter()
            .map(|(kind, _)| kind)
            .collect()
    };
    assert_eq!(kinds(&harness), [CACHE, SECRET, SERVICE]);
    harness.list(CACHE, vec![cache("web")]);
    harness.list(SERVICE, Vec::new());
    assert_eq!(kinds(&harness), [SECRET]);
    assert_eq!(harness.due(), ["web listed"]);
    harness.list(SECRET, Vec::new());
    assert_eq!(kinds(&harness), [""; 0]);
    assert_eq!(harness.due(), ["web kind-changed"]);
    assert_eq!(harness.watch_status(MONITOR).why, Some(Why::NotServed));
}

#[test]
fn the_first_passes_wait_for_every_list_that_is_on_its_way() {
    let lines = |lines: &[&str]| -> Result<Vec<String>, Instant> {
        Ok(lines.iter().map(|line| (*line).to_owned()).collect())
    };
    let mut harness = Harness::new();
    harness.add_subscriber();
    let begin = harness.now;
    let until = begin + FIRST_LISTS_WAIT;
    harness.list(CACHE, vec![cache("web")]);
    harness.list(SERVICE, vec![owned("s", "web")]);
    harness.list(SECRET, Vec::new());
    // Passes could begin, but those that read pods would stop.
    assert_eq!(harness.waiting(), []);
    assert_eq!(harness.due_at(begin), Err(until));
    harness.list(POD, Vec::new());
    assert_eq!(harness.due_at(begin), lines(&["web kind-changed"]));

    // Only the first passes wait: later changes trigger at once.
    harness.serve(&[CACHE, SERVICE, SECRET, POD, MONITOR]);
    harness.put(CACHE, cache("other"));
    let changed = lines(&["other parent-changed", "web kind-changed"]);
    assert_eq!(harness.due_at(begin), changed);

    // A missing list ends the wait at the limit.
    harness.add_subscriber();
    assert_eq!(harness.due_at(begin), Err(until));
    assert_eq!(
        harness.due_at(until),
        lines(&["other listed", "web listed"])
    );
}

#[test]
fn an_optional_kind_comes_and_goes() {
    let mut harness = Harness::with(&["web"]);
    assert!(harness.task(MONITOR).is_none());

    harness.serve(&[CACHE, SERVICE, SECRET, POD, MONITOR]);
    assert_eq!(harness.waiting()[0].1, Why::Listing);
    harness.list(MONITOR, vec![owned("m", "web")]);
    assert_eq!(harness.due(), ["web kind-changed"]);
    let monitor = "Monitor.monitoring.example.com demo/m";
    assert_eq!(harness.children("web"), [monitor]);

    harness.serve(&[CACHE, SERVICE, SECRET, POD]);
    assert_eq!(harness.due(), ["web child-changed"]);
    assert_eq!(harness.children("web"), [""; 0]);
    assert_eq!(harness.waiting(), [], "optional");
    assert!(harness.task(MONITOR).is_none());
}

/// Passes run without an optional kind that cannot be listed: at once if the plugin has no such children, otherwise
/// after a while.
#[test]
fn an_optional_kind_that_cannot_be_listed_is_left_out() {
    for (recorded, age, waits) in [
        (false, Duration::ZERO, false),
        (true, Duration::ZERO, true),
        (true, OPTIONAL_KIND_WAIT, false),
    ] {
        let mut harness = Harness::new();
        harness.recorded = recorded;
        harness.add_subscriber();
        for (kind, objects) in [
            (CACHE, vec![cache("web")]),
            (SERVICE, vec![]),
            (SECRET, vec![]),
        ] {
            harness.list(kind, objects);
        }
        harness.serve(&[CACHE, SERVICE, SECRET, POD, MONITOR]);
        harness.due();
        assert_eq!(harness.waiting()[0].1, Why::Listing, "{recorded} {age:?}");
        harness.now -= age;
        let (slot, generation, _) = harness.task(MONITOR).unwrap();
        let failure = WireFailure::Status {
            code: 429,
            message: "initializing".to_owned(),
            retry_after: None,
        };
        harness
            .state
            .failed((slot, generation), &failure, harness.now)
            .unwrap();
        let left_out = harness
            .state
            .table
            .unreadable(harness.subscriber, &Section::Namespace("demo".into()));
        assert_eq!(harness.waiting().is_empty(), !waits, "{recorded} {age:?}");
        assert_eq!(left_out.is_empty(), waits, "{recorded} {age:?}");
        let triggered: &[&str] = if waits { &[] } else { &["web kind-changed"] };
        assert_eq!(harness.due(), triggered, "{recorded} {age:?}");
        let is_awaited = harness.watch_status(MONITOR).is_awaited;
        assert_eq!(is_awaited, waits, "{recorded} {age:?}");
        harness.list(MONITOR, vec![]);
        assert_eq!(harness.due(), ["web kind-changed"], "{recorded} {age:?}");
    }
}

#[test]
fn a_required_kind_that_goes_stops_the_passes() {
    let mut harness = Harness::with(&["web"]);
    harness.put(SERVICE, owned("s", "web"));
    harness.due();
    harness.serve(&[CACHE, SECRET, POD]);
    assert_eq!(harness.due(), ["web child-changed"]);
    assert_eq!(harness.waiting()[0].1, Why::NotServed);
}
