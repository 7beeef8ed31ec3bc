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

use innkeeper_sdk::{prelude::*, reconciler};
use k8s_openapi::api::{
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret},
};

use crate::{
    api::{
        Backup, Parent, Root,
        related::{self, BackupModel, Database, PostgreSQL, S3, Storage},
        restore::Restore,
    },
    config::Config,
    report::Reporter,
    restore::Verification,
    runs::History,
};

child_kinds! {
    /// The child kinds.
    pub(crate) Kinds: Secret, Job, CronJob, PersistentVolumeClaim [never_deleted, optional]
}

/// The reconciler for `Backup` and `CronBackup`.
#[derive(Debug)]
pub(crate) struct Runs;

/// The reconciler for `Restore`.
#[derive(Debug)]
pub(crate) struct Restores;

/// The reconciler for `Storage`.
#[derive(Debug)]
pub(crate) struct Storages;

/// Selects this plugin's Jobs and Pods for full reads.
const RUNS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=gobackup";

/// Returns a manifest with the plugin's identity alone; [`Runs`] describes the rest for all three.
fn identity() -> Manifest {
    Manifest::new("backup", env!("CARGO_PKG_VERSION"))
}

impl Reconciler for Runs {
    type Parent = Root;
    type Children = Kinds;
    type Config = Config;

    fn describe() -> Manifest {
        // The next run depends on the record of the last one.
        let manifest = identity().reads_own_status();
        let manifest = related::definitions()
            .into_iter()
            .fold(api::parents(manifest), Manifest::crd);
        manifest
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
            // A Pod's status contains the termination message.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(RUNS)
    }

    fn reconcile(root: &Root, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let request = cx.request();
        let host = cx.host();
        let config = cx.config();
        let parent = Parent::read(request, root);
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
        let plan = prepare::plan(request, host, &parent, config);
        let children = plan.and_then(|plan| {
            let mut children = children::children(&plan, &reporter.history);
            if let Some(verification) = &mut reporter.verification {
                children.extend(verification.children(host, &parent, config)?);
            }
            Ok((plan, children))
        });
        let answer = match children {
            Ok((plan, children)) => {
                let report = reporter.report(Some(&plan), None);
                Ok(Desired { children, report }.into())
            }
            Err(stop) => {
                stop.outcome(|reason, message| reporter.report(None, Some((reason, message))))
            }
        };
        request.apply_despite_invalid(answer, |observed, held| {
            children::suspended(request, &parent, observed, held)
        })
    }
}

/// Both parent kinds, of either generation.
impl reconciler::Parent for Root {
    fn is_parent_of(request: &Request) -> bool {
        request.parent_group() == "gobackup.io"
            && ["Backup", "CronBackup"].contains(&request.parent_kind())
    }
}

impl Reconciler for Restores {
    type Parent = Restore;
    type Children = Kinds;
    type Config = Config;

    fn describe() -> Manifest {
        identity()
    }

    fn reconcile(restore: &Restore, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        restore::reconcile(restore, cx.request(), cx.host(), cx.config())
    }
}

impl Reconciler for Storages {
    type Parent = Storage;
    type Children = Kinds;
    type Config = Config;

    fn describe() -> Manifest {
        identity()
    }

    fn reconcile(storage: &Storage, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        probe::reconcile(storage, cx.request(), cx.host(), cx.config())
    }
}

innkeeper_sdk::export!(Runs, Restores, Storages);
