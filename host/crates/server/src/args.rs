//! Flags for running a host, and for connecting to one.

mod admin;
mod admin_client;
mod cluster;
mod lease;
mod plugins;
mod run;
mod scope;
mod sources;
mod traces;

pub use admin::{AdminArgs, CertificateFiles};
pub use admin_client::{AdminAddress, AdminClientArgs};
pub use cluster::{ClusterArgs, ConnectionArgs, default_namespace};
pub use lease::LeaseArgs;
pub use plugins::{PluginArgs, plugin_files};
pub use run::RunArgs;
pub use scope::ScopeArgs;
pub use sources::SourceArgs;
pub use traces::TraceArgs;
