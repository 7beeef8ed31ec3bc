//! Errors when loading a plugin, setting up the sandbox or running a call.

use innkeeper_model::{PluginReason, Retry};

use super::{CallFault, manifest};

/// An error when loading a plugin, setting up the sandbox or running a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine refused the settings, or there is not enough address space.
    #[error("failed to set up the WebAssembly engine")]
    ConfigureEngine(#[source] wasmtime::Error),
    /// The operating system failed to map compiled code again after the host had unmapped it.
    #[error(
        "failed to map the compiled code of a plugin again: restart the host if it does not pass"
    )]
    MapAgain(#[source] wasmtime::Error),
    /// The operating system gave no thread.
    #[error("failed to start a thread for plugins")]
    StartThread(#[source] std::io::Error),
    /// The threads are gone, because the host is stopping or one panicked.
    #[error("a thread that runs plugins panicked, or the host is stopping")]
    PoolClosed,
    /// Imports and exports have the right names, but other types.
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
    /// The configuration's schema does not compile.
    #[error("the configuration schema of plugin {plugin} is not accepted: {problem}")]
    ConfigSchema {
        /// The plugin.
        plugin: String,
        /// The place, the problem and the remedy.
        problem: String,
    },
    /// The configuration is not known to be valid, because the check exceeded a limit.
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
    /// Returns when to retry with the same plugin and configuration.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::CheckConfig { .. } => Retry::Backoff,
            _ => Retry::OnChange,
        }
    }

    /// Returns the condition's reason.
    pub const fn reason(&self) -> PluginReason {
        match self {
            Self::Config { .. } => PluginReason::ConfigInvalid,
            Self::ConfigLimit { .. } => PluginReason::ConfigLimitExceeded,
            Self::CheckConfig { .. } => PluginReason::HostFault,
            _ => PluginReason::CannotDescribe,
        }
    }
}
