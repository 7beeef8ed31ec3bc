//! Predicts the next report: runs the reconciler once more, with the children as the answer states them.
//!
//! The host takes the report only if the API server agrees in all parts that the second run has read, so a wrong guess
//! here costs a call and nothing else.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Answer, Desired, Report};
use crate::child::{ApplyPolicy, Child, Readiness, RemovalPolicy};
use crate::children::{Children, Head, HeadMetadata, Observed, group_of};
use crate::fault::Fault;
use crate::host::{Denied, Host, ListSelector, LogLevel, ObjectRef};
use crate::json;
use crate::request::Request;

/// The next report, and the assumptions behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    pub(crate) report: Report,
    pub(crate) children: Vec<PredictedChild>,
}

/// A child that the answer creates or changes, with the values that the report depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PredictedChild {
    pub(crate) key: String,
    /// JSON pointers with the values there; none: as the answer states it, or absent.
    pub(crate) parts: Vec<(String, Option<Value>)>,
}

/// Returns the report that the next call would give; none if nobody can know it.
pub(crate) fn predict(
    request: &Request,
    host: &dyn Host,
    desired: &Desired,
    reconcile: impl FnOnce(&Request, &dyn Host) -> Result<Answer, Fault>,
) -> Option<Prediction> {
    let (children, values) = expected_children(request, &desired.children)?;
    let next = request.with_children(children);
    let host = WatchedHost::silent(host);
    let Ok(Answer::Desired(second)) = reconcile(&next, &host) else {
        return None;
    };
    // With other children, the next call is followed by yet another one.
    if host.is_unique() || second.children != desired.children {
        return None;
    }
    let predicted = |child: &Observed| predicted_child(child, values.get(child.key.as_ref()?)?);
    Some(Prediction {
        children: next
            .children
            .iter()
            .filter(|child| child.reads().is_recorded())
            .map(predicted)
            .collect::<Option<_>>()?,
        report: second.report,
    })
}

/// Returns the parts that were read, with their values; none if the whole object was read.
fn predicted_child(child: &Observed, values: &Value) -> Option<PredictedChild> {
    let part = |pointer: String| {
        let value = values.pointer(&pointer).cloned();
        (pointer, value)
    };
    Some(PredictedChild {
        key: child.key.clone()?,
        parts: child.reads().parts()?.into_iter().map(part).collect(),
    })
}

/// The values of changed children that the answer does not state, by key.
type Values = BTreeMap<String, Value>;

/// Returns the children as the next call observes them; none if that is unknown, or if they stay as they are.
fn expected_children(request: &Request, stated: &[Child]) -> Option<(Children, Values)> {
    let mut children = Vec::with_capacity(stated.len());
    let mut values = Values::new();
    let mut rest: Vec<&Observed> = request.children.iter().collect();
    for child in stated {
        let index = rest
            .iter()
            .position(|observed| is_same(observed, child, request.namespace()));
        let observed = index.map(|index| rest.swap_remove(index));
        let expected = match observed {
            Some(observed) => after_apply(observed, child),
            // The host waits for other children, or never creates it.
            None if child.apply == ApplyPolicy::Hold || waits(request, stated, child) => continue,
            None => Some(after_create(child, request.namespace())?),
        };
        let child = match expected {
            Some((expected, unstated)) => {
                values.insert(child.key.clone(), unstated);
                Some(expected)
            }
            None => observed.cloned(),
        };
        children.extend(child);
    }
    // The host deletes such a child, and nobody knows how long that takes.
    if !rest.iter().all(|observed| observed.retained) {
        return None;
    }
    children.extend(rest.into_iter().cloned());
    children.sort_by(|left, right| order(left).cmp(&order(right)));
    (!values.is_empty()).then(|| (Children::new(children), values))
}

/// Returns whether the host waits for other children before it creates this one. Their status is not read: a Pod or a
/// workload is not ready while the parent is new.
pub(crate) fn waits(request: &Request, stated: &[Child], child: &Child) -> bool {
    let is_ready = |other: &Child| {
        request.children.has(other)
            && match other.readiness {
                Readiness::Ready => true,
                Readiness::NotReady => false,
                Readiness::Derive => !matches!(
                    other.kind(),
                    "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "Pod"
                ),
            }
    };
    let is_ready_key = |key: &String| {
        stated
            .iter()
            .any(|other| other.key == *key && is_ready(other))
    };
    !child.after.iter().all(is_ready_key)
}

/// The order in which the host lists children.
fn order(child: &Observed) -> (&str, &str, &str, &str) {
    let group = group_of(child.api_version());
    (child.kind(), group, child.namespace(), child.name())
}

fn is_same(observed: &Observed, child: &Child, parent_namespace: &str) -> bool {
    let text = |pointer| child.object.pointer(pointer).and_then(Value::as_str);
    let namespace = text("/metadata/namespace").unwrap_or(parent_namespace);
    observed.name() == child.name()
        && observed.kind() == child.kind()
        && observed.namespace() == namespace
        && group_of(observed.api_version()) == group_of(text("/apiVersion").unwrap_or_default())
}

/// Returns a child as the API server shows it after its creation, without what the server and the host add, and the
/// values that the child does not state; none if it states a status, because only the kind's definition tells whether
/// that is stored.
fn after_create(child: &Child, parent_namespace: &str) -> Option<(Observed, Value)> {
    let text = child.object.text();
    let outline: Outline<'_> = serde_json::from_str(&text).ok()?;
    if outline.status.is_some() {
        return None;
    }
    let mut values =
        json!({"metadata": {"generation": 1}, "status": initial_status(&outline.kind)});
    let mut metadata: HeadMetadata = serde_json::from_str(outline.metadata.get()).ok()?;
    metadata.generation = 1;
    if metadata.namespace.is_empty() && !parent_namespace.is_empty() {
        parent_namespace.clone_into(&mut metadata.namespace);
        values["metadata"]["namespace"] = parent_namespace.into();
    }
    let expected = with_values(&text, outline.metadata, &values)?;
    let head = Head {
        api_version: outline.api_version,
        kind: outline.kind,
        metadata,
    };
    Some((expected_child(child, expected).with_head(head), values))
}

/// A stated object, read once: of the SDK's work for a prediction, most is reading texts.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    metadata: &'a RawValue,
    status: Option<IgnoredAny>,
}

/// Writes values into the text of an object that does not have them: a tree of the object would cost several times the
/// copy.
fn with_values(text: &str, metadata: &RawValue, values: &Value) -> Option<String> {
    let start = metadata.get().as_ptr().addr() - text.as_ptr().addr();
    let (head, tail) = text.split_at_checked(start + 1)?;
    let added = json::text(&values["metadata"]);
    let added = added.strip_prefix('{')?.strip_suffix('}')?;
    let status = json::text(&values["status"]);
    let tail = tail.strip_suffix('}')?;
    Some(format!("{head}{added},{tail},\"status\":{status}}}"))
}

/// Returns an existing child as it is after the write of the stated fields, and its values; none if nothing has to be
/// written.
fn after_apply(observed: &Observed, child: &Child) -> Option<(Observed, Value)> {
    if child.apply != ApplyPolicy::Always
        || observed.is_deleting()
        || covers(observed.tree(), &child.object)
    {
        return None;
    }
    let before = observed.tree();
    let mut object = before.clone();
    overlay(&mut object, &child.object);
    // The generation counts changes of the spec only; Services, claims and others have none.
    if object.get("spec") != before.get("spec")
        && let Some(generation) = before["metadata"]["generation"].as_i64()
    {
        object["metadata"]["generation"] = json!(generation + 1);
    }
    Some((expected_child(child, json::text(&object)), object))
}

fn expected_child(child: &Child, text: String) -> Observed {
    let retained = child.removal == RemovalPolicy::Retain;
    Observed::new(Some(child.key.clone()), retained, text).recorded()
}

/// Returns the status with which the API server answers a create, for the kinds whose status reports are about.
pub(crate) fn initial_status(kind: &str) -> Value {
    match kind {
        // These counts are required fields, the others are left out while they are 0.
        "StatefulSet" => json!({"availableReplicas": 0, "replicas": 0}),
        "PersistentVolumeClaim" => json!({"phase": "Pending"}),
        "Service" | "Ingress" => json!({"loadBalancer": {}}),
        _ => json!({}),
    }
}

/// Returns whether the stated fields have these values already; the API server may have added others.
fn covers(value: &Value, stated: &Value) -> bool {
    match (value, stated) {
        (Value::Object(members), Value::Object(stated)) => {
            stated.iter().all(|(name, stated)| match members.get(name) {
                Some(member) => covers(member, stated),
                None => stated.is_null(),
            })
        }
        (Value::Array(items), Value::Array(stated)) => {
            items.len() == stated.len()
                && items
                    .iter()
                    .zip(stated)
                    .all(|(item, stated)| covers(item, stated))
        }
        _ => value == stated,
    }
}

/// Writes the stated fields over a value.
fn overlay(value: &mut Value, stated: &Value) {
    match (value, stated) {
        (Value::Object(members), Value::Object(stated)) => {
            for (name, stated) in stated {
                if stated.is_null() {
                    members.remove(name);
                } else {
                    overlay(members.entry(name.clone()).or_insert(Value::Null), stated);
                }
            }
        }
        (Value::Array(items), Value::Array(stated)) if items.len() == stated.len() => {
            for (item, stated) in items.iter_mut().zip(stated) {
                overlay(item, stated);
            }
        }
        (value, stated) => value.clone_from(stated),
    }
}

/// The parts of an expected child that a run reads; records nothing for other children.
#[derive(Clone, Debug, Default)]
pub struct Reads(Option<Rc<RefCell<Parts>>>);

#[derive(Debug, Default)]
struct Parts {
    pointers: BTreeSet<String>,
    is_whole: bool,
}

impl Reads {
    pub(crate) fn recorded() -> Self {
        Self(Some(Rc::default()))
    }

    /// Records that the report depends on the part at a JSON pointer (RFC 6901).
    pub fn add(&self, pointer: &str) {
        if let Some(parts) = &self.0 {
            parts.borrow_mut().pointers.insert(pointer.to_owned());
        }
    }

    pub(crate) fn whole(&self) {
        if let Some(parts) = &self.0 {
            parts.borrow_mut().is_whole = true;
        }
    }

    const fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// The pointers in order; none if the whole object was read.
    fn parts(&self) -> Option<Vec<String>> {
        let parts = self.0.as_ref()?.borrow();
        (!parts.is_whole).then(|| parts.pointers.iter().cloned().collect())
    }
}

/// The host of a run, which notes whether an equal call may get another answer.
pub(crate) struct WatchedHost<'a> {
    host: &'a dyn Host,
    logs: bool,
    /// Whether the answer depends on the time or on random bytes, which differ in the next call.
    is_unique: Cell<bool>,
}

impl<'a> WatchedHost<'a> {
    pub(crate) fn new(host: &'a dyn Host) -> Self {
        Self {
            host,
            logs: true,
            is_unique: Cell::new(false),
        }
    }

    /// The host of the second run, which logs the same as the first.
    fn silent(host: &'a dyn Host) -> Self {
        Self {
            logs: false,
            ..Self::new(host)
        }
    }

    pub(crate) const fn is_unique(&self) -> bool {
        self.is_unique.get()
    }
}

impl Host for WatchedHost<'_> {
    fn log(&self, level: LogLevel, message: &str) {
        if self.logs {
            self.host.log(level, message);
        }
    }

    fn now_ms(&self) -> u64 {
        self.is_unique.set(true);
        self.host.now_ms()
    }

    fn zone_offset(&self, zone: &str, unix_ms: u64) -> Option<i32> {
        self.host.zone_offset(zone, unix_ms)
    }

    fn random(&self, length: u32) -> Vec<u8> {
        self.is_unique.set(true);
        self.host.random(length)
    }

    fn get_json(&self, object: &ObjectRef) -> Result<Option<String>, Denied> {
        self.host.get_json(object)
    }

    fn list_json(&self, selector: &ListSelector) -> Result<Vec<String>, Denied> {
        self.host.list_json(selector)
    }
}

#[cfg(test)]
mod tests;
