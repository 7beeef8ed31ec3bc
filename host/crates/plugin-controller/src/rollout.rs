//! Revision rollouts: the dry run before activation, the analysis of first passes, and the history for rollbacks.

mod analysis;
mod dry_run;
mod fleet_plan;
mod forecast;
mod history;
mod plans;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use innkeeper_model::{Digest, Gvk, Manifest};

use self::analysis::are_too_many;
pub(crate) use self::{
    analysis::{AnalysisCounts, AnalysisVerdict, RolloutAnalysis},
    dry_run::{Candidate, candidate_without_dry_run, dry_run, refusal},
    history::{Activation, History, Moment, PastRevision},
};
pub use self::{
    fleet_plan::{FleetPlan, ParentPlan},
    forecast::{Forecast, Writes},
    plans::CandidatePlans,
};
use crate::resource::{CandidateCounts, CandidateVerdict, RolloutMode, RolloutSpec, revision_name};

/// Decides whether a revision with this dry run may replace the active one, which has this many children.
fn verdict(
    rollout: &RolloutSpec,
    revision: &Digest,
    counts: CandidateCounts,
    children: usize,
) -> CandidateVerdict {
    let size = |count: i32| usize::try_from(count).unwrap_or_default();
    // First, because the approval is also the remedy for too many deletes and faults.
    if rollout.approve.as_deref() == Some(&*revision_name(revision)) {
        CandidateVerdict::Accepted
    } else if size(counts.deletes) > rollout.prunes_max(children) {
        CandidateVerdict::TooManyPrunes
    } else {
        match rollout.mode {
            RolloutMode::Gated => CandidateVerdict::AwaitingApproval,
            RolloutMode::Immediate if are_too_many(size(counts.faults), size(counts.parents)) => {
                CandidateVerdict::TooManyFaults
            }
            RolloutMode::Immediate => CandidateVerdict::Accepted,
        }
    }
}

/// Returns the parent kinds that once got finalizers and that the revision does not finalize, in any version.
pub(crate) fn not_finalized(recorded: &BTreeSet<Gvk>, manifest: &Manifest) -> BTreeSet<Gvk> {
    let is_finalized = |kind: &Gvk| manifest.finalize && manifest.reconciles(&kind.group_kind());
    recorded
        .iter()
        .filter(|kind| !is_finalized(kind))
        .cloned()
        .collect()
}
