//! The answers of the guest, counted: per plugin, per revision and per parent.

use std::sync::atomic::Ordering;

use innkeeper_model::{FaultKind, Phase, reason};
use innkeeper_plan as plan;

use super::{
    check::Checked,
    state::{Pass, Step, Stopped},
};
use crate::{pass::skip::Stop, revision::faults::RecentFault};

/// Counts the answer of a guest, and passes it on.
pub(super) fn count<'a>(checked: Step<'a, Pass<'a, Checked>>) -> Step<'a, Pass<'a, Checked>> {
    match checked {
        Ok(pass) => {
            let generation = pass.state.entered.observation.parent.generation;
            pass.record(generation, None);
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
        let parent = self.state.parent.as_ref();
        let generation = parent.and_then(|parent| parent.generation);
        match &self.state.reason {
            Stop::Fault { fault, phase } => {
                let condition = plan::fault_condition(fault);
                self.context.metrics.fault(&condition.reason);
                match fault.kind {
                    // The next pass decides.
                    FaultKind::Retry => {}
                    // The guest works. Whether the parent or the revision is wrong depends on the passes before.
                    FaultKind::Invalid => {
                        self.record(
                            generation,
                            Some(self.fault(reason::INVALID, &fault.message)),
                        );
                    }
                    FaultKind::Fatal => {
                        self.record_fault(generation, reason::FATAL, &fault.message);
                        if let (Phase::Reconcile, Some(parent)) = (phase, &self.state.parent) {
                            self.epoch.given_up.add(parent, condition);
                        }
                    }
                }
            }
            Stop::Refused { reason, message } => {
                self.context.metrics.fault(reason);
                self.record_fault(generation, reason, message);
            }
            _ => {}
        }
    }
}

impl<S> Pass<'_, S> {
    fn fault(&self, reason: &str, message: &str) -> RecentFault {
        RecentFault {
            parent: self.id.clone(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            time: (self.context.shared.now)(),
        }
    }

    /// Counts a fault of the guest for a generation of the parent.
    fn record_fault(&self, generation: Option<i64>, reason: &str, message: &str) {
        let fault = self.fault(reason, message);
        self.record(generation, Some(fault.clone()));
        self.epoch.faults.fetch_add(1, Ordering::Relaxed);
        self.context.recent_faults.add(fault);
    }

    /// Records an answer for a generation of the parent; `failure` if the parent was not reconciled.
    pub(super) fn record(&self, generation: Option<i64>, failure: Option<RecentFault>) {
        let (context, epoch) = (self.context, &self.epoch);
        let revision = epoch.serving.plugin.revision();
        let mut ledger = context.ledger.lock();
        ledger.answered(self.id, generation, revision, failure.is_some());
        drop(ledger);
        let mut analysis = epoch.analysis.lock();
        if analysis.record(self.id, generation, failure.as_ref()) {
            context.shared.analyses.notify_one();
        }
    }
}
