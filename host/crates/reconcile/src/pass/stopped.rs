//! A pass that ended before its report: the effects of the reason, and its condition.

use std::ops::ControlFlow;

use innkeeper_model::{Object, Operation, error_chain};
use innkeeper_plan::WriteFailure;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    state::{Pass, Stopped},
    status,
};
use crate::{
    next::{Attempt, Next},
    pass::context::Context,
    pass::result::{End, Findings},
    pass::skip::Stop,
    pass::trace::Trace,
};

impl Pass<'_, Stopped> {
    /// Reports the reason where the parent has to know it, and returns the time of the next pass; nothing if another round
    /// follows.
    pub(super) async fn report(
        self: Box<Self>,
        attempt: &Attempt,
        trace: &Trace<'_>,
    ) -> ControlFlow<Next> {
        self.settle();
        let Self {
            context,
            state: Stopped { parent, reason },
            ..
        } = *self;
        let releases = match &reason {
            Stop::Released => true,
            // No other pass would ever remove it. The condition follows in the next round.
            Stop::NotSelected { .. } => {
                let finalizer = context.plugin.finalizer();
                let parent = parent.as_ref();
                parent.is_some_and(|parent| parent.has_finalizer(&finalizer))
            }
            _ => false,
        };
        let end = match &parent {
            Some(parent) if releases => {
                let result = release(context, parent).await;
                if result.is_ok() && matches!(reason, Stop::NotSelected { .. }) {
                    return ControlFlow::Continue(());
                }
                End::Released(None, result)
            }
            _ => End::Stopped {
                reason: &reason,
                parked: attempt.parked.unwrap_or_default(),
                now: Instant::now(),
            },
        };
        let findings = Findings::of(&context.plugin, parent.as_ref(), end);
        let Some(parent) = &parent else {
            return ControlFlow::Break(findings.conclude().next);
        };
        let mut target = context.target(parent);
        let reported = status::write(context, &mut target, parent, findings, false, trace).await;
        ControlFlow::Break(reported.next)
    }

    /// Forgets the facts that the reason makes obsolete, and exempts the parent from the rollout analysis.
    fn settle(&self) {
        let (context, epoch, id) = (self.context, &self.epoch, self.id);
        match &self.state.reason {
            Stop::Gone => {
                context.exempt(epoch, id);
                epoch.memory.forget(id);
                epoch.given_up.forget(id);
            }
            // Its passes say nothing about a revision.
            Stop::CacheFull(_) => context.exempt(epoch, id),
            Stop::NotSelected { reads, .. } => {
                context.exempt(epoch, id);
                epoch.memory.forget(id);
                // The subscriptions of the guest's reads end.
                self.registration.commit(id, reads);
            }
            _ => {}
        }
    }
}

/// Removes the finalizer without the guest.
async fn release(context: &Context, parent: &Object) -> Result<(), WriteFailure> {
    let mut target = context.target(parent);
    let id = parent.id();
    let writer = &context.shared.writer;
    match writer.release(&mut target, &context.plugin).await {
        Ok(written) => {
            info!("released the parent without its guest");
            match written {
                Some(written) => {
                    context.note_written(&id, &id, Operation::RemoveFinalizer.verb(), &written);
                }
                // The parent is gone, or without the finalizer, and the cache does not show it yet.
                None => (context.registration).expect_newer(&id, &id, target.resource_version()),
            }
            Ok(())
        }
        Err(error) => {
            context.note_failure(&id, &id, Some(target.resource_version()), &error);
            warn!(error = %error_chain(&error), "failed to release the parent");
            Err(error.finalizer_failure())
        }
    }
}
