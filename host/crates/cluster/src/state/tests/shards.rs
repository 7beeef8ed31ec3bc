//! A host that holds some of four shards has the objects of their namespaces only.

use std::collections::BTreeSet;

use innkeeper_model::{Resource, Scope, ShardSet, Shards};
use proptest::prelude::*;

use super::*;
use crate::{discovery::tests::kinds, machine::WatchStep};

/// One namespace in each shard.
const NAMESPACES: [&str; 4] = ["green", "shop", "demo", "blue"];

fn four() -> Shards {
    Shards::new(4).unwrap()
}

fn set(indexes: &[usize]) -> ShardSet {
    let shard = |index: &usize| four().at(*index).unwrap();
    indexes.iter().map(shard).collect()
}

/// A state without a registration; no shard is held.
fn unregistered(namespaces: Option<&[&str]>) -> Harness {
    let mut harness = Harness::new();
    let names = namespaces.map(|names| names.iter().copied().map(Arc::from).collect());
    harness.state = CacheState::new(names, four());
    harness.state.set_hash_key(Some(key()), harness.now);
    harness.serve(&[CACHE, SERVICE, SECRET, POD]);
    harness
}

/// With a plugin that reads Pods in the namespace of the parent.
fn sharded() -> Harness {
    let mut harness = unregistered(None);
    harness.add_subscriber();
    harness
}

impl Harness {
    fn hold(&mut self, indexes: &[usize]) {
        self.state.hold(set(indexes), self.now);
    }

    /// Lists a kind's section with this shard, as an API server that selects or not.
    fn list_shard(&mut self, kind: &str, index: usize, objects: Vec<Value>) {
        list_in(self, kind, NAMESPACES[index], objects);
    }

    /// Lists all sharded kinds.
    fn list_shards(&mut self, index: usize, parents: Vec<Value>) {
        self.list_shard(CACHE, index, parents);
        self.list_shard(SERVICE, index, Vec::new());
        self.list_shard(SECRET, index, Vec::new());
    }

    /// A kind's requests as `shards generation`, in order.
    fn requests(&self, kind: &str) -> Vec<(String, u64)> {
        let tasks = self.state.table.wanted_tasks().into_iter();
        let of_kind = tasks.filter(|(_, task)| task.target.served.kind == gvk(kind));
        let request = |((_, generation), task): (TaskId, TaskSpec)| {
            let section = match task.target.section {
                Section::Whole => "*".to_owned(),
                Section::Namespace(name) => name.to_string(),
                Section::Shards(_, set) => crate::section::shards_text(&set),
            };
            (section, generation)
        };
        let mut requests: Vec<_> = of_kind.map(request).collect();
        requests.sort();
        requests
    }

    fn sections(&self, kind: &str) -> Vec<String> {
        let requests = self.requests(kind).into_iter();
        requests.map(|(section, _)| section).collect()
    }

    /// Why parents in a shard's namespace wait.
    fn waits(&self, index: usize) -> Vec<Why> {
        let section = Section::Namespace(NAMESPACES[index].into());
        let waiting = self.state.table.waiting(self.subscriber, &section);
        waiting.into_iter().map(|waiting| waiting.why).collect()
    }

    fn has_passes(&self, index: usize) -> bool {
        let namespace = Some(NAMESPACES[index]);
        self.state.table.has_passes(self.subscriber, namespace)
    }

    /// Passes every freshness check.
    fn pass_checks(&mut self) -> usize {
        let unchecked = self.state.table.unchecked();
        for watch in &unchecked {
            assert!(self.state.check_by_version(watch, ResourceVersion(0)));
        }
        unchecked.len()
    }
}

/// A parent in a shard's namespace, with the namespace as its name.
fn parent(index: usize) -> Value {
    named(NAMESPACES[index], NAMESPACES[index], NAMESPACES[index])
}

#[test]
fn only_held_shards_are_requested() {
    let mut harness = sharded();
    assert_eq!(harness.sections(CACHE), [""; 0]);
    assert_eq!(harness.sections(POD), ["*"], "passes read any namespace");
    harness.hold(&[0]);
    assert_eq!(harness.sections(CACHE), ["0"]);
    assert_eq!(harness.sections(SERVICE), [""; 0], "after the parents");
    harness.list_shards(0, Vec::new());
    let before = harness.requests(CACHE);
    harness.hold(&[0, 1, 2]);
    assert_eq!(harness.sections(CACHE), ["0", "1,2"]);
    assert_eq!(harness.requests(CACHE)[..1], before);
    assert_eq!(harness.sections(SERVICE), ["0"], "after the parents");
    // A request for more continues.
    let before = harness.requests(CACHE).pop().unwrap().1;
    harness.hold(&[2]);
    assert_eq!(harness.requests(CACHE), [("2".to_owned(), before)]);
    harness.hold(&[]);
    assert_eq!(harness.sections(CACHE), [""; 0]);
    assert_eq!(harness.sections(POD), ["*"]);
}

/// A server that does not select by shard sends everything to each request.
#[test]
fn requests_become_one_if_the_server_does_not_select() {
    for (selects, sections) in [(true, vec!["0", "1"]), (false, vec!["0,1"])] {
        let mut harness = sharded();
        harness.hold(&[0]);
        harness.list_shard(CACHE, 0, vec![parent(0)]);
        harness.hold(&[0, 1]);
        harness.version += 1;
        harness.list_shard(CACHE, 1, vec![parent(1)]);
        harness.state.table.set_selects(selects);
        let tasks = ["green", "shop"].map(|name| task_in(&harness, CACHE, name).0);
        let id = tasks[0].0;
        assert!(!harness.state.table.merge(id), "one is behind");
        harness.version += 1;
        let version = ResourceVersion(harness.version);
        for task in tasks {
            let passed = harness.state.bookmark(task, version, harness.now);
            assert_eq!(passed, Ok(()));
        }
        assert_eq!(harness.state.table.merge(id), !selects);
        assert_eq!(harness.sections(CACHE), sections);
        let wanted = harness.state.table.wanted_tasks();
        for (task, spec) in wanted.iter().filter(|(task, _)| task.0 == id) {
            assert_eq!(tasks.contains(task), selects);
            let from = version;
            assert_eq!(
                spec.first,
                WatchStep::Watch { from },
                "nothing is listed again"
            );
        }
        assert_eq!(kept(&harness, CACHE), ["green/green", "shop/shop"]);
        assert_eq!(
            harness.waits(0),
            vec![Why::Listing; 2],
            "services and secrets"
        );
        harness.hold(&[1]);
        assert_eq!(kept(&harness, CACHE), ["shop/shop"]);
    }
}

#[test]
fn a_lost_shard_takes_its_parents_along() {
    let mut harness = sharded();
    harness.hold(&[0, 1]);
    harness.list(POD, Vec::new());
    harness.list_shards(0, vec![parent(0), parent(1)]);
    for index in [0, 1] {
        let child = json!({"metadata": {
            "name": format!("child-{index}"),
            "labels": {"innkeeper.dev/plugin": "cache"},
            "ownerReferences": [{"uid": NAMESPACES[index], "controller": true}],
        }});
        put_in(&mut harness, SERVICE, NAMESPACES[index], child);
    }
    harness.due();
    let (services, _) = task_in(&harness, SERVICE, "shop");
    harness.hold(&[0]);
    assert_eq!(harness.due(), ["shop parent-gone"]);
    assert!(harness.has_passes(0) && !harness.has_passes(1));
    assert_eq!(kept(&harness, CACHE), ["green/green"]);
    assert_eq!(kept(&harness, SERVICE), ["green/child-0"]);
    assert_eq!(harness.waits(0), []);
    // The running watch still shows the shard: the events count, the objects do not.
    let late = harness.stored(SERVICE, named("shop", "late", "late"));
    let version = late.version;
    assert_eq!(harness.state.put(services, late, harness.now), Ok(()));
    assert_eq!(harness.state.table.version(services), version);
    let target = harness.state.table.target(services).unwrap();
    assert_eq!(target.section, Section::Shards(four(), set(&[0])));
    assert_eq!(kept(&harness, SERVICE), ["green/child-0"]);
    assert_eq!(harness.due(), [""; 0]);
}

#[test]
fn a_gained_shard_is_listed_before_its_parents_have_passes() {
    let mut harness = sharded();
    harness.hold(&[0]);
    harness.list(POD, Vec::new());
    harness.list_shards(0, vec![parent(0)]);
    harness.due();
    harness.hold(&[0, 2]);
    assert_eq!(harness.waits(2), vec![Why::Listing; 3]);
    assert_eq!(harness.waits(0), []);
    let (task, _) = task_in(&harness, CACHE, "demo");
    let version = harness.state.table.version(task);
    assert_eq!(version, ResourceVersion(0), "so the list is from a quorum");
    assert_eq!(harness.due(), [""; 0]);
    // The server may send everything.
    harness.list_shards(2, vec![parent(0), parent(1), parent(2)]);
    assert_eq!(harness.waits(2), []);
    assert_eq!(harness.due(), ["demo kind-changed"]);
    assert_eq!(kept(&harness, CACHE), ["demo/demo", "green/green"]);
}

/// Another plugin reads all objects of the kinds of parents and children.
#[test]
fn a_watch_in_whole_shows_no_parents_of_other_shards() {
    let mut harness = unregistered(None);
    let selector = Some("innkeeper.dev/plugin=cache");
    let reads = vec![
        read(CACHE, Access::Full, ReadScope::Cluster, None),
        read(SERVICE, Access::Full, ReadScope::Cluster, selector),
    ];
    harness.add_reading_subscriber(reads);
    harness.hold(&[0]);
    assert_eq!(harness.sections(CACHE), ["*"]);
    harness.list(CACHE, vec![parent(0), parent(1)]);
    harness.list(SERVICE, Vec::new());
    harness.list(SECRET, Vec::new());
    assert_eq!(harness.due(), ["green kind-changed"]);
    assert_eq!(harness.pass_checks(), 0);
    assert_eq!(harness.state.table.parents(harness.subscriber).len(), 1);
    put_in(
        &mut harness,
        CACHE,
        "shop",
        json!({"metadata": {"name": "shop", "uid": "shop"}, "spec": 2}),
    );
    assert_eq!(harness.due(), [""; 0]);

    // The watch may lack the last writes of the shard's former holder.
    harness.state.table.set_selects(true);
    harness.hold(&[0, 1]);
    harness.list_shard(SECRET, 1, Vec::new());
    assert_eq!(harness.waits(1), vec![Why::Unchecked; 2]);
    assert_eq!(harness.waits(0), []);
    assert_eq!(harness.due(), [""; 0]);
    assert_eq!(harness.pass_checks(), 2);
    assert_eq!(harness.due(), ["shop kind-changed"]);
    harness.hold(&[1]);
    assert_eq!(harness.due(), ["green parent-gone"]);
    assert_eq!(kept(&harness, CACHE), ["green/green", "shop/shop"]);
}

#[test]
fn the_count_of_children_is_unknown_while_other_hosts_hold_shards() {
    let mut harness = sharded();
    let services = gvk(SERVICE).group_kind();
    for (held, listed, count) in [(vec![0, 1], 0, None), (vec![0, 1, 2, 3], 2, Some(0))] {
        harness.hold(&held);
        for kind in [CACHE, SERVICE] {
            harness.list_shard(kind, listed, Vec::new());
        }
        let counted = harness
            .state
            .table
            .child_count(harness.subscriber, &services);
        assert_eq!(counted, count, "{held:?}");
    }
}

#[test]
fn cluster_scoped_parents_belong_to_the_leader() {
    let mut harness = unregistered(None);
    let mut served = kinds(&[SERVICE, SECRET, POD].map(gvk));
    served.add(Resource {
        kind: gvk(CACHE),
        plural: "caches".into(),
        scope: Scope::Cluster,
    });
    harness.state.serve(served, harness.now);
    harness.add_subscriber();
    for (held, sections) in [(vec![1, 2], vec![]), (vec![0, 1], vec!["*"])] {
        harness.hold(&held);
        for kind in [CACHE, POD] {
            assert_eq!(harness.sections(kind), sections, "{kind} {held:?}");
        }
        let has_passes = harness.state.table.has_passes(harness.subscriber, None);
        assert_eq!(has_passes, held.contains(&0));
    }
    harness.list(CACHE, vec![json!({"metadata": {"name": "all"}})]);
    assert_eq!(
        harness.sections(SERVICE),
        ["*"],
        "their children are anywhere"
    );
    assert_eq!(harness.due(), ["all listed"]);
    harness.hold(&[1]);
    assert_eq!(harness.due(), ["all parent-gone"]);
    assert_eq!(kept(&harness, CACHE), [""; 0]);
}

#[test]
fn an_interest_in_all_shards_sees_the_parents_of_any() {
    let mut harness = sharded();
    let interest = harness.state.table.by_subscriber[&harness.subscriber]
        .interest
        .clone();
    let interest = Interest {
        children: Vec::new(),
        all_shards: true,
        ..interest
    };
    let (now, wake) = (harness.now, Arc::new(Notify::new()));
    let all = harness.state.add_subscriber(interest, wake, now);
    assert_eq!(harness.sections(CACHE), ["*"]);
    harness.list(CACHE, vec![parent(1)]);
    assert_eq!(harness.due(), [""; 0]);
    harness.select(all);
    assert_eq!(harness.due(), ["shop listed"]);
    assert!(harness.has_passes(1));
    harness.hold(&[0]);
    harness.hold(&[]);
    assert_eq!(harness.due(), [""; 0]);
    // Without it, what is left belongs to the held shards.
    harness.hold(&[1]);
    harness.state.remove_subscriber(all, harness.now);
    assert_eq!(harness.sections(CACHE), ["1"]);
    assert_eq!(kept(&harness, CACHE), ["shop/shop"]);
}

#[test]
fn of_the_namespaces_of_a_limited_host_those_of_held_shards_are_requested() {
    let mut harness = unregistered(Some(&["green", "shop"]));
    harness.add_subscriber();
    assert_eq!(harness.sections(POD), ["green", "shop"]);
    harness.hold(&[0]);
    assert_eq!(harness.sections(CACHE), ["green"]);
    harness.hold(&[0, 1, 2]);
    assert_eq!(harness.sections(CACHE), ["green", "shop"]);
    for namespace in ["green", "shop"] {
        list_all_in(&mut harness, namespace);
        let parent = json!({"metadata": {"name": namespace, "uid": namespace}});
        put_in(&mut harness, CACHE, namespace, parent);
    }
    harness.pass_checks();
    harness.due();
    harness.hold(&[1, 2]);
    assert_eq!(harness.due(), ["green parent-gone"]);
    assert_eq!(kept(&harness, CACHE), ["shop/shop"]);
    assert_eq!(harness.waits(1), []);
}

#[derive(Clone, Debug)]
enum Event {
    Hold(BTreeSet<usize>),
    Put(usize),
    Remove(usize),
    Merge,
    List,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => prop::collection::btree_set(0_usize..4, 0..4).prop_map(Event::Hold),
        4 => (0_usize..4).prop_map(Event::Put),
        2 => (0_usize..4).prop_map(Event::Remove),
        1 => Just(Event::Merge),
        2 => Just(Event::List),
    ];
    prop::collection::vec(event, 1..40)
}

/// Lists every section of the parents that has no complete list, as a server that does not select by shard.
fn complete_lists(harness: &mut Harness, truth: &BTreeSet<usize>) {
    for (index, namespace) in NAMESPACES.into_iter().enumerate() {
        let section = Section::Namespace(namespace.into());
        let is_listed = |slot: &WatchSlot| {
            let mut watches = slot.watches_in(&section);
            watches.all(|watch| watch.lists > 0)
        };
        let slots = harness.state.table.slots.values();
        let mut slots = slots.filter(|slot| slot.key.kind == gvk(CACHE));
        if !slots.all(is_listed) {
            let parents = truth.iter().copied().map(parent).collect();
            harness.list_shard(CACHE, index, parents);
        }
    }
}

proptest! {
    /// However shards come and go: once all is listed, the cache has exactly the parents of the held shards, and no pass
    /// was triggered for another one.
    #[test]
    fn the_cache_has_what_is_held(events in events()) {
        let mut harness = sharded();
        let mut truth = BTreeSet::new();
        let mut held = BTreeSet::new();
        for event in events {
            match event {
                Event::Hold(indexes) => {
                    held.clone_from(&indexes);
                    harness.hold(&Vec::from_iter(indexes));
                }
                // A watch shows changes after its list only.
                Event::Put(index) | Event::Remove(index) => {
                    complete_lists(&mut harness, &truth);
                    let exists = matches!(event, Event::Put(_));
                    if exists { truth.insert(index); } else { truth.remove(&index); }
                    if held.contains(&index) {
                        let (task, _) = task_in(&harness, CACHE, NAMESPACES[index]);
                        let stored = harness.stored(CACHE, parent(index));
                        let applied = if exists {
                            harness.state.put(task, stored, harness.now)
                        } else {
                            harness.state.remove(task, &stored, harness.now)
                        };
                        prop_assert_eq!(applied, Ok(()));
                    }
                }
                Event::Merge => {
                    harness.state.table.set_selects(false);
                    for id in harness.state.table.ids() {
                        harness.state.table.merge(id);
                    }
                }
                Event::List => complete_lists(&mut harness, &truth),
            }
            for index in (0..4).filter(|index| !held.contains(index)) {
                prop_assert!(!harness.has_passes(index));
            }
            let triggered = harness.due();
            for line in &triggered {
                let is_held = held.iter().any(|index| line.starts_with(NAMESPACES[*index]));
                prop_assert!(is_held || line.ends_with("parent-gone"), "{}", line);
            }
        }
        complete_lists(&mut harness, &truth);
        let expected: BTreeSet<String> = (truth.intersection(&held))
            .map(|index| format!("{0}/{0}", NAMESPACES[*index]))
            .collect();
        let cached = if held.is_empty() { Vec::new() } else { kept(&harness, CACHE) };
        prop_assert_eq!(cached.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}
