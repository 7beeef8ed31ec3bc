mod extents;
mod limited;
mod reading;

use std::time::Duration;

use innkeeper_model::{
    ListSelector, ObjectRef, PluginName, ReadFailure, ReadScope, ResourceVersion, Uid,
    parse_selector,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{related::Made, waiting::OPTIONAL_KIND_WAIT, *};
use crate::{
    discovery::tests::kinds,
    interest::Why,
    machine::Since,
    state::expectations::ExpectationStatus,
    store::CacheSize,
    stored::{Shape, keep},
    wire::WireFailure,
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

/// A state with a clock and one version counter, as an API server would drive it, and the registration under test.
struct World {
    state: CacheState,
    now: Instant,
    version: u64,
    subscriber: SubscriberId,
    /// The namespace of the parent `web`.
    namespace: &'static str,
    /// The objects of the API server, by kind and name: for live reads.
    texts: BTreeMap<(String, String), String>,
    /// The bound of the next registration.
    namespace_max: CacheSize,
    /// True if the plugin of the next registration may have children of all kinds.
    recorded: bool,
}

impl World {
    /// Serves every kind but the monitors; no registration yet.
    fn new() -> Self {
        let mut world = Self {
            state: CacheState::default(),
            now: Instant::now(),
            version: 10,
            subscriber: SubscriberId(0),
            namespace: "demo",
            texts: BTreeMap::new(),
            namespace_max: CacheSize::UNBOUNDED,
            recorded: true,
        };
        world.serve(&[CACHE, SERVICE, SECRET, POD]);
        world.state.set_hash_key(Some(key()), world.now);
        world
    }

    /// The same, with one registration and its complete lists: these caches, and no other objects.
    fn with(caches: &[&str]) -> Self {
        Self::reading(caches, vec![pods()])
    }

    fn reading(caches: &[&str], reads: Vec<ReadKind>) -> Self {
        let mut world = Self::new();
        world.add_reading_subscriber(reads);
        world.list_all();
        for name in caches {
            world.put(CACHE, cache(name));
        }
        world.due();
        world
    }

    /// Selects the registration under test.
    fn of(&mut self, subscriber: SubscriberId) -> &mut Self {
        self.subscriber = subscriber;
        self
    }

    fn serve(&mut self, served: &[&str]) {
        let served: Vec<Gvk> = served.iter().map(|kind| gvk(kind)).collect();
        self.state.serve(kinds(&served), self.now);
    }

    /// A plugin with caches as parents, required services and secrets, optional monitors, and reads of pods.
    fn add_subscriber(&mut self) -> SubscriberId {
        self.add_reading_subscriber(vec![pods()])
    }

    fn add_reading_subscriber(&mut self, reads: Vec<ReadKind>) -> SubscriberId {
        let child = |kind: &str, required, access| ChildInterest {
            kind: gvk(kind),
            required,
            recorded: self.recorded,
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
            selector: Selector::default(),
            field_managers: BTreeSet::new(),
            namespace_max: self.namespace_max,
        };
        self.subscriber = self
            .state
            .add_subscriber(interest, Arc::new(Notify::new()), self.now);
        self.subscriber
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
        let text = object.to_string();
        let stored = keep(&text, &shape).unwrap();
        let key = (kind.to_owned(), stored.name.to_string());
        self.texts.insert(key, text);
        stored
    }

    /// Lists a kind completely.
    fn list(&mut self, kind: &str, objects: Vec<Value>) {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = objects
            .into_iter()
            .map(|object| self.stored(kind, object))
            .collect();
        let (task, version) = ((id, generation), ResourceVersion(self.version));
        assert_eq!(self.state.begin_list(task, Since::Now, version), Ok(()));
        assert_eq!(self.state.page(task, stored), Ok(()));
        assert_eq!(self.state.end_list(task, version, self.now), Ok(()));
    }

    fn list_all(&mut self) {
        // The children come after their parents.
        for kind in [CACHE, SERVICE, SECRET, POD] {
            self.list(kind, Vec::new());
        }
    }

    fn put(&mut self, kind: &str, object: Value) -> ResourceVersion {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = self.stored(kind, object);
        let version = stored.version;
        assert_eq!(self.state.put((id, generation), stored, self.now), Ok(()));
        version
    }

    fn remove(&mut self, kind: &str, object: Value) {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = self.stored(kind, object);
        assert_eq!(
            self.state.remove((id, generation), &stored, self.now),
            Ok(())
        );
        self.texts
            .remove(&(kind.to_owned(), stored.name.to_string()));
    }

    /// Returns the queued triggers as `name cause`, past the wait for the first lists.
    fn due(&mut self) -> Vec<String> {
        self.due_at(self.now + FIRST_LISTS_WAIT).unwrap()
    }

    /// The same; the end of the wait for the first lists if it has not passed.
    fn due_at(&mut self, now: Instant) -> Result<Vec<String>, Instant> {
        let taken = self.state.take(self.subscriber, usize::MAX, now)?;
        let line =
            |(id, trigger): (ObjectId, Trigger)| format!("{} {}", id.name, word(trigger.cause));
        let mut lines: Vec<String> = taken.into_iter().map(line).collect();
        lines.sort();
        Ok(lines)
    }

    /// Returns the kinds that block every pass with the reason of each, sorted by kind.
    fn waiting(&self) -> Vec<(String, Why)> {
        let waiting = self.state.waiting(self.subscriber, None).into_iter();
        let mut kinds: Vec<_> = waiting
            .map(|waiting| (waiting.kind.to_string(), waiting.why))
            .collect();
        kinds.sort_by(|one, other| one.0.cmp(&other.0));
        kinds
    }

    /// Adds an expectation of the parent `web`.
    fn expect(&mut self, id: &ObjectId, expected: ExpectedState, due: Instant) {
        self.state.expect(&self.reader(), id, expected, due);
    }

    /// A write of an unknown result, to be read live at once.
    fn expect_unknown(&mut self, id: &ObjectId) {
        self.expect(id, ExpectedState::Unknown, self.now);
    }

    /// Returns the state of the expectations of the parent `web`.
    fn status(&mut self) -> ExpectationStatus {
        self.state.expectation_status(&self.reader(), self.now)
    }

    /// Reads a written object live, with this result.
    fn read_live(&mut self, id: &ObjectId, found: impl FnOnce(&mut Self) -> Option<Stored>) {
        let web = self.reader();
        let read = self.state.live_read(&web, id).unwrap();
        let found = found(self);
        self.state.live(&web, id, &read, found);
    }

    fn reader(&self) -> Reader {
        Reader {
            subscriber_id: self.subscriber,
            parent: ObjectId::new(gvk(CACHE).group_kind(), Some(self.namespace), "web"),
        }
    }

    /// Ends a pass of the parent `web` with these reads.
    fn commit(&mut self, made: &Made) {
        let reader = self.reader();
        self.state.commit(&reader, made);
    }

    /// Returns the children of a parent, as its pass observes them.
    fn children(&mut self, name: &str) -> Vec<String> {
        let subscriber_id = self.subscriber;
        let reader = Reader {
            subscriber_id,
            parent: cache_id(name),
        };
        loop {
            let parent = self.state.parent(subscriber_id, &reader.parent).unwrap();
            let missing = match self.state.children(subscriber_id, &parent) {
                Ok(children) => {
                    let ids = children.iter().map(|child| child.id().to_string());
                    return ids.collect();
                }
                Err(missing) => missing.unread,
            };
            assert!(!missing.is_empty());
            for id in missing {
                let read = self.state.live_read(&reader, &id).unwrap();
                let key = (read.served.kind.to_string(), id.name.to_string());
                let text = self.texts.get(&key);
                let found = text.map(|text| keep(text, &read.shape).unwrap());
                self.state.live(&reader, &id, &read, found);
            }
        }
    }

    /// Reads one object for the parent `web`.
    fn object(
        &mut self,
        made: &mut Made,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<str>>, ReadFailure> {
        let reference = ObjectRef {
            kind: gvk(kind),
            namespace: namespace.map(Arc::from),
            name: name.into(),
        };
        let reader = self.reader();
        self.state.read_object(&reader, &reference, made)
    }

    /// Returns true if the parent `web` sees a pod of its namespace.
    fn get(&mut self, made: &mut Made, name: &str) -> Result<bool, ReadFailure> {
        let read = self.object(made, POD, None, name);
        read.map(|object| object.is_some())
    }

    /// Lists the pods for the parent `web`.
    fn pods(
        &mut self,
        made: &mut Made,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Value>, ReadFailure> {
        let list = ListSelector {
            kind: gvk(POD),
            namespace: namespace.map(Arc::from),
            label_selector: Some(selector.into()),
        };
        let reader = self.reader();
        let texts = self.state.read_list(&reader, &list, made)?;
        Ok(texts
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect())
    }

    fn names(&mut self, made: &mut Made, selector: &str) -> Vec<String> {
        let pods = self.pods(made, None, selector).unwrap();
        pods.iter().map(name_of).collect()
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Pods in the parent's namespace, as metadata.
fn pods() -> ReadKind {
    read(POD, Access::Metadata, ReadScope::ParentNamespace, None)
}

fn read(kind: &str, access: Access, scope: ReadScope, selector: Option<&str>) -> ReadKind {
    ReadKind {
        kind: gvk(kind),
        access,
        scope,
        label_selector: parse_selector(selector.unwrap_or_default()).unwrap(),
    }
}

fn cache_id(name: &str) -> ObjectId {
    ObjectId::new(gvk(CACHE).group_kind(), Some("demo"), name)
}

fn service_id(name: &str) -> ObjectId {
    ObjectId::new(gvk(SERVICE).group_kind(), Some("demo"), name)
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

fn key() -> HashKey {
    HashKey::new([7_u8; 32])
}

/// An object that the host retains for a parent.
fn retained(kind: &str, name: &str, identity: &str) -> Value {
    let child = ObjectId::new(gvk(kind).group_kind(), Some("demo"), name);
    let parent = ObjectId::parse_identity(identity).unwrap();
    marked(name, &key().retained_for(&parent, &child))
}

/// An object of the plugin without an owner, with this text in the annotation of retained objects.
fn marked(name: &str, mark: &str) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "labels": {"innkeeper.dev/plugin": "cache"},
        "annotations": {"innkeeper.dev/retained-for": mark},
    }})
}

const fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::ParentChanged => "parent-changed",
        Cause::ParentGone => "parent-gone",
        Cause::ChildChanged => "child-changed",
        Cause::RelatedChanged => "related-changed",
        Cause::KindChanged => "kind-changed",
        Cause::CaughtUp => "caught-up",
        Cause::Swapped => "swapped",
        Cause::ParentStatus => "parent-status",
        Cause::Listed => "listed",
        Cause::Resync => "resync",
    }
}

fn pod(name: &str, app: &str) -> Value {
    json!({"metadata": {"namespace": "demo", "name": name, "labels": {"app": app}}})
}

#[test]
fn passes_wait_for_required_kinds_only() {
    let mut world = World::new();
    world.add_subscriber();
    let kinds = |world: &World| -> Vec<String> {
        let waiting = world.waiting().into_iter();
        waiting.map(|(kind, _)| kind).collect()
    };
    assert_eq!(kinds(&world), [CACHE, SECRET, SERVICE]);
    world.list(CACHE, vec![cache("web")]);
    world.list(SERVICE, Vec::new());
    assert_eq!(kinds(&world), [SECRET]);
    assert_eq!(world.due(), ["web listed"]);
    world.list(SECRET, Vec::new());
    assert_eq!(kinds(&world), [""; 0]);
    assert_eq!(world.due(), ["web kind-changed"]);
    let mut watches = world.state.statuses().into_iter();
    let optional = watches.find(|watch| watch.kind == gvk(MONITOR)).unwrap();
    assert_eq!(optional.why, Some(Why::NotServed));
}

#[test]
fn the_first_passes_wait_for_every_list_that_is_on_its_way() {
    let lines = |lines: &[&str]| -> Result<Vec<String>, Instant> {
        Ok(lines.iter().map(|line| (*line).to_owned()).collect())
    };
    let mut world = World::new();
    world.add_subscriber();
    let begin = world.now;
    let until = begin + FIRST_LISTS_WAIT;
    world.list(CACHE, vec![cache("web")]);
    world.list(SERVICE, vec![owned("s", "web")]);
    world.list(SECRET, Vec::new());
    // Passes could begin, and those that read pods would be parked.
    assert_eq!(world.waiting(), []);
    assert_eq!(world.due_at(begin), Err(until));
    world.list(POD, Vec::new());
    assert_eq!(world.due_at(begin), lines(&["web kind-changed"]));

    // Only the first passes wait: later changes are released at once.
    world.serve(&[CACHE, SERVICE, SECRET, POD, MONITOR]);
    world.put(CACHE, cache("other"));
    let changed = lines(&["other parent-changed", "web kind-changed"]);
    assert_eq!(world.due_at(begin), changed);

    // A list that does not come ends the wait after its limit.
    world.add_subscriber();
    assert_eq!(world.due_at(begin), Err(until));
    assert_eq!(world.due_at(until), lines(&["other listed", "web listed"]));
}

#[test]
fn an_optional_kind_comes_and_goes() {
    let mut world = World::with(&["web"]);
    assert!(world.task(MONITOR).is_none());

    world.serve(&[CACHE, SERVICE, SECRET, POD, MONITOR]);
    assert_eq!(world.waiting()[0].1, Why::Listing);
    world.list(MONITOR, vec![owned("m", "web")]);
    assert_eq!(world.due(), ["web kind-changed"]);
    let monitor = "Monitor.monitoring.example.com demo/m";
    assert_eq!(world.children("web"), [monitor]);

    world.serve(&[CACHE, SERVICE, SECRET, POD]);
    assert_eq!(world.due(), ["web child-changed"]);
    assert_eq!(world.children("web"), [""; 0]);
    assert_eq!(world.waiting(), [], "optional");
    assert!(world.task(MONITOR).is_none());
}

/// Passes go on without an optional kind whose list fails: at once if the plugin has no children of it, otherwise after a
/// while.
#[test]
fn an_optional_kind_that_cannot_be_listed_is_left_out() {
    for (recorded, age, waits) in [
        (false, Duration::ZERO, false),
        (true, Duration::ZERO, true),
        (true, OPTIONAL_KIND_WAIT, false),
    ] {
        let mut world = World::new();
        world.recorded = recorded;
        world.add_subscriber();
        for (kind, objects) in [
            (CACHE, vec![cache("web")]),
            (SERVICE, vec![]),
            (SECRET, vec![]),
        ] {
            world.list(kind, objects);
        }
        world.serve(&[CACHE, SERVICE, SECRET, POD, MONITOR]);
        world.due();
        assert_eq!(world.waiting()[0].1, Why::Listing, "{recorded} {age:?}");
        world.now -= age;
        let (slot, generation, _) = world.task(MONITOR).unwrap();
        let failure = WireFailure::Status {
            code: 429,
            message: "initializing".to_owned(),
            retry_after: None,
        };
        world
            .state
            .failed((slot, generation), &failure, world.now)
            .unwrap();
        let left_out = world.state.unreadable(world.subscriber, Some("demo"));
        assert_eq!(world.waiting().is_empty(), !waits, "{recorded} {age:?}");
        assert_eq!(left_out.is_empty(), waits, "{recorded} {age:?}");
        let triggered: &[&str] = if waits { &[] } else { &["web kind-changed"] };
        assert_eq!(world.due(), triggered, "{recorded} {age:?}");
        let mut statuses = world.state.statuses().into_iter();
        let monitors = statuses.find(|status| status.kind == gvk(MONITOR)).unwrap();
        assert_eq!(monitors.is_awaited, waits, "{recorded} {age:?}");
        world.list(MONITOR, vec![]);
        assert_eq!(world.due(), ["web kind-changed"], "{recorded} {age:?}");
    }
}

#[test]
fn a_required_kind_that_goes_stops_the_passes() {
    let mut world = World::with(&["web"]);
    world.put(SERVICE, owned("s", "web"));
    world.due();
    world.serve(&[CACHE, SECRET, POD]);
    assert_eq!(world.due(), ["web child-changed"]);
    assert_eq!(world.waiting()[0].1, Why::NotServed);
}

#[test]
fn children_are_found_by_uid_and_by_identity() {
    let web = "cache.example.com/Cache/demo/web";
    let mut world = World::with(&["web", "db"]);
    for (kind, object, due) in [
        (SERVICE, owned("s", "web"), vec!["web child-changed"]),
        (
            SECRET,
            retained(SECRET, "kept", web),
            vec!["web child-changed"],
        ),
        (
            SERVICE,
            retained(SERVICE, "elsewhere", "other.example.com/Cache/demo/web"),
            vec![],
        ),
        (SERVICE, owned("stranger", "unknown"), vec![]),
    ] {
        world.put(kind, object);
        assert_eq!(world.due(), due);
    }
    let children = ["Secret demo/kept", "Service demo/s"];
    assert_eq!(world.children("web"), children);
    assert_eq!(world.children("db"), [""; 0]);

    // A StatefulSet takes its claims over: they stay visible, and their changes are triggers.
    let mut taken = retained(SECRET, "kept", web);
    taken["metadata"]["ownerReferences"] = json!([{"uid": "uid-set", "controller": true}]);
    world.put(SECRET, taken);
    assert_eq!(world.due(), ["web child-changed"]);
    assert_eq!(world.children("web"), children);

    // An object of another parent is not ours, whatever its annotation.
    let mut stolen = retained(SECRET, "kept", web);
    stolen["metadata"]["ownerReferences"] = json!([{"uid": "uid-db", "controller": true}]);
    world.put(SECRET, stolen);
    assert_eq!(world.due(), ["db child-changed", "web child-changed"]);
    assert_eq!(world.children("web"), ["Service demo/s"]);

    world.remove(SERVICE, owned("s", "web"));
    assert_eq!(world.due(), ["web child-changed"]);
}

/// The bound of retained children is for each parent, so its share is that of the parent with the most.
#[test]
fn the_parent_that_retains_most_is_found_among_those_that_are_there() {
    let identity = |name: &str| format!("cache.example.com/Cache/demo/{name}");
    let mut world = World::with(&["web", "db"]);
    let most = |world: &World| {
        let most = world.state.retained_most(world.subscriber);
        most.map(|(namespace, count)| (namespace.to_string(), count))
    };
    assert_eq!(most(&world), None);
    world.put(SERVICE, owned("s", "web"));
    for (kind, name, parent) in [
        (SECRET, "a", "web"),
        (SECRET, "b", "db"),
        (SERVICE, "c", "db"),
        (SECRET, "d", "gone"),
        (SECRET, "e", "gone"),
        (SECRET, "f", "gone"),
    ] {
        world.put(kind, retained(kind, name, &identity(parent)));
    }
    assert_eq!(most(&world), Some(("demo".to_owned(), 2)));
    world.remove(CACHE, cache("db"));
    assert_eq!(most(&world), Some(("demo".to_owned(), 1)));
}

#[test]
fn a_kind_of_parents_is_known_while_its_plugin_is_served() {
    let mut world = World::with(&[]);
    let is_parent = |world: &World, kind: &str| world.state.has_parents(&gvk(kind).group_kind());
    assert!(is_parent(&world, CACHE));
    assert!(!is_parent(&world, SERVICE));
    world.state.remove_subscriber(world.subscriber, world.now);
    assert!(!is_parent(&world, CACHE));
}

/// A claim template can give every object of a namespace any label and annotation.
#[test]
fn objects_without_the_proof_of_the_host_are_not_retained() {
    let web = "cache.example.com/Cache/demo/web";
    let mut world = World::with(&["web"]);
    let copied = retained(SECRET, "kept", web)["metadata"]["annotations"].clone();
    let mut copy = marked("copy", web);
    copy["metadata"]["annotations"] = copied;
    for forged in [marked("kept", web), marked("empty", ""), copy] {
        world.put(SECRET, forged);
        assert_eq!(world.due(), [""; 0]);
    }
    assert_eq!(world.children("web"), [""; 0]);
    world.put(SECRET, retained(SECRET, "kept", web));
    assert_eq!(world.due(), ["web child-changed"]);
    assert_eq!(world.children("web"), ["Secret demo/kept"]);
}

/// A cache that began without the key has verified nothing.
#[test]
fn retained_children_are_found_again_with_the_key() {
    let web = "cache.example.com/Cache/demo/web";
    let mut world = World::new();
    world.state.set_hash_key(None, world.now);
    world.add_subscriber();
    let secrets = vec![retained(SECRET, "kept", web)];
    let services = vec![retained(SERVICE, "kept", web)];
    world.list(CACHE, vec![cache("web")]);
    world.list(SERVICE, services.clone());
    world.list(POD, Vec::new());
    let before = world.task(POD);
    assert_eq!(world.children("web"), [""; 0]);
    world.state.set_hash_key(Some(key()), world.now);
    assert_eq!(world.waiting()[0].1, Why::Listing);
    // Only read so far, but another plugin may share the watch for its children.
    assert_ne!(
        world.task(POD).map(|task| task.1),
        before.map(|task| task.1)
    );
    world.list(CACHE, vec![cache("web")]);
    world.list(SERVICE, services);
    world.list(SECRET, secrets);
    assert_eq!(
        world.children("web"),
        ["Secret demo/kept", "Service demo/kept"]
    );
}

#[test]
fn a_secret_child_shows_hashes_only() {
    let mut world = World::with(&["web"]);
    let mut secret = owned("s", "web");
    secret["data"] = json!({"password": "c2VjcmV0"});
    world.put(SECRET, secret);
    let parent = world.state.parent(world.subscriber, &cache_id("web"));
    let children = world
        .state
        .children(world.subscriber, &parent.unwrap())
        .unwrap();
    assert_eq!(children[0].form, Access::Hash);
    let json = &children[0].json;
    assert!(json.contains("\"password\":\"hmac-sha256:"), "{json}");

    world.due();
    world.state.set_hash_key(None, world.now);
    assert_eq!(world.due(), ["web kind-changed"]);
    let secrets = (SECRET.to_owned(), Why::HashKeyMissing);
    assert!(world.waiting().contains(&secrets));
}

#[test]
fn the_trigger_of_a_parent_names_its_change() {
    let mut world = World::with(&[]);
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
        world.put(CACHE, object);
        assert_eq!(world.due(), due);
    }
    world.remove(CACHE, annotated);
    assert_eq!(world.due(), ["web parent-gone"]);
}

#[test]
fn a_late_registration_sees_present_and_later_objects() {
    let mut world = World::with(&["web"]);
    let early = world.subscriber;
    world.put(SERVICE, owned("s", "web"));
    let late = world.add_subscriber();
    let watches = world.state.orders().len();
    assert_eq!(watches, 4, "one for each kind, however many plugins");
    assert_eq!(world.due(), ["web listed"]);
    assert_eq!(world.waiting(), []);
    assert_eq!(world.children("web"), ["Service demo/s"]);
    world.of(early).due();
    world.put(SERVICE, owned("t", "web"));
    for subscriber in [late, early] {
        assert_eq!(world.of(subscriber).due(), ["web child-changed"]);
    }
    // The last one ends the watches.
    for (subscriber, watches) in [(early, 4), (late, 0)] {
        world.state.remove_subscriber(subscriber, world.now);
        assert_eq!(world.state.orders().len(), watches);
    }
}

#[test]
fn an_update_continues_the_watches_that_stay_wanted() {
    let tasks = |world: &World| world.state.orders().into_keys().collect::<Vec<_>>();
    let mut world = World::with(&["web"]);
    let mut made = Made::default();
    assert_eq!(world.get(&mut made, "p"), Ok(false));
    world.commit(&made);
    let before = tasks(&world);
    let (subscriber, now) = (world.subscriber, world.now);
    let mut interest = world.state.subscribers[&subscriber].interest.clone();
    world.state.change(subscriber, interest.clone(), now);
    assert_eq!(tasks(&world), before);
    world.due();
    world.put(POD, pod("p", "web"));
    assert_eq!(world.due(), ["web related-changed"]);

    interest.reads.clear();
    interest.children.retain(|child| child.kind != gvk(SECRET));
    world.state.change(subscriber, interest, now);
    assert!(world.task(POD).is_none() && world.task(SECRET).is_none());
    assert!(tasks(&world).iter().all(|task| before.contains(task)));
}

#[test]
fn own_writes_are_waited_for() {
    let mut world = World::with(&[]);
    let seen = world.put(CACHE, cache("web"));
    world.due();
    let service = service_id("s");
    let due = world.now + Duration::from_secs(5);
    // Expects a write of the service in the next version.
    let expect_next = |world: &mut World| {
        let next = ResourceVersion(world.version + 1);
        world.expect(&service, ExpectedState::Version(next), due);
        assert_eq!(world.status(), ExpectationStatus::Until(due));
        next
    };

    world.expect(&cache_id("web"), ExpectedState::Version(seen), due);
    assert_eq!(world.status(), ExpectationStatus::None, "seen already");

    expect_next(&mut world);
    world.put(SERVICE, owned("s", "web"));
    assert_eq!(world.due(), ["web child-changed"]);
    assert_eq!(world.status(), ExpectationStatus::None);

    // A write that changes nothing that a pass sees still meets the expectation.
    expect_next(&mut world);
    world.put(SERVICE, owned("s", "web"));
    assert_eq!(world.due(), ["web caught-up"]);

    // And a bookmark does, too: the object may be gone again.
    let next = expect_next(&mut world);
    let (id, generation, _) = world.task(SERVICE).unwrap();
    world
        .state
        .bookmark((id, generation), next, world.now)
        .unwrap();
    assert_eq!(world.due(), ["web caught-up"]);

    let deleted = ExpectedState::Deleted(Uid("uid-s".into()));
    world.expect(&service, deleted, due);
    assert_eq!(world.status(), ExpectationStatus::Until(due));
    world.version += 1;
    world.remove(SERVICE, owned("s", "web"));
    assert_eq!(world.due(), ["web child-changed"]);
    assert_eq!(world.status(), ExpectationStatus::None);
}

#[test]
fn the_newer_object_that_refused_a_write_is_waited_for() {
    let mut world = World::with(&[]);
    let known = world.put(CACHE, cache("web"));
    world.put(SERVICE, owned("s", "web"));
    world.due();
    let due = world.now + Duration::from_secs(5);
    world.expect(&cache_id("web"), ExpectedState::After(known), due);

    // A newer version of the whole watch says nothing about the object.
    world.put(CACHE, cache("other"));
    assert_eq!(world.status(), ExpectationStatus::Until(due));
    world.put(CACHE, cache("web"));
    assert_eq!(world.status(), ExpectationStatus::None);

    let stale = ExpectedState::After(ResourceVersion(world.version));
    world.expect(&service_id("s"), stale, due);
    assert_eq!(world.status(), ExpectationStatus::Until(due));
    world.version += 1;
    world.remove(SERVICE, owned("s", "web"));
    assert_eq!(world.status(), ExpectationStatus::None);
}

#[test]
fn writes_that_stay_unseen_are_read_live() {
    let mut world = World::with(&["web"]);
    world.put(SERVICE, owned("gone", "web"));
    world.due();
    let (gone, new) = (service_id("gone"), service_id("new"));
    let far = ResourceVersion(world.version + 100);
    let due = world.now + Duration::from_secs(5);
    world.expect(&new, ExpectedState::Version(far), due);
    world.expect_unknown(&gone);
    let unseen = ExpectationStatus::Read(vec![gone.clone()]);
    assert_eq!(world.status(), unseen);
    world.now = due;
    let unseen = ExpectationStatus::Read(vec![gone.clone(), new.clone()]);
    assert_eq!(world.status(), unseen);

    world.read_live(&gone, |_| None);
    world.read_live(&new, |world| {
        world.version += 99;
        Some(world.stored(SERVICE, owned("new", "web")))
    });
    assert_eq!(world.status(), ExpectationStatus::None);
    assert_eq!(world.children("web"), ["Service demo/new"]);
    assert_eq!(world.due(), ["web child-changed"]);

    // A child that lost our label is outside of the watch, which would never show its end.
    world.expect_unknown(&new);
    world.read_live(&new, |world| {
        let mut unlabelled = owned("new", "web");
        unlabelled["metadata"]["labels"] = json!({});
        Some(world.stored(SERVICE, unlabelled))
    });
    assert_eq!(world.children("web"), [""; 0]);

    // The next attempt of a failed read has to wait.
    world.expect_unknown(&new);
    let web = world.reader();
    world.state.live_failed(&web, &new, world.now);
    let later = world.now + Duration::from_secs(1);
    assert_eq!(world.status(), ExpectationStatus::Until(later));
}

#[test]
fn an_older_state_is_refused_unless_it_is_the_truth() {
    let mut world = World::with(&["web"]);
    world.put(SERVICE, owned("s", "web"));
    world.due();
    let (id, generation, _) = world.task(SERVICE).unwrap();
    let task = (id, generation);
    let old = ResourceVersion(5);
    let bookmark = world.state.bookmark(task, old, world.now);
    assert_eq!(bookmark, Err(Stale::WentBack));
    let since = Since::NotOlderThan(ResourceVersion(world.version));
    assert_eq!(
        world.state.begin_list(task, since, old),
        Err(Stale::WentBack)
    );
    assert_eq!(world.children("web"), ["Service demo/s"]);
    let begun = world.state.begin_list(task, Since::Now, old);
    assert_eq!(begun, Ok(()));
    assert_eq!(world.state.end_list(task, old, world.now), Ok(()));
    assert_eq!(world.state.version(task), old);
    assert_eq!(world.due(), ["web child-changed"]);
    assert_eq!(world.children("web"), [""; 0]);
}

#[test]
fn a_task_that_was_replaced_changes_nothing() {
    let mut world = World::with(&[]);
    let (id, generation, _) = world.task(POD).unwrap();
    let stored = world.stored(POD, pod("p", "web"));
    let (subscriber, now) = (world.subscriber, world.now);
    world.state.remove_subscriber(subscriber, now);
    let put = world.state.put((id, generation), stored, now);
    assert_eq!(put, Err(Stale::Superseded));
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

/// Takes a step, with the owner of each child.
fn take_step(world: &mut World, children: &mut BTreeMap<u8, u8>, step: &Step) {
    let service = |name: u8, owner: u8| owned(&name.to_string(), &owner.to_string());
    match *step {
        Step::Parent(name, true) => {
            world.put(CACHE, cache(&name.to_string()));
        }
        Step::Parent(name, false) => world.remove(CACHE, cache(&name.to_string())),
        Step::Child {
            name,
            owner,
            exists,
        } => {
            if exists {
                children.insert(name, owner);
                world.put(SERVICE, service(name, owner));
            } else {
                children.remove(&name);
                world.remove(SERVICE, service(name, owner));
            }
        }
        Step::Relist => {
            // Every second child vanished unseen.
            children.retain(|name, _| name % 2 == 0);
            let objects = children.iter().map(|(name, owner)| service(*name, *owner));
            world.list(SERVICE, objects.collect());
        }
    }
}

proptest! {
    /// A registration that joins at any time ends with the same view as one that was there from the start, and is
    /// triggered for every parent for which its view is outdated.
    #[test]
    fn joining_late_equals_a_full_replay(steps in steps(), join in 0_usize..40) {
        let mut world = World::with(&[]);
        let early = world.subscriber;
        let mut late = None;
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut children: BTreeMap<u8, u8> = BTreeMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            if at == join {
                late = Some(world.add_subscriber());
            }
            take_step(&mut world, &mut children, &step);
            for (subscriber, keeps) in [(Some(early), false), (late, true)] {
                let Some(subscriber) = subscriber else { continue };
                let triggered = world.of(subscriber).due();
                let parents = world.state.parents(subscriber);
                for parent in &parents {
                    let name = parent.name.to_string();
                    let expected: Vec<String> = children
                        .iter()
                        .filter(|(_, owner)| owner.to_string() == name)
                        .map(|(child, _)| format!("Service demo/{child}"))
                        .collect();
                    let view = world.children(&name);
                    prop_assert_eq!(&view, &expected);
                    if keeps {
                        let known = seen.insert(name.clone(), view.clone());
                        let told = triggered.iter().any(|line| line.starts_with(&format!("{name} ")));
                        prop_assert!(told || known == Some(view), "{} was not told", name);
                    }
                }
                if keeps {
                    seen.retain(|name, _| parents.iter().any(|parent| *parent.name == **name));
                }
            }
        }
    }
}
