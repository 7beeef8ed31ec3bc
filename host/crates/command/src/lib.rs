//! Shared parts of all commands: streams, exit codes, failures, the log, and flag values.
//!
//! It knows no command. A command takes parsed flags and returns the exit code.

mod cluster;
mod failure;
pub mod file;
mod log;
mod output;
mod parent_name;
mod plain;
mod plugin_value;
pub mod runtime;
mod streams;
pub mod values;

pub use cluster::{Definitions, HASH_KEY_SECRET, HOST_NAMESPACE, Namespaces, namespaces};
pub use failure::{Failure, OrFail};
pub use log::{LogArgs, LogControl, LogFormat, start_log, stdout_has_colours};
pub use output::Output;
pub use parent_name::ParentName;
pub use plain::plain;
pub use plugin_value::{PluginObject, PluginValue, by_plugin, object_in, plugin_object};
pub use streams::{Exit, Streams};
pub use values::ResultFormat;
