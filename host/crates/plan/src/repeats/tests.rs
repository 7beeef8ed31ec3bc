use std::sync::Arc;

use innkeeper_model::{GroupKind, Gvk, RemovalPolicy, Uid, reason};
use serde_json::{Map, Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn child(name: &str) -> ObjectId {
    ObjectId::new(GroupKind::new("", "ConfigMap"), Some("demo"), name)
}

fn body(applied: &str) -> Arc<Map<String, Value>> {
    let body = json!({"metadata": {"annotations": {ANNOTATION_APPLIED: applied}}});
    Arc::new(body.as_object().unwrap().clone())
}

fn create(name: &str, applied: &str) -> Operation {
    Operation::Create {
        key: "a".to_owned(),
        id: child(name),
        kind: Gvk::new("", "v1", "ConfigMap"),
        body: body(applied),
        generate: Vec::new(),
    }
}

fn update(name: &str, applied: &str) -> Operation {
    Operation::Update {
        // No mark on the object counts.
        restores: false,
        key: "a".to_owned(),
        id: child(name),
        kind: Gvk::new("", "v1", "ConfigMap"),
        uid: Uid("u".into()),
        resource_version: ResourceVersion(1),
        body: body(applied),
        generate: Vec::new(),
    }
}

fn transfer(to: RemovalPolicy) -> Operation {
    Operation::Transfer {
        key: "a".to_owned(),
        id: child("a"),
        kind: Gvk::new("", "v1", "ConfigMap"),
        uid: Uid("u".into()),
        resource_version: ResourceVersion(1),
        patch: json!([]),
        to,
    }
}

fn parent() -> Object {
    let mut parent = crate::tests::build::parent("p1").object();
    parent.resource_version = ResourceVersion(1);
    parent
}

fn write(operation: &Operation, generation: i64) -> RepeatableWrite {
    RepeatableWrite::for_operation(operation, Some(generation)).unwrap()
}

fn record(repeats: &mut Repeats, operation: &Operation, now: Instant) -> bool {
    repeats.record(write(operation, 1), now)
}

fn wait(repeats: &Repeats, operation: &Operation, now: Instant) -> Option<u64> {
    let wait = repeats.wait(&write(operation, 1), now);
    wait.map(|wait| wait.as_secs())
}

/// A ledger with a contested update for the child `a`.
fn contested(now: Instant) -> Repeats {
    let mut repeats = Repeats::default();
    assert!(!record(&mut repeats, &create("a", "1"), now));
    let becomes: Vec<bool> = (0..REPEATS_MAX)
        .map(|_| record(&mut repeats, &update("a", "1"), now))
        .collect();
    assert_eq!(becomes, [false, false, false, false, true]);
    repeats
}

/// Each row repeats the writes in turn.
#[test]
fn a_write_counts_if_the_last_one_of_this_process_was_undone() {
    let own = || transfer(RemovalPolicy::Delete);
    let retain = || transfer(RemovalPolicy::Retain);
    type Row = (&'static str, Vec<(Operation, i64)>, bool);
    let counts: [Row; 9] = [
        ("created again", vec![(create("a", "1"), 1); 2], true),
        (
            "created again with another content",
            vec![(create("a", "1"), 1), (create("a", "2"), 1)],
            true,
        ),
        (
            "created again after an edit",
            vec![(create("a", "1"), 1), (create("a", "2"), 2)],
            false,
        ),
        (
            "created again as before after an edit",
            vec![(create("a", "1"), 1), (create("a", "1"), 2)],
            true,
        ),
        (
            "updated after the create",
            vec![(create("a", "1"), 1), (update("a", "1"), 1)],
            true,
        ),
        (
            "updated with another content",
            vec![(update("a", "1"), 1), (update("a", "2"), 1)],
            false,
        ),
        ("finalizer", vec![(Operation::AddFinalizer, 1); 2], true),
        ("owner", vec![(own(), 1), (own(), 1)], true),
        ("another owner", vec![(own(), 1), (retain(), 1)], false),
    ];
    for (name, writes, is_repeat) in counts {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        let becomes: Vec<bool> = writes
            .iter()
            .cycle()
            .take(2 * usize::try_from(REPEATS_MAX).unwrap())
            .map(|(operation, generation)| repeats.record(write(operation, *generation), now))
            .collect();
        assert_eq!(becomes.contains(&true), is_repeat, "{name}");
    }
}

#[test]
fn rare_repetitions_are_no_conflict() {
    let mut now = Instant::now();
    let mut repeats = Repeats::default();
    for _ in 0..20 {
        assert!(!record(&mut repeats, &update("a", "1"), now));
        assert_eq!(wait(&repeats, &update("a", "1"), now), None);
        assert_eq!(repeats.contention(now), None);
        // Another write in between makes rare repetitions no series.
        record(&mut repeats, &update("a", "1"), now);
        now += SOON;
    }
}

#[test]
fn a_contested_write_is_repeated_less_and_less_often_and_others_at_once() {
    let mut now = Instant::now();
    let mut repeats = contested(now);
    for seconds in [5_u32, 10, 20, 40, 80, 160, 300, 300] {
        let soon = now + SECOND * (seconds - 1);
        for operation in [update("a", "1"), create("a", "1"), create("a", "2")] {
            assert_eq!(wait(&repeats, &operation, soon), Some(1), "{operation}");
        }
        assert_eq!(wait(&repeats, &update("b", "1"), now), None);
        assert_eq!(wait(&repeats, &update("a", "2"), now), None, "an edit");
        let contention = repeats.contention(now);
        assert_eq!(
            contention.map(|contention| contention.wait.as_secs()),
            Some(seconds.into())
        );
        now = soon + SECOND;
        assert_eq!(wait(&repeats, &update("a", "1"), now), None);
        assert!(!record(&mut repeats, &update("a", "1"), now));
    }
}

#[test]
fn a_contest_ends_when_the_other_side_stops() {
    let now = Instant::now();
    let mut repeats = contested(now);
    record(&mut repeats, &update("b", "1"), now);
    let subject = Subject::Child(child("a"));
    assert!(repeats.is_unexplained(&subject));
    repeats.explain(&subject, Undone::deleted(&child("a"), &create("a", "1")));
    assert!(!repeats.is_unexplained(&subject));
    // Nobody has undone the write since, but the contest may still continue.
    let contention = repeats.contention(now + SECOND * 30).unwrap();
    assert_eq!(contention.wait, SECOND * 30);
    let synced = contention.synced();
    assert_eq!(synced.reason, reason::CHILD_DELETED_AGAIN);
    assert!(
        synced.message.contains("ConfigMap demo/a is deleted again"),
        "{}",
        synced.message
    );
    assert_eq!(repeats.contention(now + SOON), None);
    assert!(!record(&mut repeats, &update("a", "1"), now + SOON));
    assert_eq!(wait(&repeats, &update("a", "1"), now + SOON), None);
}

#[test]
fn a_child_that_the_host_deletes_itself_begins_anew() {
    let now = Instant::now();
    let mut repeats = contested(now);
    repeats.forget(&child("a"));
    assert_eq!(wait(&repeats, &create("a", "1"), now), None);
    assert_eq!(repeats.contention(now), None);
    assert_eq!(
        repeats.0.capacity(),
        0,
        "a parent without writes costs no memory"
    );
}

/// A status counts if the last write is not in place any more, whatever the new one states.
#[test]
fn a_status_that_others_overwrite_is_contested() {
    for (observed, is_contested) in [("as written", false), ("overwritten", true)] {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        let mut parent = parent();
        let mut becomes = Vec::new();
        for version in 1..=6 {
            let write = repeats.status_write(&parent, || observed.to_owned());
            assert_eq!(repeats.wait(&write, now), None);
            becomes.push(repeats.record(write, now));
            repeats.set_status("as written", ResourceVersion(2 * version));
            let again = repeats.status_write(&parent, || observed.to_owned());
            assert!(!again.is_undone, "the cache does not show the last write");
            parent.resource_version = ResourceVersion(2 * version + 1);
        }
        assert_eq!(
            becomes.iter().filter(|becomes| **becomes).count(),
            usize::from(is_contested)
        );
        let mut write = repeats.status_write(&parent, || observed.to_owned());
        assert_eq!(repeats.wait(&write, now).is_some(), is_contested);
        write.generation = Some(99);
        assert_eq!(repeats.wait(&write, now), None, "an edit of the parent");
    }
}
