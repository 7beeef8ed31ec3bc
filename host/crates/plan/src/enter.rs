//! Whether a parent gets a pass.

use innkeeper_model::{
    ANNOTATION_PAUSED, ANNOTATION_SKIP_FINALIZE, Manifest, Object, Phase, PluginName,
};

/// What to do with a parent before its guest is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// It is being deleted without our finalizer: what is left is the garbage collector's.
    Ignore,
    /// Its passes are stopped by annotation.
    Paused,
    /// Our finalizer goes without asking the guest.
    Release,
    /// The guest is called.
    Pass(Phase),
}

/// Decides what to do with a parent.
pub fn enter(parent: &Object, plugin: &PluginName, manifest: &Manifest) -> Entry {
    let says_true = |name| parent.annotation(name) == Some("true");
    let finalizing = parent.is_deleting();
    if finalizing && !parent.has_finalizer(&plugin.finalizer()) {
        return Entry::Ignore;
    }
    // The way out of a deletion that hangs works for paused parents too.
    if finalizing && (says_true(ANNOTATION_SKIP_FINALIZE) || !manifest.finalize) {
        return Entry::Release;
    }
    if says_true(ANNOTATION_PAUSED) {
        return Entry::Paused;
    }
    Entry::Pass(if finalizing {
        Phase::Finalize
    } else {
        Phase::Reconcile
    })
}
