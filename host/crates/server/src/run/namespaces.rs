//! The check at the start that the namespaces of `--namespaces` exist.
//!
//! A namespace that is deleted later counts as empty and is no error.

use innkeeper_cluster::Cluster;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::Gvk;

use super::tasks::{retry, wait_for_api_server};

/// Waits until the API server answers, and fails unless every namespace exists.
pub(super) async fn wait_for_all(cluster: &Cluster) -> Result<(), Failure> {
    wait_for_api_server(cluster).await?;
    // Waiting helps unless the user has to act.
    let is_temporary = |failure: &Failure| failure.exit() != Exit::Usage;
    retry("read the namespaces", is_temporary, || look(cluster)).await
}

async fn look(cluster: &Cluster) -> Result<(), Failure> {
    let kind = Gvk::new("", "v1", "Namespace");
    for name in cluster.namespaces().unwrap_or_default() {
        match cluster.live_get(&kind, None, name).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                let message = format!(
                    "there is no namespace {name}, which --namespaces names: create it and the roles in it (by namespaces of the chart, and for plugins by innkeeper manifests --namespaces), or leave it out"
                );
                return Err(Failure::new(Exit::Usage, message));
            }
            Err(error) if error.is_forbidden() => {
                let message = format!(
                    "the host may not see the namespace {name}, which --namespaces names: create it where it is missing, and the roles in it (by namespaces of the chart, and for plugins by innkeeper manifests --namespaces), or leave it out"
                );
                return Err(error).or_fail(Exit::Usage, message);
            }
            Err(error) => {
                let message =
                    format!("failed to read the namespace {name}, which --namespaces names");
                return Err(error).or_fail(Exit::Failure, message);
            }
        }
    }
    Ok(())
}
