//! The namespaces that the host is limited to: whether they are there, before anything is made of it.
//!
//! One that goes while the host runs is empty from then on, and nobody's error.

use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_model::Gvk;

use super::tasks::{MayPass, patiently, wait_for_api_server};

/// Why the host cannot look into a namespace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such namespace.
    #[error(
        "there is no namespace {name}, which --namespaces names: create it and the roles in it (innkeeper manifests --namespaces prints them), or leave it out"
    )]
    Missing {
        /// The namespace.
        name: String,
    },
    /// The host may not even see that it is there: it has no Role in it, or it is not there.
    #[error(
        "the host may not see the namespace {name}, which --namespaces names: create it where it is missing, and the roles in it (innkeeper manifests --namespaces prints them), or leave it out"
    )]
    Forbidden {
        /// The namespace.
        name: String,
        /// What the API server said.
        #[source]
        source: Box<cluster::Error>,
    },
    /// The API server does not say.
    #[error("failed to look for the namespace {name}, which --namespaces names")]
    Find {
        /// The namespace.
        name: String,
        /// Why.
        #[source]
        source: Box<cluster::Error>,
    },
}

impl MayPass for Error {
    fn may_pass(&self) -> bool {
        matches!(self, Self::Find { .. })
    }
}

/// Waits until the API server answers, and makes sure that every namespace is there.
pub(super) async fn wait_for_all(cluster: &Cluster) -> Result<(), super::Error> {
    wait_for_api_server(cluster).await?;
    patiently("look for the namespaces", || look(cluster)).await?;
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
