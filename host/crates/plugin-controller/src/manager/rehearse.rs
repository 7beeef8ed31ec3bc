//! The dry run of a revision on all live parents, before it replaces the active one.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use innkeeper_model::{ObjectId, Retry};
use innkeeper_reconcile::{Candidate as Rehearsed, Changes, Reconciler, Rehearsal, Serving};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::{Failed, Known, Manager, running::Running};
use crate::{
    lifecycle::{Stage, verdict},
    resource::{Candidate, CandidateVerdict, Counts, Declared, ObjectName, number, revision_name},
};

/// The number of parents per dispatch to a guest's thread: enough that the dispatch costs little.
const TOGETHER: usize = 16;
/// The number of concurrent groups: one is called while the results of another are evaluated.
const GROUPS: usize = 2;

/// The time limit for the first reads of everything that a candidate reads.
const PATIENCE: Duration = Duration::from_mins(1);

/// The interval between checks of the reads that a candidate waits for.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(250);

/// The shortest wait before the next dry run of a candidate that would delete too much: the children may have changed.
const REPEATED_AFTER: Duration = Duration::from_mins(1);

/// The number of deletes that the status names.
const NAMED_MAX: usize = 20;

/// The changes that a candidate would make.
#[derive(Default)]
struct Outcome {
    parents: usize,
    faults: usize,
    changes: Changes,
}

impl Manager {
    /// Runs a revision on all live parents without writing, and says whether it may replace the one that serves.
    pub(super) async fn rehearse(
        &self,
        declared: &Declared,
        running: &Running,
        serving: &Serving,
    ) -> Result<Candidate, Failed> {
        let begin = Instant::now();
        let outcome = self.play(running, serving, begin + PATIENCE).await?;
        let children = self.children(running);
        let revision = serving.plugin.revision();
        let Changes {
            creates,
            updates,
            deletes,
        } = &outcome.changes;
        let verdict = verdict(&declared.rollout, revision, deletes.len(), children);
        info!(
            plugin = %declared.name,
            revision = revision_name(revision),
            ?verdict,
            parents = outcome.parents,
            faults = outcome.faults,
            creates,
            updates,
            deletes = deletes.len(),
            children,
            elapsed = ?begin.elapsed(),
            "rehearsed a revision"
        );
        Ok(Candidate {
            revision: revision_name(revision),
            digest: serving.plugin.digest().to_string(),
            verdict,
            counts: Some(Counts {
                parents: number(outcome.parents),
                creates: number(*creates),
                updates: number(*updates),
                deletes: number(deletes.len()),
                faults: number(outcome.faults),
            }),
            deletes: deletes.iter().take(NAMED_MAX).map(ObjectName::of).collect(),
        })
    }

    /// Holds a revision whose changes are unknown, because the one before it is not available.
    pub(super) fn check_unrehearsed(
        declared: &Declared,
        known: &Known,
        serving: &Serving,
    ) -> Option<Candidate> {
        let revision = serving.plugin.revision();
        let mut past = known.history.past().peekable();
        if past.peek().is_none() || past.any(|past| past.revision == *revision) {
            return None;
        }
        Some(Candidate {
            revision: revision_name(revision),
            digest: serving.plugin.digest().to_string(),
            verdict: verdict(&declared.rollout, revision, 0, 0),
            counts: None,
            deletes: Vec::new(),
        })
    }

    async fn play(
        &self,
        running: &Running,
        serving: &Serving,
        until: Instant,
    ) -> Result<Outcome, Failed> {
        let mut outcome = Outcome::default();
        for reconciler in &running.served.reconcilers {
            until_read(reconciler, until).await?;
            let candidate = reconciler.candidate(serving.clone());
            let parents = reconciler.registration().parents();
            let groups: Vec<_> = parents.chunks(TOGETHER).map(<[_]>::to_vec).collect();
            let mut rehearsals = stream::iter(groups)
                .map(|group| play_group(reconciler, &candidate, group, until))
                .buffer_unordered(GROUPS);
            while let Some(rehearsals) = rehearsals.next().await {
                for rehearsal in rehearsals {
                    outcome.add(rehearsal)?;
                }
            }
        }
        Ok(outcome)
    }

    /// Returns the known number of children of the plugin.
    fn children(&self, running: &Running) -> usize {
        let kinds = self.parts.shared.inventory.of(&running.served.name);
        // Each of them sees all children of the plugin.
        let Some(reconciler) = running.served.reconcilers.first() else {
            return 0;
        };
        let registration = reconciler.registration();
        let counts = kinds
            .iter()
            .filter_map(|kind| registration.child_count(&kind.group_kind()));
        counts.sum()
    }
}

impl Outcome {
    fn add(&mut self, rehearsal: Rehearsal) -> Result<(), Failed> {
        match rehearsal {
            Rehearsal::Planned(changes) => {
                self.changes.creates += changes.creates;
                self.changes.updates += changes.updates;
                self.changes.deletes.extend(changes.deletes);
            }
            Rehearsal::Refused { .. } | Rehearsal::Fault { .. } => self.faults += 1,
            Rehearsal::Idle => return Ok(()),
            Rehearsal::Parked { waiting } => return Err(waits(&waiting)),
        }
        self.parents += 1;
        Ok(())
    }
}

/// Waits until it is known which parents there are, and which children they have.
async fn until_read(reconciler: &Reconciler, until: Instant) -> Result<(), Failed> {
    loop {
        let waiting = reconciler.registration().waiting();
        // The candidate may fix a kind that cannot be read for long, so a lasting failure does not stop the dry run.
        let Some(first) = waiting.iter().find(|one| !one.why.is_lasting()) else {
            return Ok(());
        };
        if Instant::now() >= until {
            return Err(waits(&format!("{}: {}", first.kind, first.why)));
        }
        sleep(LOOKED_AT_EVERY).await;
    }
}

fn waits(waiting: &str) -> Failed {
    let message = format!("what it would do cannot be found out, it waits for {waiting}");
    let reason = "RehearsalWaits";
    Failed::new(Stage::Serving, reason, message, Retry::Backoff)
}

/// Rehearses some parents, some of them again while something has not been read yet.
async fn play_group(
    reconciler: &Reconciler,
    candidate: &Rehearsed,
    mut parents: Vec<ObjectId>,
    until: Instant,
) -> Vec<Rehearsal> {
    let mut ended = Vec::with_capacity(parents.len());
    loop {
        let rehearsals = reconciler.rehearse(candidate, parents).await;
        parents = Vec::new();
        for (parent, rehearsal) in rehearsals {
            if matches!(rehearsal, Rehearsal::Parked { .. }) && Instant::now() < until {
                parents.push(parent);
            } else {
                ended.push(rehearsal);
            }
        }
        if parents.is_empty() {
            return ended;
        }
        sleep(LOOKED_AT_EVERY).await;
    }
}

/// Returns the reason why a candidate may not be activated; none if it may.
pub(super) fn refusal(candidate: &Candidate) -> Option<Failed> {
    let revision = &candidate.revision;
    let would = match candidate.counts {
        Some(Counts {
            creates,
            updates,
            deletes,
            ..
        }) => format!("it would create {creates}, change {updates} and delete {deletes} children"),
        None => "what it would do is not known, because the one before it cannot be had".to_owned(),
    };
    let (reason, why, retry) = match candidate.verdict {
        CandidateVerdict::TooManyPrunes => (
            "TooManyPrunes",
            "would delete more than spec.rollout.maxPrunes allows",
            Retry::At(REPEATED_AFTER),
        ),
        CandidateVerdict::AwaitingApproval => (
            "AwaitingApproval",
            "waits because of spec.rollout.mode: Gated",
            Retry::OnChange,
        ),
        CandidateVerdict::Pending | CandidateVerdict::Accepted | CandidateVerdict::Refused => {
            return None;
        }
    };
    let message = format!(
        "revision {revision} {why}: {would}; spec.rollout.approve: {revision} lets it serve"
    );
    Some(Failed::new(Stage::Serving, reason, message, retry))
}
