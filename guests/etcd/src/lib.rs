//! The reconciler of `etcd.ydzs.io/v1alpha1` `EtcdCluster`: an etcd cluster on a StatefulSet, bootstrapped once.
//!
//! The memory of the bootstrap is one ConfigMap, the record, so that every transition is one atomic write.
//! A guest has no network and never speaks to etcd; what it knows of members comes from Pods.

mod api;
mod children;
mod cluster;
mod config;
mod members;
mod observe;
mod record;
mod report;
mod step;
mod validate;
mod version;

#[cfg(test)]
mod tests;

use innkeeper_sdk::prelude::*;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service},
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};

use crate::{api::EtcdCluster, cluster::Cluster, config::Config, observe::Observation};

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Limits the read of Pods to those whose spec this plugin wrote itself.
const PODS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=etcd";

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        Manifest::new("etcd", env!("CARGO_PKG_VERSION"))
            .parent_with::<EtcdCluster>(|crd| crd.short_descriptions(5))
            .child::<Service>()
            .child::<ConfigMap>()
            .child::<PersistentVolumeClaim>()
            .child::<StatefulSet>()
            .child::<PodDisruptionBudget>()
            // Readiness and images lie in status and spec.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(PODS)
            // Claims that are no children: whose they are.
            .read::<PersistentVolumeClaim>(Access::Metadata, ReadScope::ParentNamespace)
            // Whether claims can grow.
            .read::<StorageClass>(Access::Full, ReadScope::Cluster)
            .config_schema::<Config>()
    }

    fn reconcile(request: &Request, host: &dyn Host) -> Result<Outcome, Fault> {
        let parent: EtcdCluster = request.parent()?;
        let config: Config = request.config()?;
        let cluster = Cluster::new(request, &parent.spec, &config);
        let observation = Observation::read(request, host, &cluster)?;
        if let Err(problem) = validate::spec(&cluster, &observation) {
            // The state machine rests: nothing is started or recorded.
            let resting = step::rest(&cluster, &observation);
            let report = report::report(request, &cluster, &observation, &resting);
            return Err(Fault::invalid(problem).with_report(report));
        }
        let step = step::next(&cluster, &observation, host);
        let report = report::report(request, &cluster, &observation, &step);
        Ok(Outcome::desired(
            children::all(&cluster, &observation, &step),
            report,
        ))
    }
}

innkeeper_sdk::export!(Plugin);
