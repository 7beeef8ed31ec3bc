//! The typestate of a pass.

use std::sync::Arc;

use innkeeper_cluster::Registration;
use innkeeper_model::{Object, ObjectId};

use crate::{pass::context::Context, pass::skip::Stop, revision::epoch::Epoch};

/// A pass for one parent that has come to the state `S`; each step consumes the state before it.
pub(crate) struct Pass<'a, S> {
    pub(crate) context: &'a Context,
    /// The reader of the pass: the plugin's own, or that of a candidate revision.
    pub(crate) registration: &'a Registration,
    /// The revision and the rules of the pass, from its begin to its end.
    pub(crate) epoch: Arc<Epoch>,
    pub(crate) id: &'a ObjectId,
    pub(crate) state: S,
}

/// A pass that has ended before its report.
pub(crate) struct Stopped {
    /// The parent, if it exists and a condition of it may state the reason.
    pub(crate) parent: Option<Object>,
    pub(crate) reason: Stop,
}

/// The result of a step.
pub(crate) type Step<'a, T> = Result<T, Box<Pass<'a, Stopped>>>;

impl<'a, S> Pass<'a, S> {
    /// Moves the pass to its next state.
    pub(crate) fn advance<T>(self, next: impl FnOnce(S) -> T) -> Pass<'a, T> {
        let (pass, state) = self.split();
        Pass {
            context: pass.context,
            registration: pass.registration,
            epoch: pass.epoch,
            id: pass.id,
            state: next(state),
        }
    }

    /// Takes the state out, for a step that consumes parts of it before it knows the next one.
    pub(crate) fn split(self) -> (Pass<'a, ()>, S) {
        let Self {
            context,
            registration,
            epoch,
            id,
            state,
        } = self;
        let pass = Pass {
            context,
            registration,
            epoch,
            id,
            state: (),
        };
        (pass, state)
    }

    /// Ends the pass before its report; `parent` is the object that a condition about the reason belongs to.
    pub(crate) fn stop(
        self,
        parent: impl FnOnce(S) -> Option<Object>,
        reason: Stop,
    ) -> Box<Pass<'a, Stopped>> {
        Box::new(self.advance(|state| Stopped {
            parent: parent(state),
            reason,
        }))
    }
}
