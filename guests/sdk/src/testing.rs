//! Reconciler tests in plain Rust: a fake host with given objects, and a request builder.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::child::{ApplyPolicy, RemovalPolicy};
use crate::children::{Children, Observed, group_of};
use crate::hash::sha256_hex;
use crate::host::{Denied, Host, ListSelector, LogLevel, ObjectRef};
use crate::json;
use crate::manifest::{Access, Manifest, ReadKind};
use crate::request::{Phase, Request};

mod answers;
mod definitions;
mod golden;
mod predictions;
mod selector;
mod statuses;
mod variants;

pub use answers::answer_problems;
pub use definitions::definition_problems;
pub use golden::assert_golden;
#[cfg(test)]
pub(crate) use predictions::holds;
pub use predictions::{Calls, calls_from_empty, predicted_parts};
pub use variants::{ReverseOrder, reverse_order, with_defaults};

/// A reconciler's read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// One object.
    Get(ObjectRef),
    /// The objects of one kind.
    List(ListSelector),
}

/// A host for tests.
///
/// ```
/// use innkeeper_sdk::host::Host;
/// use innkeeper_sdk::testing::FakeHost;
/// use k8s_openapi::api::core::v1::Pod;
///
/// let fake = FakeHost::new()
///     .object(&serde_json::json!({
///         "apiVersion": "v1", "kind": "Pod",
///         "metadata": {"name": "web-0", "namespace": "demo", "labels": {"app": "web"}},
///     }))
///     .not_granted("v1", "Secret")
///     .now(1_700_000_000_000);
/// let host: &dyn Host = &fake;
/// assert_eq!(host.list::<Pod>("demo", "app=web").unwrap().len(), 1);
/// assert!(host.hashed_secret("demo", "password").is_err());
/// assert_eq!(fake.reads().len(), 2);
/// ```
#[derive(Debug, Default)]
pub struct FakeHost {
    objects: Vec<Value>,
    grants: Option<Vec<ReadKind>>,
    denied: Vec<(String, String, Denied)>,
    now_ms: u64,
    drawn: Cell<u64>,
    asked_now: Cell<bool>,
    /// The offsets of each zone, with the time from which each is in force.
    zones: BTreeMap<String, BTreeMap<u64, i32>>,
    reads: RefCell<Vec<Read>>,
    log: RefCell<Vec<(LogLevel, String)>>,
}

impl FakeHost {
    /// A host without objects that grants all reads in full.
    pub fn new() -> Self {
        Self::default()
    }

    /// A host that grants exactly the manifest's reads, with their access and selectors.
    pub fn granting(manifest: &Manifest) -> Self {
        Self {
            grants: Some(manifest.reads.clone()),
            ..Self::default()
        }
    }

    /// Adds a related object, or replaces the one with the same identity.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON.
    pub fn object(mut self, object: &impl Serialize) -> Self {
        let object = json::to_value(object);
        self.objects
            .retain(|other| identity(other) != identity(&object));
        self.objects.push(object);
        self
    }

    /// Adds related objects.
    ///
    /// # Panics
    ///
    /// Panics as [`object`](Self::object) does.
    pub fn objects<T: Serialize>(self, objects: impl IntoIterator<Item = T>) -> Self {
        objects
            .into_iter()
            .fold(self, |host, object| host.object(&object))
    }

    /// Refuses reads of this kind as not granted.
    pub fn not_granted(self, api_version: &str, kind: &str) -> Self {
        self.deny(api_version, kind, Denied::NotGranted)
    }

    /// Refuses reads of this kind as not served.
    pub fn not_served(self, api_version: &str, kind: &str) -> Self {
        self.deny(api_version, kind, Denied::NotServed)
    }

    /// Sets the pass's time in milliseconds since the Unix epoch; 0 by default.
    pub const fn now(mut self, now_ms: u64) -> Self {
        self.now_ms = now_ms;
        self
    }

    /// Adds a time zone: offsets from UTC in seconds, each valid from a time in milliseconds since the Unix
    /// epoch. Without zones, only `UTC` is known.
    pub fn zone(mut self, name: &str, offsets: impl IntoIterator<Item = (u64, i32)>) -> Self {
        let offsets = offsets.into_iter().collect();
        self.zones.insert(name.to_ascii_lowercase(), offsets);
        self
    }

    /// The reconciler's reads, in order.
    pub fn reads(&self) -> Vec<Read> {
        self.reads.borrow().clone()
    }

    /// The reconciler's log lines, in order.
    pub fn log_lines(&self) -> Vec<(LogLevel, String)> {
        self.log.borrow().clone()
    }

    /// Returns whether the reconciler read the time.
    pub const fn asked_now(&self) -> bool {
        self.asked_now.get()
    }

    fn deny(mut self, api_version: &str, kind: &str, why: Denied) -> Self {
        self.denied
            .push((group_of(api_version).to_owned(), kind.to_owned(), why));
        self
    }

    /// The objects of a kind, reduced to the granted access, sorted by namespace and name.
    fn granted(&self, api_version: &str, kind: &str) -> Result<Vec<Value>, Denied> {
        let group = group_of(api_version);
        let same = |denied: &&(String, String, Denied)| denied.0 == group && denied.1 == kind;
        if let Some((_, _, why)) = self.denied.iter().find(same) {
            return Err(*why);
        }
        let grants: Option<Vec<&ReadKind>> = self.grants.as_ref().map(|grants| {
            grants
                .iter()
                .filter(|read| read.is_of(api_version, kind))
                .collect()
        });
        if grants.as_ref().is_some_and(Vec::is_empty) {
            return Err(Denied::NotDeclared);
        }
        let mut objects: Vec<Value> = self
            .objects
            .iter()
            .filter(|object| {
                let (its_group, its_kind, ..) = identity(object);
                its_group == group && its_kind == kind
            })
            .filter_map(|object| match &grants {
                None => Some(object.clone()),
                Some(grants) => grants
                    .iter()
                    .find(|read| selector::matches(read.label_selector.as_deref(), object))
                    .map(|grant| reduced(object, grant.access)),
            })
            .collect();
        objects.sort_by(|a, b| identity(a).cmp(&identity(b)));
        Ok(objects)
    }
}

impl Host for FakeHost {
    fn log(&self, level: LogLevel, message: &str) {
        self.log.borrow_mut().push((level, message.to_owned()));
    }

    fn now_ms(&self) -> u64 {
        self.asked_now.set(true);
        self.now_ms
    }

    fn zone_offset(&self, zone: &str, unix_ms: u64) -> Option<i32> {
        let name = zone.to_ascii_lowercase();
        if name == "utc" {
            return Some(0);
        }
        self.zones
            .get(&name)?
            .range(..=unix_ms)
            .next_back()
            .map(|(_, offset)| *offset)
    }

    fn random(&self, length: u32) -> Vec<u8> {
        (0..length)
            .map(|_| {
                self.drawn.set(self.drawn.get() + 1);
                let digest = sha256_hex(self.drawn.get().to_le_bytes());
                u8::from_str_radix(&digest[..2], 16).unwrap_or_default()
            })
            .collect()
    }

    fn get_json(&self, object: &ObjectRef) -> Result<Option<String>, Denied> {
        self.reads.borrow_mut().push(Read::Get(object.clone()));
        let namespace = object.namespace.as_deref().unwrap_or_default();
        Ok(self
            .granted(&object.api_version, &object.kind)?
            .iter()
            .find(|candidate| {
                let (_, _, its_namespace, name) = identity(candidate);
                its_namespace == namespace && name == object.name
            })
            .map(Value::to_string))
    }

    fn list_json(&self, selector: &ListSelector) -> Result<Vec<String>, Denied> {
        self.reads.borrow_mut().push(Read::List(selector.clone()));
        Ok(self
            .granted(&selector.api_version, &selector.kind)?
            .iter()
            .filter(|object| {
                selector
                    .namespace
                    .as_deref()
                    .is_none_or(|want| identity(object).2 == want)
            })
            .filter(|object| selector::matches(selector.label_selector.as_deref(), object))
            .map(Value::to_string)
            .collect())
    }
}

/// A request builder with valid defaults.
///
/// ```
/// use innkeeper_sdk::testing::TestRequest;
///
/// let request = TestRequest::new(&serde_json::json!({
///     "apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "a"}, "spec": {},
/// }))
/// .child("water", &serde_json::json!({
///     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
/// }))
/// .build();
/// assert_eq!(request.namespace(), "default");
/// assert!(request.children.by_key("water").is_some());
/// ```
#[derive(Clone, Debug)]
pub struct TestRequest {
    parent: Value,
    children: Vec<(Option<String>, bool, Value)>,
    config: Value,
    phase: Phase,
    namespace_terminating: bool,
}

impl TestRequest {
    /// A parent without children and configuration; a missing namespace, UID and generation get defaults.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON.
    pub fn new(parent: &impl Serialize) -> Self {
        let mut parent = json::to_value(parent);
        if let Some(metadata) = parent.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata
                .entry("namespace")
                .or_insert_with(|| json!("default"));
            metadata
                .entry("uid")
                .or_insert_with(|| json!("00000000-0000-4000-8000-000000000001"));
            metadata.entry("generation").or_insert_with(|| json!(1));
        }
        Self {
            parent,
            children: Vec::new(),
            config: json!({}),
            phase: Phase::Reconcile,
            namespace_terminating: false,
        }
    }

    /// Adds an observed child that was stated under this key.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON.
    pub fn child(self, key: &str, object: &impl Serialize) -> Self {
        self.observed(Some(key), false, object)
    }

    /// Adds an observed child that is kept without an owner.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON.
    pub fn retained(self, key: &str, object: &impl Serialize) -> Self {
        self.observed(Some(key), true, object)
    }

    /// Adds an observed child with a given key and retention.
    ///
    /// Secret values become hashes, as on the host.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON.
    pub fn observed(mut self, key: Option<&str>, retained: bool, object: &impl Serialize) -> Self {
        let mut object = json::to_value(object);
        let namespace = self.parent.pointer("/metadata/namespace").cloned();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata
                .entry("namespace")
                .or_insert_with(|| namespace.unwrap_or_default());
        }
        if object["kind"] == "Secret" {
            object = reduced(&object, Access::Hash);
        }
        self.children
            .push((key.map(ToOwned::to_owned), retained, object));
        self
    }

    /// Adds an answer's children as the cluster would have them after the pass, with generated Secret values.
    /// It replaces observed children, and changes only the retention of held ones.
    pub fn answered(mut self, answer: &Answer) -> Self {
        for child in answer.children() {
            let observed = |entry: &(Option<String>, bool, Value)| {
                let (group, kind, _, name) = identity(&entry.2);
                let (its_group, its_kind, _, its_name) = identity(&child.object);
                (group, kind, name) == (its_group, its_kind, its_name)
            };
            let retained = child.removal == RemovalPolicy::Retain;
            let existing = self.children.iter_mut().find(|entry| observed(entry));
            let is_made = child.apply == ApplyPolicy::Once && existing.is_some();
            if child.apply == ApplyPolicy::Hold || is_made {
                if let Some((_, is_retained, _)) = existing {
                    *is_retained = retained;
                }
                continue;
            }
            self.children.retain(|entry| !observed(entry));
            let mut object = child.object.clone();
            json::remove_nulls(&mut object);
            for generated in &child.generate {
                let token = generated.token.as_deref().unwrap_or_default();
                object["data"][&generated.key] = json!(format!("generated{token}"));
            }
            self = self.observed(Some(&child.key), retained, &object);
        }
        self
    }

    /// Sets the stored status of the parent, `conditions` included.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON.
    pub fn status(mut self, status: &impl Serialize) -> Self {
        self.parent["status"] = json::to_value(status);
        self
    }

    /// Sets the plugin's configuration.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON.
    pub fn config(mut self, config: &impl Serialize) -> Self {
        self.config = json::to_value(config);
        self
    }

    /// Makes the parent wait for the plugin during deletion.
    pub fn finalizing(mut self) -> Self {
        self.parent["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        self.phase = Phase::Finalize;
        self
    }

    /// Deletes the parent with the namespace, where nothing can be created any more.
    pub fn namespace_terminating(mut self) -> Self {
        self.namespace_terminating = true;
        self.finalizing()
    }

    /// Builds the request, with children sorted by kind, namespace and name as on the host.
    pub fn build(mut self) -> Request {
        self.children.sort_by(|a, b| {
            let order = |object: &Value| {
                let (_, kind, namespace, name) = identity(object);
                (kind.to_owned(), namespace.to_owned(), name.to_owned())
            };
            order(&a.2).cmp(&order(&b.2))
        });
        let observe = |(key, retained, object): (Option<String>, bool, Value)| {
            Observed::new(key, retained, object.to_string())
        };
        let children = Children::new(self.children.into_iter().map(observe).collect());
        let parent = self.parent.to_string();
        let config = self.config.to_string();
        let mut request = Request::new(parent, children, config, self.phase);
        request.namespace_terminating = self.namespace_terminating;
        request
    }
}

/// Returns the part of an object that a read with this access shows.
///
/// Hashes look like the host's and depend on namespace, name, UID, key and value, but their values differ from any
/// host's.
pub fn reduced(object: &Value, access: Access) -> Value {
    match access {
        Access::Full => object.clone(),
        Access::Metadata => members(object, &["apiVersion", "kind", "metadata"]),
        Access::Hash => {
            let mut shown = members(
                object,
                &[
                    "apiVersion",
                    "kind",
                    "metadata",
                    "type",
                    "data",
                    "binaryData",
                    "stringData",
                ],
            );
            let (_, _, namespace, name) = identity(object);
            let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
            let place = format!("{namespace}/{name}/{}", uid.unwrap_or_default());
            if let Some(Value::Object(plain)) = shown
                .as_object_mut()
                .and_then(|members| members.remove("stringData"))
            {
                for (key, value) in plain {
                    shown["data"][key] = value;
                }
            }
            for part in ["data", "binaryData"] {
                for (key, value) in shown
                    .get_mut(part)
                    .and_then(Value::as_object_mut)
                    .into_iter()
                    .flatten()
                {
                    let text = value.as_str().unwrap_or_default();
                    if !text.starts_with("hmac-sha256:") {
                        let hash = sha256_hex(format!("{place}/{key}={text}"));
                        *value = json!(format!("hmac-sha256:{hash}"));
                    }
                }
            }
            shown
        }
    }
}

fn members(object: &Value, names: &[&str]) -> Value {
    let chosen = names.iter().filter_map(|name| {
        object
            .get(name)
            .map(|member| ((*name).to_owned(), member.clone()))
    });
    Value::Object(chosen.collect::<Map<_, _>>())
}

fn identity(object: &Value) -> (&str, &str, &str, &str) {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    (
        group_of(text("/apiVersion")),
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    )
}

#[cfg(test)]
mod tests;
