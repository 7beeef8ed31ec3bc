//! Events for transitions.

use innkeeper_sdk::prelude::*;

use super::{View, warnings::QUIET};
use crate::{
    api::Warning,
    record::{Record, Replacement},
};

/// The condition reasons that are problems, by condition type.
const PROBLEMS: [(&str, &[&str]); 3] = [
    (
        "Available",
        &["QuorumLost", "StaleClaims", "BootstrapFailed"],
    ),
    ("Progressing", &["RolloutHeld", "OperationFailed"]),
    (
        "Degraded",
        &["MemberBroken", "DeadlineExceeded", "NoSpace", "Corrupt"],
    ),
];

impl View<'_> {
    /// The events for transitions, from the stored conditions and the observed record.
    pub(super) fn events(
        &self,
        request: &Request,
        conditions: &[Condition],
        warnings: &[Warning],
    ) -> Vec<Event> {
        let stored = |type_: &str| {
            request
                .stored_condition(type_)
                .map_or_else(String::new, |condition| condition.reason)
        };
        let mut events = Vec::new();
        for condition in conditions {
            let before = stored(&condition.type_);
            if before != condition.reason {
                events.extend(event_for(&before, condition));
            }
        }
        events.extend(self.upgrades(&stored("Progressing")));
        events.extend(self.replacements());
        let warned = &self.observation.warned;
        let new = warnings
            .iter()
            .filter(|warning| !QUIET.contains(&&*warning.code) && !warned.contains(&warning.code));
        events.extend(new.map(|warning| Event::warning(&*warning.code, &*warning.message)));
        events
    }

    /// The events when a pass writes an upgrade's first template and when one sees the upgrade complete.
    fn upgrades(&self, progressing: &str) -> Option<Event> {
        let current = self.current_version()?;
        if let Some(last) = self
            .observation
            .last_version
            .filter(|version| *version < current)
        {
            let message = format!("upgraded from {last} to {current}");
            return Some(Event::normal("UpgradeFinished", message));
        }
        let target = self.cluster.target.filter(|version| *version > current)?;
        let is_new =
            self.observation.running.as_ref()?.image("etcd") != Some(self.cluster.image.as_str());
        let begins = if self.cluster.preparing.is_some() {
            !self.is_written
        } else {
            is_new && progressing != "PreparingUpgrade"
        };
        let message = || format!("upgrade from {current} to {target}");
        (begins && !self.step.is_unchanged).then(|| Event::normal("UpgradeStarted", message()))
    }

    /// The events for replacement steps that this pass records.
    fn replacements(&self) -> Vec<Event> {
        let records = (&self.observation.record, &self.step.record);
        let (Some(before), Some(after)) = records else {
            return Vec::new();
        };
        let members = before.members.iter();
        let event = |ordinal: &i32| self.replacement_event(before, after, *ordinal);
        members.filter_map(event).collect()
    }

    fn replacement_event(&self, before: &Record, after: &Record, ordinal: i32) -> Option<Event> {
        let member = self.cluster.member(ordinal);
        let progress = after.replacing.get(&ordinal);
        if before.replacing.get(&ordinal) != progress {
            return match progress {
                Some(Replacement::Removed) => Some(Event::normal(
                    "MemberRemoved",
                    format!("{member} has lost its data and was removed from etcd"),
                )),
                Some(Replacement::Added) => Some(Event::normal(
                    "MemberAdded",
                    format!("{member} joined etcd under a new identity"),
                )),
                Some(Replacement::Lost(_)) | None => None,
            };
        }
        // Founders are admitted too, but before the first operation.
        let is_used = before.admitted.contains_key(&ordinal)
            && !after.admitted.contains_key(&ordinal)
            && before.sequence > 0;
        let pod = self.observation.pods.get(&ordinal)?;
        (is_used && pod.is_ready).then(|| {
            let message = format!("{member} is ready with the data of the other members");
            Event::normal("MemberReplaced", message)
        })
    }
}

/// The event for a condition with a new reason.
fn event_for(before: &str, condition: &Condition) -> Option<Event> {
    let type_ = &*condition.type_;
    let reason = &*condition.reason;
    let message = || condition.message.clone();
    let mut problems = PROBLEMS.iter();
    if problems.any(|(its, reasons)| *its == type_ && reasons.contains(&reason)) {
        return Some(Event::warning(reason, message()));
    }
    match (type_, before, reason) {
        ("Available", "Bootstrapping" | "BootstrapFailed", "QuorumHealthy" | "QuorumAvailable") => {
            Some(Event::normal("ClusterFormed", message()))
        }
        ("Available", "Paused" | "Resuming", "QuorumHealthy" | "QuorumAvailable") => {
            Some(Event::normal("Resumed", message()))
        }
        ("Available", _, "Paused") => Some(Event::normal("Paused", message())),
        _ => None,
    }
}
