//! The sandbox: from the bytes of a plugin to the answer of one call.
//!
//! ```text
//! bytes -> artifact::compile -> Described::load -> Described::configure -> Plugin::call (through a Pool)
//! ```
//!
//! The types of WIT stay inside: every value that leaves this crate is a type of [`model`](innkeeper_model) or its own.
//! It does not know the source of the bytes, the grants of a plugin, or the use of its answers.
//! Nothing here is asynchronous but the wait for a free thread: a guest never waits, because its reads are answered from
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

use innkeeper_model::Retry;

pub use self::{
    call::{
        CallFault, CallLimit, CallReport, CallSpeed, Context, End, ObservedChild, Request, Timing,
    },
    call_output::{CallOutput, OutputFault, read_to_json},
    cgroup::{memory_bytes_max, swap_is_off},
    engine::{Engine, EngineSettings, Metering},
    loaded::{Described, Plugin, revision_of},
    log::{Dropped, LogLevel, LogLine},
    pool::{DryRunResults, Job, Pool},
    recording::{RecordedReads, Recorder, Recording},
};

/// An error of loading a plugin, or of the host when it sets up the sandbox or runs a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine refused its settings, or there is not enough address space.
    #[error("failed to set up the WebAssembly engine")]
    ConfigureEngine(#[source] wasmtime::Error),
    /// The operating system failed to map compiled code again after the host had let it go.
    #[error(
        "failed to map the compiled code of a plugin again: restart the host if it does not pass"
    )]
    MapAgain(#[source] wasmtime::Error),
    /// The operating system gave no thread.
    #[error("failed to start a thread for plugins")]
    StartThread(#[source] std::io::Error),
    /// The threads are gone, because the host is stopping or one of them panicked.
    #[error("a thread that runs plugins panicked, or the host is stopping")]
    PoolClosed,
    /// The names of imports and exports fit, but their types do not.
    #[error("the component's imports or exports differ from the contract that it names")]
    Link(#[source] wasmtime::Error),
    /// The plugin did not describe itself.
    #[error("the plugin failed to describe itself")]
    Describe(#[source] CallFault),
    /// The description breaks a rule.
    #[error("the plugin's description is not valid")]
    Manifest(#[source] Box<manifest::Error>),
    /// The embedded description differs from the description that the running plugin gives.
    #[error(
        "the embedded description differs from the executed one in {at}: build the component again with innkeeper build"
    )]
    Embedded {
        /// The first field in which they differ.
        at: String,
    },
    /// The configuration does not match the plugin's schema.
    #[error("the configuration of plugin {plugin} is not valid: {}", problems.join("; "))]
    Config {
        /// The plugin.
        plugin: String,
        /// The problems and their places; at most ten.
        problems: Vec<String>,
    },
    /// The schema of the configuration does not compile.
    #[error("the configuration schema of plugin {plugin} is not accepted: {problem}")]
    ConfigSchema {
        /// The plugin.
        plugin: String,
        /// The place, the problem and the remedy.
        problem: String,
    },
    /// The configuration is not known to be valid, because its check exceeded a limit.
    #[error(
        "the configuration of plugin {plugin} is not accepted, because its check takes {limit}: make the configuration smaller, or use a plugin whose configuration schema has simpler patterns"
    )]
    ConfigLimit {
        /// The plugin.
        plugin: String,
        /// The limit.
        limit: String,
    },
    /// The configuration was not checked; it is tried again.
    #[error("failed to check the configuration of plugin {plugin} in a separate process")]
    CheckConfig {
        /// The plugin.
        plugin: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// Returns the time of the next attempt with the same plugin and configuration.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::CheckConfig { .. } => Retry::Backoff,
            _ => Retry::OnChange,
        }
    }

    /// Returns the reason of a condition, in CamelCase.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Config { .. } => "ConfigInvalid",
            Self::ConfigLimit { .. } => "ConfigLimitExceeded",
            Self::CheckConfig { .. } => "HostFault",
            _ => "CannotDescribe",
        }
    }
}
