//! The reconciler for `etcd.ydzs.io/v1alpha1` `EtcdCluster`: an etcd cluster on a StatefulSet, bootstrapped once.
//!
//! One ConfigMap, the record, holds the whole state of bootstrap and replacements, so every transition is one atomic
//! write. A plugin has no network and never talks to etcd: it sees members through their Pods, and Jobs talk to etcd
//! for it.

mod admission;
mod api;
mod arguments;
mod certificates;
mod children;
mod cluster;
mod config;
mod container;
mod flags;
mod inspection;
mod jobs;
mod members;
mod observe;
mod record;
mod replace;
mod report;
mod rollout;
mod secrets;
mod step;
mod tls;
mod upgrade;
mod validate;
mod version;

#[cfg(test)]
mod tests;

use innkeeper_kit::prelude::*;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};

use crate::{
    api::EtcdCluster, cluster::Cluster, config::Config, members::Template, observe::Observation,
};

child_kinds! {
    /// The child kinds. Jobs are for members to replace, NetworkPolicies for parents that restrict traffic to their
    /// members, and CronJobs for scheduled inspections.
    pub(crate) Kinds: Service, ConfigMap, PersistentVolumeClaim [never_deleted], StatefulSet,
        PodDisruptionBudget [optional], Job [optional], NetworkPolicy [optional], CronJob [optional]
}

/// The reconciler for `EtcdCluster`.
#[derive(Debug)]
pub(crate) struct Clusters;

/// Selects this plugin's Pods.
const PODS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=etcd";

impl Reconciler for Clusters {
    type Parent = EtcdCluster;
    type Children = Kinds;
    type Config = Config;

    fn describe() -> Manifest {
        Manifest::new("etcd", env!("CARGO_PKG_VERSION"))
            // The status records the members: the next step of a change starts from it.
            .reads_own_status()
            .parent_with::<EtcdCluster>(|crd| {
                // The Pods have no resourceClaims for this field to reference.
                own_namespace(crd.remove("spec.resources", "claims"))
                    .with_condition_columns()
                    // The deepest fields are in `spec.podTemplate.spec.affinity`.
                    .truncate_descriptions_below(12)
            })
            // Only for monitored parents.
            .untyped_child(ChildKind::new("monitoring.coreos.com/v1", "ServiceMonitor").optional())
            // Only for parents with cert-manager certificates.
            .untyped_child(
                ChildKind::new("cert-manager.io/v1", "Certificate")
                    .optional()
                    .ready_condition("Ready"),
            )
            // Metadata is not enough: readiness is in the status, the image in the spec.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(PODS)
            // The labels on claims that are no children name the cluster that created them.
            .read::<PersistentVolumeClaim>(Access::Metadata, ReadScope::ParentNamespace)
            // For owners, and for keys and changes in certificate Secrets.
            .read::<Secret>(Access::Hash, ReadScope::ParentNamespace)
            // The claims' class decides whether they can grow.
            .read::<StorageClass>(Access::Full, ReadScope::Cluster)
    }

    fn reconcile(parent: &EtcdCluster, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let request = cx.request();
        let host = cx.host();
        let cluster = Cluster::new(request, &parent.spec, cx.config());
        let observation = Observation::read(request, host, &cluster)?;
        if let Err(problem) = validate::spec(request, &cluster, &observation) {
            // The state machine does not advance: a cluster with an invalid spec starts and records nothing.
            let unchanged = step::unchanged(&observation);
            let template = Template::new(&cluster, &observation);
            let report = report::report(request, &cluster, &observation, &unchanged, &template);
            return Err(Fault::invalid(problem).with_report(report));
        }
        let cluster = upgrade::effective_cluster(cluster, &observation);
        let template = Template::new(&cluster, &observation);
        let step = step::next(&cluster, &observation, &template, host);
        let report = report::report(request, &cluster, &observation, &step, &template);
        let children = children::all(request, &cluster, &observation, &step, &template);
        Ok(Desired { children, report }.into())
    }
}

innkeeper_sdk::export!(Clusters);
