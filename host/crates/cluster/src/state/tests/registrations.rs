//! Registrations that come, change and go, and the triggers that they get.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn the_trigger_of_a_parent_names_its_change() {
    let mut harness = Harness::with(&[]);
    let mut status = cache("web");
    status["status"] = json!({"nodes": 1});
    let mut annotated = status.clone();
    annotated["metadata"]["annotations"] = json!({"a": "b"});
    for (object, due) in [
        (cache("web"), vec!["web parent-changed"]),
        (status.clone(), vec!["web parent-status"]),
        // Only the version differs.
        (status, vec![]),
        (annotated.clone(), vec!["web parent-changed"]),
    ] {
        harness.put(CACHE, object);
        assert_eq!(harness.due(), due);
    }
    harness.remove(CACHE, annotated);
    assert_eq!(harness.due(), ["web parent-gone"]);
}

#[test]
fn a_late_registration_sees_present_and_later_objects() {
    let mut harness = Harness::with(&["web"]);
    let early = harness.subscriber;
    harness.put(SERVICE, owned("s", "web"));
    let late = harness.add_subscriber();
    let watches = harness.state.table.wanted_tasks().len();
    assert_eq!(watches, 4, "one for each kind, however many plugins");
    assert_eq!(harness.due(), ["web listed"]);
    assert_eq!(harness.waiting(), []);
    assert_eq!(harness.children("web"), ["Service demo/s"]);
    harness.select(early).due();
    harness.put(SERVICE, owned("t", "web"));
    for subscriber in [late, early] {
        assert_eq!(harness.select(subscriber).due(), ["web child-changed"]);
    }
    // The last one ends the watches.
    for (subscriber, watches) in [(early, 4), (late, 0)] {
        harness.state.remove_subscriber(subscriber, harness.now);
        assert_eq!(harness.state.table.wanted_tasks().len(), watches);
    }
}

#[test]
fn an_update_continues_the_watches_that_stay_wanted() {
    let tasks = |harness: &Harness| {
        harness
            .state
            .table
            .wanted_tasks()
            .into_keys()
            .collect::<Vec<_>>()
    };
    let mut harness = Harness::with(&["web"]);
    let mut record = ReadRecord::default();
    assert_eq!(harness.get(&mut record, "p"), Ok(false));
    harness.commit(&record);
    let before = tasks(&harness);
    let subscriber = harness.subscriber;
    let now = harness.now;
    let mut interest = harness.state.table.by_subscriber[&subscriber]
        .interest
        .clone();
    harness
        .state
        .change_interest(subscriber, interest.clone(), now);
    assert_eq!(tasks(&harness), before);
    harness.due();
    harness.put(POD, pod("p", "web"));
    assert_eq!(harness.due(), ["web related-changed"]);

    interest.reads.clear();
    interest.children.retain(|child| child.kind != gvk(SECRET));
    harness.state.change_interest(subscriber, interest, now);
    assert!(harness.task(POD).is_none() && harness.task(SECRET).is_none());
    assert!(tasks(&harness).iter().all(|task| before.contains(task)));
}

#[derive(Clone, Debug)]
enum Step {
    Parent(u8, bool),
    Child { name: u8, owner: u8, exists: bool },
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0_u8..3, any::<bool>()).prop_map(|(name, exists)| Step::Parent(name, exists)),
        5 => (0_u8..5, 0_u8..3, any::<bool>())
            .prop_map(|(name, owner, exists)| Step::Child { name, owner, exists }),
        1 => Just(Step::Relist),
    ];
    prop::collection::vec(step, 1..40)
}

/// Takes a step, with owners by child.
fn take_step(harness: &mut Harness, children: &mut BTreeMap<u8, u8>, step: &Step) {
    let service = |name: u8, owner: u8| owned(&name.to_string(), &owner.to_string());
    match *step {
        Step::Parent(name, true) => {
            harness.put(CACHE, cache(&name.to_string()));
        }
        Step::Parent(name, false) => harness.remove(CACHE, cache(&name.to_string())),
        Step::Child {
            name,
            owner,
            exists,
        } => {
            if exists {
                children.insert(name, owner);
                harness.put(SERVICE, service(name, owner));
            } else {
                children.remove(&name);
                harness.remove(SERVICE, service(name, owner));
            }
        }
        Step::Relist => {
            // Every second child vanished unseen.
            children.retain(|name, _| name % 2 == 0);
            let objects = children.iter().map(|(name, owner)| service(*name, *owner));
            harness.list(SERVICE, objects.collect());
        }
    }
}

proptest! {
    /// A registration that joins at any time ends with the same view as one from the start, and is triggered for every
    /// parent whose view is outdated.
    #[test]
    fn joining_late_equals_a_full_replay(steps in steps(), join in 0_usize..40) {
        let mut harness = Harness::with(&[]);
        let early = harness.subscriber;
        let mut late = None;
        let mut views: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut children: BTreeMap<u8, u8> = BTreeMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            if at == join {
                late = Some(harness.add_subscriber());
            }
            take_step(&mut harness, &mut children, &step);
            for (subscriber, keeps) in [(Some(early), false), (late, true)] {
                let Some(subscriber) = subscriber else { continue };
                let triggered = harness.select(subscriber).due();
                let parents = harness.state.table.parents(subscriber);
                for parent in &parents {
                    let name = parent.name.to_string();
                    let expected: Vec<String> = children
                        .iter()
                        .filter(|(_, owner)| owner.to_string() == name)
                        .map(|(child, _)| format!("Service demo/{child}"))
                        .collect();
                    let view = harness.children(&name);
                    prop_assert_eq!(&view, &expected);
                    if keeps {
                        let previous = views.insert(name.clone(), view.clone());
                        let is_triggered = triggered.iter().any(|line| line.starts_with(&format!("{name} ")));
                        prop_assert!(is_triggered || previous == Some(view), "{} was not triggered", name);
                    }
                }
                if keeps {
                    views.retain(|name, _| parents.iter().any(|parent| *parent.name == **name));
                }
            }
        }
    }
}
