//! Children are cached with texts only if they have a known parent or a proof, and while there is room.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{NamespaceFull, stored::Extent, wire::WireFailure};

/// A large child's text size.
const LARGE: usize = 900_000;

fn labelled(name: &str) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "labels": {"innkeeper.dev/plugin": "cache"},
    }})
}

fn large(mut object: Value) -> Value {
    object["data"] = json!({"text": "x".repeat(LARGE)});
    object["metadata"]["annotations"] = json!({"note": "y".repeat(200_000)});
    object
}

fn bounded(objects: usize, bytes: usize) -> Harness {
    let mut harness = Harness::new();
    harness.namespace_max = CacheSize { objects, bytes };
    harness.add_subscriber();
    harness.list_all();
    harness.put(CACHE, cache("web"));
    harness.due();
    harness
}

impl Harness {
    fn slot(&self, kind: &str) -> &WatchSlot {
        let (id, ..) = self.task(kind).unwrap();
        &self.state.table.slots[&id]
    }

    /// Returns the services whose texts are cached.
    fn whole(&self) -> Vec<String> {
        self.slot(SERVICE)
            .store
            .all(None)
            .filter(|stored| stored.extent == Extent::Whole)
            .map(|stored| stored.name.to_string())
            .collect()
    }

    fn cached_bytes(&self) -> usize {
        self.state
            .table
            .statuses()
            .into_iter()
            .map(|watch| watch.bytes)
            .sum()
    }

    /// Counts a parent's children without live reads.
    fn cached_children(&self, name: &str) -> Result<usize, MissingTexts> {
        let parent = self
            .state
            .table
            .parent(self.subscriber, &cache_id(name))
            .unwrap();
        self.state
            .table
            .children(self.subscriber, &parent)
            .map(|children| children.len())
    }

    fn full(&self) -> Vec<NamespaceFull> {
        self.state.table.full_namespaces(self.subscriber)
    }
}

#[test]
fn the_texts_of_labelled_objects_without_a_parent_are_not_cached() {
    let mut harness = Harness::with(&["web"]);
    let before = harness.cached_bytes();
    for index in 0..250 {
        harness.put(SERVICE, large(labelled(&format!("s-{index}"))));
    }
    assert_eq!(harness.cached_bytes(), before);
    assert_eq!(harness.slot(SERVICE).store.len(), 250);
    assert_eq!(harness.children("web"), [""; 0]);
    let usage = harness
        .state
        .table
        .child_usage(harness.subscriber, "demo", |_| true);
    assert_eq!((usage.objects, usage.bytes), (250, 0));
}

#[test]
fn a_text_is_cached_for_a_known_parent_or_a_proof() {
    let web = "cache.example.com/Cache/demo/web";
    for (object, expected) in [
        (owned("s", "web"), true),
        (owned("s", "other"), false),
        (labelled("s"), false),
        (retained(SERVICE, "s", web), true),
        // The parent may come back.
        (
            retained(SERVICE, "s", "cache.example.com/Cache/demo/x"),
            true,
        ),
        (marked("s", web), false),
        // Another object's proof.
        (
            {
                let mut object = retained(SERVICE, "t", web);
                object["metadata"]["name"] = json!("s");
                object
            },
            false,
        ),
    ] {
        for by_list in [false, true] {
            let mut harness = Harness::with(&["web"]);
            if by_list {
                harness.list(SERVICE, vec![object.clone()]);
            } else {
                harness.put(SERVICE, object.clone());
            }
            let names: &[&str] = if expected { &["s"] } else { &[] };
            assert_eq!(harness.whole(), names, "{object} {by_list}");
        }
    }
}

#[test]
fn a_child_that_came_before_its_parent_is_read_and_is_never_absent() {
    let mut harness = Harness::with(&[]);
    harness.put(SERVICE, owned("s", "web"));
    harness.put(SERVICE, owned("t", "web"));
    harness.put(CACHE, cache("web"));
    assert_eq!(harness.due(), ["web parent-changed"]);
    let unread = vec![service_id("s"), service_id("t")];
    let missing = MissingTexts { unread, full: None };
    assert_eq!(harness.cached_children("web"), Err(missing));
    assert_eq!(
        harness.children("web"),
        ["Service demo/s", "Service demo/t"]
    );
    assert_eq!(harness.whole(), ["s", "t"]);

    // One is gone, which a read shows before the watch does.
    harness.remove(CACHE, cache("web"));
    harness.put(CACHE, cache("web"));
    harness.read_live(&service_id("s"), |_| None);
    harness.read_live(&service_id("t"), |harness| {
        Some(harness.stored(SERVICE, owned("t", "web")))
    });
    assert_eq!(harness.cached_children("web"), Ok(1));
}

#[test]
fn one_observation_reads_a_bounded_number_of_children() {
    let mut harness = Harness::with(&[]);
    for index in 0..250 {
        harness.put(SERVICE, owned(&format!("s-{index}"), "web"));
    }
    harness.put(CACHE, cache("web"));
    let missing = harness.cached_children("web").unwrap_err();
    assert_eq!(missing.unread.len(), 100);
    assert_eq!(harness.children("web").len(), 250);
}

#[test]
fn the_children_of_a_parent_that_is_gone_lose_their_texts() {
    let mut harness = Harness::with(&["web", "other"]);
    harness.put(SERVICE, owned("s", "web"));
    harness.put(SERVICE, owned("t", "other"));
    let retained = retained(SERVICE, "k", "cache.example.com/Cache/demo/web");
    harness.put(SERVICE, retained);
    harness.remove(CACHE, cache("web"));
    assert_eq!(harness.whole(), ["k", "t"]);
    let subscriber = harness.subscriber;
    let now = harness.now;
    let late = harness.add_subscriber();
    harness.state.remove_subscriber(subscriber, now);
    assert_eq!(harness.whole(), ["k", "t"]);
    harness.select(late);
    assert_eq!(harness.children("other"), ["Service demo/t"]);
}

#[test]
fn children_are_listed_after_their_parents_and_do_not_wait_for_parents_that_fail() {
    let mut harness = Harness::new();
    harness.add_subscriber();
    assert!(harness.task(SERVICE).is_none());
    let (id, generation, _) = harness.task(CACHE).unwrap();
    let failure = WireFailure::Timeout(Duration::from_secs(1));
    let failed = harness
        .state
        .failed((id, generation), &failure, harness.now);
    assert_eq!(failed, Ok(()));
    harness.list(SERVICE, vec![owned("s", "web"), labelled("t")]);
    harness.list(SECRET, Vec::new());
    assert_eq!(harness.whole(), [""; 0]);

    // The parents need the texts, which one more list brings all at once.
    let (_, before, _) = harness.task(SERVICE).unwrap();
    harness.list(CACHE, vec![cache("web")]);
    let (_, after, _) = harness.task(SERVICE).unwrap();
    assert_ne!(before, after);
    assert_eq!(harness.waiting(), [(SERVICE.to_owned(), Why::Listing)]);
    harness.list(SERVICE, vec![owned("s", "web"), labelled("t")]);
    assert_eq!(harness.cached_children("web"), Ok(1));
    assert_eq!(harness.whole(), ["s"]);

    // Later lists of parents restart nothing.
    let (_, before, _) = harness.task(SERVICE).unwrap();
    harness.list(CACHE, vec![cache("web"), cache("other")]);
    let (_, after, _) = harness.task(SERVICE).unwrap();
    assert_eq!(before, after);
}

#[test]
fn a_user_of_all_objects_gets_all_texts() {
    let mut harness = Harness::with(&["web"]);
    harness.put(SERVICE, labelled("s"));
    let selector = Some("innkeeper.dev/plugin=cache");
    let all = read(SERVICE, Access::Full, ReadScope::Cluster, selector);
    let reader = harness.add_reading_subscriber(vec![all]);
    assert_eq!(harness.waiting(), [(SERVICE.to_owned(), Why::Listing)]);
    harness.list(SERVICE, vec![labelled("s")]);
    assert_eq!(harness.whole(), ["s"]);
    // And without it, they are dropped.
    harness.state.remove_subscriber(reader, harness.now);
    assert_eq!(harness.whole(), [""; 0]);
}

#[test]
fn children_beyond_the_bound_of_their_namespace_are_missing_and_come_back() {
    for by_objects in [true, false] {
        let mut harness = if by_objects {
            bounded(2, usize::MAX)
        } else {
            bounded(9, LARGE * 3)
        };
        harness.put(CACHE, cache("late"));
        // The bound is per namespace, not for the cluster.
        let mut elsewhere = large(owned("s", "web"));
        elsewhere["metadata"]["namespace"] = json!("elsewhere");
        elsewhere["metadata"]["uid"] = json!("elsewhere");
        harness.put(SERVICE, elsewhere);
        for (name, parent) in [("a", "web"), ("b", "web"), ("c", "late")] {
            harness.put(SERVICE, large(owned(name, parent)));
        }
        assert_eq!(harness.whole(), ["a", "b", "s"]);
        let full = NamespaceFull {
            namespace: "demo".into(),
            by_objects,
            max: harness.namespace_max,
            largest: gvk(SERVICE),
        };
        let missing = MissingTexts {
            unread: Vec::new(),
            full: Some(full.clone()),
        };
        assert_eq!(harness.cached_children("late"), Err(missing));
        assert_eq!(harness.full(), [full]);
        // The others still get passes, and their children may change, but not grow.
        assert_eq!(harness.cached_children("web"), Ok(3));
        harness.put(SERVICE, large(owned("a", "web")));
        assert_eq!(harness.whole(), ["a", "b", "s"]);
        let usage = harness
            .state
            .table
            .child_usage(harness.subscriber, "demo", |_| true);
        assert_eq!(usage.objects, 3);
        assert!(usage.bytes > LARGE * 3, "{usage:?}");

        harness.remove(SERVICE, owned("b", "web"));
        assert_eq!(harness.full(), []);
        assert_eq!(harness.children("late"), ["Service demo/c"]);
        assert_eq!(harness.whole(), ["a", "c", "s"]);
    }
}

#[test]
fn a_child_that_grows_beyond_the_bound_loses_its_text_only() {
    let mut harness = bounded(9, LARGE);
    harness.put(SERVICE, owned("a", "web"));
    harness.put(SERVICE, large(owned("a", "web")));
    let missing = harness.cached_children("web").unwrap_err();
    assert!(missing.full.is_some() && missing.unread.is_empty());
    harness.put(SERVICE, owned("a", "web"));
    assert_eq!(harness.cached_children("web"), Ok(1));
}

#[derive(Clone, Debug)]
enum Event {
    Parent(u8, bool),
    Child {
        name: u8,
        owner: Option<u8>,
        is_proved: bool,
        exists: bool,
    },
    RelistChildren,
    RelistParents,
    Join,
    Leave,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let child = (
        0_u8..5,
        prop::option::of(0_u8..3),
        prop::bool::weighted(0.2),
    );
    let event = prop_oneof![
        4 => (0_u8..3, any::<bool>()).prop_map(|(name, exists)| Event::Parent(name, exists)),
        6 => (child, prop::bool::weighted(0.8)).prop_map(|((name, owner, is_proved), exists)| {
            Event::Child { name, owner, is_proved, exists }
        }),
        1 => Just(Event::RelistChildren),
        1 => Just(Event::RelistParents),
        1 => Just(Event::Join),
        1 => Just(Event::Leave),
    ];
    prop::collection::vec(event, 1..40)
}

/// The API server's objects.
#[derive(Default)]
struct Truth {
    parents: BTreeSet<u8>,
    children: BTreeMap<u8, (Option<u8>, bool)>,
}

impl Truth {
    fn child(name: u8, (owner, is_proved): (Option<u8>, bool)) -> Value {
        let name = name.to_string();
        let mut object = labelled(&name);
        if is_proved {
            object = retained(SERVICE, &name, "cache.example.com/Cache/demo/0");
        }
        if let Some(owner) = owner {
            let references = &owned(&name, &owner.to_string())["metadata"]["ownerReferences"];
            object["metadata"]["ownerReferences"] = references.clone();
        }
        object
    }

    fn children(&self) -> Vec<Value> {
        let children = self.children.iter();
        children
            .map(|(name, child)| Self::child(*name, *child))
            .collect()
    }

    fn parents(&self) -> Vec<Value> {
        self.parents
            .iter()
            .map(|name| cache(&name.to_string()))
            .collect()
    }

    /// Returns the children whose texts are cached, and the others.
    fn expected(&self) -> (Vec<String>, usize) {
        let is_whole = |(owner, is_proved): &(Option<u8>, bool)| {
            *is_proved || owner.is_some_and(|owner| self.parents.contains(&owner))
        };
        let whole = self.children.iter().filter(|(_, child)| is_whole(child));
        let whole: Vec<String> = whole.map(|(name, _)| name.to_string()).collect();
        let others = self.children.len() - whole.len();
        (whole, others)
    }

    fn happen(&mut self, harness: &mut Harness, joined: &mut Vec<SubscriberId>, event: &Event) {
        match *event {
            Event::Parent(name, true) => {
                self.parents.insert(name);
                harness.put(CACHE, cache(&name.to_string()));
            }
            Event::Parent(name, false) => {
                self.parents.remove(&name);
                harness.remove(CACHE, cache(&name.to_string()));
            }
            Event::Child {
                name,
                owner,
                is_proved,
                exists: true,
            } => {
                self.children.insert(name, (owner, is_proved));
                harness.put(SERVICE, Self::child(name, (owner, is_proved)));
            }
            Event::Child { name, .. } => {
                self.children.remove(&name);
                harness.remove(SERVICE, labelled(&name.to_string()));
            }
            Event::RelistChildren => harness.list(SERVICE, self.children()),
            Event::RelistParents => harness.list(CACHE, self.parents()),
            Event::Join => joined.push(harness.add_subscriber()),
            Event::Leave => {
                if let Some(subscriber) = joined.pop() {
                    harness.state.remove_subscriber(subscriber, harness.now);
                }
            }
        }
    }
}

proptest! {
    /// In whatever order parents and children come: once every parent has been observed, exactly those children have
    /// texts that belong to a known parent or have a proof.
    #[test]
    fn the_cached_texts_do_not_depend_on_the_order_of_events(events in events()) {
        let mut harness = Harness::with(&[]);
        let first = harness.subscriber;
        let mut truth = Truth::default();
        let mut joined = Vec::new();
        for event in &events {
            truth.happen(&mut harness, &mut joined, event);
        }
        if !harness.select(first).waiting().is_empty() {
            harness.list(SERVICE, truth.children());
        }
        for parent in truth.parents.clone() {
            harness.children(&parent.to_string());
        }
        let (whole, others) = truth.expected();
        prop_assert_eq!(harness.whole(), whole);
        prop_assert_eq!(harness.slot(SERVICE).store.size_of(None).unowned, others);
    }
}
