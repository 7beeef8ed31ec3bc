//! The next step for one Plugin resource, and the conditions that report its state.
//!
//! Pure: the caller passes in the whole state, and nothing is fetched, loaded, served or written here.

mod history;
mod judgement;

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

pub use self::{
    history::{Beginning, History, Moment, Past},
    judgement::{FirstPasses, Judgement},
};
use innkeeper_model::{Condition, ConditionStatus, Digest, Gvk, Manifest};

use super::resource::{CandidateVerdict, Charter, Declared, Rollout, RolloutMode, revision_name};

/// A step on the way to passes, in its order; each has a condition of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The bytes are here.
    Fetched,
    /// They are the expected ones.
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

/// Condition type: the declared revision is not active, because a step failed.
const DEGRADED: &str = "Degraded";

/// Condition type: the declared revision faulted too often, and the revision before it is active again.
const ROLLED_BACK: &str = "RolledBack";

/// The steps that loading consists of.
const LOADING: [Stage; 5] = [
    Stage::Fetched,
    Stage::Verified,
    Stage::Compiled,
    Stage::Described,
    Stage::Granted,
];

impl Stage {
    const fn condition(self) -> &'static str {
        match self {
            Self::Fetched => "Fetched",
            Self::Verified => "Verified",
            Self::Compiled => "Compiled",
            Self::Described => "Described",
            Self::Granted => "Granted",
            Self::Serving => "Serving",
        }
    }
}

/// The failure of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The step.
    pub stage: Stage,
    /// One word in CamelCase.
    pub reason: String,
    /// The failure and the remedy.
    pub message: String,
}

/// A revision, and the answer of the declared charter to its requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The digest of bytes and configuration.
    pub digest: Digest,
    /// True if it has the grants that it requires.
    pub is_granted: bool,
}

/// The last attempt to load a declaration.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// The declaration at that time.
    pub of: &'a Declared,
    /// The loaded revision; none if the attempt failed.
    pub loaded: Option<Revision>,
    /// True if another attempt is due.
    pub is_due: bool,
    /// True if the loaded revision was rolled back and the Plugin has not changed since.
    pub is_rolled_back: bool,
}

/// The active revision.
#[derive(Clone, Debug)]
pub struct Served<'a> {
    /// The revision.
    pub revision: Revision,
    /// The terms that it is bound by.
    pub charter: &'a Charter,
    /// The result of its first passes so far; none if it is not on trial.
    pub trial: Option<Judgement>,
}

/// The state of one plugin, as the decision about the next step needs it.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// The declaration of its resource.
    pub declared: &'a Declared,
    /// The last attempt to load that; none if there was none.
    pub attempt: Option<Attempt<'a>>,
    /// The active revision, if any.
    pub served: Option<Served<'a>>,
    /// The revision that was active last, if none is active and this one is available.
    pub last: Option<Digest>,
    /// The last good revision before the active one, if it is available.
    pub good: Option<Digest>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Fetch, check, compile and describe the declared revision.
    Load,
    /// Activate this revision; none is active.
    Serve(Digest),
    /// Replace the active revision by this one, under the declared charter.
    Swap(Digest),
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

impl Situation<'_> {
    /// The next step.
    ///
    /// After any failure the active revision stays active under the declared charter: grants and limits bind at once.
    /// Only a charter without the required grants ends it.
    ///
    /// A process that has just started has no active revision. It resumes the last one before it fetches anything, so
    /// that a source that is down is no matter, and another revision has to replace it in the usual way.
    pub fn next(&self) -> Step {
        let granted = |revision: &&Revision| revision.is_granted;
        let attempt = self.attempt.as_ref();
        let attempt = attempt.filter(|attempt| loads_the_same(attempt.of, self.declared));
        let attempt = attempt.filter(|attempt| !attempt.is_due);
        let loaded = attempt.and_then(|attempt| attempt.loaded.as_ref().filter(granted));
        if let Some(step) = self.go_back(loaded) {
            return step;
        }
        let Some(attempt) = attempt else {
            return Step::Load;
        };
        let Some(served) = &self.served else {
            return loaded.map_or(Step::Wait, |loaded| Step::Serve(loaded.digest.clone()));
        };
        let loaded = loaded.filter(|_| !attempt.is_rolled_back);
        let fallback = Some(&served.revision).filter(granted);
        let Some(next) = loaded.or(fallback) else {
            return Step::Stop;
        };
        if next.digest != served.revision.digest || self.declared.charter != *served.charter {
            return Step::Swap(next.digest.clone());
        }
        if loaded.is_some() {
            Step::Keep
        } else {
            Step::Wait
        }
    }

    /// Returns the step to an earlier revision, if one is needed.
    fn go_back(&self, loaded: Option<&Revision>) -> Option<Step> {
        let Some(served) = &self.served else {
            let last = self.last.as_ref()?;
            let is_loaded = loaded.is_some_and(|loaded| loaded.digest == *last);
            return (!is_loaded).then(|| Step::Resume(last.clone()));
        };
        let is_faulty = served.trial == Some(Judgement::Faulty);
        let good = self.good.as_ref();
        let good = good.filter(|_| is_faulty && self.declared.rollout.auto_rollback)?;
        Some(Step::RollBack(good.clone()))
    }
}

/// Returns whether two declarations have the same bytes and the same configuration loaded, from the same place.
pub fn loads_the_same(one: &Declared, other: &Declared) -> bool {
    has_the_same_component(one, other) && one.config == other.config
}

/// Returns whether two declarations have the same bytes loaded, from the same place.
pub fn has_the_same_component(one: &Declared, other: &Declared) -> bool {
    one.origin == other.origin && one.digest == other.digest && one.keys == other.keys
}

/// Decides if a revision that would delete this many of the children may replace the active one.
pub fn verdict(
    rollout: &Rollout,
    revision: &Digest,
    deletes: usize,
    children: usize,
) -> CandidateVerdict {
    if rollout.approved.as_deref() == Some(&*revision_name(revision)) {
        CandidateVerdict::Accepted
    } else if deletes > rollout.prunes.max(children) {
        CandidateVerdict::TooManyPrunes
    } else {
        match rollout.mode {
            RolloutMode::Immediate => CandidateVerdict::Accepted,
            RolloutMode::Gated => CandidateVerdict::AwaitingApproval,
        }
    }
}

/// Returns the kinds of parents that once got finalizers and that the revision does not finalize.
pub fn unserved(finalized: &BTreeSet<Gvk>, manifest: &Manifest) -> BTreeSet<Gvk> {
    let is_served = |kind: &Gvk| {
        let mut parents = manifest.parents.iter();
        manifest.finalize && parents.any(|parent| parent.kind.group_kind() == kind.group_kind())
    };
    let unserved = finalized.iter().filter(|kind| !is_served(kind));
    unserved.cloned().collect()
}

/// The inputs of the conditions of a plugin.
#[derive(Clone, Debug, Default)]
pub struct Standing<'a> {
    /// The reason why the declared revision is not active.
    pub problem: Option<&'a Problem>,
    /// The verification that the bytes passed, for people.
    pub verified_by: &'a str,
    /// The optional requests without a grant, with the lines that would grant them.
    pub reduced: Option<&'a str>,
    /// The active or suspended revision.
    pub revision: Option<&'a Digest>,
    /// True if its passes are stopped.
    pub is_suspended: bool,
    /// The reason of the rollback of the declared revision, if any.
    pub rolled_back: Option<&'a str>,
    /// A note that the active revision faults too often, with the reason why it is not rolled back.
    pub faulting: Option<&'a str>,
}

impl Standing<'_> {
    /// All conditions, in the order of the steps.
    pub fn conditions(&self) -> Vec<Condition> {
        let loading = LOADING.map(|stage| self.loading(stage));
        let mut conditions = Vec::from(loading);
        conditions.push(self.serving());
        conditions.push(self.degraded());
        conditions.push(self.rolled_back());
        conditions
    }

    fn loading(&self, stage: Stage) -> Condition {
        let say = |status, reason: &str, message: &str| condition(stage, status, reason, message);
        match self.problem {
            Some(problem) if problem.stage == stage => {
                say(ConditionStatus::False, &problem.reason, &problem.message)
            }
            Some(problem) if problem.stage < stage => {
                let message = format!("waits for {}", problem.stage.condition());
                say(ConditionStatus::Unknown, "NotReached", &message)
            }
            Some(_) | None => match (stage, self.reduced) {
                (Stage::Verified, _) => say(ConditionStatus::True, "AsExpected", self.verified_by),
                (Stage::Granted, Some(lines)) => say(ConditionStatus::True, "Reduced", lines),
                (stage, _) => say(ConditionStatus::True, stage.condition(), ""),
            },
        }
    }

    fn serving(&self) -> Condition {
        let say = |status, reason: &str, message: &str| {
            condition(Stage::Serving, status, reason, message)
        };
        match (self.revision, self.problem) {
            (Some(_), _) if self.is_suspended => say(
                ConditionStatus::False,
                "Suspended",
                "passes are stopped by spec.suspend; set it to false to go on",
            ),
            (Some(revision), _) => {
                let message = format!("revision {} serves", revision_name(revision));
                say(ConditionStatus::True, "Serving", &message)
            }
            (None, Some(problem)) if problem.stage == Stage::Serving => {
                say(ConditionStatus::False, &problem.reason, &problem.message)
            }
            (None, Some(problem)) => {
                let message = format!("waits for {}", problem.stage.condition());
                say(ConditionStatus::False, "NotLoaded", &message)
            }
            (None, None) => say(ConditionStatus::Unknown, "Starting", ""),
        }
    }

    fn degraded(&self) -> Condition {
        let (status, reason, message) = match (self.problem, self.revision) {
            (None, _) => (ConditionStatus::False, "AsDeclared", String::new()),
            (Some(problem), Some(revision)) => {
                let name = revision_name(revision);
                let message = format!(
                    "revision {name} goes on instead of what is declared: {}",
                    problem.message
                );
                (ConditionStatus::True, &*problem.reason, message)
            }
            (Some(problem), None) => {
                let message = format!("nothing serves: {}", problem.message);
                (ConditionStatus::True, &*problem.reason, message)
            }
        };
        Condition {
            kind: DEGRADED.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
        }
    }

    fn rolled_back(&self) -> Condition {
        let (status, reason, message) = match (self.rolled_back, self.faulting) {
            (Some(message), _) => (ConditionStatus::True, "TooManyFaults", message),
            (None, Some(message)) => (ConditionStatus::False, "TooManyFaults", message),
            (None, None) => (ConditionStatus::False, "NotNeeded", ""),
        };
        Condition {
            kind: ROLLED_BACK.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}

fn condition(stage: Stage, status: ConditionStatus, reason: &str, message: &str) -> Condition {
    Condition {
        kind: stage.condition().to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// Conditions as the resource holds them; each keeps its time until its status changes.
pub fn dated(
    conditions: Vec<Condition>,
    before: &[meta::Condition],
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> Vec<meta::Condition> {
    let dated = |condition: Condition| {
        let status = condition.status.as_str();
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
