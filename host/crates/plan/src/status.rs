//! The status writes for a parent.
//!
//! The guest's part and the host's conditions have separate field managers, so that the host's conditions are written
//! even if the API server rejects the guest's status.

use innkeeper_model::{Condition, Object, PluginName, Report, reason, whole_seconds};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    fields::{self, Owned},
    text::drop_nulls,
};

/// The guest's part of the status.
#[derive(Clone, Copy, Debug)]
pub enum GuestPart<'a> {
    /// The guest's status and conditions stay as they are.
    Leave,
    /// The guest states this report; the write removes fields that it stated earlier and states no longer.
    State(&'a Report),
}

/// The host's part of the readiness. The host writes no `Ready` condition if the guest states one itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyPart {
    /// The condition stays as it is; it becomes `Unknown` if there is none yet.
    Leave,
    /// The host sets this condition.
    Host(Condition),
}

/// One apply of the subresource `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusWrite {
    /// The field manager.
    pub manager: String,
    /// The status to apply; `None` removes all fields that the manager owns.
    pub status: Option<Map<String, Value>>,
}

/// The status writes that are needed, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusWrites {
    /// The guest's status and conditions.
    pub guest: Option<StatusWrite>,
    /// The host's conditions.
    pub host: Option<StatusWrite>,
}

impl StatusWrites {
    /// Returns true if no write is needed.
    pub const fn is_empty(&self) -> bool {
        self.guest.is_none() && self.host.is_none()
    }
}

/// Returns the status writes that are needed.
///
/// `parent` is the parent as observed at the start of the pass; `now` becomes the `lastTransitionTime` of conditions whose status
/// changes.
pub fn status(
    plugin: &PluginName,
    parent: &Object,
    guest: GuestPart<'_>,
    synced: &Condition,
    ready: ReadyPart,
    now: jiff::Timestamp,
) -> StatusWrites {
    let observed = ObservedStatus::new(parent, now);
    let guest_manager = plugin.status_manager();
    let host_manager = plugin.host_manager();
    let (guest_write, guest_says_ready) = match guest {
        GuestPart::Leave => (None, observed.owns_condition(&guest_manager, reason::READY)),
        GuestPart::State(report) => {
            let says_ready = report
                .conditions
                .iter()
                .any(|one| one.kind == reason::READY);
            let write = observed.due(guest_manager, guest_status(&observed, report));
            (write, says_ready)
        }
    };
    let mut conditions = vec![observed.condition(synced)];
    if !guest_says_ready {
        conditions.push(match ready {
            ReadyPart::Host(ready) => observed.condition(&ready),
            ReadyPart::Leave => observed.ready_so_far(),
        });
    }
    let host_status = Map::from_iter([("conditions".to_owned(), Value::Array(conditions))]);
    StatusWrites {
        guest: guest_write,
        host: observed.due(host_manager, Some(host_status)),
    }
}

/// Returns true if the host wrote the condition `Synced` of a parent last, for this plugin.
pub fn has_spoken(plugin: &PluginName, parent: &Object) -> bool {
    let owned = owned(parent, &plugin.host_manager());
    let synced = owned
        .as_ref()
        .and_then(|owned| owned_condition(owned, reason::SYNCED));
    // A manager that wrote another status since owns the field `status`; both still own the key of the condition.
    synced.is_some_and(|synced| synced.field("status").is_some())
}

/// Returns true if the condition `Synced` of a parent already has this reason, for its current generation.
pub fn gives(parent: &Object, reason: &str) -> bool {
    let observed = ObservedStatus::new(parent, jiff::Timestamp::UNIX_EPOCH);
    observed.find(reason::SYNCED).is_some_and(|synced| {
        synced["reason"] == reason
            && synced.get("observedGeneration").and_then(Value::as_i64) == parent.generation
    })
}

fn guest_status(observed: &ObservedStatus<'_>, report: &Report) -> Option<Map<String, Value>> {
    let mut status = report.status.clone().unwrap_or_default();
    status.retain(|_, value| !value.is_null());
    status.values_mut().for_each(drop_nulls);
    if !report.conditions.is_empty() {
        let conditions = report
            .conditions
            .iter()
            .map(|condition| observed.condition(condition))
            .collect();
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
    (!status.is_empty()).then_some(status)
}

/// The parsed part of the parent's JSON; the rest is skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawParent {
    status: Value,
}

/// The observed status of the parent.
struct ObservedStatus<'a> {
    parent: &'a Object,
    status: Value,
    now: jiff::Timestamp,
}

impl<'a> ObservedStatus<'a> {
    fn new(parent: &'a Object, now: jiff::Timestamp) -> Self {
        let RawParent { status } = serde_json::from_str(&parent.json).unwrap_or_default();
        Self {
            parent,
            status,
            now,
        }
    }

    fn find(&self, kind: &str) -> Option<&Value> {
        let conditions = self.status.get("conditions")?.as_array()?;
        let is_it = |one: &&Value| one.get("type").and_then(Value::as_str) == Some(kind);
        conditions.iter().find(is_it)
    }

    /// Returns a condition to write; its `lastTransitionTime` changes only with its status.
    fn condition(&self, condition: &Condition) -> Value {
        let status: &str = condition.status.into();
        let kept = self
            .find(&condition.kind)
            .filter(|known| known.get("status").and_then(Value::as_str) == Some(status))
            .and_then(|known| known.get("lastTransitionTime"))
            .and_then(Value::as_str);
        let since = kept.map_or_else(|| whole_seconds(self.now).to_string(), str::to_owned);
        let mut value = json!({
            "type": condition.kind,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since,
        });
        if let Some(generation) = self.parent.generation {
            value["observedGeneration"] = generation.into();
        }
        value
    }

    /// Returns the present condition `Ready`. It is `Unknown` if there is none, or if it says that the parent was not
    /// selected, which says nothing about its children.
    fn ready_so_far(&self) -> Value {
        let known = self.find(reason::READY);
        let is_left_out = |ready: &&Value| ready["reason"] == reason::NOT_SELECTED;
        let known = known.filter(|ready| !is_left_out(ready));
        known.cloned().unwrap_or_else(|| {
            self.condition(&Condition {
                kind: reason::READY.to_owned(),
                status: innkeeper_model::ConditionStatus::Unknown,
                reason: reason::NO_ANSWER_YET.to_owned(),
                message: "the host has not accepted any answer of the plugin yet".to_owned(),
            })
        })
    }

    fn owns_condition(&self, manager: &str, kind: &str) -> bool {
        let owned = owned(self.parent, manager);
        owned.is_some_and(|owned| owned_condition(&owned, kind).is_some())
    }

    /// Returns the write that makes a manager own exactly this status; `None` if it already does.
    fn due(&self, manager: String, status: Option<Map<String, Value>>) -> Option<StatusWrite> {
        let owned = owned(self.parent, &manager);
        let unchanged = match &status {
            None => owned.is_none(),
            Some(status) => {
                let status = Value::Object(status.clone());
                fields::owns_exactly(owned.as_ref(), &status, &self.status)
            }
        };
        (!unchanged).then_some(StatusWrite { manager, status })
    }
}

/// Returns the part of a parent's status that a manager owns; `None` if it owns nothing.
fn owned<'a>(parent: &'a Object, manager: &str) -> Option<Owned<'a>> {
    let entry = parent.managed.iter().find(|entry| {
        entry.applied
            && entry.subresource.as_deref() == Some("status")
            && *entry.manager == *manager
    })?;
    Owned::parse(&entry.fields)?.into_field("status")
}

/// Returns the owned part of one condition.
fn owned_condition<'o, 'a>(owned: &'o Owned<'a>, kind: &str) -> Option<&'o Owned<'a>> {
    let mut conditions = owned.field("conditions")?.members();
    let is_it = |member: &str| {
        fields::item_keys(member)
            .is_some_and(|keys| keys.get("type").and_then(Value::as_str) == Some(kind))
    };
    conditions.find_map(|(member, owned)| is_it(member).then_some(owned))
}
