//! One running host: [`run`](mod@run) starts all parts in order and owns every task; [`admin`] serves health, metrics and
//! debug endpoints.
//!
//! It wires the layers below, and decides nothing about a pass.

pub mod admin;
mod args;
mod connection;
pub mod run;

pub use args::{
    AdminAddress, AdminArgs, AdminClientArgs, CertificateFiles, ClusterArgs, ConnectionArgs,
    LeaseArgs, PluginArgs, RunArgs, ScopeArgs, SourceArgs, TraceArgs, default_namespace,
    plugin_files,
};
pub use connection::{ApiService, ClientConfig, client_config};
