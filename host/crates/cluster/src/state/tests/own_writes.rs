//! Writes that the cache has not shown yet, and live reads.

use std::time::Duration;

use innkeeper_model::Uid;

use super::*;

#[test]
fn own_writes_are_waited_for() {
    let mut harness = Harness::with(&[]);
    let cached = harness.put(CACHE, cache("web"));
    harness.due();
    let service = service_id("s");
    let due = harness.now + Duration::from_secs(5);
    // Expects the next version of the service.
    let expect_next = |harness: &mut Harness| {
        let next = ResourceVersion(harness.version + 1);
        harness.expect(&service, ExpectedState::Version(next), due);
        assert_eq!(harness.status(), ExpectationStatus::Until(due));
        next
    };

    harness.expect(&cache_id("web"), ExpectedState::Version(cached), due);
    assert_eq!(harness.status(), ExpectationStatus::None, "seen already");

    expect_next(&mut harness);
    harness.put(SERVICE, owned("s", "web"));
    assert_eq!(harness.due(), ["web child-changed"]);
    assert_eq!(harness.status(), ExpectationStatus::None);

    // A write without visible changes still meets the expectation.
    expect_next(&mut harness);
    harness.put(SERVICE, owned("s", "web"));
    assert_eq!(harness.due(), ["web caught-up"]);

    // So does a bookmark: the object may be gone again.
    let next = expect_next(&mut harness);
    let (id, generation, _) = harness.task(SERVICE).unwrap();
    harness
        .state
        .bookmark((id, generation), next, harness.now)
        .unwrap();
    assert_eq!(harness.due(), ["web caught-up"]);

    let deleted = ExpectedState::Deleted(Uid("uid-s".into()));
    harness.expect(&service, deleted, due);
    assert_eq!(harness.status(), ExpectationStatus::Until(due));
    harness.version += 1;
    harness.remove(SERVICE, owned("s", "web"));
    assert_eq!(harness.due(), ["web child-changed"]);
    assert_eq!(harness.status(), ExpectationStatus::None);
}

#[test]
fn the_newer_object_that_refused_a_write_is_waited_for() {
    let mut harness = Harness::with(&[]);
    let version = harness.put(CACHE, cache("web"));
    harness.put(SERVICE, owned("s", "web"));
    harness.due();
    let due = harness.now + Duration::from_secs(5);
    harness.expect(&cache_id("web"), ExpectedState::After(version), due);

    // A newer version of the whole watch says nothing about the object.
    harness.put(CACHE, cache("other"));
    assert_eq!(harness.status(), ExpectationStatus::Until(due));
    harness.put(CACHE, cache("web"));
    assert_eq!(harness.status(), ExpectationStatus::None);

    let stale = ExpectedState::After(ResourceVersion(harness.version));
    harness.expect(&service_id("s"), stale, due);
    assert_eq!(harness.status(), ExpectationStatus::Until(due));
    harness.version += 1;
    harness.remove(SERVICE, owned("s", "web"));
    assert_eq!(harness.status(), ExpectationStatus::None);
}

#[test]
fn writes_that_stay_unseen_are_read_live() {
    let mut harness = Harness::with(&["web"]);
    harness.put(SERVICE, owned("gone", "web"));
    harness.due();
    let gone = service_id("gone");
    let new = service_id("new");
    let far = ResourceVersion(harness.version + 100);
    let due = harness.now + Duration::from_secs(5);
    harness.expect(&new, ExpectedState::Version(far), due);
    harness.expect_unknown(&gone);
    let unseen = ExpectationStatus::Read(vec![gone.clone()]);
    assert_eq!(harness.status(), unseen);
    harness.now = due;
    let unseen = ExpectationStatus::Read(vec![gone.clone(), new.clone()]);
    assert_eq!(harness.status(), unseen);

    harness.read_live(&gone, |_| None);
    harness.read_live(&new, |harness| {
        harness.version += 99;
        Some(harness.stored(SERVICE, owned("new", "web")))
    });
    assert_eq!(harness.status(), ExpectationStatus::None);
    assert_eq!(harness.children("web"), ["Service demo/new"]);
    assert_eq!(harness.due(), ["web child-changed"]);

    // A child without the plugin's label is outside the watch, which would never show the end.
    harness.expect_unknown(&new);
    harness.read_live(&new, |harness| {
        let mut unlabelled = owned("new", "web");
        unlabelled["metadata"]["labels"] = json!({});
        Some(harness.stored(SERVICE, unlabelled))
    });
    assert_eq!(harness.children("web"), [""; 0]);

    // A failed read is not repeated at once.
    harness.expect_unknown(&new);
    let web = harness.reader();
    harness
        .state
        .subscribers
        .live_read_failed(&web, &new, harness.now);
    let later = harness.now + Duration::from_secs(1);
    assert_eq!(harness.status(), ExpectationStatus::Until(later));
}
