//! Check: the answer of the guest against manifest, grants and limits.

use innkeeper_model::{Answer, Outcome, Phase, ReadKey};
use innkeeper_policy::{self as policy, Checked as Accepted, Rejection};
use innkeeper_sandbox::End;

use super::{
    call::Answered,
    enter::Entered,
    state::{Pass, Step},
};
use crate::{memory::Inputs, pass::skip::Stop};

/// A pass whose answer may be acted on.
pub(crate) struct Checked {
    pub(super) entered: Entered,
    pub(super) outcome: Accepted<Outcome>,
    pub(super) reads: Option<Vec<(ReadKey, Answer)>>,
    pub(super) inputs: Option<Inputs>,
}

impl From<Rejection> for Box<Stop> {
    fn from(rejection: Rejection) -> Self {
        Self::new(Stop::Refused {
            reason: rejection.reason(),
            message: rejection.message().to_owned(),
        })
    }
}

impl<'a> Pass<'a, Answered> {
    /// Accepts the answer, or stops the pass: for a fault of the guest, a broken rule, or a read that is not cached yet.
    pub(crate) fn check(self) -> Step<'a, Pass<'a, Checked>> {
        let (pass, answered) = self.split();
        let Answered {
            entered,
            end,
            reads,
            inputs,
        } = answered;
        match pass.accept(entered.phase, entered.observation.parent.depth(), end) {
            Ok(outcome) => Ok(pass.advance(|()| Checked {
                entered,
                outcome,
                reads,
                inputs,
            })),
            Err(reason) => Err(pass.stop(|()| Some(entered.observation.parent), *reason)),
        }
    }
}

impl Pass<'_, ()> {
    fn accept(&self, phase: Phase, depth: u32, end: End) -> Result<Accepted<Outcome>, Box<Stop>> {
        let serving = &self.epoch.serving;
        let rules = policy::Rules {
            manifest: serving.plugin.manifest(),
            grants: &serving.grants,
            limits: &serving.limits,
            resources: &self.context.shared.cluster,
            host_namespaces: &self.context.shared.host_namespaces,
            parent: self.id,
            depth,
            phase,
        };
        let reason = match end {
            End::Answered(outcome) => return Ok(policy::check(outcome, &rules)?),
            End::GuestFault(fault) => Stop::Fault {
                fault: policy::check_fault(fault)?,
                phase,
            },
            End::Faulted(fault) => Stop::Refused {
                reason: fault.category(),
                message: fault.to_string(),
            },
            End::Parked(kind) => Stop::ReadNotCached(kind),
        };
        Err(Box::new(reason))
    }
}
