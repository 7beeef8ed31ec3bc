//! Refused writes to parents without passes: one warning for all, and growing waits before the next attempt.

use std::time::Duration;

use innkeeper_apply::{self as apply, ErrorKind};
use innkeeper_model::{Backoff, ObjectId, PluginName, error_chain};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

/// The wait after the first rejected write, doubled by each further one.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The same maximum as for a Plugin with failed steps.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// The waits after rejected writes.
#[derive(Default)]
pub(super) struct Refusals {
    waits: Option<Backoff>,
    until: Option<Instant>,
    /// The last refusal, for people.
    last: Option<String>,
}

/// Rejected writes during one attempt.
#[derive(Default)]
pub(super) struct AttemptRefusals(Mutex<Vec<(ObjectId, apply::Error)>>);

impl AttemptRefusals {
    /// Returns true if a write was forbidden: then every further one would be rejected as well.
    pub(super) fn is_forbidden(&self) -> bool {
        let refusals = self.0.lock();
        refusals
            .iter()
            .any(|(_, error)| error.kind == ErrorKind::Forbidden)
    }

    /// Adds a rejected write. A changed parent does not count: the next attempt uses its new state.
    pub(super) fn refuse(&self, parent: ObjectId, error: apply::Error) {
        if !error.is_conflict_only() {
            self.0.lock().push((parent, error));
        }
    }
}

impl Refusals {
    /// Returns when the next attempt may start, while it has to wait.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// The last refusal, for people; none after a success.
    pub(super) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Ends an attempt: warns about rejections, and starts or ends the wait.
    pub(super) fn end(
        &mut self,
        plugin: &PluginName,
        goal: &str,
        attempt: AttemptRefusals,
        now: Instant,
    ) {
        let refusals = attempt.0.into_inner();
        let Some((parent, error)) = refusals.first() else {
            *self = Self::default();
            return;
        };
        let waits = self
            .waits
            .get_or_insert_with(|| Backoff::new(WAIT_MIN, WAIT_MAX));
        let wait = waits.delay();
        self.until = Some(now + wait);
        let error = error_chain(error).to_string();
        warn!(%plugin, parents = refusals.len(), %parent, error, again_in = ?wait, "failed to {goal}");
        self.last = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_model::GroupKind;

    use super::*;

    #[test]
    fn refused_writes_wait_longer_each_time_until_one_attempt_has_none() {
        let plugin = PluginName::new("web").unwrap();
        let parent = ObjectId::new(GroupKind::new("example.com", "Web"), Some("demo"), "a");
        let mut refusals = Refusals::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..12 {
            let attempt = AttemptRefusals::default();
            let error = apply::Error {
                what: "write".to_owned(),
                kind: ErrorKind::Forbidden,
                source: None,
            };
            attempt.refuse(parent.clone(), error);
            assert!(attempt.is_forbidden());
            refusals.end(&plugin, "write", attempt, now);
            let due = refusals.due(now).unwrap();
            waits.push((due - now).as_secs());
            now = due;
            assert_eq!(refusals.due(now), None);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert!(refusals.last().is_some());
        refusals.end(&plugin, "write", AttemptRefusals::default(), now);
        assert_eq!((refusals.due(now), refusals.last()), (None, None));
    }
}
