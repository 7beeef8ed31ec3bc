//! What a call came to, once its answer has been held against the rules.

use innkeeper_model::{Fault, FaultKind, Gvk, ObjectId, Outcome, Phase, reason};
use innkeeper_policy::{self as policy, Checked, Rejection};
use innkeeper_sandbox::End;

use super::{Reconciler, Serving, trial::FirstPass};

/// What a pass has to go on.
pub(super) enum Answer {
    /// An answer that may be acted on.
    Outcome(Checked<Outcome>),
    /// The guest says that it cannot answer.
    Fault(Checked<Fault>),
    /// The guest broke down or broke a limit, or its answer breaks a rule.
    Refused {
        reason: &'static str,
        message: String,
    },
    /// The guest read a kind that is not yet cached.
    Parked(Gvk),
}

impl Answer {
    /// What it means for a revision on trial; none if it leaves the question open.
    pub(super) fn first_pass(&self) -> Option<FirstPass> {
        let faulted = |reason: &str, message: &str| FirstPass::Faulted {
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        match self {
            Self::Outcome(_) => Some(FirstPass::Well),
            Self::Fault(fault) => match fault.kind {
                FaultKind::Retry => None,
                FaultKind::Invalid => Some(FirstPass::Well),
                FaultKind::Fatal => Some(faulted(reason::FATAL, &fault.message)),
            },
            Self::Refused { reason, message } => Some(faulted(reason, message)),
            Self::Parked(_) => None,
        }
    }
}

impl From<Rejection> for Answer {
    fn from(rejection: Rejection) -> Self {
        Self::Refused {
            reason: rejection.reason(),
            message: rejection.message().to_owned(),
        }
    }
}

impl Reconciler {
    /// Holds what a call came to against the rules.
    pub(super) fn check(
        &self,
        serving: &Serving,
        parent: &ObjectId,
        phase: Phase,
        end: End,
    ) -> Answer {
        let rules = policy::Rules {
            manifest: serving.plugin.manifest(),
            grants: &serving.grants,
            limits: &serving.limits,
            resources: &*self.shared.resources,
            parent,
            phase,
        };
        match end {
            End::Answered(outcome) => {
                policy::check(outcome, &rules).map_or_else(Answer::from, Answer::Outcome)
            }
            End::GuestFault(fault) => {
                policy::check_fault(fault).map_or_else(Answer::from, Answer::Fault)
            }
            End::Faulted(fault) => Answer::Refused {
                reason: fault.category(),
                message: fault.to_string(),
            },
            End::Parked(kind) => Answer::Parked(kind),
        }
    }
}
