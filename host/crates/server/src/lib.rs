//! One running host: [`run`](mod@run) starts all parts in order and owns every task; [`admin`] answers for health, metrics and
//! debugging.
//!
//! It knows the layers below and wires them, and decides nothing about a pass.

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
