//! The reconciler for `cache.example.com/v1` `Memcached`: a pool of memcached processes.
//!
//! A cache holds no data of record, so no child outlives the parent and no finalizer is needed.

mod api;
mod children;
mod config;
mod options;
mod pods;
mod report;
mod validate;

#[cfg(test)]
mod tests;

use innkeeper_kit::rollout::TemplateHash;
use innkeeper_sdk::prelude::*;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};

use crate::{api::Memcached, children::Pool, config::Config, report::Observation};

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Selects this plugin's Pods, the only ones it reads.
const PODS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=memcached";

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        Manifest::new("memcached", env!("CARGO_PKG_VERSION"))
            .parent_with::<Memcached>(|crd| {
                // The Pods have no resourceClaims for this field to reference.
                crd.remove("spec.resources", "claims")
                    .truncate_descriptions_below(5)
            })
            .child::<Deployment>()
            .child::<Service>()
            .child::<PodDisruptionBudget>()
            .optional()
            // The status has the phase: evicted and finished Pods do not count as nodes.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(PODS)
            .config_schema::<Config>()
    }

    fn reconcile(request: &Request, host: &dyn Host) -> Result<Outcome, Fault> {
        let parent: Memcached = request.parent()?;
        let config: Config = request.config()?;
        let pool = Pool::new(request, &parent.spec, &config);
        let observation = Observation::read(request, host, &pool)?;
        let valid = validate::spec(&parent.spec, &config.tenants);
        let template = pool.template();
        let hash = TemplateHash::new(&template);
        let port = observation.port(request, &pool, &hash);
        let report = observation.report(request, &pool, &hash, port);
        match valid {
            Ok(()) => Ok(Outcome::desired(
                pool.children(template, &hash, port),
                report,
            )),
            Err(problem) => Err(Fault::invalid(problem).with_report(report)),
        }
    }
}

innkeeper_sdk::export!(Plugin);
