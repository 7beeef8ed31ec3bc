//! Between WIT and `model`.
//!
//! One adapter per contract version, chosen once when a plugin is loaded; all other code knows no versions.
//! The boundary's rules are checked here: texts are JSON objects within size and depth limits, without `null`.
//! `policy` checks a plugin's grants.

mod json;
mod v0_1;

use std::sync::Arc;

use innkeeper_crd::config;
use innkeeper_model::{Fault, Limits, Manifest, Outcome};
use serde_json::Value;
use wasmtime::{
    Store,
    component::{Component, Linker},
};

use crate::{
    Error,
    call::{CallFault, Request},
    manifest,
    state::StoreState,
};

/// The supported contract versions, oldest first.
pub(super) const VERSIONS: &[&str] = &[v0_1::VERSION];

/// A guest's answer, checked.
pub(super) type Answer = Result<Outcome, Fault>;

/// Something in an answer that breaks a boundary rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejected {
    /// The place in the answer.
    pub(super) at: String,
    /// The problem and the remedy.
    pub(super) problem: String,
}

impl Rejected {
    fn new(at: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            problem: problem.into(),
        }
    }

    /// Returns the same problem with the place below another one.
    fn below(self, at: &str) -> Self {
        Self::new(format!("{at}{}", self.at), self.problem)
    }
}

impl From<Rejected> for CallFault {
    fn from(Rejected { at, problem }: Rejected) -> Self {
        Self::OutputRejected { at, problem }
    }
}

impl From<Rejected> for manifest::Error {
    fn from(Rejected { at, problem }: Rejected) -> Self {
        Self::Json { at, problem }
    }
}

/// Implements the conversion between two enums whose cases have the same names.
macro_rules! same_cases {
    ($($from:ty => $into:ty { $($case:ident),* })*) => {$(
        impl From<$from> for $into {
            fn from(value: $from) -> Self {
                match value {
                    $(<$from>::$case => Self::$case,)*
                }
            }
        }
    )*};
}
use same_cases;

/// One component behind one contract version.
pub(super) trait Adapter: Send + Sync {
    /// Returns the contract version.
    fn version(&self) -> &'static str;

    /// Creates an instance and asks it for the plugin's description. The outer error is a trap or a limit.
    fn describe(&self, store: &mut Store<StoreState>) -> wasmtime::Result<Result<Manifest, Error>>;

    /// Creates an instance and runs one pass in it. The outer error is a trap or a limit.
    fn reconcile(
        &self,
        store: &mut Store<StoreState>,
        request: &Request<'_>,
        config: &str,
        limits: &Limits,
    ) -> wasmtime::Result<Result<Answer, Rejected>>;
}

/// Converts an answer that is given as JSON, for tests without a guest; none if it is none.
#[cfg(any(test, feature = "testing"))]
pub(super) fn stated(
    answer: &Value,
    phase: innkeeper_model::Phase,
    limits: &Limits,
) -> Option<Result<Answer, Rejected>> {
    v0_1::stated(answer, phase, limits)
}

/// Parses a configuration schema, whose text is short.
pub(super) fn config_schema(text: &str) -> Result<Value, manifest::Error> {
    config::check_size(text.len())?;
    Ok(json::value("config-schema", text)?)
}

/// Links a component and returns the adapter.
pub(super) fn adapter(version: &str, component: &Component) -> Result<Arc<dyn Adapter>, Error> {
    let mut linker = Linker::new(component.engine());
    match version {
        v0_1::VERSION => v0_1::V0_1::new(&mut linker, component)
            .map(|adapter| -> Arc<dyn Adapter> { Arc::new(adapter) }),
        // Unreachable: artifacts with other versions are refused.
        other => Err(wasmtime::format_err!("unsupported version {other}")),
    }
    .map_err(Error::Link)
}
