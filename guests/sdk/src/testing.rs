//! Tests of a reconciler as plain Rust: a host that answers from given objects, and a builder of
//! requests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::child::{ApplyPolicy, RemovalPolicy};
use crate::children::{Children, Observed, group_of};
use crate::hash::sha256_hex;
use crate::host::{Denied, Host, ListSelector, LogLevel, ObjectRef};
use crate::json;
use crate::manifest::{Access, Manifest, ReadKind};
use crate::outcome::Outcome;
use crate::request::{Phase, Request};

mod definitions;
mod outcomes;
mod selector;
mod statuses;
mod variants;

pub use definitions::definition_problems;
pub use outcomes::outcome_problems;
pub use variants::{ReverseOrder, reverse_order, with_defaults};

/// One read that a reconciler made.
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
    /// A host without objects that grants each read in full.
    pub fn new() -> Self {
        Self::default()
    }

    /// A host that grants exactly the reads of the manifest, with their access and selectors.
    pub fn granting(manifest: &Manifest) -> Self {
        Self {
            grants: Some(manifest.reads.clone()),
            ..Self::default()
        }
    }

    /// Adds a related object; one of the same identity is replaced.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON.
    pub fn object(mut self, object: &impl Serialize) -> Self {
        let object = json::to_value(object);
        self.objects.retain(|it| identity(it) != identity(&object));
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

    /// Sets the time of the pass in milliseconds since the Unix epoch; 0 by default.
    pub const fn now(mut self, now_ms: u64) -> Self {
        self.now_ms = now_ms;
        self
    }

    /// Adds a time zone: its offsets from UTC in seconds, each with the time in milliseconds since the
    /// Unix epoch from which it is in force. Without zones, only `UTC` is known.
    pub fn zone(mut self, name: &str, offsets: impl IntoIterator<Item = (u64, i32)>) -> Self {
        let offsets = offsets.into_iter().collect();
        self.zones.insert(name.to_ascii_lowercase(), offsets);
        self
    }

    /// The reads of the reconciler, in their order.
    pub fn reads(&self) -> Vec<Read> {
        self.reads.borrow().clone()
    }

    /// The log lines of the reconciler, in their order.
    pub fn log_lines(&self) -> Vec<(LogLevel, String)> {
        self.log.borrow().clone()
    }

    /// True if the reconciler asked for the time.
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
        let same = |it: &&(String, String, Denied)| it.0 == group && it.1 == kind;
        if let Some((_, _, why)) = self.denied.iter().find(same) {
            return Err(*why);
        }
        let grants: Option<Vec<&ReadKind>> = self.grants.as_ref().map(|grants| {
            grants
                .iter()
                .filter(|it| it.is_of(api_version, kind))
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
                    .find(|it| selector::matches(it.label_selector.as_deref(), object))
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
        let mut until = self.zones.get(&name)?.range(..=unix_ms);
        until.next_back().map(|(_, offset)| *offset)
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
            .find(|it| {
                let (_, _, its_namespace, name) = identity(it);
                its_namespace == namespace && name == object.name
            })
            .map(Value::to_string))
    }

    fn list_json(&self, selector: &ListSelector) -> Result<Vec<String>, Denied> {
        self.reads.borrow_mut().push(Read::List(selector.clone()));
        Ok(self
            .granted(&selector.api_version, &selector.kind)?
            .iter()
            .filter(|it| {
                selector
                    .namespace
                    .as_deref()
                    .is_none_or(|want| identity(it).2 == want)
            })
            .filter(|it| selector::matches(selector.label_selector.as_deref(), it))
            .map(Value::to_string)
            .collect())
    }
}

/// A builder of requests for tests, with valid defaults.
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
    /// A parent without children and configuration; missing namespace, UID and generation are filled
    /// in.
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
    /// The values of a Secret become hashes, as the host does it.
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

    /// Adds each child of an answer as the cluster would hold it next, with generated values of
    /// Secrets. It replaces children that are observed already, and changes only the retention of held
    /// ones.
    pub fn answered(mut self, outcome: &Outcome) -> Self {
        for child in outcome.children() {
            let observed = |it: &(Option<String>, bool, Value)| {
                let (group, kind, _, name) = identity(&it.2);
                let (its_group, its_kind, _, its_name) = identity(&child.object);
                (group, kind, name) == (its_group, its_kind, its_name)
            };
            let retained = child.removal == RemovalPolicy::Retain;
            let found = self.children.iter_mut().find(|it| observed(it));
            let is_made = child.apply == ApplyPolicy::Once && found.is_some();
            if child.apply == ApplyPolicy::Hold || is_made {
                if let Some((_, is_retained, _)) = found {
                    *is_retained = retained;
                }
                continue;
            }
            self.children.retain(|it| !observed(it));
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

    /// Makes the parent one that is being deleted and waits for the plugin.
    pub fn finalizing(mut self) -> Self {
        self.parent["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        self.phase = Phase::Finalize;
        self
    }

    /// Makes the parent one that is being deleted with its namespace, where nothing can be created any more.
    pub fn namespace_terminating(mut self) -> Self {
        self.namespace_terminating = true;
        self.finalizing()
    }

    /// The request, with its children in the order of the host: by kind, namespace and name.
    pub fn build(mut self) -> Request {
        self.children.sort_by(|a, b| {
            let order = |it: &Value| {
                let (_, kind, namespace, name) = identity(it);
                (kind.to_owned(), namespace.to_owned(), name.to_owned())
            };
            order(&a.2).cmp(&order(&b.2))
        });
        let observe = |(key, retained, object): (Option<String>, bool, Value)| {
            Observed::new(key, retained, object.to_string())
        };
        let children = Children::new(self.children.into_iter().map(observe).collect());
        let (parent, config) = (self.parent.to_string(), self.config.to_string());
        let mut request = Request::new(parent, children, config, self.phase);
        request.namespace_terminating = self.namespace_terminating;
        request
    }
}

/// The part of an object that a read with this access shows.
///
/// Hashes have the form of the host's and depend on namespace, name, UID, key and value, but no host
/// makes the same ones.
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
            if let Some(Value::Object(plain)) =
                shown.as_object_mut().and_then(|it| it.remove("stringData"))
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
