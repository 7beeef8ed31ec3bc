//! Dry-runs a candidate revision on all live parents, before it replaces the active one.

use std::{mem, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt as _;
use innkeeper_model::{ObjectId, PluginReason, Retry, reason};
use innkeeper_reconcile::{ParentOutcome, Revision, Role, until_read};
use tokio::time::Instant;
use tracing::info;

use super::{CandidatePlans, FleetPlan, Forecast, History, ParentPlan, Writes, verdict};
use crate::{
    active::ActivePlugin,
    context::Context,
    resource::{
        CandidateCounts, CandidateFault, CandidateStatus, CandidateVerdict, Declared, ObjectName,
        number, revision_name,
    },
    stage::{Stage, StageFailure},
};

/// Time limit for the first lists of all kinds that a candidate watches. Meanwhile the active revision stays active,
/// and the dry run is retried.
const READ_WITHIN: Duration = Duration::from_mins(1);

/// The shortest wait before an inactive candidate's next dry run. Changes of children or parents do not trigger one,
/// and a dry run calls the guest for every parent.
const REPEAT_AFTER: Duration = Duration::from_mins(1);

/// Maximum number of deletes in the status, from the status schema.
const NAMED_MAX: usize = 20;

/// The longest fault message in the status, in characters, as limited by the status schema.
const FAULT_CHARS_MAX: usize = 1024;

/// Size limit for plan entries, enough for about 3,000 parents with changes.
const PLAN_BYTES_MAX: usize = 1 << 20;

/// A revision that may replace the active one.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) status: CandidateStatus,
    /// Keeps the plan that the admin server shows; none without a dry run, or if it shows none.
    _plan: Option<Arc<FleetPlan>>,
}

/// Runs a revision on all live parents without writing, and decides if it may replace the active one.
pub(crate) async fn dry_run(
    cx: &Context,
    declared: &Declared,
    active: &ActivePlugin,
    serving: &Revision,
) -> Result<Candidate, StageFailure> {
    let begin = Instant::now();
    let mut plan = plan_of(cx, active, serving).await?;
    let children = children(cx, active);
    let counts = counts(&plan.forecast);
    // A retained plan names them in the entries, which have a bound.
    let deletes = mem::take(&mut plan.forecast.deletes);
    let mut status = candidate(declared, serving, Some(counts), children);
    status.deletes = deletes
        .iter()
        .take(NAMED_MAX)
        .map(ObjectName::from_id)
        .collect();
    status.faults = plan.faults.iter().map(fault).collect();
    info!(
        plugin = %declared.name,
        revision = status.revision,
        verdict = ?status.verdict,
        ?counts,
        children,
        elapsed = ?begin.elapsed(),
        "dry run of a revision ended"
    );
    let plans = cx.plans.as_ref();
    status.plan = plans.map(|_| CandidatePlans::path(&declared.name));
    let plan = plans.map(|plans| plans.keep(plan));
    Ok(Candidate {
        status,
        _plan: plan,
    })
}

/// Plans a revision for all parents, kind by kind.
async fn plan_of(
    cx: &Context,
    active: &ActivePlugin,
    serving: &Revision,
) -> Result<FleetPlan, StageFailure> {
    let name = &active.served.name;
    let revision = serving.plugin.revision().to_string();
    let bytes_max = cx.plans.as_ref().map_or(0, |_| PLAN_BYTES_MAX);
    let mut plan = FleetPlan::new(name.to_string(), revision, None, bytes_max);
    let now = (cx.shared.now)();
    for reconciler in &active.served.reconcilers {
        let registration = reconciler.registration();
        // A new deadline for each kind: the candidate's watches begin only now, and earlier kinds may have taken
        // longer.
        let until = Instant::now() + READ_WITHIN;
        until_read(registration, until)
            .await
            .map_err(|first| waits(&format!("{}: {}", first.kind, first.why)))?;
        let candidate = reconciler.candidate(serving.clone());
        // In one call, because each group of parents goes to a guest thread at once.
        let results = reconciler.dry_run(&candidate, registration.parents(), until);
        let mut results = pin!(results);
        while let Some((parent, result)) = results.next().await {
            let mut outcome = result
                .plan(name, now, None, None)
                .map_err(|waiting| waits(&waiting))?;
            if let ParentOutcome::Fault { reason, known, .. } = &mut outcome {
                // As in the first passes: a retry says nothing yet.
                *known = reason == reason::RETRYING || !reconciler.has_passed(&parent, &candidate);
            }
            let is_asked = false;
            plan.add(parent, ParentPlan { is_asked, outcome });
        }
    }
    Ok(plan)
}

/// Returns how many children of the plugin are known.
fn children(cx: &Context, active: &ActivePlugin) -> usize {
    let kinds = cx.shared.inventory.kinds(&active.served.name, Role::Child);
    // The cache counts children for the whole plugin, so one controller answers for all.
    let Some(reconciler) = active.served.reconcilers.first() else {
        return 0;
    };
    let registration = reconciler.registration();
    kinds
        .iter()
        .filter_map(|kind| registration.child_count(&kind.group_kind()))
        .sum()
}

/// Returns a candidate without a dry run, when there is no last active revision to compare with.
///
/// The changes are unknown, so only the rollout mode decides. The first revision has nothing to change, and an earlier
/// one was accepted before.
pub(crate) fn candidate_without_dry_run(
    declared: &Declared,
    history: &History,
    serving: &Revision,
) -> Option<Candidate> {
    let revision = serving.plugin.revision();
    let mut past = history.past().peekable();
    if past.peek().is_none() || past.any(|past| past.revision == *revision) {
        return None;
    }
    Some(Candidate {
        status: candidate(declared, serving, None, 0),
        _plan: None,
    })
}

fn candidate(
    declared: &Declared,
    serving: &Revision,
    counts: Option<CandidateCounts>,
    children: usize,
) -> CandidateStatus {
    let revision = serving.plugin.revision();
    CandidateStatus {
        revision: revision_name(revision),
        digest: serving.plugin.digest().to_string(),
        verdict: verdict(
            &declared.rollout,
            revision,
            counts.unwrap_or_default(),
            children,
        ),
        counts,
        deletes: Vec::new(),
        faults: Vec::new(),
        plan: None,
    }
}

fn fault((parent, (reason, message)): (&ObjectId, &(String, String))) -> CandidateFault {
    CandidateFault {
        reason: reason.clone(),
        message: message.chars().take(FAULT_CHARS_MAX).collect(),
        parent: ObjectName::from_id(parent),
    }
}

fn counts(forecast: &Forecast) -> CandidateCounts {
    let Writes {
        creates,
        updates,
        deletes,
    } = forecast.total();
    CandidateCounts {
        parents: number(forecast.parents),
        creates: number(creates),
        updates: number(updates),
        deletes: number(deletes),
        faults: number(forecast.faults),
    }
}

fn waits(waiting: &str) -> StageFailure {
    let message = format!("the dry run of the revision waits for {waiting}; it is retried");
    Stage::Serving.failure(PluginReason::DryRunWaits, message, Retry::Backoff)
}

/// Returns the reason why a candidate may not be activated; none if it may.
pub(crate) fn refusal(candidate: &CandidateStatus) -> Option<StageFailure> {
    let revision = &candidate.revision;
    let changes = match candidate.counts {
        Some(counts) => format!(
            "it would create {}, change {} and delete {} children{}",
            counts.creates,
            counts.updates,
            counts.deletes,
            fails(counts, &candidate.faults)
        ),
        None => {
            "its changes are unknown, because the revision before it is not available".to_owned()
        }
    };
    let (reason, why) = match candidate.verdict {
        CandidateVerdict::TooManyPrunes => (
            PluginReason::TooManyPrunes,
            "would delete more than spec.rollout.maxPrunes allows",
        ),
        CandidateVerdict::TooManyFaults => (
            PluginReason::TooManyFaults,
            "would fail for more than a fifth of the parents",
        ),
        CandidateVerdict::AwaitingApproval => (
            PluginReason::AwaitingApproval,
            "waits for approval, because spec.rollout.mode is Gated",
        ),
        CandidateVerdict::Accepted => return None,
    };
    let message = format!(
        "revision {revision} {why}: {changes}; set spec.rollout.approve to {revision} to activate it"
    );
    // An administrator approves the plan for the present parents, not for those at the time when the revision came.
    Some(Stage::Serving.failure(reason, message, Retry::At(REPEAT_AFTER)))
}

/// Describes the faults, to complete a sentence.
fn fails(counts: CandidateCounts, faults: &[CandidateFault]) -> String {
    let CandidateCounts {
        faults: failing,
        parents,
        ..
    } = counts;
    faults.first().map_or_else(
        String::new,
        |CandidateFault {
             reason, message, ..
         }| {
            format!(", and fails for {failing} of {parents} parents: {reason}: {message}")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_that_is_not_activated_is_planned_again_while_nothing_triggers() {
        let refused = |verdict| {
            refusal(&CandidateStatus {
                revision: "a".to_owned(),
                digest: "sha256:a".to_owned(),
                verdict,
                counts: None,
                deletes: Vec::new(),
                faults: Vec::new(),
                plan: None,
            })
        };
        assert_eq!(refused(CandidateVerdict::Accepted), None);
        for verdict in [
            CandidateVerdict::TooManyPrunes,
            CandidateVerdict::TooManyFaults,
            CandidateVerdict::AwaitingApproval,
        ] {
            let failure = refused(verdict).unwrap();
            assert_eq!(failure.retry, Retry::At(REPEAT_AFTER), "{verdict:?}");
        }
    }

    #[test]
    fn a_refusal_has_the_first_fault_and_how_many_there_are() {
        let counts = CandidateCounts {
            parents: 4,
            faults: 2,
            ..CandidateCounts::default()
        };
        let fault = |message: &str| CandidateFault {
            reason: "Invalid".to_owned(),
            message: message.to_owned(),
            parent: ObjectName::default(),
        };
        assert_eq!(fails(counts, &[]), "");
        let faults = [fault("spec: missing field `owner`"), fault("other")];
        let text = ", and fails for 2 of 4 parents: Invalid: spec: missing field `owner`";
        assert_eq!(fails(counts, &faults), text);
    }
}
