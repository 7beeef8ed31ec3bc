//! The stages of a Plugin on the way to its passes, and the rules for a new revision.
//!
//! Pure: nothing is fetched, loaded, served or written here.

mod analysis;
mod history;
mod load_marks;

use std::{collections::BTreeSet, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

pub(crate) use self::{
    analysis::{AnalysisCounts, AnalysisVerdict, RolloutAnalysis, are_too_many},
    history::{Activation, History, Moment, PastRevision},
    load_marks::{LoadDecision, LoadMarks},
};
use innkeeper_model::{Condition, ConditionStatus, Digest, Gvk, Manifest, Retry, error_chain};

use super::resource::{
    CandidateCounts, CandidateVerdict, Declared, RolloutMode, RolloutSpec, revision_name,
};

/// A stage on the way to passes, in their order; each has a condition of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The bytes are in memory.
    Fetched,
    /// They have the declared digest, and one of the declared signatures.
    Verified,
    /// They are machine code.
    Compiled,
    /// The component has a description and accepts its configuration.
    Described,
    /// It has the grants that it requires.
    Granted,
    /// Its passes run.
    Serving,
}

impl Stage {
    /// The stages before the activation of a revision.
    pub(crate) const LOADING: [Self; 5] = [
        Self::Fetched,
        Self::Verified,
        Self::Compiled,
        Self::Described,
        Self::Granted,
    ];
}

impl fmt::Display for Stage {
    /// Shows the type of its condition, which has the name of the stage.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The longest message, in characters, which is that of the conditions of parents. A component or a server may choose parts
/// of it, and the API server refuses a status with a condition above 32,768.
const MESSAGE_CHARS_MAX: usize = 2048;

/// The failure of a stage, or a stage that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StageFailure {
    /// The stage.
    pub(crate) stage: Stage,
    /// False; Unknown while the stage runs.
    pub(crate) status: ConditionStatus,
    /// One word in CamelCase.
    pub(crate) reason: String,
    /// The failure and the remedy.
    pub(crate) message: String,
    /// The time of the next attempt.
    pub(crate) retry: Retry,
}

impl StageFailure {
    /// A failure with a message of its own.
    pub(crate) fn new(stage: Stage, reason: &str, message: impl ToString, retry: Retry) -> Self {
        Self {
            stage,
            status: ConditionStatus::False,
            reason: reason.to_owned(),
            message: message
                .to_string()
                .chars()
                .take(MESSAGE_CHARS_MAX)
                .collect(),
            retry,
        }
    }

    /// A stage that runs beside the passes, or waits for a place.
    pub(crate) fn running(stage: Stage) -> Self {
        let (reason, message) = match stage {
            Stage::Compiled => ("Compiling", "the component is being compiled"),
            _ => (
                "Fetching",
                "the component is being fetched, or waits until other fetches end",
            ),
        };
        Self {
            status: ConditionStatus::Unknown,
            ..Self::new(stage, reason, message, Retry::OnChange)
        }
    }

    /// The failure of an operation, with all causes in the message.
    pub(crate) fn of(
        stage: Stage,
        reason: &str,
        error: &(impl std::error::Error + 'static),
        retry: Retry,
    ) -> Self {
        Self::new(stage, reason, error_chain(error), retry)
    }
}

/// The next step for a Plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Fetch, verify, compile and describe the declared revision.
    Load,
    /// Activate this revision under the declared terms, as the first one or in place of the active one.
    Activate(Digest),
    /// Activate this revision again, which was active last, without access to its source.
    Resume(Digest),
    /// Replace the active revision by this earlier one, which was good.
    RollBack(Digest),
    /// End all passes: the active revision lacks required grants, and no other can replace it.
    Stop,
    /// Keep the active revision, which is the declared one.
    Keep,
    /// Keep the active revision, if any, until another attempt or another declaration.
    Wait,
}

/// Returns true if two declarations load the same bytes and the same configuration from the same source.
pub(crate) fn loads_the_same(one: &Declared, other: &Declared) -> bool {
    has_the_same_component(one, other) && one.config == other.config
}

/// Returns true if two declarations load the same bytes from the same source.
pub(crate) fn has_the_same_component(one: &Declared, other: &Declared) -> bool {
    one.origin == other.origin && one.digest == other.digest && verifies_the_same(one, other)
}

/// Returns true if two declarations require the same of the bytes of any digest.
pub(crate) fn verifies_the_same(one: &Declared, other: &Declared) -> bool {
    one.keys == other.keys && one.identity == other.identity
}

/// Decides if a revision with this dry run may replace the active one, which has this many children.
///
/// The approval comes first: it is also the remedy for too many deletes and faults.
pub(crate) fn verdict(
    rollout: &RolloutSpec,
    revision: &Digest,
    counts: CandidateCounts,
    children: usize,
) -> CandidateVerdict {
    let size = |count: i32| usize::try_from(count).unwrap_or_default();
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

/// Returns the kinds of parents that once got finalizers and that the revision does not finalize, in any version.
pub(crate) fn not_finalized(recorded: &BTreeSet<Gvk>, manifest: &Manifest) -> BTreeSet<Gvk> {
    let is_finalized = |kind: &Gvk| manifest.finalize && manifest.reconciles(&kind.group_kind());
    let kinds = recorded.iter().filter(|kind| !is_finalized(kind));
    kinds.cloned().collect()
}

/// Converts conditions for the status; each keeps its transition time until its status changes.
pub(crate) fn dated(
    conditions: Vec<Condition>,
    before: &[meta::Condition],
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> Vec<meta::Condition> {
    let dated = |condition: Condition| {
        let status: &str = condition.status.into();
        let same = |one: &&meta::Condition| one.type_ == condition.kind && one.status == status;
        let since = before.iter().find(same);
        meta::Condition {
            last_transition_time: since
                .map_or(meta::Time(now), |one| one.last_transition_time.clone()),
            status: status.to_owned(),
            type_: condition.kind,
            reason: condition.reason,
            message: condition.message,
            observed_generation: generation,
        }
    };
    conditions.into_iter().map(dated).collect()
}

#[cfg(test)]
mod tests;
