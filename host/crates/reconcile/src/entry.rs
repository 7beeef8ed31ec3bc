//! Whether a pass goes on to its guest; where it does not, its parent is told why.

use std::time::Duration;

use innkeeper_cluster::{Observation, Recording, Waiting};
use innkeeper_model::{ANNOTATION_PAUSED, Condition, ConditionStatus, Object, Phase, reason};
use innkeeper_plan::{self as plan, PassEntry};

use super::{Next, Reconciler, Turn, selection::Choice, serving::Stint};

/// How long a pass may wait for a cache before its parent says so.
const WAITING_SAID_AFTER: Duration = Duration::from_secs(10);

/// How often a pass that waits for a cache looks again without having been told.
const WAITING_RECHECK: Duration = Duration::from_secs(30);

impl Reconciler {
    /// Why the guest is called for a parent, with what the host itself has read to decide that; else what the pass came
    /// to without it.
    pub(super) async fn enter(
        &self,
        stint: &Stint,
        observation: &Observation,
        turn: Turn,
    ) -> Result<(Phase, Recording), Next> {
        let (serving, parent) = (&stint.serving, &observation.parent);
        let entry = plan::enter(parent, &self.name, serving.plugin.manifest());
        if !matches!(entry, PassEntry::Pass(_)) {
            self.excuse(stint, &parent.id());
        }
        match entry {
            PassEntry::Ignore => return Err(Next::UntilChanged),
            // Whoever has put it there takes it off, selected or not.
            PassEntry::Release => return Err(self.release(parent).await),
            PassEntry::Paused | PassEntry::Pass(_) => {}
        }
        let (choice, own_reads) = Self::choose(serving, &self.registration, parent);
        if choice != Choice::Selected {
            let choice = (choice, own_reads);
            return Err(self.pass_over(stint, parent, choice, turn).await);
        }
        match entry {
            PassEntry::Pass(phase) => Ok((phase, own_reads)),
            _ => Err(self.say_of_host(parent, paused(), Next::UntilChanged).await),
        }
    }

    /// No pass: a kind that it needs is not cached. Said on the parent once it takes long.
    pub(super) async fn wait(
        &self,
        parent: Option<&Object>,
        waiting: &[Waiting],
        turn: Turn,
    ) -> Next {
        let since = waiting.iter().map(|waiting| waiting.since).min();
        let waited = since.map_or(Duration::ZERO, |since| since.elapsed());
        let waited = waited.max(turn.parked.unwrap_or_default());
        self.wait_on(parent, &named(waiting), waited).await
    }

    /// The guest read what is not cached; its pass is as if it had never been.
    ///
    /// `parent` is the one that says so once it takes long; none: nobody does.
    pub(super) async fn park(&self, parent: Option<&Object>, what: &str, turn: Turn) -> Next {
        let waited = turn.parked.unwrap_or_default();
        self.wait_on(parent, what, waited).await
    }

    async fn wait_on(&self, parent: Option<&Object>, what: &str, waited: Duration) -> Next {
        if waited < WAITING_SAID_AFTER {
            return Next::Parked(WAITING_SAID_AFTER.saturating_sub(waited));
        }
        let next = Next::Parked(WAITING_RECHECK);
        match parent {
            Some(parent) => {
                self.say_of_host(parent, waiting_for_cache(what), next)
                    .await
            }
            None => next,
        }
    }
}

/// What is waited for, and why it is not there.
pub(super) fn named(waiting: &[Waiting]) -> String {
    let named = waiting
        .iter()
        .map(|one| format!("{}: {}", one.kind, one.why));
    named.collect::<Vec<_>>().join("; ")
}

fn paused() -> Condition {
    let message =
        format!("passes are stopped by the annotation {ANNOTATION_PAUSED}; remove it to go on");
    plan::synced(ConditionStatus::Unknown, reason::PAUSED, message)
}

fn waiting_for_cache(what: &str) -> Condition {
    let message = format!("waiting until the cluster has been read: {what}");
    plan::synced(ConditionStatus::Unknown, reason::WAITING_FOR_CACHE, message)
}
