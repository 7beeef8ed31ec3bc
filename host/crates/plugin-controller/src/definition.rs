//! Checks the installed CustomResourceDefinition: a host serves no Plugins under a definition older than itself.
//!
//! The API server would drop spec fields that the old definition lacks, and reject every status with a new field.

use std::{convert::Infallible, future::pending, time::Duration};

use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_model::{Gvk, PluginReason, Retry, error_chain};
use serde_json::{Map, Value};
use tokio::{sync::watch, time::sleep};
use tracing::{error, info, warn};

use crate::{
    context::plugin_kind,
    resource,
    stage::{Stage, StageFailure},
};

/// Interval for rereading an unusable definition.
pub(crate) const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The check result, for passes and the readiness probe.
#[derive(Debug, Default)]
pub struct DefinitionCheck {
    /// None until the API server first answers; then the problem, if there is one.
    last_result: watch::Sender<Option<Result<(), String>>>,
}

impl DefinitionCheck {
    /// Returns the installed definition's problem.
    pub fn problem(&self) -> Option<String> {
        self.last_result.borrow().clone()?.err()
    }

    /// Waits for the first result; returns a failure for every Plugin while the definition is unusable.
    pub(crate) async fn usable(&self) -> Result<(), StageFailure> {
        let mut problems = self.last_result.subscribe();
        // Never fails: the sender lives as long as this.
        let first = problems
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|problems| problems.clone());
        let failed = |problem| {
            Stage::Fetched.failure(
                PluginReason::CrdOutdated,
                problem,
                Retry::At(RECHECK_INTERVAL),
            )
        };
        first.unwrap_or(Ok(())).map_err(failed)
    }

    /// Waits for the definition, checks it until it is usable, and logs the problem once.
    pub async fn run(&self, cluster: &Cluster) -> Infallible {
        if cluster.served(&plugin_kind()).is_none() {
            let crd = resource::CRD_NAME;
            warn!(
                crd,
                "waiting for the CustomResourceDefinition: install it to serve Plugins"
            );
        }
        cluster.wait_served(&plugin_kind()).await;
        loop {
            let result = match problem(cluster).await {
                Ok(problem) => problem.map_or(Ok(()), Err),
                Err(error) => {
                    warn!(error = %error_chain(&error), "failed to check the definition of Plugins, retrying");
                    sleep(RECHECK_INTERVAL).await;
                    continue;
                }
            };
            let is_new = *self.last_result.borrow() != Some(result.clone());
            match &result {
                Ok(()) => info!("serving Plugins"),
                Err(problem) if is_new => error!(problem, "Plugins are not served"),
                Err(_) => {}
            }
            let is_usable = result.is_ok();
            // `send` would store nothing while no pass waits.
            self.last_result.send_replace(Some(result));
            if is_usable {
                return pending().await;
            }
            sleep(RECHECK_INTERVAL).await;
        }
    }
}

/// Returns the installed definition's problem. A host that may not read definitions finds none.
async fn problem(cluster: &Cluster) -> Result<Option<String>, cluster::Error> {
    if !cluster.reads_definitions() {
        return Ok(None);
    }
    let definition = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let object = match cluster
        .live_get(&definition, None, resource::CRD_NAME)
        .await
    {
        // Without the permission the host cannot compare, and serves Plugins anyway.
        Err(error) if !error.is_forbidden() => return Err(error),
        result => result.ok().flatten(),
    };
    // A definition that is being deleted has no field; the next check retries.
    let installed: Option<Map<String, Value>> =
        object.and_then(|object| serde_json::from_str(&object.json).ok());
    let missing = installed.and_then(|installed| resource::missing_field(&installed));
    Ok(missing.map(|field| {
        format!(
            "the installed CustomResourceDefinition {} is older than this host: it lacks {field}; apply the definition of the host's version (deploy/crds)",
            resource::CRD_NAME
        )
    }))
}
