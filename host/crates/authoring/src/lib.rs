//! The commands for plugin authors: create, build, inspect, render, test and publish a plugin, without a cluster.
//!
//! Each command takes its parsed flags and the streams of the process. A plugin runs in the sandbox of the host, under the
//! rules of the host, so that an author sees the answers that a cluster would get.
//! Nothing here connects to a cluster.

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

pub use args::{
    BuildArgs, CacheArgs, FetchArgs, InspectArgs, Inspected, LoadArgs, ManifestsArgs, NewArgs,
    OutputFormat, PluginAccount, PullArgs, PushArgs, RegistryArgs, RenderArgs, RenderPhase,
    ReplayArgs, Sdk, SignArgs, TestArgs, TestFormat, VerifyArgs,
};
