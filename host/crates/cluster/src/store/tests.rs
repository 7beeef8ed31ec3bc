use innkeeper_model::{Access, Gvk};
use proptest::prelude::*;

use super::*;
use crate::stored::{Shape, keep};

#[derive(Clone, Debug)]
struct Pod {
    name: &'static str,
    uid: u8,
    version: u64,
    owner: Option<u8>,
    app: &'static str,
}

impl Pod {
    fn stored(&self) -> Stored {
        let Self {
            name,
            uid,
            version,
            owner,
            app,
        } = self;
        let owners = owner.map_or(String::new(), |owner| {
            format!(r#","ownerReferences":[{{"uid":"o-{owner}","controller":true}}]"#)
        });
        let text = format!(
            r#"{{"metadata":{{"namespace":"demo","name":"{name}","uid":"u-{uid}","resourceVersion":"{version}","labels":{{"app":"{app}"}}{owners}}},"spec":{{"v":{version}}}}}"#
        );
        let shape = Shape {
            kind: Gvk::new("", "v1", "Pod"),
            form: Access::Full,
            managers: Some(Arc::default()),
            hash_key: None,
        };
        keep(&text, &shape).unwrap()
    }
}

fn pod(name: &'static str, uid: u8, version: u64) -> Pod {
    Pod {
        name,
        uid,
        version,
        owner: Some(1),
        app: "web",
    }
}

/// `+a1`, `~a1`, `-a1`: added, changed, removed, with the UID.
fn lines(changes: &[Change]) -> Vec<String> {
    let line = |change: &Change| {
        let sign = match (&change.before, &change.after) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        let stored = change.last().unwrap();
        format!("{sign}{}/{}", stored.name, stored.uid)
    };
    changes.iter().map(line).collect()
}

fn list(store: &mut Store, reset: bool, pods: &[Pod], version: u64) -> Vec<String> {
    let mut listing = store.begin_list(reset);
    let mut changes: Vec<Change> = pods
        .iter()
        .flat_map(|pod| store.put(pod.stored(), listing))
        .collect();
    changes.extend(store.end_list(&mut listing, &Section::Whole, ResourceVersion(version)));
    lines(&changes)
}

#[test]
fn a_relist_reports_vanished_and_replaced_objects() {
    let mut store = Store::default();
    let first = [pod("a", 1, 5), pod("b", 2, 6), pod("c", 3, 7)];
    assert_eq!(
        list(&mut store, false, &first, 7),
        ["+a/u-1", "+b/u-2", "+c/u-3"]
    );
    let second = [pod("a", 1, 5), pod("b", 9, 12), pod("d", 4, 11)];
    assert_eq!(
        list(&mut store, false, &second, 12),
        ["-b/u-2", "+b/u-9", "+d/u-4", "-c/u-3"]
    );
}

#[test]
fn an_older_state_never_replaces_a_newer_one() {
    let mut store = Store::default();
    store.put(pod("a", 1, 10).stored(), Listing::default());
    assert_eq!(
        lines(&store.put(pod("a", 1, 9).stored(), Listing::default())),
        [""; 0]
    );
    assert_eq!(
        store.remove(&ObjectKey::new("demo", "a"), ResourceVersion(9)),
        None
    );
    // Not in the list, but newer.
    assert_eq!(list(&mut store, false, &[], 9), [""; 0]);
    assert_eq!(list(&mut store, false, &[], 10), ["-a/u-1"]);
}

#[test]
fn a_reset_takes_an_older_state_as_the_truth() {
    let mut store = Store::default();
    list(&mut store, false, &[pod("a", 1, 10), pod("b", 2, 11)], 11);
    assert_eq!(
        list(&mut store, true, &[pod("a", 1, 4)], 5),
        ["~a/u-1", "-b/u-2"]
    );
    let key = ObjectKey::new("demo", "a");
    assert_eq!(store.get(&key).unwrap().version, ResourceVersion(4));
}

#[test]
fn finds_by_every_index() {
    let mut store = Store::default();
    store.put(pod("a", 1, 1).stored(), Listing::default());
    store.put(
        Pod {
            owner: Some(2),
            app: "db",
            ..pod("b", 2, 2)
        }
        .stored(),
        Listing::default(),
    );
    let names = |found: Vec<&Stored>| -> Vec<String> {
        found.iter().map(|stored| stored.name.to_string()).collect()
    };
    assert_eq!(
        names(store.controlled_by(&Uid("o-2".into())).collect()),
        ["b"]
    );
    assert_eq!(names(store.labelled("app=web").collect()), ["a"]);
    assert_eq!(names(store.all(Some("demo")).collect()), ["a", "b"]);
    assert_eq!(names(store.all(Some("dem")).collect()), [""; 0]);
    assert_eq!(names(store.all(None).collect()), ["a", "b"]);
    assert_eq!(store.by_uid(&Uid("u-1".into())).unwrap().name, "a".into());
    store.put(
        Pod {
            owner: None,
            app: "db",
            ..pod("a", 1, 3)
        }
        .stored(),
        Listing::default(),
    );
    assert_eq!(store.labelled_count("app=web"), 0);
    assert_eq!(
        names(store.controlled_by(&Uid("o-1".into())).collect()),
        [""; 0]
    );
}

#[test]
fn a_change_knows_the_parts_that_differ() {
    let change = |before: &str, after: &str| {
        let stored = |text: &str, version: u8| {
            let text = format!(
                r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"{version}",{text}}}"#
            );
            let shape = Shape {
                kind: Gvk::new("", "v1", "Pod"),
                form: Access::Full,
                managers: Some(Arc::default()),
                hash_key: None,
            };
            keep(&text, &shape).unwrap()
        };
        Change {
            before: Some(stored(before, 1)),
            after: Some(stored(after, 2)),
        }
    };
    let same = change(r#""generation":1}"#, r#""generation":1}"#);
    assert!(!same.json_changed() && !same.is_relevant());
    let owned = r#""generation":1,"managedFields":[{"manager":"innkeeper:p","fieldsV1":{}}]}"#;
    let managed = change(owned, r#""generation":1}"#);
    assert!(!managed.json_changed() && managed.is_relevant());
    let status = change(
        r#""generation":1},"status":1"#,
        r#""generation":1},"status":2"#,
    );
    assert!(status.is_status_only() && status.json_changed() && !status.metadata_changed());
    let spec = change(r#""generation":1},"spec":1"#, r#""generation":2},"spec":2"#);
    assert!(!spec.is_status_only());
    let untold = change(r#""labels":{}},"data":1"#, r#""labels":{}},"data":2"#);
    assert!(!untold.is_status_only());
}

#[derive(Clone, Debug)]
enum Step {
    Put(Pod),
    Remove(&'static str),
    List(Vec<Pod>),
    Clear,
    Reduce(&'static str),
}

fn pods() -> impl Strategy<Value = Pod> {
    let name = prop::sample::select(vec!["a", "b", "c", "d"]);
    let app = prop::sample::select(vec!["web", "db"]);
    (name, 0_u8..4, prop::option::of(0_u8..3), app).prop_map(|(name, uid, owner, app)| Pod {
        name,
        // Two names never share a UID.
        uid: uid * 16 + name.as_bytes()[0] % 16,
        version: 0,
        owner,
        app,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => pods().prop_map(Step::Put),
        2 => prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(Step::Remove),
        2 => prop::collection::vec(pods(), 0..4).prop_map(Step::List),
        1 => Just(Step::Clear),
        2 => prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(Step::Reduce),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    /// The changes, applied to a plain map, equal the store's content, and so does every index.
    #[test]
    fn changes_add_up_to_the_state(steps in steps()) {
        let mut store = Store::default();
        let mut replica: BTreeMap<ObjectKey, Stored> = BTreeMap::new();
        let mut version = 0;
        for step in steps {
            version += 1;
            let changes = match step {
                Step::Put(pod) => store.put(Pod { version, ..pod }.stored(), Listing::default()),
                Step::Remove(name) => store
                    .remove(&ObjectKey::new("demo", name), ResourceVersion(version))
                    .into_iter()
                    .collect(),
                Step::Clear => store.clear(),
                Step::Reduce(name) => {
                    let key = ObjectKey::new("demo", name);
                    store.reduce(&key, Extent::Unowned);
                    if let Some(stored) = replica.get_mut(&key) {
                        *stored = stored.clone().reduced(Extent::Unowned);
                    }
                    Vec::new()
                }
                Step::List(mut pods) => {
                    pods.sort_by_key(|pod| pod.name);
                    pods.dedup_by_key(|pod| pod.name);
                    let mut listing = store.begin_list(false);
                    let mut changes: Vec<Change> = Vec::new();
                    for pod in pods {
                        changes.extend(store.put(Pod { version, ..pod }.stored(), listing));
                    }
                    changes.extend(store.end_list(&mut listing, &Section::Whole, ResourceVersion(version)));
                    changes
                }
            };
            for change in changes {
                let key = ObjectKey::for_object(change.last().unwrap());
                let was = match change.after {
                    Some(after) => replica.insert(key, after),
                    None => replica.remove(&key),
                };
                prop_assert_eq!(was, change.before);
            }
            let objects: Vec<&Stored> = store.all(None).collect();
            prop_assert_eq!(objects, replica.values().collect::<Vec<_>>());
            for owner in 0..3 {
                let uid = Uid(format!("o-{owner}").into());
                let expected = replica.values().filter(|s| s.controller.as_ref() == Some(&uid));
                prop_assert_eq!(store.controlled_by(&uid).count(), expected.count());
            }
            for app in ["web", "db"] {
                let label = format!("app={app}");
                let expected = replica.values().filter(|s| s.json.contains(&format!("\"{app}\"")));
                prop_assert_eq!(store.labelled_count(&label), expected.count());
            }
            for stored in replica.values() {
                prop_assert_eq!(store.by_uid(&stored.uid), Some(stored));
            }
            let bytes: usize = replica.values().map(Stored::bytes).sum();
            let size = CacheSize { objects: replica.len(), bytes };
            prop_assert_eq!(store.size_of(None).all(), size);
            let unowned = replica.values().filter(|s| s.extent == Extent::Unowned).count();
            prop_assert_eq!(store.size_of(None).unowned, unowned);
            let namespaces: BTreeSet<_> = replica.values().map(|s| Arc::clone(&s.namespace)).collect();
            prop_assert!(store.sizes().keys().eq(&namespaces));
            for namespace in namespaces {
                let there = || replica.values().filter(|s| s.namespace == namespace);
                let size = CacheSize { objects: there().count(), bytes: there().map(Stored::bytes).sum() };
                prop_assert_eq!(store.size_of(Some(&namespace)).all(), size);
            }
        }
    }
}
