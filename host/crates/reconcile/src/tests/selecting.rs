//! Parents that enter and leave the selection.

use futures::FutureExt;
use innkeeper_model::{Answer, ObjectRef, ReadFailure, ReadKey, ReadKind, parse_selector};
use innkeeper_policy::Selection;

use super::{
    dry_runs::{changes, dry_run_candidate},
    remembering::until_skipped,
    *,
};

fn selection(namespaces: &str, parents: &str) -> Selection {
    Selection {
        namespaces: parse_selector(namespaces).unwrap(),
        parents: parse_selector(parents).unwrap(),
    }
}

/// Returns a revision that selects parents with the label `tier` in namespaces with the label `team=a`.
fn choosy() -> Revision {
    revision_of(saying("hello")).selecting(selection("team=a", "tier"))
}

impl World {
    fn label_namespace(&self, name: &str, labels: Value) {
        let stated = json!({"metadata": {"labels": labels}});
        self.server.put("namespaces", "", name, stated);
    }

    fn label_parent(&self, namespace: &str, labels: Value) {
        let stated = json!({"metadata": {"labels": labels}, "spec": {"size": 1}});
        self.server.put("webs", namespace, "web", stated);
    }

    /// Returns a parent's condition as `Status/Reason`.
    fn condition(&self, namespace: &str, kind: &str) -> Option<String> {
        let parent = self.server.get("webs", namespace, "web")?;
        let condition = parent["status"]["conditions"]
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == kind)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        Some(format!("{}/{}", text("status"), text("reason")))
    }

    fn says(&self, namespace: &str, synced: &str) -> bool {
        self.condition(namespace, "Synced").as_deref() == Some(synced)
    }
}

/// Returns a world with a selected parent whose child is applied.
async fn served() -> (World, Arc<Reconciler>) {
    let world = World::start().await;
    world.label_namespace("a", json!({"team": "a"}));
    world.label_parent("a", json!({"tier": "1"}));
    let reconciler = world.reconciler("web", choosy());
    world
        .drive(&reconciler, "applied", |world| {
            world.says("a", "True/Applied")
        })
        .await;
    (world, reconciler)
}

/// Runs the triggered passes until there is no trigger for 200 ms; returns the number of passes.
async fn rest(reconciler: &Reconciler) -> usize {
    let mut passes = 0;
    let soon = Duration::from_millis(200);
    while let Ok(due) = timeout(soon, reconciler.registration().triggers(99)).await {
        for (parent, _) in due {
            reconciler.pass(&parent, Attempt::default()).await;
            passes += 1;
        }
    }
    passes
}

#[tokio::test]
async fn a_parent_that_leaves_the_selection_keeps_its_children_and_continues_after_its_return() {
    let (world, reconciler) = served().await;
    until_skipped(&world, &reconciler).await;
    for (leaves, returns) in [
        (["a", "tier"], ["tier", "2"]),
        (["a", "team"], ["team", "a"]),
    ] {
        let by_label = leaves[1] == "tier";
        let label = |labels: Value| {
            if by_label {
                world.label_parent("a", labels);
            } else {
                world.label_namespace("a", labels);
            }
        };
        let before = world.server.writes().len();
        label(json!({}));
        world
            .drive(&reconciler, "not selected", |world| {
                world.says("a", "Unknown/NotSelected")
            })
            .await;
        let ready = world.condition("a", "Ready");
        assert_eq!(ready.as_deref(), Some("Unknown/NotSelected"));
        // A changed child is not restored now.
        world.server.put(
            "configmaps",
            "a",
            "child",
            json!({"data": {"theirs": "yes"}}),
        );
        rest(&reconciler).await;
        let written = world.server.writes().split_off(before);
        assert_eq!(written, ["PATCH webs/status a/web"]);

        let before = world.server.writes().len();
        label(json!({returns[0]: returns[1]}));
        world
            .drive(&reconciler, "selected again", |world| {
                world.says("a", "True/Applied")
            })
            .await;
        let ready = world.condition("a", "Ready");
        assert_eq!(ready.as_deref(), Some("True/Ready"));
        let written = world.server.writes().split_off(before);
        assert_eq!(written, ["PATCH webs/status a/web"]);
        until_skipped(&world, &reconciler).await;
    }
}

#[tokio::test]
async fn a_parent_that_was_never_selected_has_no_writes() {
    let (world, reconciler) = served().await;
    world.label_namespace("b", json!({"team": "b"}));
    world.label_parent("b", json!({"tier": "1"}));
    world.label_namespace("c", json!({"team": "a"}));
    world.label_parent("c", json!({}));
    // The cache has no namespace for this parent.
    world.label_parent("d", json!({"tier": "1"}));
    let before = world.server.writes().len();
    rest(&reconciler).await;
    for namespace in ["b", "c", "d"] {
        let object = world.server.get("webs", namespace, "web").unwrap();
        assert_eq!(object["status"], Value::Null);
    }
    assert_eq!(world.server.writes().len(), before);
    let of = |namespace: &str| {
        let parent = reconciler.registration().parent(&parent(namespace));
        reconciler.selects(&parent.unwrap())
    };
    assert_eq!(
        ["a", "b", "c", "d"].map(of),
        [Some(true), Some(false), Some(false), None]
    );

    // The missing namespace is created.
    world.label_namespace("d", json!({"team": "a"}));
    world
        .drive(&reconciler, "applied", |world| {
            world.says("d", "True/Applied")
        })
        .await;
    assert_eq!(reconciler.parent_count(), 2);
}

#[tokio::test]
async fn a_parent_in_a_system_namespace_is_served_only_if_the_grants_name_it() {
    let world = World::start().await;
    // In this world, `host` contains the host's objects, and `host-pod` the host's Pod and account.
    let system = ["kube-system", "host", "host-pod"];
    for namespace in ["kube-system", "host", "host-pod", "a"] {
        world.put_parent(namespace, 1);
    }
    let reconciler = world.reconciler("web", revision_of(saying("hello")));
    world
        .drive(&reconciler, "applied", |world| {
            world.says("a", "True/Applied")
        })
        .await;
    rest(&reconciler).await;
    for namespace in system {
        assert_eq!(world.condition(namespace, "Synced"), None);
        assert_eq!(world.child_says(namespace), None);
    }
    assert_eq!(reconciler.parent_count(), 1);

    let mut granted = revision_of(saying("hello"));
    let names = system.map(str::to_owned);
    Arc::make_mut(&mut granted.grants).system_namespaces = names.into();
    let reconciler = world.reconciler("web", granted);
    world
        .drive(&reconciler, "applied", |world| {
            system.iter().all(|name| world.says(name, "True/Applied"))
        })
        .await;
    assert_eq!(reconciler.parent_count(), 4);
}

#[tokio::test]
async fn changed_labels_of_a_namespace_trigger_only_the_parents_in_it() {
    let (world, reconciler) = served().await;
    world.label_namespace("b", json!({"team": "b"}));
    world.label_parent("b", json!({"tier": "1"}));
    rest(&reconciler).await;
    // A skipped pass keeps its subscription to the namespace.
    until_skipped(&world, &reconciler).await;
    while reconciler
        .registration()
        .triggers(99)
        .now_or_never()
        .is_some()
    {}
    for (namespace, labels) in [
        ("a", json!({"team": "a", "more": "1"})),
        ("b", json!({"team": "c"})),
    ] {
        world.label_namespace(namespace, labels);
        let due = reconciler.registration().triggers(99);
        let due: Vec<ObjectId> = timeout(PATIENCE, due)
            .await
            .unwrap()
            .into_iter()
            .map(|(parent, _)| parent)
            .collect();
        assert_eq!(due, [parent(namespace)]);
        reconciler
            .pass(&parent(namespace), Attempt::default())
            .await;
    }
    let others = timeout(
        Duration::from_millis(200),
        reconciler.registration().triggers(99),
    );
    assert!(others.await.is_err());
}

#[tokio::test]
async fn a_changed_selection_applies_to_all_parents() {
    let (world, reconciler) = served().await;
    world.label_namespace("b", json!({"team": "b"}));
    world.label_parent("b", json!({"tier": "1"}));
    rest(&reconciler).await;
    let of_b = revision_of(saying("hello")).selecting(selection("team=b", ""));
    reconciler.swap(of_b, None);
    world
        .drive(&reconciler, "the other parent is applied", |world| {
            world.says("a", "Unknown/NotSelected") && world.says("b", "True/Applied")
        })
        .await;
    assert_eq!(world.child_says("a").as_deref(), Some("hello"));
    reconciler.swap(revision_of(saying("hello")), None);
    world
        .drive(&reconciler, "both parents are applied", |world| {
            world.says("a", "True/Applied") && world.says("b", "True/Applied")
        })
        .await;
}

#[tokio::test]
async fn a_dry_run_skips_parents_that_the_candidate_does_not_select() {
    let (world, reconciler) = served().await;
    let nothing = guest().answering(desired(Vec::new()));
    let dry_run = async |selected: Selection| {
        let candidate = revision_of(nothing.clone()).selecting(selected);
        dry_run_candidate(&reconciler, &reconciler.candidate(candidate)).await
    };
    for (namespaces, parents) in [("team=b", ""), ("", "tier=2"), ("team=b", "tier")] {
        let outcome = dry_run(selection(namespaces, parents)).await;
        assert_eq!(outcome, DryRunOutcome::Idle, "{namespaces:?} {parents:?}");
    }
    let selected = changes(dry_run(selection("team=a", "tier=1")).await);
    assert_eq!(selected.deletes.len(), 1);
    assert_eq!(world.child_says("a").as_deref(), Some("hello"));
}

#[tokio::test]
async fn guests_cannot_read_the_namespaces_that_the_host_reads() {
    let (_world, reconciler) = served().await;
    let observed = reconciler.registration().parent(&parent("a")).unwrap();
    let revision = reconciler.revision();
    let reference = ObjectRef {
        kind: Gvk::new("", "v1", "Namespace"),
        namespace: None,
        name: "a".into(),
    };
    let ask = |granted: &Arc<[ReadKind]>| {
        reconciler
            .registration()
            .reads(&observed, granted)
            .read(&ReadKey::Get(reference.clone()))
    };
    let not_granted = ReadFailure::NotGranted(reference.kind.clone());
    assert_eq!(ask(&revision.reads), Answer::Failed(not_granted));
    assert!(matches!(ask(&revision.own_reads), Answer::Object(Some(_))));
}
