//! The trait that a plugin implements; [`export!`](crate::export!) exports it.
//!
//! Nothing here knows about WebAssembly: a reconciler is plain Rust and is tested as such.

use crate::fault::Fault;
use crate::host::Host;
use crate::manifest::Manifest;
use crate::outcome::Outcome;
use crate::request::Request;

/// A plugin: describes itself, and answers for one parent at a time with the desired children.
///
/// # Expected flow
///
/// The host calls [`describe`](Self::describe) once when it loads the plugin.
/// Afterwards it calls [`reconcile`](Self::reconcile) whenever a parent, one of its children or an
/// object that an earlier pass read has changed, each time in a new instance.
///
/// # Guarantees
///
/// The host writes no child before `reconcile` has answered; a fault or a panic leaves all children
/// as they are.
///
/// # Assumptions
///
/// The same request and the same answers to reads give the same outcome. A static variable or the
/// order of a hash map must not change it.
pub trait Reconciler {
    /// Returns identity and requests of the plugin; the same in each call.
    fn describe() -> Manifest;

    /// Runs one pass for one parent.
    ///
    /// A plugin with several kinds of parents dispatches on [`Request::is_parent`] or
    /// [`Request::parent_kind`].
    ///
    /// # Errors
    ///
    /// A [`Fault`] if there is no answer; its kind decides when the next pass runs.
    fn reconcile(request: &Request, host: &dyn Host) -> Result<Outcome, Fault>;

    /// Runs one pass for a parent that is being deleted and waits for this plugin.
    ///
    /// The host calls it only if the manifest sets [`Manifest::finalize`].
    /// The default lets the parent be deleted at once.
    ///
    /// # Errors
    ///
    /// A [`Fault`] as for [`reconcile`](Self::reconcile); the parent stays.
    fn finalize(_request: &Request, _host: &dyn Host) -> Result<Outcome, Fault> {
        Ok(Outcome::finalized(crate::outcome::Report::new()))
    }
}
