//! A state that a test drives as an API server would, and objects for it.

use std::collections::BTreeMap;

use innkeeper_model::{
    Access, ListSelector, ObjectRef, PluginName, ReadFailure, ReadKind, ReadScope, ResourceVersion,
    Selector, parse_selector,
};
use serde_json::{Value, json};

use super::super::{subscribers::FIRST_LISTS_WAIT, *};
use crate::{
    WatchStatus,
    discovery::tests::kinds,
    interest::{ChildInterest, Why},
    machine::Since,
    section::Section,
    store::CacheSize,
    stored::{Shape, keep},
};

pub(super) const CACHE: &str = "cache.example.com/v1 Cache";
pub(super) const SERVICE: &str = "v1 Service";
pub(super) const SECRET: &str = "v1 Secret";
pub(super) const POD: &str = "v1 Pod";
pub(super) const CONFIG: &str = "v1 ConfigMap";
pub(super) const MONITOR: &str = "monitoring.example.com/v1 Monitor";

pub(super) fn gvk(text: &str) -> Gvk {
    let (api_version, kind) = text.split_once(' ').unwrap();
    Gvk::parse(api_version, kind).unwrap()
}

/// A state with a clock and one version counter, as an API server would drive it, and the registration under test.
pub(super) struct Harness {
    pub(super) state: CacheState,
    pub(super) now: Instant,
    pub(super) version: u64,
    pub(super) subscriber: SubscriberId,
    /// The parent `web`'s namespace.
    pub(super) namespace: &'static str,
    /// The API server's objects by kind and name, for live reads.
    pub(super) texts: BTreeMap<(String, String), String>,
    /// The bound for the next registration.
    pub(super) namespace_max: CacheSize,
    /// True if the next registration's plugin may have children of all kinds.
    pub(super) recorded: bool,
}

impl Harness {
    /// Serves every kind but the monitors; no registration yet.
    pub(super) fn new() -> Self {
        let mut harness = Self {
            state: CacheState::default(),
            now: Instant::now(),
            version: 10,
            subscriber: SubscriberId(0),
            namespace: "demo",
            texts: BTreeMap::new(),
            namespace_max: CacheSize::UNBOUNDED,
            recorded: true,
        };
        harness.serve(&[CACHE, SERVICE, SECRET, POD]);
        harness.state.set_hash_key(Some(key()), harness.now);
        harness
    }

    /// The same, with one registration and complete lists: only these caches.
    pub(super) fn with(caches: &[&str]) -> Self {
        Self::reading(caches, vec![pods()])
    }

    pub(super) fn reading(caches: &[&str], reads: Vec<ReadKind>) -> Self {
        let mut harness = Self::new();
        harness.add_reading_subscriber(reads);
        harness.list_all();
        for name in caches {
            harness.put(CACHE, cache(name));
        }
        harness.due();
        harness
    }

    /// Selects the registration under test.
    pub(super) fn select(&mut self, subscriber: SubscriberId) -> &mut Self {
        self.subscriber = subscriber;
        self
    }

    pub(super) fn serve(&mut self, served: &[&str]) {
        let served: Vec<Gvk> = served.iter().map(|kind| gvk(kind)).collect();
        self.state.serve(kinds(&served), self.now);
    }

    /// A plugin with caches as parents, required services and secrets, optional monitors, and reads of pods.
    pub(super) fn add_subscriber(&mut self) -> SubscriberId {
        self.add_reading_subscriber(vec![pods()])
    }

    pub(super) fn add_reading_subscriber(&mut self, reads: Vec<ReadKind>) -> SubscriberId {
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
            all_shards: false,
            namespace_max: self.namespace_max,
        };
        self.subscriber = self
            .state
            .add_subscriber(interest, Arc::new(Notify::new()), self.now);
        self.subscriber
    }

    /// The watch task for a kind.
    pub(super) fn task(&self, kind: &str) -> Option<(SlotId, u64, Shape)> {
        let mut tasks = self
            .state
            .table
            .wanted_tasks()
            .into_iter()
            .filter(|(_, order)| order.target.served.kind == gvk(kind));
        let ((id, generation), order) = tasks.next()?;
        Some((id, generation, order.shape))
    }

    pub(super) fn stored(&mut self, kind: &str, mut object: Value) -> Stored {
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
    pub(super) fn list(&mut self, kind: &str, objects: Vec<Value>) {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = objects
            .into_iter()
            .map(|object| self.stored(kind, object))
            .collect();
        let task = (id, generation);
        let version = ResourceVersion(self.version);
        assert_eq!(
            self.state.table.begin_list(task, Since::Now, version),
            Ok(())
        );
        assert_eq!(self.state.page(task, stored), Ok(()));
        assert_eq!(self.state.end_list(task, version, self.now), Ok(()));
    }

    pub(super) fn list_all(&mut self) {
        // The children come after their parents.
        for kind in [CACHE, SERVICE, SECRET, POD] {
            self.list(kind, Vec::new());
        }
    }

    pub(super) fn put(&mut self, kind: &str, object: Value) -> ResourceVersion {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = self.stored(kind, object);
        let version = stored.version;
        assert_eq!(self.state.put((id, generation), stored, self.now), Ok(()));
        version
    }

    pub(super) fn remove(&mut self, kind: &str, object: Value) {
        let (id, generation, _) = self.task(kind).unwrap();
        let stored = self.stored(kind, object);
        assert_eq!(
            self.state.remove((id, generation), &stored, self.now),
            Ok(())
        );
        self.texts
            .remove(&(kind.to_owned(), stored.name.to_string()));
    }

    /// Takes the queued triggers as `name cause`, after the wait for the first lists.
    pub(super) fn due(&mut self) -> Vec<String> {
        self.due_at(self.now + FIRST_LISTS_WAIT).unwrap()
    }

    /// The same; fails with the end of the wait for the first lists.
    pub(super) fn due_at(&mut self, now: Instant) -> Result<Vec<String>, Instant> {
        let taken = self.state.take_triggers(self.subscriber, usize::MAX, now)?;
        let line =
            |(id, trigger): (ObjectId, Trigger)| format!("{} {}", id.name, word(trigger.cause));
        let mut lines: Vec<String> = taken.into_iter().map(line).collect();
        lines.sort();
        Ok(lines)
    }

    /// Returns the status of the watch for a kind.
    pub(super) fn watch_status(&self, kind: &str) -> WatchStatus {
        let statuses = self.state.table.statuses();
        let status = statuses.into_iter().find(|watch| watch.kind == gvk(kind));
        status.unwrap()
    }

    /// Returns the kinds that block every pass with the reasons, sorted by kind.
    pub(super) fn waiting(&self) -> Vec<(String, Why)> {
        let waiting = self.state.table.waiting(self.subscriber, &Section::Whole);
        let mut kinds: Vec<_> = waiting
            .into_iter()
            .map(|waiting| (waiting.kind.to_string(), waiting.why))
            .collect();
        kinds.sort_by(|one, other| one.0.cmp(&other.0));
        kinds
    }

    /// Adds an expectation for the parent `web`.
    pub(super) fn expect(&mut self, id: &ObjectId, expected: ExpectedState, due: Instant) {
        self.state
            .subscribers
            .expect(&self.reader(), id, expected, due);
    }

    /// Expects an unknown write outcome, to be read live at once.
    pub(super) fn expect_unknown(&mut self, id: &ObjectId) {
        self.expect(id, ExpectedState::Unknown, self.now);
    }

    /// Returns the expectation status of the parent `web`.
    pub(super) fn status(&mut self) -> ExpectationStatus {
        self.state.expectation_status(&self.reader(), self.now)
    }

    /// Reads a written object live, with this result.
    pub(super) fn read_live(
        &mut self,
        id: &ObjectId,
        object: impl FnOnce(&mut Self) -> Option<Stored>,
    ) {
        let web = self.reader();
        let read = self.state.table.live_read(&web, id).unwrap();
        let object = object(self);
        self.state.apply_live_read(&web, id, &read, object);
    }

    pub(super) fn reader(&self) -> Reader {
        Reader {
            subscriber_id: self.subscriber,
            parent: ObjectId::new(gvk(CACHE).group_kind(), Some(self.namespace), "web"),
        }
    }

    /// Commits these reads for the parent `web`.
    pub(super) fn commit(&mut self, record: &ReadRecord) {
        let reader = self.reader();
        self.state.table.commit(&reader, record);
    }

    /// Returns a parent's children, as a pass observes them.
    pub(super) fn children(&mut self, name: &str) -> Vec<String> {
        let subscriber_id = self.subscriber;
        let reader = Reader {
            subscriber_id,
            parent: cache_id(name),
        };
        loop {
            let parent = self
                .state
                .table
                .parent(subscriber_id, &reader.parent)
                .unwrap();
            let missing = match self.state.table.children(subscriber_id, &parent) {
                Ok(children) => {
                    let ids = children.iter().map(|child| child.id().to_string());
                    return ids.collect();
                }
                Err(missing) => missing.unread,
            };
            assert!(!missing.is_empty());
            for id in missing {
                let read = self.state.table.live_read(&reader, &id).unwrap();
                let key = (read.served.kind.to_string(), id.name.to_string());
                let object = self
                    .texts
                    .get(&key)
                    .map(|text| keep(text, &read.shape).unwrap());
                self.state.apply_live_read(&reader, &id, &read, object);
            }
        }
    }

    /// Reads one object for the parent `web`.
    pub(super) fn object(
        &mut self,
        record: &mut ReadRecord,
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
        self.state.table.read_object(&reader, &reference, record)
    }

    /// Returns true if the parent `web` sees a pod in the same namespace.
    pub(super) fn get(&mut self, record: &mut ReadRecord, name: &str) -> Result<bool, ReadFailure> {
        self.object(record, POD, None, name)
            .map(|object| object.is_some())
    }

    /// Lists the pods for the parent `web`.
    pub(super) fn pods(
        &mut self,
        record: &mut ReadRecord,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Value>, ReadFailure> {
        let list = ListSelector {
            kind: gvk(POD),
            namespace: namespace.map(Arc::from),
            label_selector: Some(selector.into()),
        };
        let reader = self.reader();
        let texts = self.state.table.read_list(&reader, &list, record)?;
        Ok(texts
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect())
    }

    pub(super) fn names(&mut self, record: &mut ReadRecord, selector: &str) -> Vec<String> {
        self.pods(record, None, selector)
            .unwrap()
            .iter()
            .map(name_of)
            .collect()
    }
}

pub(super) fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The watch task for a kind that shows a namespace.
pub(super) fn task_in(harness: &Harness, kind: &str, namespace: &str) -> ((SlotId, u64), Shape) {
    let mut tasks = harness
        .state
        .table
        .wanted_tasks()
        .into_iter()
        .filter(|(_, order)| {
            let target = &order.target;
            target.served.kind == gvk(kind) && target.section.covers(namespace)
        });
    let (task, order) = tasks.next().unwrap();
    (task, order.shape)
}

/// Lists the section of a kind that has a namespace.
pub(super) fn list_in(harness: &mut Harness, kind: &str, namespace: &str, objects: Vec<Value>) {
    let (task, _) = task_in(harness, kind, namespace);
    let stored: Vec<Stored> = objects
        .into_iter()
        .map(|object| harness.stored(kind, object))
        .collect();
    let version = ResourceVersion(harness.version);
    let begun = harness.state.table.begin_list(task, Since::Now, version);
    assert_eq!(begun, Ok(()));
    assert_eq!(harness.state.page(task, stored), Ok(()));
    let result = harness.state.end_list(task, version, harness.now);
    assert_eq!(result, Ok(()));
}

pub(super) fn put_in(
    harness: &mut Harness,
    kind: &str,
    namespace: &str,
    mut object: Value,
) -> ResourceVersion {
    object["metadata"]["namespace"] = json!(namespace);
    let (task, _) = task_in(harness, kind, namespace);
    let stored = harness.stored(kind, object);
    let version = stored.version;
    let put = harness.state.put(task, stored, harness.now);
    assert_eq!(put, Ok(()));
    version
}

pub(super) fn list_all_in(harness: &mut Harness, namespace: &str) {
    for kind in [CACHE, SERVICE, SECRET, POD] {
        list_in(harness, kind, namespace, Vec::new());
    }
}

pub(super) fn id_in(namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(gvk(CACHE).group_kind(), Some(namespace), name)
}

pub(super) fn named(namespace: &str, name: &str, uid: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}})
}

/// A kind's cached objects as `namespace/name`.
pub(super) fn kept(harness: &Harness, kind: &str) -> Vec<String> {
    let slot = harness
        .state
        .table
        .slots
        .values()
        .find(|slot| slot.key.kind == gvk(kind))
        .unwrap();
    slot.store
        .all(None)
        .map(|stored| format!("{}/{}", stored.namespace, stored.name))
        .collect()
}

/// Pods in the parent's namespace, as metadata.
pub(super) fn pods() -> ReadKind {
    read(POD, Access::Metadata, ReadScope::ParentNamespace, None)
}

pub(super) fn read(
    kind: &str,
    access: Access,
    scope: ReadScope,
    selector: Option<&str>,
) -> ReadKind {
    ReadKind {
        kind: gvk(kind),
        access,
        scope,
        label_selector: parse_selector(selector.unwrap_or_default()).unwrap(),
    }
}

pub(super) fn cache_id(name: &str) -> ObjectId {
    ObjectId::new(gvk(CACHE).group_kind(), Some("demo"), name)
}

pub(super) fn service_id(name: &str) -> ObjectId {
    ObjectId::new(gvk(SERVICE).group_kind(), Some("demo"), name)
}

pub(super) fn cache(name: &str) -> Value {
    json!({"metadata": {"namespace": "demo", "name": name, "generation": 1}, "spec": {"size": 1}})
}

pub(super) fn owned(name: &str, parent: &str) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "labels": {"innkeeper.dev/plugin": "cache"},
        "ownerReferences": [{"uid": format!("uid-{parent}"), "controller": true}],
    }})
}

pub(super) fn key() -> HashKey {
    HashKey::new([7_u8; 32])
}

/// An object that the host retains for a parent.
pub(super) fn retained(kind: &str, name: &str, identity: &str) -> Value {
    let child = ObjectId::new(gvk(kind).group_kind(), Some("demo"), name);
    let parent = ObjectId::parse_identity(identity).unwrap();
    marked(name, &key().retained_for(&parent, &child))
}

/// A plugin's object without an owner, with this text in the annotation that marks retained objects.
pub(super) fn marked(name: &str, mark: &str) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "labels": {"innkeeper.dev/plugin": "cache"},
        "annotations": {"innkeeper.dev/retained-for": mark},
    }})
}

pub(super) const fn word(cause: Cause) -> &'static str {
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

pub(super) fn pod(name: &str, app: &str) -> Value {
    json!({"metadata": {"namespace": "demo", "name": name, "labels": {"app": app}}})
}
