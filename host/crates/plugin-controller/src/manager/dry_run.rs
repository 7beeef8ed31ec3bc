//! The dry run of a candidate revision on all live parents, before it replaces the active one.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use innkeeper_model::{ObjectId, Retry};
use innkeeper_reconcile::{Candidate, DryRunOutcome, Reconciler, Serving};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::{Manager, PluginState, active::ActiveRevision};
use crate::{
    lifecycle::{Stage, StageFailure, verdict},
    resource::{
        CandidateCounts, CandidateStatus, CandidateVerdict, Declared, ObjectName, number,
        revision_name,
    },
};

/// The number of parents per hand-over to a guest thread. One hand-over for each parent took longer than the calls: a
/// swap with 1,000 live parents took 204 ms, and takes 79 ms with groups (`cargo bench --bench swap -- swaps`).
const GROUP_SIZE: usize = 16;
/// The number of concurrent groups: while one is called, the results of the other are evaluated.
const GROUPS: usize = 2;

/// The time limit for the first lists of all kinds that a candidate watches. Chosen, not measured: the active revision
/// stays active meanwhile, and the dry run is retried.
const READ_WITHIN: Duration = Duration::from_mins(1);

/// The interval between checks of these lists.
const READ_POLL_PERIOD: Duration = Duration::from_millis(250);

/// The shortest wait before the next dry run of a candidate that would delete too much. Nothing triggers a pass when
/// the children or parents change, and a dry run calls the guest for every parent.
const REPEAT_AFTER: Duration = Duration::from_mins(1);

/// The number of deletes that the status names; the schema of the status allows no more.
const NAMED_MAX: usize = 20;

/// The changes that a candidate would make.
#[derive(Default)]
struct DryRun {
    counts: CandidateCounts,
    deletes: Vec<ObjectId>,
}

impl Manager {
    /// Runs a revision on all live parents without writing, and decides if it may replace the active one.
    pub(super) async fn dry_run(
        &self,
        declared: &Declared,
        active: &ActiveRevision,
        serving: &Serving,
    ) -> Result<CandidateStatus, StageFailure> {
        let begin = Instant::now();
        let DryRun { counts, deletes } = DryRun::of(active, serving, begin + READ_WITHIN).await?;
        let children = self.children(active);
        let candidate = candidate(declared, serving, Some(counts), &deletes, children);
        info!(
            plugin = %declared.name,
            revision = candidate.revision,
            verdict = ?candidate.verdict,
            ?counts,
            children,
            elapsed = ?begin.elapsed(),
            "dry run of a revision ended"
        );
        Ok(candidate)
    }

    /// Returns the known number of children of the plugin.
    fn children(&self, active: &ActiveRevision) -> usize {
        let kinds = self.context.shared.inventory.of(&active.served.name);
        // The cache counts the children of the whole plugin, so one controller answers for all.
        let Some(reconciler) = active.served.reconcilers.first() else {
            return 0;
        };
        let registration = reconciler.registration();
        let counts = kinds
            .iter()
            .filter_map(|kind| registration.child_count(&kind.group_kind()));
        counts.sum()
    }
}

/// Returns a candidate without a dry run, where the revision that was active last is not available to compare with.
///
/// Its changes are unknown, so only the mode of the rollout decides. The first revision ever has nothing to change, and
/// an earlier one was accepted before.
pub(super) fn candidate_without_dry_run(
    declared: &Declared,
    state: &PluginState,
    serving: &Serving,
) -> Option<CandidateStatus> {
    let revision = serving.plugin.revision();
    let mut past = state.history.past().peekable();
    if past.peek().is_none() || past.any(|past| past.revision == *revision) {
        return None;
    }
    Some(candidate(declared, serving, None, &[], 0))
}

fn candidate(
    declared: &Declared,
    serving: &Serving,
    counts: Option<CandidateCounts>,
    deletes: &[ObjectId],
    children: usize,
) -> CandidateStatus {
    let revision = serving.plugin.revision();
    CandidateStatus {
        revision: revision_name(revision),
        digest: serving.plugin.digest().to_string(),
        verdict: verdict(&declared.rollout, revision, deletes.len(), children),
        counts,
        deletes: deletes.iter().take(NAMED_MAX).map(ObjectName::of).collect(),
    }
}

impl DryRun {
    async fn of(
        active: &ActiveRevision,
        serving: &Serving,
        until: Instant,
    ) -> Result<Self, StageFailure> {
        let mut dry_run = Self::default();
        for reconciler in &active.served.reconcilers {
            until_read(reconciler, until).await?;
            let candidate = reconciler.candidate(serving.clone());
            let parents = reconciler.registration().parents();
            let groups: Vec<_> = parents.chunks(GROUP_SIZE).map(<[_]>::to_vec).collect();
            let mut groups = stream::iter(groups)
                .map(|group| run_group(reconciler, &candidate, group, until))
                .buffer_unordered(GROUPS);
            while let Some(results) = groups.next().await {
                for result in results {
                    dry_run.add(result)?;
                }
            }
        }
        Ok(dry_run)
    }

    fn add(&mut self, result: DryRunOutcome) -> Result<(), StageFailure> {
        let counts = &mut self.counts;
        match result {
            DryRunOutcome::Planned(changes) => {
                counts.creates += number(changes.creates);
                counts.updates += number(changes.updates);
                counts.deletes += number(changes.deletes.len());
                self.deletes.extend(changes.deletes);
            }
            DryRunOutcome::Refused { .. } | DryRunOutcome::Fault { .. } => counts.faults += 1,
            DryRunOutcome::Idle => return Ok(()),
            DryRunOutcome::Parked { waiting } => return Err(waits(&waiting)),
        }
        counts.parents += 1;
        Ok(())
    }
}

/// Waits until the parents and their children are in the cache.
async fn until_read(reconciler: &Reconciler, until: Instant) -> Result<(), StageFailure> {
    loop {
        let waiting = reconciler.registration().waiting();
        // A lasting failure does not stop the dry run: the candidate may be the revision without that kind.
        let Some(first) = waiting.iter().find(|one| !one.why.is_lasting()) else {
            return Ok(());
        };
        if Instant::now() >= until {
            return Err(waits(&format!("{}: {}", first.kind, first.why)));
        }
        sleep(READ_POLL_PERIOD).await;
    }
}

fn waits(waiting: &str) -> StageFailure {
    let message = format!("the dry run of the revision waits for {waiting}; it is retried");
    let (stage, reason) = (Stage::Serving, "DryRunWaits");
    StageFailure::new(stage, reason, message, Retry::Backoff)
}

/// Runs a candidate on some parents; again on those that wait for a list, until the time limit.
async fn run_group(
    reconciler: &Reconciler,
    candidate: &Candidate,
    mut parents: Vec<ObjectId>,
    until: Instant,
) -> Vec<DryRunOutcome> {
    let mut ended = Vec::with_capacity(parents.len());
    loop {
        let results = reconciler.dry_run(candidate, parents).await;
        parents = Vec::new();
        for (parent, result) in results {
            if matches!(result, DryRunOutcome::Parked { .. }) && Instant::now() < until {
                parents.push(parent);
            } else {
                ended.push(result);
            }
        }
        if parents.is_empty() {
            return ended;
        }
        sleep(READ_POLL_PERIOD).await;
    }
}

/// Returns the reason why a candidate may not be activated; none if it may.
pub(super) fn refusal(candidate: &CandidateStatus) -> Option<StageFailure> {
    let revision = &candidate.revision;
    let changes = match candidate.counts {
        Some(counts) => format!(
            "it would create {}, change {} and delete {} children",
            counts.creates, counts.updates, counts.deletes
        ),
        None => {
            "its changes are unknown, because the revision before it is not available".to_owned()
        }
    };
    let (reason, why, retry) = match candidate.verdict {
        CandidateVerdict::TooManyPrunes => (
            "TooManyPrunes",
            "would delete more than spec.rollout.maxPrunes allows",
            Retry::At(REPEAT_AFTER),
        ),
        CandidateVerdict::AwaitingApproval => (
            "AwaitingApproval",
            "waits for approval, because spec.rollout.mode is Gated",
            Retry::OnChange,
        ),
        CandidateVerdict::Accepted => return None,
    };
    let message = format!(
        "revision {revision} {why}: {changes}; set spec.rollout.approve to {revision} to activate it"
    );
    Some(StageFailure::new(Stage::Serving, reason, message, retry))
}
