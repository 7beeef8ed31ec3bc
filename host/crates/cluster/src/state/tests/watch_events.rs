//! Lists and events that are older than the known state, or that come from replaced tasks.

use super::*;

#[test]
fn an_older_state_is_refused_unless_it_is_the_truth() {
    let mut harness = Harness::with(&["web"]);
    harness.put(SERVICE, owned("s", "web"));
    harness.due();
    let (id, generation, _) = harness.task(SERVICE).unwrap();
    let task = (id, generation);
    let old = ResourceVersion(5);
    let bookmark = harness.state.bookmark(task, old, harness.now);
    assert_eq!(bookmark, Err(Stale::WentBack));
    let since = Since::NotOlderThan(ResourceVersion(harness.version));
    assert_eq!(
        harness.state.table.begin_list(task, since, old),
        Err(Stale::WentBack)
    );
    assert_eq!(harness.children("web"), ["Service demo/s"]);
    let begun = harness.state.table.begin_list(task, Since::Now, old);
    assert_eq!(begun, Ok(()));
    assert_eq!(harness.state.end_list(task, old, harness.now), Ok(()));
    assert_eq!(harness.state.table.version(task), old);
    assert_eq!(harness.due(), ["web child-changed"]);
    assert_eq!(harness.children("web"), [""; 0]);
}

#[test]
fn a_task_that_was_replaced_changes_nothing() {
    let mut harness = Harness::with(&[]);
    let (id, generation, _) = harness.task(POD).unwrap();
    let stored = harness.stored(POD, pod("p", "web"));
    let subscriber = harness.subscriber;
    let now = harness.now;
    harness.state.remove_subscriber(subscriber, now);
    let put = harness.state.put((id, generation), stored, now);
    assert_eq!(put, Err(Stale::Superseded));
}
