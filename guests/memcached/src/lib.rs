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

use innkeeper_kit::prelude::*;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};

use crate::{api::Memcached, children::Pool, config::Config, report::Observation};

child_kinds! {
    /// The child kinds.
    pub(crate) Kinds: Deployment, Service, PodDisruptionBudget [optional]
}

/// The reconciler for `Memcached`.
#[derive(Debug)]
pub(crate) struct Memcacheds;

/// Selects this plugin's Pods, the only ones it reads.
const PODS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=memcached";

impl Reconciler for Memcacheds {
    type Parent = Memcached;
    type Children = Kinds;
    type Config = Config;

    fn describe() -> Manifest {
        Manifest::new("memcached", env!("CARGO_PKG_VERSION"))
            .parent_with::<Memcached>(|crd| {
                // The Pods have no resourceClaims for this field to reference.
                crd.with_condition_columns()
                    .remove("spec.resources", "claims")
                    .truncate_descriptions_below(5)
            })
            // The status has the phase: evicted and finished Pods do not count as nodes.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(PODS)
    }

    fn reconcile(parent: &Memcached, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let config = cx.config();
        let pool = Pool::new(cx, &parent.spec, config);
        let observation = Observation::read(cx, cx.host(), &pool)?;
        let valid = validate::spec(&parent.spec, &config.tenants);
        let template = pool.template();
        let hash = TemplateHash::new(&template);
        let port = observation.port(cx, &pool, &hash);
        let report = observation.report(cx, &pool, &hash, port);
        if let Err(problem) = valid {
            return Err(Fault::invalid(problem).with_report(report));
        }
        let children = pool.children(template, &hash, port);
        Ok(Desired { children, report }.into())
    }
}

innkeeper_sdk::export!(Memcacheds);
