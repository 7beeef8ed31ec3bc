//! The reconciler of `gobackup.io/v1` `Backup` and `CronBackup`: runs of gobackup, once or by a
//! schedule.
//!
//! It renders the configuration of gobackup from the parent and the objects that it refers to, and
//! tells what became of the runs. It sees the value of no Secret, and deletes no backup.

mod api;
mod catalog;
mod children;
mod config;
mod plan;
mod pod;
mod references;
mod related;
mod render;
mod report;
mod runs;
mod schedule;
mod status;
mod stop;
mod validate;

#[cfg(test)]
mod tests;

use innkeeper_sdk::prelude::*;
use k8s_openapi::api::{
    batch::v1::{CronJob, Job},
    core::v1::{PersistentVolumeClaim, Pod, Secret},
};

use crate::{
    api::Parent,
    config::Config,
    plan::Plan,
    related::{BackupModel, Database, PostgreSQL, S3, Storage},
    report::{Blocked, Teller},
    runs::History,
    stop::Stop,
};

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

/// Limits full reads of Jobs and Pods to those whose spec this plugin wrote itself.
const RUNS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=gobackup";

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        let manifest = Manifest::new("backup", env!("CARGO_PKG_VERSION"));
        let manifest = related::definitions()
            .into_iter()
            .fold(api::parents(manifest), Manifest::crd);
        manifest
            .child::<Secret>()
            .child::<Job>()
            .child::<CronJob>()
            .child::<PersistentVolumeClaim>()
            .read::<BackupModel>(Access::Full, ReadScope::ParentNamespace)
            .read::<Database>(Access::Full, ReadScope::ParentNamespace)
            .read::<Storage>(Access::Full, ReadScope::ParentNamespace)
            .read::<PostgreSQL>(Access::Full, ReadScope::ParentNamespace)
            .read::<S3>(Access::Full, ReadScope::ParentNamespace)
            // Only whether Secret and key are there.
            .read::<Secret>(Access::Hash, ReadScope::ParentNamespace)
            .read::<Job>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(RUNS)
            // Termination messages lie in the status.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(RUNS)
            .config_schema::<Config>()
    }

    fn reconcile(request: &Request, host: &dyn Host) -> Result<Outcome, Fault> {
        let parent = Parent::read(request)?;
        let config: Config = request.config()?;
        let teller = Teller {
            request,
            host,
            parent: &parent,
            history: History::read(request, host, parent.kind)?,
            stored: request.stored_status().unwrap_or_default(),
        };
        match Plan::make(request, host, &parent, &config) {
            Ok(plan) => {
                let children = children::children(&plan, &teller.history);
                Ok(Outcome::desired(children, teller.report(Some(&plan), None)))
            }
            // A working schedule goes on with its last good configuration.
            Err(Stop::Blocked { reason, message }) => {
                let message = &message;
                let blocked = Blocked { reason, message };
                Ok(Outcome::keep(teller.report(None, Some(blocked))))
            }
            Err(Stop::Invalid(problem)) => {
                Err(Fault::invalid(problem).with_report(teller.report(None, None)))
            }
            Err(Stop::Fault(fault)) => Err(fault),
        }
    }
}

innkeeper_sdk::export!(Plugin);
