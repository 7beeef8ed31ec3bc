//! The check of the installed CustomResourceDefinition: a host serves no Plugins with one that is older than itself.
//!
//! The API server would drop fields of a spec that the old definition lacks, and refuse every status with a new field.

use std::{convert::Infallible, future::pending, time::Duration};

use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_model::{Gvk, Retry, error_chain};
use serde_json::{Map, Value};
use tokio::{sync::watch, time::sleep};
use tracing::{error, info, warn};

use crate::{
    context::plugin_kind,
    resource,
    stage::{Stage, StageFailure},
};

/// The interval between two reads of an unusable definition. Chosen, not measured: a user waits for it once.
pub(crate) const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The result of the check, for passes and for the readiness probe.
#[derive(Debug, Default)]
pub struct DefinitionCheck {
    /// None before the first answer of the API server; then the problem, if there is one.
    found: watch::Sender<Option<Result<(), String>>>,
}

impl DefinitionCheck {
    /// Returns the problem of the installed definition.
    pub fn problem(&self) -> Option<String> {
        self.found.borrow().clone()?.err()
    }

    /// Waits for the first result; returns the failure of every Plugin while the definition is unusable.
    pub(crate) async fn usable(&self) -> Result<(), StageFailure> {
        let mut problems = self.found.subscribe();
        // Never fails: the sender lives as long as this.
        let first = problems
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|problems| problems.clone());
        let retry = Retry::At(RECHECK_INTERVAL);
        let failed = |problem| StageFailure::new(Stage::Fetched, "CrdOutdated", problem, retry);
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
            let is_new = *self.found.borrow() != Some(result.clone());
            match &result {
                Ok(()) => info!("serving Plugins"),
                Err(problem) if is_new => error!(problem, "Plugins are not served"),
                Err(_) => {}
            }
            let is_usable = result.is_ok();
            self.found.send_replace(Some(result));
            if is_usable {
                return pending().await;
            }
            sleep(RECHECK_INTERVAL).await;
        }
    }
}

/// Returns the problem of the installed definition. A host that may not read definitions finds none.
async fn problem(cluster: &Cluster) -> Result<Option<String>, cluster::Error> {
    if !cluster.reads_definitions() {
        return Ok(None);
    }
    let definition = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let object = match cluster
        .live_get(&definition, None, resource::CRD_NAME)
        .await
    {
        Err(error) if !error.is_forbidden() => return Err(error),
        result => result.ok().flatten(),
    };
    // A definition that is deleted at this moment has no field: the next check finds it again.
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
