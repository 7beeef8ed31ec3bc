//! A child that the cluster does not have as it is stated.

use innkeeper_sdk::prelude::*;

/// The child, and whether an earlier pass has stated it in vain: then the cluster refuses it, which the host tells in
/// `Synced` after the pass.
pub(super) struct Unapplied {
    child: String,
    pub(super) is_refused: bool,
}

impl Unapplied {
    /// A child as kind and name.
    pub(super) fn new(request: &Request, child: String) -> Self {
        let mut unapplied = Self {
            child,
            is_refused: false,
        };
        let stored = request.stored_condition("Ready");
        unapplied.is_refused = stored.is_some_and(|condition| {
            condition.message == unapplied.waiting() || condition.message == unapplied.refused()
        });
        unapplied
    }

    /// The message while a pass applies it.
    pub(super) fn waiting(&self) -> String {
        format!("waiting for {} to be updated", self.child)
    }

    /// The message when an earlier pass has stated it in vain.
    pub(super) fn refused(&self) -> String {
        format!(
            "{} does not match the desired state: see Synced",
            self.child
        )
    }
}
