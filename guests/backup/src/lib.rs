//! The backup plugin: runs gobackup for `Backup` and `CronBackup` in `gobackup.io/v1`, and serves `Restore` and
//! `Storage`.
//!
//! It renders gobackup's configuration from the parent and the objects that it references, and reports the runs'
//! results. It never sees Secret values and deletes no archive.

mod api;
mod catalog;
mod children;
mod config;
mod config_schema;
mod names;
mod plan;
mod pod;
mod prepare;
mod probe;
mod programs;
mod references;
mod render;
mod report;
mod restore;
mod runs;
mod schedule;
mod script;
mod status;
mod stop;
mod task;
mod tenants;
mod validate;

#[cfg(test)]
mod tests;

use innkeeper_sdk::prelude::*;
use k8s_openapi::api::{
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret},
};

use crate::{
    api::{
        Backup, Parent,
        related::{self, BackupModel, Database, PostgreSQL, S3, Storage},
        restore::Restore,
    },
    config::Config,
    report::Reporter,
    restore::Verification,
    runs::History,
};

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Selects this plugin's Jobs and Pods for full reads.
const RUNS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=gobackup";

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        // The next run depends on the record of the last one.
        let manifest = Manifest::new("backup", env!("CARGO_PKG_VERSION")).reads_own_status();
        let manifest = related::definitions()
            .into_iter()
            .fold(api::parents(manifest), Manifest::crd);
        manifest
            .child::<Secret>()
            .child::<Job>()
            .child::<CronJob>()
            .child::<PersistentVolumeClaim>()
            .never_deleted()
            .optional()
            .read::<BackupModel>(Access::Full, ReadScope::ParentNamespace)
            .read::<Database>(Access::Full, ReadScope::ParentNamespace)
            .read::<Storage>(Access::Full, ReadScope::ParentNamespace)
            .read::<PostgreSQL>(Access::Full, ReadScope::ParentNamespace)
            .read::<S3>(Access::Full, ReadScope::ParentNamespace)
            // A Restore reads the parent that stored the archive.
            .read::<Backup>(Access::Full, ReadScope::ParentNamespace)
            .read_kind(
                "gobackup.io/v1",
                "CronBackup",
                Access::Full,
                ReadScope::ParentNamespace,
            )
            .read::<Restore>(Access::Full, ReadScope::ParentNamespace)
            // Hashes suffice: the plugin checks only that the Secret and the key exist.
            .read::<Secret>(Access::Hash, ReadScope::ParentNamespace)
            // ConfigMaps with variables, so that the plugin notices changes.
            .read::<ConfigMap>(Access::Hash, ReadScope::ParentNamespace)
            // The owners of claims that a parent names.
            .read::<PersistentVolumeClaim>(Access::Metadata, ReadScope::ParentNamespace)
            .read::<Job>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(RUNS)
            // A Pod's status has its container's termination message.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(RUNS)
            .config_schema::<Config>()
    }

    fn reconcile(request: &Request, host: &dyn Host) -> Result<Outcome, Fault> {
        if request.is_parent::<Restore>() {
            return restore::reconcile(request, host);
        }
        if request.is_parent::<Storage>() {
            return probe::reconcile(request, host);
        }
        let parent = Parent::read(request)?;
        let config: Config = request.config()?;
        let history = History::read(request, host, parent.kind)?;
        let stored = request.stored_status().unwrap_or_default();
        let verification = Verification::read(request, host, &parent, &history, &stored)?;
        let mut reporter = Reporter {
            request,
            host,
            parent: &parent,
            history,
            stored,
            verification,
        };
        let plan = prepare::plan(request, host, &parent, &config);
        let children = plan.and_then(|plan| {
            let mut children = children::children(&plan, &reporter.history);
            if let Some(verification) = &mut reporter.verification {
                children.extend(verification.children(host, &parent, &config)?);
            }
            Ok((plan, children))
        });
        let answer = match children {
            Ok((plan, children)) => Ok(Outcome::desired(
                children,
                reporter.report(Some(&plan), None),
            )),
            Err(stop) => {
                stop.outcome(|reason, message| reporter.report(None, Some((reason, message))))
            }
        };
        request.apply_despite_invalid(answer, |observed, held| {
            children::suspended(request, &parent, observed, held)
        })
    }
}

innkeeper_sdk::export!(Plugin);
