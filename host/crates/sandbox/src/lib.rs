//! The sandbox: from the bytes of a plugin to the answer of one call.
//!
//! ```text
//! bytes -> artifact::compile -> Described::load -> Described::configure -> Plugin::call (through a Pool)
//! ```
//!
//! What WIT says ends here: everything that leaves this module is in the words of [`model`](innkeeper_model).
//! Where bytes come from, what a plugin may do, and what becomes of its answers are other modules' business.
//! Nothing here is asynchronous but the wait for a free thread: a guest never waits, because its reads are answered from
//! memory.

pub mod artifact;
pub mod description;
pub mod manifest;

mod bindings;
mod call;
mod cgroup;
mod code;
mod convert;
mod deadline;
mod engine;
#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "helpers for tests"
)]
pub mod fixture;
mod limiter;
mod loaded;
mod log;
mod pool;
mod random;
mod recording;
mod said;
mod sandbox;
mod schedule;
mod semaphore;
mod state;
mod swap;
#[cfg(test)]
mod tests;
mod ticker;
mod wasi;

pub use self::{
    call::{CallFault, CallLimit, CallReport, Context, End, ObservedChild, Request, Timing},
    cgroup::memory_bytes_max,
    engine::{Engine, EngineSettings, Metering},
    loaded::{Described, Plugin, revision_of},
    log::{Dropped, LogLevel, LogLine},
    pool::{Job, Pool, Turn},
    recording::{Recorded, RecordedReads, Recorder, Recording},
    said::{Said, SaidFault, read_to_json},
    swap::swap_is_off,
};

/// Why a plugin cannot be loaded, or the sandbox not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine refused its settings, or there is not enough address space.
    #[error("failed to set up the WebAssembly engine")]
    ConfigureEngine {
        /// Why.
        #[source]
        source: wasmtime::Error,
    },
    /// The operating system did not map compiled code again that had been let go.
    #[error(
        "failed to map the compiled code of a plugin again: restart the host if it does not pass"
    )]
    MapAgain {
        /// Why.
        #[source]
        source: wasmtime::Error,
    },
    /// The operating system gave no thread.
    #[error("failed to start a thread for plugins")]
    StartThread {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The threads are gone, because the host is stopping or one of them panicked.
    #[error("a thread that runs plugins panicked, or the host is stopping")]
    PoolClosed,
    /// The contract version has no adapter.
    #[error("version {found} of innkeeper:plugin is not spoken here")]
    UnknownContract {
        /// The version.
        found: String,
    },
    /// The names of imports and exports fit, but their types do not.
    #[error("the component's imports or exports differ from the contract that it names")]
    Link {
        /// Which.
        #[source]
        source: wasmtime::Error,
    },
    /// The plugin did not say what it is.
    #[error("the plugin failed to describe itself")]
    Describe {
        /// What it did instead.
        #[source]
        source: CallFault,
    },
    /// What it says of itself is of no use.
    #[error("the plugin's description is not valid")]
    Manifest {
        /// Why.
        #[source]
        source: manifest::Error,
    },
    /// It carries a description that is not what it says when it runs.
    #[error(
        "the description that the component carries is not what it says when it runs, they differ in {at}: build it anew with innkeeper build"
    )]
    Embedded {
        /// The first field in which they differ.
        at: String,
    },
    /// The configuration does not fit.
    #[error("the configuration of plugin {plugin} is not valid: {}", problems.join("; "))]
    Config {
        /// The plugin.
        plugin: String,
        /// What is wrong and where; at most ten.
        problems: Vec<String>,
    },
}
