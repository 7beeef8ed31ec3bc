//! The last faults of a plugin, for its status; they decide nothing.

use std::collections::VecDeque;

use innkeeper_model::ObjectId;
use jiff::Timestamp;
use parking_lot::Mutex;

/// The number of kept faults: as many as the status of a Plugin shows.
const KEPT_MAX: usize = 10;

/// The number of characters of a message that are kept, because the guest decides on its length.
///
/// Chosen: enough for the first lines of a trap's backtrace; with [`KEPT_MAX`] faults, at most 40 KiB for one kind of
/// parents.
const MESSAGE_CHARS_MAX: usize = 1024;

/// A pass that ended with a fault of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentFault {
    /// The parent.
    pub parent: ObjectId,
    /// The reason, as in the parent's condition `Synced`.
    pub reason: String,
    /// The description of the fault.
    pub message: String,
    /// The time at which the pass recorded it.
    pub time: Timestamp,
}

/// The last faults.
#[derive(Debug, Default)]
pub(crate) struct RecentFaults(Mutex<VecDeque<RecentFault>>);

impl RecentFaults {
    pub(crate) fn add(&self, fault: RecentFault) {
        let mut kept = self.0.lock();
        kept.truncate(KEPT_MAX - 1);
        kept.push_front(RecentFault {
            message: fault.message.chars().take(MESSAGE_CHARS_MAX).collect(),
            ..fault
        });
    }

    /// Returns the kept faults, the latest first.
    pub(crate) fn all(&self) -> Vec<RecentFault> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use innkeeper_model::GroupKind;

    #[test]
    fn keeps_the_last_faults_latest_first() {
        let faults = RecentFaults::default();
        let id = |name: &str| ObjectId::new(GroupKind::new("g", "K"), Some("demo"), name);
        for number in 0..15 {
            let long = "x".repeat(5000);
            let time = Timestamp::UNIX_EPOCH;
            faults.add(RecentFault {
                parent: id(&number.to_string()),
                reason: "GuestTrapped".to_owned(),
                message: long,
                time,
            });
        }
        let kept = faults.all();
        let names: Vec<_> = kept
            .iter()
            .map(|fault| fault.parent.name.to_string())
            .collect();
        assert_eq!(names.len(), KEPT_MAX);
        assert_eq!((&*names[0], &*names[9]), ("14", "5"));
        assert_eq!(kept[0].message.len(), MESSAGE_CHARS_MAX);
    }
}
