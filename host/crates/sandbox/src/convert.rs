//! Between WIT and `model`.
//!
//! One adapter per contract version, chosen once when a plugin is loaded; nothing else knows that there are versions.
//! The rules of the boundary are checked here: texts are JSON objects, within their sizes and depth, without `null`.
//! The grants of a plugin are checked by `policy`.

mod json;
mod v0_1;

use std::sync::Arc;

use innkeeper_model::{Fault, Limits, Manifest, Outcome};
use wasmtime::{
    Store,
    component::{Component, Linker},
};

use crate::{
    Error,
    call::{CallFault, Request},
    state::State,
};

/// Contract versions that this host speaks, oldest first.
pub(super) const VERSIONS: &[&str] = &[v0_1::VERSION];

/// A guest's answer, checked.
pub(super) type Answer = Result<Outcome, Fault>;

/// Something in an answer that breaks a rule of the boundary.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejected {
    /// The place in the answer.
    pub(super) at: String,
    /// The problem and its remedy.
    pub(super) problem: String,
}

impl Rejected {
    fn new(at: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            problem: problem.into(),
        }
    }
}

impl From<Rejected> for CallFault {
    fn from(Rejected { at, problem }: Rejected) -> Self {
        Self::OutputRejected { at, problem }
    }
}

/// Speaks one contract version with one component.
pub(super) trait Adapter: Send + Sync {
    /// The version.
    fn version(&self) -> &'static str;

    /// Makes an instance and asks it for the description of the plugin. The outer error is the guest's breakdown.
    fn describe(&self, store: &mut Store<State>) -> wasmtime::Result<Result<Manifest, Error>>;

    /// Makes an instance and runs one pass in it. The outer error is the guest's breakdown.
    fn reconcile(
        &self,
        store: &mut Store<State>,
        request: &Request<'_>,
        config: &str,
        limits: &Limits,
    ) -> wasmtime::Result<Result<Answer, Rejected>>;
}

/// The adapter for a component of a version, pre-linked.
pub(super) fn adapter(version: &str, component: &Component) -> Result<Arc<dyn Adapter>, Error> {
    let mut linker = Linker::new(component.engine());
    match version {
        v0_1::VERSION => v0_1::V0_1::new(&mut linker, component)
            .map(|adapter| -> Arc<dyn Adapter> { Arc::new(adapter) })
            .map_err(|source| Error::Link { source }),
        other => Err(Error::UnknownContract {
            found: other.to_owned(),
        }),
    }
}
