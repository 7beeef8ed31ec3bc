//! Check: compares the guest's answer with manifest, grants and limits, and records the outcome.

use std::sync::atomic::Ordering;

use innkeeper_model::{FaultKind, Object, Outcome, Phase, reason};
use innkeeper_plan as plan;
use innkeeper_policy::{self as policy, Checked, Rejection};
use innkeeper_sandbox::End;

use super::{
    context::{Pass, Step},
    enter::Entered,
    skip::Skip,
};
use crate::revision::faults::RecentFault;

impl From<Rejection> for Box<Skip> {
    fn from(rejection: Rejection) -> Self {
        Self::new(Skip::Refused {
            reason: rejection.reason(),
            message: rejection.message().to_owned(),
        })
    }
}

/// Accepts the answer, or skips the rest: after a guest fault, a broken rule, or a read that is not cached yet.
pub(crate) fn check(
    pass: &Pass<'_>,
    parent: &Object,
    entered: &Entered,
    end: End,
) -> Step<Checked<Outcome>> {
    let revision = &pass.epoch.revision;
    let shared = &pass.context.shared;
    let rules = policy::Rules {
        manifest: revision.plugin.manifest(),
        grants: &revision.grants,
        limits: &revision.limits,
        resources: &shared.cluster,
        host_namespaces: &shared.host_namespaces,
        parent: pass.id,
        depth: parent.depth(),
        phase: entered.phase,
    };
    let skip = match end {
        End::Answered(outcome) => return Ok(policy::check(outcome, &rules)?),
        End::GuestFault(fault) => Skip::Fault {
            fault: policy::check_fault(fault)?,
            phase: entered.phase,
        },
        End::Faulted(fault) => Skip::Refused {
            reason: fault.category(),
            message: fault.to_string(),
        },
        End::Parked(kind) => Skip::ReadNotCached(kind),
    };
    Err(Box::new(skip))
}

/// Records an answer or a guest fault: in the metrics, the recent faults, the ledger and the rollout analysis.
pub(super) fn record_outcome<T>(pass: &Pass<'_>, parent: &Object, checked: &Step<T>) {
    let context = pass.context;
    let epoch = &pass.epoch;
    let failure = match checked.as_ref().map_err(|skip| &**skip) {
        Ok(_) => None,
        Err(Skip::Refused { reason, message }) => {
            context.metrics.fault(reason);
            Some((*reason, message, true))
        }
        Err(Skip::Fault { fault, phase }) => {
            let condition = plan::fault_condition(fault);
            context.metrics.fault(&condition.reason);
            match fault.kind {
                // The next pass decides.
                FaultKind::Retry => return,
                // The guest works. The earlier passes show whether the parent or the revision is wrong.
                FaultKind::Invalid => Some((reason::INVALID, &fault.message, false)),
                FaultKind::Fatal => {
                    // A deletion is retried until the finalizer is off.
                    if *phase == Phase::Reconcile {
                        epoch.given_up.add(parent, condition);
                    }
                    Some((reason::FATAL, &fault.message, true))
                }
            }
        }
        Err(_) => return,
    };
    let failure = failure.map(|(reason, message, is_fault)| {
        let failure = RecentFault {
            parent: pass.id.clone(),
            reason: reason.to_owned(),
            message: message.clone(),
            time: (context.shared.now)(),
        };
        if is_fault {
            epoch.faults.fetch_add(1, Ordering::Relaxed);
            context.recent_faults.add(failure.clone());
        }
        failure
    });
    let generation = parent.generation;
    let revision = epoch.revision.plugin.revision();
    context
        .ledger
        .lock()
        .record_answer(pass.id, generation, revision, failure.is_some());
    let mut analysis = epoch.analysis.lock();
    if analysis.record(pass.id, generation, failure.as_ref()) {
        context.shared.analyses.notify_one();
    }
}
