//! Commands for plugin authors: create, build, inspect, render, test and publish a plugin, without a cluster.
//!
//! Each command takes parsed flags and the process streams. A plugin runs in the host's sandbox, under the host's
//! rules, so an author sees the answers that a cluster would get. Nothing here connects to a cluster.

mod args;
pub mod build;
pub mod diff;
pub mod document;
mod generate;
pub mod inspect;
pub mod manifests;
pub mod new;
pub mod plugin_file;
pub mod recordings;
pub mod registry;
pub mod render;
mod statuses;
pub mod testing;
#[cfg(test)]
mod tests;

pub use args::{
    BuildArgs, CacheArgs, FetchArgs, InspectArgs, Inspected, LoadArgs, ManifestsArgs, NewArgs,
    OutputFormat, PluginAccount, PullArgs, PushArgs, RegistryArgs, RenderArgs, RenderPhase,
    ReplayArgs, Sdk, SignArgs, TestArgs, TestFormat, VerifyArgs,
};
