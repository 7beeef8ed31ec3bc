//! The status write for a parent.
//!
//! The guest's part and the host's conditions are one write of one field manager. Where the guest states nothing, or where
//! the API server rejects its part, a second manager of the host states the host's conditions alone; the next write with
//! the guest's part takes them over.

use innkeeper_model::{
    Condition, ConditionStatus, Digest, Object, PluginName, Report, reason, whole_seconds,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    conclude::outranks_guest,
    fields::{self, Owned},
    text::drop_null_fields,
};

/// The host's conditions that tell deployment tools if the host retries a failed parent.
///
/// A parent that never failed has neither. They stay as `False` after a failure: two field managers may own them, so
/// leaving one out would not remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentProgress {
    /// The conditions stay as they are.
    Leave,
    /// The pass did not fail.
    Ok,
    /// The host tries again: `Reconciling=True`.
    Reconciling,
    /// The host tries again only after a change: `Stalled=True`.
    Stalled,
}

/// An apply for the subresource `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusWrite {
    /// The field manager.
    pub manager: String,
    /// The status to apply; fields that the manager owns beyond it are removed.
    pub status: Map<String, Value>,
}

/// Returns the status write that is needed; none if the parent has this status already.
///
/// `parent` is the parent as observed at the start of the pass; `now` becomes the `lastTransitionTime` of conditions whose status
/// changes.
///
/// With a report, the write also removes fields that the guest stated earlier and states no longer; without one, the guest's
/// status and conditions stay as they are. `ready` counts unless the guest states the condition `Ready` itself and `ready`
/// does not [outrank](outranks_guest) it; without it, the condition stays as it is, and becomes `Unknown` if there is none yet.
pub fn status(
    plugin: &PluginName,
    parent: &Object,
    report: Option<&Report>,
    synced: &Condition,
    ready: Option<Condition>,
    progress: ParentProgress,
    now: jiff::Timestamp,
) -> Option<StatusWrite> {
    let observed = ObservedStatus::new(parent, now);
    let mut conditions = vec![observed.condition(synced)];
    let (manager, mut status, stated) = match report {
        // Under the guest's manager, an apply without the guest's part would remove it.
        None => (plugin.host_manager(), Map::new(), &[][..]),
        Some(report) => {
            let manager = plugin.status_manager();
            (manager, guest_status(report), &report.conditions[..])
        }
    };
    let outranks = ready.as_ref().is_some_and(outranks_guest);
    let stated: Vec<&Condition> = stated
        .iter()
        .filter(|condition| !(outranks && condition.kind == reason::READY))
        .collect();
    conditions.extend(stated.iter().map(|condition| observed.condition(condition)));
    let says = |kind: &str| stated.iter().any(|condition| condition.kind == kind);
    for (kind, holds) in [
        (reason::RECONCILING, ParentProgress::Reconciling),
        (reason::STALLED, ParentProgress::Stalled),
    ] {
        if !says(kind) {
            conditions.extend(observed.progress(kind, synced, progress, holds));
        }
    }
    if !says(reason::READY) {
        conditions.push(match ready {
            Some(ready) => observed.condition(&ready),
            None => observed.ready_so_far(),
        });
    }
    status.insert("conditions".to_owned(), Value::Array(conditions));
    observed.due(manager, status)
}

/// Returns the status write that the guest's part alone makes necessary: the host's conditions stay as they are.
///
/// For a plan that is not applied: the host's conditions follow from the writes.
pub fn report_status(
    plugin: &PluginName,
    parent: &Object,
    report: &Report,
    now: jiff::Timestamp,
) -> Option<StatusWrite> {
    let observed = ObservedStatus::new(parent, now);
    let observed_synced = observed.find(reason::SYNCED).unwrap_or(&Value::Null);
    let text = |field: &str| observed_synced[field].as_str().unwrap_or_default();
    let synced = Condition {
        kind: reason::SYNCED.to_owned(),
        status: match text("status") {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        },
        reason: text("reason").to_owned(),
        message: text("message").to_owned(),
    };
    let report = Some(report);
    let progress = ParentProgress::Leave;
    status(plugin, parent, report, &synced, None, progress, now)
}

/// Returns true if the host wrote the parent's condition `Synced` last, for this plugin.
pub fn has_host_condition(plugin: &PluginName, parent: &Object) -> bool {
    let managers = [plugin.status_manager(), plugin.host_manager()];
    managers.iter().any(|manager| {
        let owned = owned(parent, manager);
        let synced = owned
            .as_ref()
            .and_then(|owned| owned_condition(owned, reason::SYNCED));
        // A manager that wrote another status since owns the field `status`; both still own the condition's key.
        synced.is_some_and(|synced| synced.field("status").is_some())
    })
}

/// Returns a digest over what the host owns in a parent's status. It changes if another client changes a value or
/// takes a field over, even as the host's field manager.
pub fn own_status(plugin: &PluginName, parent: &Object) -> Digest {
    let RawParent { status } = serde_json::from_str(&parent.json).unwrap_or_default();
    let parts = [plugin.status_manager(), plugin.host_manager()]
        .map(|manager| owned(parent, &manager).map(|owned| fields::owned_values(&owned, &status)));
    Digest::hash(json!(parts).to_string().as_bytes())
}

/// Returns true if the parent's condition `Synced` already has this reason, for the current generation.
pub fn has_reason(parent: &Object, reason: &str) -> bool {
    // No condition is made here, so the time does not matter.
    ObservedStatus::new(parent, jiff::Timestamp::UNIX_EPOCH)
        .find(reason::SYNCED)
        .is_some_and(|synced| {
            synced["reason"] == reason
                && synced.get("observedGeneration").and_then(Value::as_i64) == parent.generation
        })
}

fn guest_status(report: &Report) -> Map<String, Value> {
    let mut status = report.status.clone().unwrap_or_default();
    drop_null_fields(&mut status);
    status
}

/// The fields parsed from the parent's JSON; the rest is skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawParent {
    status: Value,
}

/// The parent's observed status.
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
        self.status
            .get("conditions")?
            .as_array()?
            .iter()
            .find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
    }

    /// Returns a condition to write; the `lastTransitionTime` changes only with the status.
    fn condition(&self, condition: &Condition) -> Value {
        let status: &str = condition.status.into();
        let since = self
            .find(&condition.kind)
            .filter(|known| known.get("status").and_then(Value::as_str) == Some(status))
            .and_then(|known| known.get("lastTransitionTime"))
            .and_then(Value::as_str)
            .map_or_else(|| whole_seconds(self.now).to_string(), str::to_owned);
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

    /// Returns a condition about the progress, which is true for `expected`; none if it is not needed.
    fn progress(
        &self,
        kind: &str,
        synced: &Condition,
        progress: ParentProgress,
        expected: ParentProgress,
    ) -> Option<Value> {
        let observed = self.find(kind);
        if progress == ParentProgress::Leave {
            return observed.cloned();
        }
        let (status, message) = if progress == expected {
            (ConditionStatus::True, synced.message.clone())
        } else {
            // A parent that never failed gets neither condition.
            observed?;
            (ConditionStatus::False, String::new())
        };
        Some(self.condition(&Condition {
            kind: kind.to_owned(),
            status,
            reason: synced.reason.clone(),
            message,
        }))
    }

    /// Returns the present condition `Ready`. It is `Unknown` if there is none, or if it says that the parent was not
    /// selected, which says nothing about its children.
    fn ready_so_far(&self) -> Value {
        let is_left_out = |ready: &&Value| ready["reason"] == reason::NOT_SELECTED;
        self.find(reason::READY)
            .filter(|ready| !is_left_out(ready))
            .cloned()
            .unwrap_or_else(|| {
                self.condition(&Condition {
                    kind: reason::READY.to_owned(),
                    status: ConditionStatus::Unknown,
                    reason: reason::NO_ANSWER_YET.to_owned(),
                    message: "the host has not accepted any answer of the plugin yet".to_owned(),
                })
            })
    }

    /// Returns the write that makes a manager own exactly this status; `None` if it already does.
    fn due(&self, manager: String, status: Map<String, Value>) -> Option<StatusWrite> {
        let owned = owned(self.parent, &manager);
        let status = Value::Object(status);
        if fields::owns_exactly(owned.as_ref(), &status, &self.status) {
            return None;
        }
        let Value::Object(status) = status else {
            return None;
        };
        Some(StatusWrite { manager, status })
    }
}

/// Returns what a manager owns in a parent's status; `None` if it owns nothing.
fn owned<'a>(parent: &'a Object, manager: &str) -> Option<Owned<'a>> {
    let entry = parent
        .managed
        .iter()
        .find(|entry| fields::is_applied_by(entry, manager, Some("status")))?;
    Owned::parse(&entry.fields)?.into_field("status")
}

/// Returns what is owned in one condition.
fn owned_condition<'o, 'a>(owned: &'o Owned<'a>, kind: &str) -> Option<&'o Owned<'a>> {
    let mut conditions = owned.field("conditions")?.members();
    let is_it = |member: &str| {
        fields::item_keys(member)
            .is_some_and(|keys| keys.get("type").and_then(Value::as_str) == Some(kind))
    };
    conditions.find_map(|(member, owned)| is_it(member).then_some(owned))
}
