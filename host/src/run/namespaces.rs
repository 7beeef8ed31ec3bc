//! The check at the start that the namespaces of `--namespaces` exist.
//!
//! A namespace that is deleted later counts as empty and is no error.

use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_model::Gvk;

use super::tasks::{MaybeTemporary, retry, wait_for_api_server};

/// The reason for which the host cannot use a namespace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace does not exist.
    #[error(
        "there is no namespace {name}, which --namespaces names: create it and the roles in it (innkeeper manifests --namespaces prints them), or leave it out"
    )]
    Missing {
        /// The namespace.
        name: String,
    },
    /// The host may not read the namespace: its Role is missing, or the namespace is.
    #[error(
        "the host may not see the namespace {name}, which --namespaces names: create it where it is missing, and the roles in it (innkeeper manifests --namespaces prints them), or leave it out"
    )]
    Forbidden {
        /// The namespace.
        name: String,
        /// The answer of the API server.
        #[source]
        source: Box<cluster::Error>,
    },
    /// The API server cannot answer.
    #[error("failed to read the namespace {name}, which --namespaces names")]
    Find {
        /// The namespace.
        name: String,
        /// The cause.
        #[source]
        source: Box<cluster::Error>,
    },
}

impl MaybeTemporary for Error {
    fn is_temporary(&self) -> bool {
        matches!(self, Self::Find { .. })
    }
}

/// Waits until the API server answers, and fails unless every namespace exists.
pub(super) async fn wait_for_all(cluster: &Cluster) -> Result<(), super::Error> {
    wait_for_api_server(cluster).await?;
    retry("read the namespaces", || look(cluster)).await?;
    Ok(())
}

async fn look(cluster: &Cluster) -> Result<(), Error> {
    let kind = Gvk::new("", "v1", "Namespace");
    for name in cluster.namespaces().unwrap_or_default() {
        let found = cluster.live_get(&kind, None, name).await;
        let name = name.to_string();
        match found {
            Ok(Some(_)) => {}
            Ok(None) => return Err(Error::Missing { name }),
            Err(source) if source.is_forbidden() => {
                let source = Box::new(source);
                return Err(Error::Forbidden { name, source });
            }
            Err(source) => {
                let source = Box::new(source);
                return Err(Error::Find { name, source });
            }
        }
    }
    Ok(())
}
