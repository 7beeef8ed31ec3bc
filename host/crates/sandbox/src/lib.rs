//! The sandbox: from plugin bytes to one call's answer.
//!
//! ```text
//! bytes -> artifact::compile -> Described::load -> Described::configure -> Plugin::call (through a Pool)
//! ```
//!
//! WIT types stay inside: every value that leaves this crate has a type from [`model`](innkeeper_model) or this crate.
//! It does not know where the bytes come from, what a plugin is granted, or how answers are used.
//! Nothing here is asynchronous but the wait for a free thread: a guest never waits, because reads are answered from
//! memory.

pub mod artifact;
pub mod description;
pub mod manifest;

mod bindings;
mod call;
mod call_output;
mod cgroup;
mod code;
mod convert;
mod deadline;
mod engine;
mod error;
mod limiter;
mod loaded;
mod log;
mod pool;
mod random;
mod recording;
mod sandbox;
mod schedule;
mod semaphore;
mod state;
mod ticker;
mod wasi;

#[cfg(any(test, feature = "testing"))]
#[path = "tests/testing.rs"]
#[expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "helpers for tests"
)]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::{
    call::{
        CallFault, CallLimit, CallReport, CallSpeed, Context, End, ObservedChild, Request, Timing,
    },
    call_output::{CallOutput, OutputFault},
    cgroup::{memory_bytes_max, swap_is_off},
    engine::{Engine, EngineSettings, Metering},
    error::Error,
    loaded::{Described, Plugin, revision_of},
    log::{Dropped, LogLevel, LogLine},
    pool::{DryRunResults, Job, Pool},
    recording::{RecordedReads, Recorder, Recording},
};
