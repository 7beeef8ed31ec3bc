//! Children that another field manager keeps changing: the number of restorations of each, and the time of the next.
//!
//! Pure: every call gets the time.
//! Without this, two controllers that insist on different values of a field would write as fast as they can, for ever.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{Backoff, Condition, ConditionStatus, ObjectId, reason};
use innkeeper_plan as plan;
use tokio::time::Instant;

/// The number of restorations, each within [`SOON`] of the one before, that make a conflict.
///
/// Chosen: a user who tries something out, or a controller that starts, causes fewer.
const RESTORES_MAX: u32 = 5;

/// The time after which a restoration is independent of the one before.
///
/// Chosen: a controller that watches the child changes it back within seconds, and a slow one within a minute.
const SOON: Duration = Duration::from_mins(1);

/// The first wait before a contested child is restored; each further wait is twice as long.
///
/// Chosen: long enough to slow the other controller down, short enough that a conflict that ends soon costs little.
const WAIT_MIN: Duration = Duration::from_secs(5);

/// The longest wait before a contested child is restored; equal to the longest back-off of a failed pass.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// The recently restored children of one parent.
#[derive(Debug, Default)]
pub(super) struct Conflicts(BTreeMap<ObjectId, Conflict>);

/// A conflict with another field manager about children of one parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldConflict {
    /// The contested fields and their managers.
    pub(crate) about: String,
    /// The time until the next restoration.
    pub(crate) wait: Duration,
}

impl FieldConflict {
    /// Returns the condition of the parent. It stays equal from one restoration to the next.
    pub(crate) fn synced(&self) -> Condition {
        let message = format!(
            "another field manager keeps changing fields that the plugin states, so the host restores them less and less often: {}; stop that manager, or leave the fields out of the plugin's answer",
            self.about
        );
        plan::synced(ConditionStatus::False, reason::FIELD_CONFLICT, message)
    }
}

#[derive(Debug)]
struct Conflict {
    restores: u32,
    last: Instant,
    /// The waits before the restorations of a contested child.
    waits: Backoff,
    /// The wait before the next restoration; zero without a conflict.
    wait: Duration,
    /// The contested field and its other managers, once a live read has found them.
    about: Option<String>,
}

impl Conflict {
    /// Returns true if the restorations are a conflict.
    fn is_hot(&self) -> bool {
        self.restores >= RESTORES_MAX
    }

    /// Returns the end of the conflict if no restoration is needed before.
    ///
    /// Twice the wait: in the first half the child is left alone, so the other manager has no reason to write; only a
    /// quiet second half shows that it has stopped.
    fn end(&self) -> Instant {
        let quiet = if self.is_hot() {
            SOON.max(self.wait * 2)
        } else {
            SOON
        };
        self.last + quiet
    }
}

impl Conflicts {
    /// Counts a restoration of a child; returns true if the child becomes a contested one by it.
    pub(super) fn restored(&mut self, child: &ObjectId, now: Instant) -> bool {
        self.forget_ended(now);
        let first = Conflict {
            restores: 0,
            last: now,
            waits: Backoff::new(WAIT_MIN, WAIT_MAX),
            wait: Duration::ZERO,
            about: None,
        };
        let conflict = self.0.entry(child.clone()).or_insert(first);
        conflict.restores = conflict.restores.saturating_add(1);
        conflict.last = now;
        if conflict.is_hot() {
            conflict.wait = conflict.waits.delay();
        }
        conflict.restores == RESTORES_MAX
    }

    /// Returns true if a child must not be restored yet.
    pub(super) fn holds(&self, child: &ObjectId, now: Instant) -> bool {
        let conflict = self.0.get(child).filter(|conflict| conflict.is_hot());
        conflict.is_some_and(|conflict| now < conflict.last + conflict.wait)
    }

    /// Returns true if the contested field of a child has not been found yet.
    pub(super) fn is_untold(&self, child: &ObjectId) -> bool {
        let conflict = self.0.get(child);
        conflict.is_some_and(|conflict| conflict.about.is_none())
    }

    /// Sets the contested field of a child, with its other managers.
    pub(super) fn tell(&mut self, child: &ObjectId, about: String) {
        if let Some(conflict) = self.0.get_mut(child) {
            conflict.about = Some(about);
        }
    }

    /// Returns the contested fields and the time until the next change of this list; none without a conflict.
    pub(super) fn contested(&mut self, now: Instant) -> Option<FieldConflict> {
        self.forget_ended(now);
        let hot = self.0.iter().filter(|(_, conflict)| conflict.is_hot());
        let mut abouts = Vec::new();
        let mut next: Option<Instant> = None;
        for (child, conflict) in hot {
            let about = conflict.about.clone();
            abouts.push(about.unwrap_or_else(|| child.to_string()));
            let due = conflict.last + conflict.wait;
            let look = if due > now { due } else { conflict.end() };
            next = Some(next.map_or(look, |next| next.min(look)));
        }
        Some(FieldConflict {
            about: abouts.join(", "),
            wait: next?.saturating_duration_since(now),
        })
    }

    fn forget_ended(&mut self, now: Instant) {
        self.0.retain(|_, conflict| now < conflict.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use innkeeper_model::GroupKind;

    const SECOND: Duration = Duration::from_secs(1);

    fn child(name: &str) -> ObjectId {
        ObjectId::new(GroupKind::new("", "ConfigMap"), Some("demo"), name)
    }

    /// Conflicts with a child that has just become a contested one.
    fn contested(now: Instant) -> Conflicts {
        let mut conflicts = Conflicts::default();
        let begun: Vec<bool> = (0..RESTORES_MAX)
            .map(|_| conflicts.restored(&child("a"), now))
            .collect();
        assert_eq!(begun, [false, false, false, false, true]);
        conflicts
    }

    #[test]
    fn a3_rare_restorations_are_no_conflict() {
        let mut now = Instant::now();
        let mut conflicts = Conflicts::default();
        for _ in 0..20 {
            assert!(!conflicts.restored(&child("a"), now));
            assert!(!conflicts.holds(&child("a"), now));
            assert_eq!(conflicts.contested(now), None);
            now += SOON;
        }
    }

    #[test]
    fn a3_a_contested_child_is_restored_less_and_less_often_and_other_children_at_once() {
        let mut now = Instant::now();
        let mut conflicts = contested(now);
        for wait in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert!(conflicts.holds(&child("a"), now + SECOND * wait - SECOND));
            assert!(!conflicts.holds(&child("b"), now));
            let contest = conflicts.contested(now);
            assert_eq!(contest.map(|contest| contest.wait), Some(SECOND * wait));
            now += SECOND * wait;
            assert!(!conflicts.holds(&child("a"), now));
            assert!(!conflicts.restored(&child("a"), now));
        }
    }

    #[test]
    fn a3_a_conflict_ends_when_the_other_manager_stops() {
        let now = Instant::now();
        let mut conflicts = contested(now);
        conflicts.restored(&child("b"), now);
        let about = conflicts.contested(now).unwrap().about;
        assert_eq!(about, "ConfigMap demo/a");
        assert!(conflicts.is_untold(&child("a")));
        conflicts.tell(&child("a"), "data of it".to_owned());
        assert!(!conflicts.is_untold(&child("a")));
        // No manager has changed the child since, but the conflict may still continue.
        let later = now + SECOND * 30;
        let contest = conflicts.contested(later);
        let expected = FieldConflict {
            about: "data of it".to_owned(),
            wait: SECOND * 30,
        };
        assert_eq!(contest, Some(expected));
        assert_eq!(conflicts.contested(now + SOON), None);
        assert!(!conflicts.restored(&child("a"), now + SOON));
    }
}
