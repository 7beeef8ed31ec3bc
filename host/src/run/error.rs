//! Why the host ends, and with which code.

use std::io;

use innkeeper_cluster as cluster;
use innkeeper_model::InvalidPluginName;
use innkeeper_reconcile as reconcile;
use innkeeper_reconcile::controller;
use innkeeper_sandbox::{self as plugin, artifact};
use innkeeper_source as source;

use super::{key, namespaces};
use crate::{admin, config};

/// Why the host ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The asynchronous runtime did not start.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// Signals cannot be received.
    #[error("failed to listen for signals")]
    Signals(#[source] io::Error),
    /// Nobody can ask the host how it is.
    #[error("failed to open health and metrics")]
    Admin(#[source] admin::Error),
    /// The cluster is not known.
    #[error("failed to find the cluster")]
    Config(#[source] config::Error),
    /// The API server does not know who asks.
    #[error(
        "the API server refuses the credentials (401 Unauthorized): give a kubeconfig, or a --context of it, whose user it knows"
    )]
    Unauthorized,
    /// The client cannot be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// A namespace that the host is limited to is not there, or not for the host.
    #[error(transparent)]
    Namespace(#[from] namespaces::Error),
    /// The sandbox cannot be made.
    #[error("failed to set up the sandbox")]
    Sandbox(#[source] plugin::Error),
    /// Compiled plugins cannot be kept.
    #[error("failed to open the cache of compiled plugins; give another --cache-dir")]
    Cache(#[source] artifact::Error),
    /// A configuration or grants name a plugin that is not there.
    #[error("--config or --grants names {0}, and no plugin of that name is given")]
    UnknownPlugin(
        /// The name.
        String,
    ),
    /// Nothing can be fetched for Plugin resources.
    #[error("failed to prepare for Plugin resources")]
    Sources(#[source] Box<source::Error>),
    /// The name under which Plugins are watched is none.
    #[error("failed to name the watch of Plugin resources")]
    Name(#[source] InvalidPluginName),
    /// No plugin can be served.
    #[error("none of the {0} plugins can be served; the log says why for each")]
    NothingToServe(
        /// How many were given.
        usize,
    ),
    /// The inventory cannot be used.
    #[error("failed to learn which kinds plugins ever made")]
    Inventory(#[source] reconcile::InventoryError),
    /// The hash key cannot be had.
    #[error("failed to get the cluster's hash key")]
    HashKey(#[source] key::Error),
    /// A watch died.
    #[error("the cache ended")]
    Cluster(#[source] Box<cluster::Error>),
    /// A controller died.
    #[error("the controller of plugin {plugin} ended")]
    Controller {
        /// The plugin.
        plugin: String,
        /// Why.
        #[source]
        source: controller::Error,
    },
    /// The controller of Plugin resources died.
    #[error("the controller of Plugin resources ended")]
    Manager(#[source] controller::Error),
    /// A thread that runs guests panicked.
    #[error("the threads that run plugins ended")]
    Guests(#[source] plugin::Error),
    /// A task panicked.
    #[error("a task of the host ended")]
    Task(#[source] tokio::task::JoinError),
    /// Another process writes, or may.
    #[error(
        "lost the lease, see the log: another process may write now, and the supervisor is to start this one again"
    )]
    ClaimOver,
    /// Stopped before it was done.
    #[error(
        "stopped by a second signal before all passes had ended; the next start goes on where this one stopped"
    )]
    Aborted {
        /// The number of the signal.
        signal: u8,
    },
}

impl Error {
    /// The code that the process ends with: 4 for what was given and cannot be used, as a shell says it of a process that a
    /// signal ended, and 1 for all else.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Aborted { signal } => 128_u8.saturating_add(*signal),
            Self::Config(_) | Self::UnknownPlugin(_) | Self::Namespace(_) => 4,
            _ => 1,
        }
    }
}
