//! Contested writes in words: the condition and the Event that name the object, the field and the other side.

use std::{collections::BTreeSet, time::Duration};

use innkeeper_model::{Condition, ConditionStatus, Object, ObjectId, Operation, reason};
use serde_json::{Map, Value};

use super::{StatusWrite, contested_field, repeats::Subject, synced, time_to_live};

/// The contested writes for one parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contention {
    /// The undone writes; not empty.
    pub undone: Vec<Undone>,
    /// The time until the next repetition.
    pub wait: Duration,
}

impl Contention {
    /// Returns the parent's condition. It stays equal from one repetition to the next.
    pub fn synced(&self) -> Condition {
        let is_deletion = |undone: &Undone| undone.cause.is_deletion();
        let reason = if self.undone.iter().all(is_deletion) {
            reason::CHILD_DELETED_AGAIN
        } else {
            reason::FIELD_CONFLICT
        };
        let writes: Vec<&str> = self.undone.iter().map(|undone| &*undone.what).collect();
        // Each remedy once and in a fixed order, so that the condition stays equal.
        let remedies: BTreeSet<UndoneBy> = self.undone.iter().map(|undone| undone.cause).collect();
        let remedies: Vec<&str> = remedies.into_iter().map(UndoneBy::remedy).collect();
        // Without counts or times: with them, every repetition would cost another status write.
        let message = format!(
            "others undo writes of the host, so it repeats them less and less often: {}; {}",
            writes.join(", "),
            remedies.join(", ")
        );
        synced(ConditionStatus::False, reason, message)
    }
}

/// A write that others undo again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The object, the change and the other side, in words.
    pub what: String,
    cause: UndoneBy,
}

/// The ways to undo a write, in the order in which a message lists the remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UndoneBy {
    Changed,
    StatusChanged,
    Deleted,
    Expired,
    OtherHost,
}

impl UndoneBy {
    const fn is_deletion(self) -> bool {
        matches!(self, Self::Deleted | Self::Expired)
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Changed => "stop that manager, or leave the fields out of the plugin's answer",
            Self::StatusChanged => "stop the other controller of this kind",
            Self::Deleted => {
                "stop the client that deletes the child, or leave it out of the plugin's answer"
            }
            Self::Expired => "leave ttlSecondsAfterFinished out of the plugin's answer",
            Self::OtherHost => "stop one of the two hosts",
        }
    }
}

impl Undone {
    /// Describes a write whose cause is not known yet.
    pub fn unexplained(subject: &Subject) -> Self {
        let (what, cause) = match subject {
            Subject::Finalizer => ("metadata.finalizers".to_owned(), UndoneBy::Changed),
            Subject::Status => ("status".to_owned(), UndoneBy::StatusChanged),
            Subject::Child(id) | Subject::Owner(id) => (id.to_string(), UndoneBy::Changed),
        };
        Self { what, cause }
    }

    /// Describes a child that does not exist any more.
    pub fn deleted(child: &ObjectId, operation: &Operation) -> Self {
        let ttl = match operation {
            Operation::Create { kind, body, .. } => time_to_live(kind, body),
            _ => None,
        };
        match ttl {
            Some(ttl) => Self {
                what: format!("{child} is deleted again (spec.ttlSecondsAfterFinished is {ttl})"),
                cause: UndoneBy::Expired,
            },
            None => Self {
                what: format!("{child} is deleted again"),
                cause: UndoneBy::Deleted,
            },
        }
    }

    /// Describes the difference between a status write and the live object; `own` are the host's field managers.
    pub fn status_changed(write: &StatusWrite, live: &Object, own: &[&str]) -> Self {
        let status = Value::Object(write.status.clone());
        let body = Map::from_iter([("status".to_owned(), status)]);
        Self::changed(&Subject::Status, &body, live, own)
    }

    /// Describes the difference between a write and the live object; `own` are the host's field managers.
    pub fn changed(
        subject: &Subject,
        body: &Map<String, Value>,
        live: &Object,
        own: &[&str],
    ) -> Self {
        let id = live.id();
        let cause = match subject {
            Subject::Status => UndoneBy::StatusChanged,
            Subject::Finalizer | Subject::Child(_) | Subject::Owner(_) => UndoneBy::Changed,
        };
        let what = match contested_field(body, live, own) {
            None => id.to_string(),
            // The API server keeps no manager for a field that is removed.
            Some((field, managers)) if managers.is_empty() => {
                format!("{field} of {id} (by a client that removes it)")
            }
            // Fields that others change do not belong to the host's managers any more.
            Some((field, managers)) if managers.iter().all(|manager| own.contains(manager)) => {
                let managers: Vec<&str> = managers.into_iter().collect();
                return Self::other_host(&format!("{field} of {id}"), &managers.join(", "));
            }
            Some((field, managers)) => {
                let managers: Vec<&str> = managers.into_iter().collect();
                format!("{field} of {id} (by {})", managers.join(", "))
            }
        };
        Self { what, cause }
    }

    /// Describes an object that another host writes under the same field manager.
    pub fn other_host(object: &str, manager: &str) -> Self {
        Self {
            what: format!(
                "{object} (by another host of Innkeeper with the field manager {manager})"
            ),
            cause: UndoneBy::OtherHost,
        }
    }
}
