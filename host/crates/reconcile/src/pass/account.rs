//! The answers of the guest, counted: per plugin, per revision and per parent.

use std::sync::atomic::Ordering;

use innkeeper_model::{FaultKind, Phase, reason};
use innkeeper_plan as plan;

use super::{
    check::Checked,
    state::{Pass, Step, Stopped},
};
use crate::{analysis::FirstPass, stop::Stop};

/// Counts the answer of a guest, and passes it on.
pub(super) fn account<'a>(checked: Step<'a, Pass<'a, Checked>>) -> Step<'a, Pass<'a, Checked>> {
    match checked {
        Ok(pass) => {
            pass.record(FirstPass::Well);
            Ok(pass)
        }
        Err(stopped) => {
            stopped.count_fault();
            Err(stopped)
        }
    }
}

impl Pass<'_, Stopped> {
    fn count_fault(&self) {
        match &self.state.reason {
            Stop::Fault { fault, phase } => {
                let condition = plan::fault_condition(fault);
                self.context.metrics.fault(&condition.reason);
                match fault.kind {
                    // The next pass decides.
                    FaultKind::Retry => {}
                    FaultKind::Invalid => self.record(FirstPass::Well),
                    FaultKind::Fatal => {
                        self.record(faulted(reason::FATAL, &fault.message));
                        if let (Phase::Reconcile, Some(parent)) = (phase, &self.state.parent) {
                            self.epoch.given_up.add(parent, condition);
                        }
                    }
                }
            }
            Stop::Refused { reason, message } => {
                self.context.metrics.fault(reason);
                self.record(faulted(reason, message));
            }
            _ => {}
        }
    }
}

fn faulted(reason: &str, message: &str) -> FirstPass {
    FirstPass::Faulted {
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

impl<S> Pass<'_, S> {
    fn record(&self, ended: FirstPass) {
        let (context, epoch) = (self.context, &self.epoch);
        let faulted = matches!(ended, FirstPass::Faulted { .. });
        if let FirstPass::Faulted { reason, message } = &ended {
            epoch.faults.fetch_add(1, Ordering::Relaxed);
            let now = (context.shared.now)();
            context.recent_faults.add(self.id, reason, message, now);
        }
        let revision = epoch.serving.plugin.revision();
        context.ledger.lock().answered(self.id, revision, faulted);
        if epoch.analysis.lock().record(self.id, ended) {
            context.shared.analyses.notify_one();
        }
    }
}
