//! Children that somebody else keeps changing: how often each had to be restored, and when it may be again.
//!
//! Pure; time comes in with every call.
//! Two writers who both insist on a field would otherwise write for as long as both live, as fast as they can.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::ObjectId;
use tokio::time::Instant;

/// So many restorations, each soon after the one before, are a conflict: a person who tries something out, or a
/// controller that starts, needs fewer.
const RESTORES_MAX: u32 = 5;

/// A restoration that comes later than this has nothing to do with the one before.
const SOON: Duration = Duration::from_mins(1);

/// How long a contested child is left as it is, at first and at most; twice as long each time.
const WAIT_MIN: Duration = Duration::from_secs(5);
const WAIT_MAX: Duration = Duration::from_mins(5);

/// The children of one parent that had to be restored lately.
#[derive(Debug, Default)]
pub(super) struct Conflicts(BTreeMap<ObjectId, Conflict>);

#[derive(Debug)]
struct Conflict {
    restores: u32,
    last: Instant,
    /// What is contested and by whom, once somebody has looked.
    about: Option<String>,
}

impl Conflict {
    fn is_hot(&self) -> bool {
        self.restores >= RESTORES_MAX
    }

    fn wait(&self) -> Duration {
        let doublings = self.restores.saturating_sub(RESTORES_MAX).min(16);
        (WAIT_MIN * (1 << doublings)).min(WAIT_MAX)
    }

    /// When it is over, if nothing has to be restored until then.
    fn end(&self) -> Instant {
        let quiet = if self.is_hot() {
            SOON.max(self.wait() * 2)
        } else {
            SOON
        };
        self.last + quiet
    }
}

impl Conflicts {
    /// Takes note that a child was restored; whether that makes it a contested one.
    pub(super) fn restored(&mut self, child: &ObjectId, now: Instant) -> bool {
        self.forget_ended(now);
        let first = Conflict {
            restores: 0,
            last: now,
            about: None,
        };
        let conflict = self.0.entry(child.clone()).or_insert(first);
        conflict.restores = conflict.restores.saturating_add(1);
        conflict.last = now;
        conflict.restores == RESTORES_MAX
    }

    /// Whether a child has to stay as it is for now.
    pub(super) fn holds(&self, child: &ObjectId, now: Instant) -> bool {
        let conflict = self.0.get(child).filter(|conflict| conflict.is_hot());
        conflict.is_some_and(|conflict| now < conflict.last + conflict.wait())
    }

    /// Whether it is not yet said what is contested of a child.
    pub(super) fn is_untold(&self, child: &ObjectId) -> bool {
        let conflict = self.0.get(child);
        conflict.is_some_and(|conflict| conflict.about.is_none())
    }

    /// Says what is contested of a child.
    pub(super) fn tell(&mut self, child: &ObjectId, about: String) {
        if let Some(conflict) = self.0.get_mut(child) {
            conflict.about = Some(about);
        }
    }

    /// What is contested, and how long until that has to be looked at again; none if nothing is.
    pub(super) fn contested(&mut self, now: Instant) -> Option<(String, Duration)> {
        self.forget_ended(now);
        let hot = self.0.iter().filter(|(_, conflict)| conflict.is_hot());
        let mut abouts = Vec::new();
        let mut next: Option<Instant> = None;
        for (child, conflict) in hot {
            let about = conflict.about.clone();
            abouts.push(about.unwrap_or_else(|| child.to_string()));
            let due = conflict.last + conflict.wait();
            let look = if due > now { due } else { conflict.end() };
            next = Some(next.map_or(look, |next| next.min(look)));
        }
        let wait = next?.saturating_duration_since(now);
        Some((abouts.join(", "), wait))
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
    fn a3_what_is_restored_now_and_then_is_no_conflict() {
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
    fn a3_a_contested_child_is_restored_less_and_less_often_and_others_as_ever() {
        let mut now = Instant::now();
        let mut conflicts = contested(now);
        for wait in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert!(conflicts.holds(&child("a"), now + SECOND * wait - SECOND));
            assert!(!conflicts.holds(&child("b"), now));
            let contest = conflicts.contested(now);
            assert_eq!(contest.map(|(_, wait)| wait), Some(SECOND * wait));
            now += SECOND * wait;
            assert!(!conflicts.holds(&child("a"), now));
            assert!(!conflicts.restored(&child("a"), now));
        }
    }

    #[test]
    fn a3_a_conflict_ends_once_nobody_changes_anything() {
        let now = Instant::now();
        let mut conflicts = contested(now);
        conflicts.restored(&child("b"), now);
        let (about, _) = conflicts.contested(now).unwrap();
        assert_eq!(about, "ConfigMap demo/a");
        assert!(conflicts.is_untold(&child("a")));
        conflicts.tell(&child("a"), "data of it".to_owned());
        assert!(!conflicts.is_untold(&child("a")));
        // Everything is as it should be, but it is too early to say so.
        let later = now + SECOND * 30;
        let contest = conflicts.contested(later);
        assert_eq!(contest, Some(("data of it".to_owned(), SECOND * 30)));
        assert_eq!(conflicts.contested(now + SOON), None);
        assert!(!conflicts.restored(&child("a"), now + SOON));
    }
}
