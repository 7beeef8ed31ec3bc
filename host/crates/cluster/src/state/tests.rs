mod limited;

use std::time::Duration;

use innkeeper_model::{
    ListSelector, ObjectRef, PluginName, ReadFailure, ReadScope, ResourceVersion, Uid,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{related::Made, *};
use crate::{
    discovery::tests::kinds,
    interest::Why,
    machine::Since,
    state::expectations::ExpectationStatus,
    stored::{Shape, keep},
};

const CACHE: &str = "cache.example.com/v1 Cache";
const SERVICE: &str = "v1 Service";
const SECRET: &str = "v1 Secret";
const POD: &str = "v1 Pod";
const CONFIG: &str = "v1 ConfigMap";
const MONITOR: &str = "monitoring.example.com/v1 Monitor";

fn gvk(text: &str) -> Gvk {
    let (api_version, kind) = text.split_once(' ').unwrap();
    Gvk::parse(api_version, kind).unwrap()
}

/// A state with a clock and one version counter, as an API server would drive it.
struct World {
    state: CacheState,
    now: Instant,
    version: u64,
}

impl World {
    fn status(&mut self, subscriber: SubscriberId, parent: &ObjectId) -> ExpectationStatus {
        self.state.expectation_status(subscriber, parent, self.now)
    }

    /// A write of an unknown result, to be read live at once.
    fn expect_unknown(&mut self, subscriber: SubscriberId, parent: &ObjectId, id: &ObjectId) {
        let state = ExpectedState::Unknown;
        self.state.expect(subscriber, parent, id, state, self.now);
    }

    /// Serves every kind but the monitors.
    fn new() -> Self {
        let mut world = Self {
            state: CacheState::default(),
            now: Instant::now(),
            version: 10,
        };
        world.serve(&[CACHE, SERVICE, SECRET, POD]);
        world
            .state
            .set_hash_key(Some(HashKey::new([7_u8; 32])), world.now);
        world
    }

    fn serve(&mut self, served: &[&str]) {
        let served: Vec<Gvk> = served.iter().map(|kind| gvk(kind)).collect();
        self.state.serve(kinds(&served), self.now);
    }

    /// A plugin with caches as parents, required services and secrets, optional monitors, and reads of pods.
    fn add_subscriber(&mut self) -> SubscriberId {
        self.add_reading_subscriber(vec![read(
            POD,
            Access::Metadata,
            ReadScope::ParentNamespace,
            None,
        )])
    }

    fn add_reading_subscriber(&mut self, reads: Vec<ReadKind>) -> SubscriberId {
        let child = |kind: &str, required, access| ChildInterest {
            kind: gvk(kind),
            required,
            access,
        };
        let interest = Interest {
            plugin: PluginName::new("cache").unwrap(),
            parent: gvk(CACHE),
            children: vec![
                child(SERVICE, true, Access::Full),
                child(SECRET, true, Access::Hash),
                child(MONITOR, false, Access::Full),
            ],
            reads,
            selector: None,
            field_managers: BTreeSet::new(),
        };
        self.state
            .add_subscriber(interest, Arc::new(Notify::new()), self.now)
    }

    /// The task of the watch of a kind.
    fn task(&self, kind: &str) -> Option<(SlotId, u64, Shape)> {
        let mut orders = self
            .state
            .orders()
            .into_iter()
            .filter(|(_, order)| order.target.served.kind == gvk(kind));
        let ((id, generation), order) = orders.next()?;
        Some((id, generation, order.shape))
    }

    fn stored(&mut self, kind: &str, mut object: Value) -> Stored {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", metadata["name"].as_str().unwrap()));
        }
        let (.., shape) = self.task(kind).unwrap();
        keep(&object.to_string(), &shape).unwrap()
    }

    /// Lists a kind completely.
    fn list(&mut self, kind: &str, objects: Vec<Value>) {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = objects
            .into_iter()
            .map(|object| self.stored(kind, object))
            .collect();
        let (task, version) = ((id, generation), ResourceVersion(self.version));
        assert_eq!(
            self.state.begin_list(task, Since::Now, version),
            Applied::Current
        );
        assert_eq!(self.state.page(task, stored), Applied::Current);
        assert_eq!(
            self.state.end_list(task, version, self.now),
            Applied::Current
        );
    }

    fn list_all(&mut self) {
        for kind in [SERVICE, SECRET, POD, CACHE] {
            self.list(kind, Vec::new());
        }
    }

    fn put(&mut self, kind: &str, object: Value) -> ResourceVersion {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = self.stored(kind, object);
        let version = stored.version;
        assert_eq!(
            self.state.put((id, generation), stored, self.now),
            Applied::Current
        );
        version
    }

    fn remove(&mut self, kind: &str, object: Value) {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = self.stored(kind, object);
        assert_eq!(
            self.state.remove((id, generation), &stored, self.now),
            Applied::Current
        );
    }

    /// Returns the queued triggers as `name cause`, past the wait for the first lists.
    fn due(&mut self, subscriber_id: SubscriberId) -> Vec<String> {
        self.due_at(subscriber_id, self.now + FIRST_LISTS_WAIT)
            .unwrap()
    }

    /// The same; the end of the wait for the first lists if it has not passed.
    fn due_at(
        &mut self,
        subscriber_id: SubscriberId,
        now: Instant,
    ) -> Result<Vec<String>, Instant> {
        let taken = self.state.take(subscriber_id, usize::MAX, now)?;
        let line =
            |(id, trigger): (ObjectId, Trigger)| format!("{} {}", id.name, trigger.cause.as_str());
        let mut lines: Vec<String> = taken.into_iter().map(line).collect();
        lines.sort();
        Ok(lines)
    }

    fn children(&self, subscriber_id: SubscriberId, name: &str) -> Vec<String> {
        let parent = self.state.parent(subscriber_id, &cache_id(name)).unwrap();
        let children = self.state.children(subscriber_id, &parent);
        children
            .iter()
            .map(|child| child.id().to_string())
            .collect()
    }

    fn get(
        &mut self,
        subscriber_id: SubscriberId,
        made: &mut Made,
        name: &str,
    ) -> Result<bool, ReadFailure> {
        let reference = ObjectRef {
            kind: gvk(POD),
            namespace: None,
            name: name.into(),
        };
        let read = self
            .state
            .read_object(&reader(subscriber_id), &reference, made);
        read.map(|object| object.is_some())
    }

    fn names(
        &mut self,
        subscriber_id: SubscriberId,
        made: &mut Made,
        selector: &str,
    ) -> Vec<String> {
        let list = ListSelector {
            kind: gvk(POD),
            namespace: None,
            label_selector: Some(selector.into()),
        };
        let objects = self
            .state
            .read_list(&reader(subscriber_id), &list, made)
            .unwrap();
        let name = |text: &Arc<str>| {
            let object: Value = serde_json::from_str(text).unwrap();
            object["metadata"]["name"].as_str().unwrap().to_owned()
        };
        objects.iter().map(name).collect()
    }
}

fn read(kind: &str, access: Access, scope: ReadScope, selector: Option<&str>) -> ReadKind {
    ReadKind {
        kind: gvk(kind),
        access,
        scope,
        label_selector: selector.map(str::to_owned),
    }
}

fn cache_id(name: &str) -> ObjectId {
    ObjectId::new(gvk(CACHE).group_kind(), Some("demo"), name)
}

fn reader(subscriber_id: SubscriberId) -> Reader {
    Reader {
        subscriber_id,
        parent: cache_id("web"),
    }
}

fn cache(name: &str) -> Value {
    json!({"metadata": {"namespace": "demo", "name": name, "generation": 1}, "spec": {"size": 1}})
}

fn owned(name: &str, parent: &str) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "labels": {"innkeeper.dev/plugin": "cache"},
        "ownerReferences": [{"uid": format!("uid-{parent}"), "controller": true}],
    }})
}

fn retained(name: &str, identity: &str) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "labels": {"innkeeper.dev/plugin": "cache"},
        "annotations": {"innkeeper.dev/retained-for": identity},
    }})
}

fn pod(name: &str, app: &str) -> Value {
    json!({"metadata": {"namespace": "demo", "name": name, "labels": {"app": app}}})
}

#[test]
fn w8_passes_wait_for_required_kinds_only() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    let lacks = |world: &World| {
        let waiting = world.state.waiting(subscriber_id, None).into_iter();
        let mut kinds: Vec<_> = waiting.map(|waiting| waiting.kind.to_string()).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(
        lacks(&world),
        ["cache.example.com/v1 Cache", "v1 Secret", "v1 Service"]
    );
    world.list(CACHE, vec![cache("web")]);
    world.list(SERVICE, Vec::new());
    assert_eq!(lacks(&world), [SECRET]);
    assert_eq!(world.due(subscriber_id), ["web listed"]);
    world.list(SECRET, Vec::new());
    assert_eq!(lacks(&world), [""; 0]);
    assert_eq!(world.due(subscriber_id), ["web kind-changed"]);
    let unavailable = world.state.unavailable(subscriber_id, None);
    assert_eq!(
        (&unavailable[0].kind, &unavailable[0].why),
        (&gvk(MONITOR), &Why::NotServed)
    );
}

#[test]
fn w8_the_first_passes_wait_for_every_list_that_is_on_its_way() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    let begin = world.now;
    let until = begin + FIRST_LISTS_WAIT;
    world.list(CACHE, vec![cache("web")]);
    world.list(SERVICE, vec![owned("s", "web")]);
    world.list(SECRET, Vec::new());
    // Passes could begin, and those that read pods would be parked.
    assert!(world.state.waiting(subscriber_id, None).is_empty());
    assert_eq!(world.due_at(subscriber_id, begin), Err(until));
    world.list(POD, Vec::new());
    assert_eq!(
        world.due_at(subscriber_id, begin),
        Ok(vec!["web kind-changed".to_owned()])
    );

    // Only the first passes wait: later changes are released at once.
    world.serve(&[CACHE, SERVICE, SECRET, POD, MONITOR]);
    world.put(CACHE, cache("other"));
    assert_eq!(
        world.due_at(subscriber_id, begin),
        Ok(vec![
            "other parent-changed".to_owned(),
            "web kind-changed".to_owned()
        ])
    );

    // A list that does not come ends the wait after its limit.
    let late = world.add_subscriber();
    assert_eq!(world.due_at(late, begin), Err(until));
    assert_eq!(
        world.due_at(late, until),
        Ok(vec!["other listed".to_owned(), "web listed".to_owned()])
    );
}

#[test]
fn w9_an_optional_kind_comes_and_goes() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    world.due(subscriber_id);
    assert!(world.task(MONITOR).is_none());

    world.serve(&[CACHE, SERVICE, SECRET, POD, MONITOR]);
    assert_eq!(
        world.state.waiting(subscriber_id, None)[0].why,
        Why::Listing
    );
    world.list(MONITOR, vec![owned("m", "web")]);
    assert_eq!(world.due(subscriber_id), ["web kind-changed"]);
    assert_eq!(
        world.children(subscriber_id, "web"),
        ["Monitor.monitoring.example.com demo/m"]
    );

    world.serve(&[CACHE, SERVICE, SECRET, POD]);
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);
    assert_eq!(world.children(subscriber_id, "web"), [""; 0]);
    assert!(
        world.state.waiting(subscriber_id, None).is_empty(),
        "optional"
    );
    assert!(world.task(MONITOR).is_none());
}

#[test]
fn w9_a_required_kind_that_goes_stops_the_passes() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    world.put(SERVICE, owned("s", "web"));
    world.due(subscriber_id);
    world.serve(&[CACHE, SECRET, POD]);
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);
    assert_eq!(
        world.state.waiting(subscriber_id, None)[0].why,
        Why::NotServed
    );
}

#[test]
fn children_are_found_by_uid_and_by_identity() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    world.put(CACHE, cache("db"));
    world.due(subscriber_id);
    world.put(SERVICE, owned("s", "web"));
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);
    world.put(SECRET, retained("kept", "cache.example.com/Cache/demo/web"));
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);
    world.put(
        SERVICE,
        retained("elsewhere", "other.example.com/Cache/demo/web"),
    );
    world.put(SERVICE, owned("stranger", "unknown"));
    assert_eq!(world.due(subscriber_id), [""; 0]);
    assert_eq!(
        world.children(subscriber_id, "web"),
        ["Secret demo/kept", "Service demo/s"]
    );
    assert_eq!(world.children(subscriber_id, "db"), [""; 0]);

    // An object with another controller is not ours, whatever its annotation.
    let mut stolen = retained("kept", "cache.example.com/Cache/demo/web");
    stolen["metadata"]["ownerReferences"] = json!([{"uid": "uid-db", "controller": true}]);
    world.put(SECRET, stolen);
    assert_eq!(
        world.due(subscriber_id),
        ["db child-changed", "web child-changed"]
    );
    assert_eq!(world.children(subscriber_id, "web"), ["Service demo/s"]);

    world.remove(SERVICE, owned("s", "web"));
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);
}

#[test]
fn a_secret_child_shows_hashes_only() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    let mut secret = owned("s", "web");
    secret["data"] = json!({"password": "c2VjcmV0"});
    world.put(SECRET, secret);
    let parent = world.state.parent(subscriber_id, &cache_id("web")).unwrap();
    let children = world.state.children(subscriber_id, &parent);
    assert_eq!(children[0].form, Access::Hash);
    assert!(
        children[0].json.contains("\"password\":\"hmac-sha256:"),
        "{}",
        children[0].json
    );

    world.due(subscriber_id);
    world.state.set_hash_key(None, world.now);
    assert_eq!(world.due(subscriber_id), ["web kind-changed"]);
    assert_eq!(
        world.state.waiting(subscriber_id, None)[0].why,
        Why::HashKeyMissing
    );
}

#[test]
fn the_trigger_of_a_parent_names_its_change() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    assert_eq!(world.due(subscriber_id), ["web parent-changed"]);
    let mut changed = cache("web");
    changed["status"] = json!({"nodes": 1});
    world.put(CACHE, changed.clone());
    assert_eq!(world.due(subscriber_id), ["web parent-status"]);
    world.put(CACHE, changed.clone());
    assert_eq!(
        world.due(subscriber_id),
        [""; 0],
        "only the version differs"
    );
    changed["metadata"]["annotations"] = json!({"a": "b"});
    world.put(CACHE, changed.clone());
    assert_eq!(world.due(subscriber_id), ["web parent-changed"]);
    world.remove(CACHE, changed);
    assert_eq!(world.due(subscriber_id), ["web parent-gone"]);
}

#[test]
fn w1_a_late_registration_sees_present_and_later_objects() {
    let mut world = World::new();
    let early = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    world.put(SERVICE, owned("s", "web"));
    let late = world.add_subscriber();
    assert_eq!(
        world.state.orders().len(),
        4,
        "one watch for each kind, however many plugins"
    );
    assert_eq!(world.due(late), ["web listed"]);
    assert!(world.state.waiting(late, None).is_empty());
    assert_eq!(world.children(late, "web"), ["Service demo/s"]);
    world.due(early);
    world.put(SERVICE, owned("t", "web"));
    assert_eq!(world.due(late), ["web child-changed"]);
    assert_eq!(world.due(early), ["web child-changed"]);
    world.state.remove_subscriber(early, world.now);
    assert_eq!(world.state.orders().len(), 4);
    world.state.remove_subscriber(late, world.now);
    assert_eq!(
        world.state.orders().len(),
        0,
        "the last one ends the watches"
    );
}

#[test]
fn a_pass_reads_only_what_is_granted_to_it() {
    let mut world = World::new();
    let pods = read(POD, Access::Full, ReadScope::ParentNamespace, None);
    let configs = read(SERVICE, Access::Full, ReadScope::ParentNamespace, None);
    let subscriber_id = world.add_reading_subscriber(vec![pods.clone(), configs.clone()]);
    world.list_all();
    world.put(CACHE, cache("web"));
    world.put(POD, pod("p", "web"));
    let mut made = Made::within(Arc::from([configs]));
    let refused = world.get(subscriber_id, &mut made, "p");
    assert_eq!(refused, Err(ReadFailure::NotGranted(gvk(POD))));
    let mut made = Made::within(Arc::from([pods]));
    assert_eq!(world.get(subscriber_id, &mut made, "p"), Ok(true));
}

#[test]
fn an_update_continues_the_watches_that_stay_wanted() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    let mut made = Made::default();
    assert_eq!(world.get(subscriber_id, &mut made, "p"), Ok(false));
    world.state.commit(&reader(subscriber_id), &made);
    let before: Vec<_> = world.state.orders().into_keys().collect();
    let mut interest = world.state.subscribers[&subscriber_id].interest.clone();
    world
        .state
        .change(subscriber_id, interest.clone(), world.now);
    assert_eq!(world.state.orders().into_keys().collect::<Vec<_>>(), before);
    world.due(subscriber_id);
    world.put(POD, pod("p", "web"));
    assert_eq!(world.due(subscriber_id), ["web related-changed"]);

    interest.reads.clear();
    interest.children.retain(|child| child.kind != gvk(SECRET));
    world.state.change(subscriber_id, interest, world.now);
    assert!(world.task(POD).is_none() && world.task(SECRET).is_none());
    let kept: Vec<_> = world.state.orders().into_keys().collect();
    assert!(kept.iter().all(|task| before.contains(task)));
}

#[test]
fn the_richest_needed_form_is_kept_and_each_plugin_sees_its_own() {
    let mut world = World::new();
    let poor = world.add_subscriber();
    world.list_all();
    world.list(POD, vec![pod("p", "web")]);
    let rich =
        world.add_reading_subscriber(vec![read(POD, Access::Full, ReadScope::Cluster, None)]);
    let mut made = Made::default();
    let failure = world.get(poor, &mut made, "p").unwrap_err();
    assert_eq!(
        failure,
        ReadFailure::NotSynced(gvk(POD)),
        "the form changes"
    );
    let mut full = pod("p", "web");
    full["spec"] = json!({"nodeName": "n"});
    world.list(POD, vec![full]);
    let text = |world: &mut World, subscriber_id| {
        let reference = ObjectRef {
            kind: gvk(POD),
            namespace: None,
            name: "p".into(),
        };
        let mut made = Made::default();
        world
            .state
            .read_object(&reader(subscriber_id), &reference, &mut made)
            .unwrap()
            .unwrap()
    };
    assert!(text(&mut world, rich).contains("nodeName"));
    assert!(!text(&mut world, poor).contains("nodeName"));
    world.state.remove_subscriber(rich, world.now);
    let (.., shape) = world.task(POD).unwrap();
    assert_eq!(shape.form, Access::Metadata);
}

#[test]
fn reads_are_subscriptions() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    world.due(subscriber_id);
    let mut made = Made::default();
    assert_eq!(world.get(subscriber_id, &mut made, "p"), Ok(false));
    assert_eq!(world.names(subscriber_id, &mut made, "app=web"), [""; 0]);
    // Also before the pass ends.
    world.put(POD, pod("p", "db"));
    assert_eq!(world.due(subscriber_id), ["web related-changed"]);
    assert_eq!(
        world.get(subscriber_id, &mut made, "p"),
        Ok(false),
        "repeatable"
    );
    world.put(POD, pod("q", "db"));
    assert_eq!(world.due(subscriber_id), [""; 0]);
    world.put(POD, pod("q", "web"));
    assert_eq!(world.due(subscriber_id), ["web related-changed"]);
    world.state.commit(&reader(subscriber_id), &made);

    let mut made = Made::default();
    assert_eq!(world.names(subscriber_id, &mut made, "app=web"), ["q"]);
    world.state.commit(&reader(subscriber_id), &made);
    world.put(POD, pod("p", "other"));
    assert_eq!(world.due(subscriber_id), [""; 0], "not read any more");
    world.remove(POD, pod("q", "web"));
    assert_eq!(world.due(subscriber_id), ["web related-changed"]);
    world.remove(CACHE, cache("web"));
    world.due(subscriber_id);
    world.put(POD, pod("r", "web"));
    assert_eq!(world.due(subscriber_id), [""; 0], "the parent is gone");
}

#[test]
fn lists_are_sorted_and_repeatable() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.list(POD, vec![pod("b", "web"), pod("a", "web"), pod("c", "db")]);
    let mut made = Made::default();
    assert_eq!(world.names(subscriber_id, &mut made, ""), ["a", "b", "c"]);
    let mut changed = pod("a", "web");
    changed["metadata"]["labels"]["x"] = json!("y");
    world.put(POD, changed);
    let list = ListSelector {
        kind: gvk(POD),
        namespace: None,
        label_selector: Some("app".into()),
    };
    let objects = world
        .state
        .read_list(&reader(subscriber_id), &list, &mut made)
        .unwrap();
    assert!(!objects[0].contains("\"x\""), "as it was shown first");
    let invalid = ListSelector {
        label_selector: Some("a b".into()),
        ..list
    };
    let failure = world
        .state
        .read_list(&reader(subscriber_id), &invalid, &mut made)
        .unwrap_err();
    assert_eq!(
        failure,
        ReadFailure::InvalidSelector {
            selector: "a b".to_owned()
        }
    );
}

#[test]
fn a_read_without_a_grant_is_not_answered() {
    let mut world = World::new();
    let subscriber_id = world.add_reading_subscriber(vec![
        read(POD, Access::Metadata, ReadScope::ParentNamespace, None),
        read(MONITOR, Access::Full, ReadScope::Cluster, None),
    ]);
    world.list_all();
    let mut ask = |kind: &str, namespace: Option<&str>| {
        let reference = ObjectRef {
            kind: gvk(kind),
            namespace: namespace.map(Arc::from),
            name: "x".into(),
        };
        let mut made = Made::default();
        world
            .state
            .read_object(&reader(subscriber_id), &reference, &mut made)
    };
    let not_granted = |kind| Err(ReadFailure::NotGranted(gvk(kind)));
    assert_eq!(ask(POD, None), Ok(None));
    assert_eq!(ask(POD, Some("demo")), Ok(None));
    assert_eq!(ask(POD, Some("other")), not_granted(POD));
    assert_eq!(ask(SECRET, None), not_granted(SECRET));
    assert_eq!(ask("v2 Pod", None), not_granted("v2 Pod"));
    assert_eq!(
        ask(MONITOR, None),
        Err(ReadFailure::NotServed(gvk(MONITOR)))
    );
}

#[test]
fn a_grant_for_the_cluster_reaches_every_namespace() {
    let mut world = World::new();
    let subscriber_id =
        world.add_reading_subscriber(vec![read(POD, Access::Metadata, ReadScope::Cluster, None)]);
    world.list_all();
    let mut elsewhere = pod("z", "web");
    elsewhere["metadata"]["namespace"] = json!("other");
    world.list(POD, vec![pod("a", "web"), elsewhere]);
    let mut made = Made::default();
    assert_eq!(world.names(subscriber_id, &mut made, ""), ["a", "z"]);
    assert_eq!(
        world.get(subscriber_id, &mut made, "z"),
        Ok(false),
        "the parent's namespace"
    );
}

#[test]
fn a_grant_for_some_namespaces_reaches_no_other() {
    let mut world = World::new();
    let listed = ReadScope::Namespaces(["other"].map(Arc::from).into());
    let subscriber_id = world.add_reading_subscriber(vec![
        read(POD, Access::Full, ReadScope::ParentNamespace, None),
        read(POD, Access::Metadata, listed, None),
    ]);
    world.list_all();
    let within = |namespace: &str, name: &str| {
        let mut pod = pod(name, "web");
        pod["metadata"]["namespace"] = json!(namespace);
        pod["spec"] = json!({"nodeName": "node-1"});
        pod
    };
    let pods = vec![
        within("demo", "a"),
        within("other", "b"),
        within("third", "c"),
    ];
    world.list(POD, pods);
    let mut list = |namespace: Option<&str>| {
        let selector = ListSelector {
            kind: gvk(POD),
            namespace: namespace.map(Arc::from),
            label_selector: None,
        };
        let mut made = Made::default();
        let state = &mut world.state;
        let found = state.read_list(&reader(subscriber_id), &selector, &mut made);
        found.map(|texts| {
            let shown = texts.iter().map(|text| {
                let pod: Value = serde_json::from_str(text).unwrap();
                let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
                (name, !pod["spec"].is_null())
            });
            shown.collect::<Vec<_>>()
        })
    };
    let seen = |name: &str, full| (name.to_owned(), full);
    assert_eq!(list(None), Ok(vec![seen("a", true), seen("b", false)]));
    assert_eq!(list(Some("other")), Ok(vec![seen("b", false)]));
    assert_eq!(list(Some("third")), Err(ReadFailure::NotGranted(gvk(POD))));
}

#[test]
fn a_parked_parent_is_woken_when_the_kind_is_there() {
    let mut world = World::new();
    let subscriber_id = world.add_reading_subscriber(vec![
        read(POD, Access::Metadata, ReadScope::ParentNamespace, None),
        read(CONFIG, Access::Full, ReadScope::ParentNamespace, None),
    ]);
    for kind in [SERVICE, SECRET] {
        world.list(kind, Vec::new());
    }
    world.list(CACHE, vec![cache("web"), cache("db")]);
    world.due(subscriber_id);
    let mut made = Made::default();
    assert_eq!(
        world.get(subscriber_id, &mut made, "p"),
        Err(ReadFailure::NotSynced(gvk(POD)))
    );
    world.list(POD, Vec::new());
    assert_eq!(
        world.due(subscriber_id),
        ["web kind-changed"],
        "exactly the one that asked"
    );

    let config = ObjectRef {
        kind: gvk(CONFIG),
        namespace: None,
        name: "m".into(),
    };
    let mut made = Made::default();
    let failed = world
        .state
        .read_object(&reader(subscriber_id), &config, &mut made);
    assert_eq!(failed, Err(ReadFailure::NotServed(gvk(CONFIG))));
    world.state.commit(&reader(subscriber_id), &made);
    world.serve(&[CACHE, SERVICE, SECRET, POD, CONFIG]);
    world.due(subscriber_id);
    world.list(CONFIG, Vec::new());
    assert!(
        world
            .due(subscriber_id)
            .contains(&"web kind-changed".to_owned())
    );

    let mut made = Made::default();
    let found = world
        .state
        .read_object(&reader(subscriber_id), &config, &mut made);
    assert_eq!(found, Ok(None));
    world.state.commit(&reader(subscriber_id), &made);
    world.serve(&[CACHE, SERVICE, SECRET, POD]);
    assert!(
        world
            .due(subscriber_id)
            .contains(&"web kind-changed".to_owned()),
        "not served any more"
    );
}

#[test]
fn q5_own_writes_are_waited_for() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    let seen = world.put(CACHE, cache("web"));
    world.due(subscriber_id);
    let web = cache_id("web");
    let service = ObjectId::new(gvk(SERVICE).group_kind(), Some("demo"), "s");
    let due = world.now + Duration::from_secs(5);
    let expect = |world: &mut World, id: &ObjectId, expected| {
        world.state.expect(subscriber_id, &web, id, expected, due);
    };
    let unseen = |world: &mut World| world.status(subscriber_id, &web);

    expect(&mut world, &web, ExpectedState::Version(seen));
    assert_eq!(unseen(&mut world), ExpectationStatus::None, "seen already");

    let next = ResourceVersion(world.version + 1);
    expect(&mut world, &service, ExpectedState::Version(next));
    assert_eq!(unseen(&mut world), ExpectationStatus::Until(due));
    world.put(SERVICE, owned("s", "web"));
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);
    assert_eq!(unseen(&mut world), ExpectationStatus::None);

    // A write that changes nothing that a pass sees still meets the expectation.
    let next = ResourceVersion(world.version + 1);
    expect(&mut world, &service, ExpectedState::Version(next));
    assert_eq!(unseen(&mut world), ExpectationStatus::Until(due));
    world.put(SERVICE, owned("s", "web"));
    assert_eq!(world.due(subscriber_id), ["web caught-up"]);

    // And a bookmark does, too: the object may be gone again.
    let next = ResourceVersion(world.version + 1);
    expect(&mut world, &service, ExpectedState::Version(next));
    assert_eq!(unseen(&mut world), ExpectationStatus::Until(due));
    let (id, generation, _) = world.task(SERVICE).unwrap();
    world.state.bookmark((id, generation), next, world.now);
    assert_eq!(world.due(subscriber_id), ["web caught-up"]);

    expect(
        &mut world,
        &service,
        ExpectedState::Deleted(Uid("uid-s".into())),
    );
    assert_eq!(unseen(&mut world), ExpectationStatus::Until(due));
    world.version += 1;
    world.remove(SERVICE, owned("s", "web"));
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);
    assert_eq!(unseen(&mut world), ExpectationStatus::None);
}

#[test]
fn q5_the_newer_object_that_refused_a_write_is_waited_for() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    let known = world.put(CACHE, cache("web"));
    world.put(SERVICE, owned("s", "web"));
    world.due(subscriber_id);
    let web = cache_id("web");
    let due = world.now + Duration::from_secs(5);
    let stale = ExpectedState::After(known);
    world.state.expect(subscriber_id, &web, &web, stale, due);

    // A newer version of the whole watch says nothing about the object.
    world.put(CACHE, cache("other"));
    let wait = world.status(subscriber_id, &web);
    assert_eq!(wait, ExpectationStatus::Until(due));
    world.put(CACHE, cache("web"));
    assert_eq!(world.status(subscriber_id, &web), ExpectationStatus::None);

    let service = ObjectId::new(gvk(SERVICE).group_kind(), Some("demo"), "s");
    let stale = ExpectedState::After(ResourceVersion(world.version));
    world
        .state
        .expect(subscriber_id, &web, &service, stale, due);
    let wait = world.status(subscriber_id, &web);
    assert_eq!(wait, ExpectationStatus::Until(due));
    world.version += 1;
    world.remove(SERVICE, owned("s", "web"));
    assert_eq!(world.status(subscriber_id, &web), ExpectationStatus::None);
}

#[test]
fn q5_writes_that_stay_unseen_are_read_live() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    world.put(SERVICE, owned("gone", "web"));
    world.due(subscriber_id);
    let web = cache_id("web");
    let id = |name| ObjectId::new(gvk(SERVICE).group_kind(), Some("demo"), name);
    let far = ResourceVersion(world.version + 100);
    let due = world.now + Duration::from_secs(5);
    world.state.expect(
        subscriber_id,
        &web,
        &id("new"),
        ExpectedState::Version(far),
        due,
    );
    world.expect_unknown(subscriber_id, &web, &id("gone"));
    assert_eq!(
        world.status(subscriber_id, &web),
        ExpectationStatus::Read(vec![id("gone")])
    );
    world.now = due;
    let both = vec![id("gone"), id("new")];
    assert_eq!(
        world.status(subscriber_id, &web),
        ExpectationStatus::Read(both)
    );

    let read = world
        .state
        .live_read(subscriber_id, &web, &id("gone"))
        .unwrap();
    world
        .state
        .live(subscriber_id, &web, &id("gone"), &read, None);
    let read = world
        .state
        .live_read(subscriber_id, &web, &id("new"))
        .unwrap();
    world.version += 99;
    let new = world.stored(SERVICE, owned("new", "web"));
    world
        .state
        .live(subscriber_id, &web, &id("new"), &read, Some(new));
    assert_eq!(world.status(subscriber_id, &web), ExpectationStatus::None);
    assert_eq!(world.children(subscriber_id, "web"), ["Service demo/new"]);
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);

    // A child that lost our label is outside of the watch, which would never show its end.
    world.expect_unknown(subscriber_id, &web, &id("new"));
    let read = world
        .state
        .live_read(subscriber_id, &web, &id("new"))
        .unwrap();
    let mut unlabelled = owned("new", "web");
    unlabelled["metadata"]["labels"] = json!({});
    let unlabelled = world.stored(SERVICE, unlabelled);
    world
        .state
        .live(subscriber_id, &web, &id("new"), &read, Some(unlabelled));
    assert_eq!(world.children(subscriber_id, "web"), [""; 0]);

    // The next attempt of a failed read has to wait.
    world.expect_unknown(subscriber_id, &web, &id("new"));
    world
        .state
        .live_failed(subscriber_id, &web, &id("new"), world.now);
    let later = world.now + Duration::from_secs(1);
    assert_eq!(
        world.status(subscriber_id, &web),
        ExpectationStatus::Until(later)
    );
}

#[test]
fn w6_an_older_state_is_refused_unless_it_is_the_truth() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    world.put(CACHE, cache("web"));
    world.put(SERVICE, owned("s", "web"));
    world.due(subscriber_id);
    let (id, generation, _) = world.task(SERVICE).unwrap();
    let task = (id, generation);
    let old = ResourceVersion(5);
    assert_eq!(
        world.state.bookmark(task, old, world.now),
        Applied::WentBack
    );
    let since = Since::NotOlderThan(ResourceVersion(world.version));
    assert_eq!(world.state.begin_list(task, since, old), Applied::WentBack);
    assert_eq!(world.children(subscriber_id, "web"), ["Service demo/s"]);
    assert_eq!(
        world.state.begin_list(task, Since::Now, old),
        Applied::Current
    );
    assert_eq!(world.state.end_list(task, old, world.now), Applied::Current);
    assert_eq!(world.state.version(task), old);
    assert_eq!(world.due(subscriber_id), ["web child-changed"]);
    assert_eq!(world.children(subscriber_id, "web"), [""; 0]);
}

#[test]
fn a_task_that_was_replaced_changes_nothing() {
    let mut world = World::new();
    let subscriber_id = world.add_subscriber();
    world.list_all();
    let (id, generation, _) = world.task(POD).unwrap();
    let stored = world.stored(POD, pod("p", "web"));
    world.state.remove_subscriber(subscriber_id, world.now);
    assert_eq!(
        world.state.put((id, generation), stored, world.now),
        Applied::Superseded
    );
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

proptest! {
    /// A registration that joins at any time ends with the same view as one that was there from the start, and is
    /// triggered for every parent for which its view is outdated.
    #[test]
    fn w1_joining_late_equals_a_full_replay(steps in steps(), join in 0_usize..40) {
        let mut world = World::new();
        let early = world.add_subscriber();
        world.list_all();
        let mut late = None;
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut children: BTreeMap<u8, u8> = BTreeMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            if at == join {
                late = Some(world.add_subscriber());
            }
            match step {
                Step::Parent(name, true) => {
                    world.put(CACHE, cache(&name.to_string()));
                }
                Step::Parent(name, false) => world.remove(CACHE, cache(&name.to_string())),
                Step::Child { name, owner, exists: true } => {
                    children.insert(name, owner);
                    world.put(SERVICE, owned(&name.to_string(), &owner.to_string()));
                }
                Step::Child { name, owner, exists: false } => {
                    children.remove(&name);
                    world.remove(SERVICE, owned(&name.to_string(), &owner.to_string()));
                }
                Step::Relist => {
                    // Every second child vanished unseen.
                    children.retain(|name, _| name % 2 == 0);
                    let objects = children
                        .iter()
                        .map(|(name, owner)| owned(&name.to_string(), &owner.to_string()))
                        .collect();
                    world.list(SERVICE, objects);
                }
            }
            for (subscriber_id, keeps) in [(Some(early), false), (late, true)] {
                let Some(subscriber_id) = subscriber_id else { continue };
                let triggered = world.due(subscriber_id);
                for parent in world.state.parents(subscriber_id) {
                    let name = parent.name.to_string();
                    let expected: Vec<String> = children
                        .iter()
                        .filter(|(_, owner)| owner.to_string() == name)
                        .map(|(child, _)| format!("Service demo/{child}"))
                        .collect();
                    let view = world.children(subscriber_id, &name);
                    prop_assert_eq!(&view, &expected);
                    if keeps {
                        let known = seen.insert(name.clone(), view.clone());
                        let told = triggered.iter().any(|line| line.starts_with(&format!("{name} ")));
                        prop_assert!(told || known == Some(view), "{} was not told", name);
                    }
                }
                if keeps {
                    let parents = world.state.parents(subscriber_id);
                    seen.retain(|name, _| parents.iter().any(|parent| *parent.name == **name));
                }
            }
        }
    }
}
