//! Passes with several rounds, with a cache that is ahead of its watches.

use super::*;

/// The guest asks for a pass every five seconds.
const SETTLED: Next = Next::RequeueAfter(Duration::from_secs(5));

/// Starts a plugin with the parent in namespace `a` in the cache, before its first pass.
async fn listed(guest: Guest) -> (World, Arc<Reconciler>) {
    let world = World::start().await;
    world.put_parent("a", 1);
    let reconciler = world.reconciler("web", revision_of(guest));
    triggered(&reconciler, "a").await;
    (world, reconciler)
}

/// Waits until the parent in this namespace is triggered, and returns the cause; no other parent may be triggered.
async fn triggered(reconciler: &Reconciler, namespace: &str) -> Cause {
    let triggers = timeout(PATIENCE, reconciler.registration().triggers(99))
        .await
        .expect("should trigger in time");
    let named: Vec<ObjectId> = triggers.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(named, [parent(namespace)], "{triggers:?}");
    triggers[0].1.cause
}

async fn pass(reconciler: &Reconciler, namespace: &str) -> Next {
    reconciler
        .pass(&parent(namespace), Attempt::default())
        .await
}

fn other_fields(field: &str) -> Value {
    json!({"metadata": {"annotations": {"theirs": field}}})
}

const WRITES: [&str; 2] = ["PATCH configmaps a/child", "PATCH webs/status a/web"];

/// The writes to children and parents, without the inventory.
fn writes(world: &World) -> Vec<String> {
    let mut writes = world.server.writes();
    writes.retain(|write| !write.contains(" host/"));
    writes
}

#[tokio::test]
async fn one_pass_writes_children_and_status_before_any_event_of_them() {
    let (world, reconciler) = listed(saying("hello")).await;
    world.server.hold_events();
    assert_eq!(pass(&reconciler, "a").await, SETTLED);
    assert_eq!(world.synced("a"), "Applied");
    assert_eq!(writes(&world), WRITES);
    // Also if the events are lost.
    assert_eq!(pass(&reconciler, "a").await, SETTLED);
    assert_eq!(writes(&world), WRITES);

    // The watch events are no changes. The other parent's events come after them in the same watches.
    world.server.show_events();
    world.put_parent("b", 1);
    triggered(&reconciler, "b").await;
    pass(&reconciler, "b").await;
    world
        .server
        .put("configmaps", "b", "child", other_fields("x"));
    assert_eq!(triggered(&reconciler, "b").await, Cause::ChildChanged);
}

#[tokio::test]
async fn a_foreign_change_behind_an_own_write_is_a_trigger() {
    let (world, reconciler) = listed(saying("hello")).await;
    world.server.hold_events();
    pass(&reconciler, "a").await;
    world
        .server
        .put("configmaps", "a", "child", other_fields("x"));
    world.server.show_events();
    assert_eq!(triggered(&reconciler, "a").await, Cause::ChildChanged);
}

#[tokio::test]
async fn a_child_that_was_deleted_behind_an_own_write_is_created_again() {
    let (world, reconciler) = listed(saying("hello")).await;
    world.server.hold_events();
    pass(&reconciler, "a").await;
    world.server.delete("configmaps", "a", "child");
    assert_eq!(world.child_says("a"), None);
    world.server.show_events();
    assert_eq!(triggered(&reconciler, "a").await, Cause::ChildChanged);
    pass(&reconciler, "a").await;
    assert_eq!(world.child_says("a").unwrap(), "hello");
}

/// Runs a pass in namespace `b` whose responses come after their watch events, and after the changes by `meanwhile`.
/// Returns how many children the cache shows then, including one without a parent.
async fn pass_with_late_answers(
    world: &World,
    reconciler: &Reconciler,
    meanwhile: impl Fn() -> usize,
) {
    // By then the host has recorded the child kinds.
    pass(reconciler, "a").await;
    world.put_parent("b", 1);
    triggered(reconciler, "b").await;
    world.server.hold_answers();
    let config_map = GroupKind::new("", "ConfigMap");
    let shown = async |count| {
        while reconciler.registration().child_count(&config_map) != Some(count) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let overtaken = async {
        shown(2).await;
        let count = meanwhile();
        let labels = json!({"metadata": {"labels": {"innkeeper.dev/plugin": "web"}}});
        world.server.put("configmaps", "c", "last", labels);
        shown(count).await;
        world.server.answer();
    };
    let both = futures::future::join(pass(reconciler, "b"), overtaken);
    let (next, ()) = timeout(PATIENCE, both).await.expect("should end in time");
    assert_eq!(next, SETTLED);
    assert_eq!(world.synced("b"), "Applied");
}

#[tokio::test]
async fn an_event_that_overtakes_its_answer_is_no_reason_for_a_pass() {
    let (world, reconciler) = listed(saying("hello")).await;
    pass_with_late_answers(&world, &reconciler, || 3).await;
    world.put_parent("c", 1);
    triggered(&reconciler, "c").await;
}

#[tokio::test]
async fn a_foreign_change_that_overtakes_the_answer_is_seen_by_the_pass_itself() {
    let (world, reconciler) = listed(saying("hello")).await;
    let change = || {
        world
            .server
            .put("configmaps", "b", "child", other_fields("x"));
        3
    };
    pass_with_late_answers(&world, &reconciler, change).await;
    world.put_parent("c", 1);
    triggered(&reconciler, "c").await;
}

#[tokio::test]
async fn a_deletion_that_overtakes_the_answer_is_seen_by_the_pass_itself() {
    let (world, reconciler) = listed(saying("hello")).await;
    let delete = || {
        world.server.delete("configmaps", "b", "child");
        2
    };
    pass_with_late_answers(&world, &reconciler, delete).await;
    assert_eq!(world.child_says("b").unwrap(), "hello");
    world.put_parent("c", 1);
    triggered(&reconciler, "c").await;
}

#[tokio::test]
async fn a_change_during_a_pass_that_the_pass_has_not_seen_makes_one_more() {
    let (world, reconciler) = listed(saying("hello")).await;
    pass(&reconciler, "a").await;
    // A pass that has observed its parent waits with its status.
    world.put_parent("a", 2);
    triggered(&reconciler, "a").await;
    let writing = world.server.hold_writes();
    let edit = async {
        world.put_parent("a", 3);
        let shown =
            |parent: Option<innkeeper_model::Object>| parent.and_then(|parent| parent.generation);
        while shown(reconciler.registration().parent(&parent("a"))) != Some(3) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(writing);
    };
    let both = futures::future::join(pass(&reconciler, "a"), edit);
    timeout(PATIENCE, both).await.expect("should end in time");
    assert_eq!(triggered(&reconciler, "a").await, Cause::ParentChanged);
}

#[tokio::test]
async fn a_pass_ends_after_its_children_while_an_edit_waits() {
    let (world, reconciler) = listed(saying("hello")).await;
    let attempt = Attempt::default();
    attempt.edits.set(true);
    let next = reconciler.pass(&parent("a"), attempt).await;
    assert_eq!(next, Next::RequeueAfter(Duration::from_secs(1)));
    assert_eq!(writes(&world), WRITES[..1]);
    assert_eq!(triggered(&reconciler, "a").await, Cause::ChildChanged);
    // The next pass reports in any case.
    let attempt = Attempt::default();
    attempt.edits.set(true);
    assert_eq!(reconciler.pass(&parent("a"), attempt).await, SETTLED);
    assert_eq!(writes(&world), WRITES);
}

#[tokio::test]
async fn an_own_status_is_a_trigger_for_a_plugin_that_reads_it() {
    let description = innkeeper_sandbox::testing::Description {
        reads_own_status: true,
        ..Default::default()
    };
    let (world, reconciler) = listed(saying("hello").describing(description)).await;
    pass(&reconciler, "a").await;
    assert_eq!(triggered(&reconciler, "a").await, Cause::ParentStatus);
    pass(&reconciler, "a").await;
    assert_eq!(writes(&world), WRITES);
    world.put_parent("b", 1);
    triggered(&reconciler, "b").await;
}
