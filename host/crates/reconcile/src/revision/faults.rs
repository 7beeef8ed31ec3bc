//! A plugin's last faults, for its status; they decide nothing.

use std::collections::VecDeque;

use innkeeper_model::ObjectId;
use jiff::Timestamp;
use parking_lot::Mutex;

/// The number of faults in a Plugin's status.
const FAULTS_MAX: usize = 10;

/// The longest message; guests may write more.
///
/// Enough for the first lines of a trap's backtrace; with [`FAULTS_MAX`] faults, at most 40 KiB for a parent kind.
const MESSAGE_CHARS_MAX: usize = 1024;

/// A pass that ended with a guest fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentFault {
    /// The parent.
    pub parent: ObjectId,
    /// The reason, as in the parent's condition `Synced`.
    pub reason: String,
    /// The fault.
    pub message: String,
    /// The time of the record.
    pub time: Timestamp,
}

/// The last faults.
#[derive(Debug, Default)]
pub(crate) struct RecentFaults(Mutex<VecDeque<RecentFault>>);

impl RecentFaults {
    pub(crate) fn add(&self, fault: RecentFault) {
        let mut faults = self.0.lock();
        faults.truncate(FAULTS_MAX - 1);
        faults.push_front(RecentFault {
            message: fault.message.chars().take(MESSAGE_CHARS_MAX).collect(),
            ..fault
        });
    }

    /// Returns the faults, latest first.
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
        let recent = faults.all();
        let names: Vec<_> = recent
            .iter()
            .map(|fault| fault.parent.name.to_string())
            .collect();
        assert_eq!(names.len(), FAULTS_MAX);
        assert_eq!((&*names[0], &*names[9]), ("14", "5"));
        assert_eq!(recent[0].message.len(), MESSAGE_CHARS_MAX);
    }
}
