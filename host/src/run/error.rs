//! The errors that end the host.

use std::io;

use innkeeper_cluster as cluster;
use innkeeper_model::InvalidPluginName;
use innkeeper_reconcile as reconcile;
use innkeeper_reconcile::controller;
use innkeeper_sandbox::{self as plugin, artifact};
use innkeeper_source as source;

use super::{key, namespaces};
use crate::{
    admin,
    config::{self, Exit},
};

/// The reason for the end of the host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tokio runtime did not start.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// Signals cannot be received.
    #[error("failed to listen for signals")]
    Signals(#[source] io::Error),
    /// The admin server did not start.
    #[error("failed to serve health and metrics")]
    Admin(#[source] admin::Error),
    /// The thread of the admin server panicked.
    #[error("the thread that answers for health and metrics ended: see the log for the cause")]
    AdminEnded,
    /// The client configuration of the cluster was not found, or is invalid.
    #[error("failed to find the cluster")]
    Config(#[source] config::Error),
    /// The API server rejects the credentials.
    #[error(
        "the API server refuses the credentials (401 Unauthorized): use a kubeconfig or a --context with valid credentials"
    )]
    Unauthorized,
    /// The client of the API server cannot be created.
    #[error("failed to create a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// A namespace of `--namespaces` does not exist, or the host has no access to it.
    #[error(transparent)]
    Namespace(#[from] namespaces::Error),
    /// The engine or the guest threads cannot be created.
    #[error("failed to set up the sandbox")]
    Sandbox(#[source] plugin::Error),
    /// The cache of compiled plugins cannot be used.
    #[error("failed to open the cache of compiled plugins; set another --cache-dir")]
    Cache(#[source] artifact::Error),
    /// A configuration or grants name a plugin that was not given.
    #[error("--config or --grants names plugin {0}, which is not among the given plugins")]
    UnknownPlugin(
        /// The name.
        String,
    ),
    /// The fetcher of Plugin resources cannot be created.
    #[error("failed to prepare for Plugin resources")]
    Sources(#[source] Box<source::Error>),
    /// The name of the controller of Plugin resources is not a valid plugin name.
    #[error("failed to name the watch of Plugin resources")]
    Name(#[source] InvalidPluginName),
    /// No plugin can be served.
    #[error("none of the {0} plugins can be served: see the log for the reason of each")]
    NothingToServe(
        /// The number of given plugins.
        usize,
    ),
    /// The inventory cannot be read or parsed.
    #[error("failed to read the inventory of kinds that plugins have created")]
    Inventory(#[source] reconcile::InventoryError),
    /// The hash key can be neither read nor created.
    #[error("failed to get the cluster's hash key")]
    HashKey(#[source] key::Error),
    /// The driver of the cache failed.
    #[error("the cache ended")]
    Cluster(#[source] Box<cluster::Error>),
    /// The controller of a plugin failed.
    #[error("the controller of plugin {plugin} ended")]
    Controller {
        /// The plugin.
        plugin: String,
        /// The cause.
        #[source]
        source: controller::Error,
    },
    /// The controller of Plugin resources failed.
    #[error("the controller of Plugin resources ended")]
    Manager(#[source] controller::Error),
    /// A thread that runs guests panicked.
    #[error("the threads that run plugins ended")]
    Guests(#[source] plugin::Error),
    /// A task panicked.
    #[error("a task of the host ended")]
    Task(#[source] tokio::task::JoinError),
    /// This process lost the lease, so that another process may write.
    #[error(
        "lost the lease: another process may write now; restart this process (a Deployment does it) to stand by"
    )]
    ClaimOver,
    /// A second signal stopped the host during the drain.
    #[error(
        "stopped by a second signal before all passes had ended; the next start completes them"
    )]
    Aborted {
        /// The number of the signal.
        signal: u8,
    },
}

impl Error {
    /// Returns the end of the command.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Aborted { signal } => Exit::Signal(*signal),
            Self::Config(_) | Self::UnknownPlugin(_) | Self::Namespace(_) => Exit::Usage,
            _ => Exit::Failure,
        }
    }
}
