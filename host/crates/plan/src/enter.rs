//! The decision before a pass: if the host calls the guest for a parent.

use innkeeper_model::{
    ANNOTATION_PAUSED, ANNOTATION_SKIP_FINALIZE, Manifest, Object, Phase, PluginName,
};

/// The action for a parent before the guest is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PassEntry {
    /// No action: the parent is being deleted without the host's finalizer, and the garbage collector does the rest.
    Ignore,
    /// No pass: an annotation pauses the parent.
    Paused,
    /// The host removes the finalizer without calling the guest.
    Release,
    /// The host calls the guest.
    Pass(Phase),
}

/// Decides the action for a parent.
pub fn enter(parent: &Object, plugin: &PluginName, manifest: &Manifest) -> PassEntry {
    let says_true = |name| parent.annotation(name) == Some("true");
    let finalizing = parent.is_deleting();
    if finalizing && !parent.has_finalizer(&plugin.finalizer()) {
        return PassEntry::Ignore;
    }
    // This check comes before the pause, so that a user can also delete a paused parent that is stuck.
    // A revision that does not finalize has nothing to clean up: the finalizer is from an earlier one.
    if finalizing && (says_true(ANNOTATION_SKIP_FINALIZE) || !manifest.finalize) {
        return PassEntry::Release;
    }
    if says_true(ANNOTATION_PAUSED) {
        return PassEntry::Paused;
    }
    PassEntry::Pass(if finalizing {
        Phase::Finalize
    } else {
        Phase::Reconcile
    })
}
