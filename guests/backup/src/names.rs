//! The names and labels of children; those of other kinds of parents of the same name differ.

use std::collections::BTreeMap;

use innkeeper_kit::labels;
use innkeeper_sdk::prelude::*;

use crate::api::Kind;

/// The label on each child: the kind of its parent, because a `Backup` and a `CronBackup` may have the same name.
pub(crate) const PARENT_KIND: &str = "gobackup.io/parent-kind";

/// The container with gobackup.
pub(crate) const GOBACKUP: &str = "gobackup";

/// The container that restores.
pub(crate) const RESTORE: &str = "restore";

/// The init container that fetches the archive.
pub(crate) const FETCH: &str = "fetch";

/// The labels of one component of a parent's children.
pub(crate) fn labels(request: &Request, kind: Kind, component: &str) -> BTreeMap<String, String> {
    let mut labels = labels::base_labels("gobackup", request.name(), component);
    labels.insert(PARENT_KIND.to_owned(), lower(kind).to_owned());
    labels
}

/// The kind of the parent in lower case.
pub(crate) const fn lower(kind: Kind) -> &'static str {
    match kind {
        Kind::Backup | Kind::Verification => "backup",
        Kind::CronBackup | Kind::CronVerification => "cronbackup",
        Kind::Restore => "restore",
        Kind::Probe => "storage",
    }
}

/// The name of a parent with the suffix that children of a kind have.
pub(crate) fn suffixed(request: &Request, kind: Kind) -> String {
    let suffix = match kind {
        Kind::Backup => "",
        Kind::CronBackup => "-cron",
        Kind::Restore => "-restore",
        Kind::Verification => "-verify",
        Kind::CronVerification => "-cron-verify",
        Kind::Probe => "-probe",
    };
    format!("{}{suffix}", request.name())
}

/// Returns the component label of a task's Job and Pods.
pub(crate) const fn component(kind: Kind) -> &'static str {
    match kind {
        Kind::Backup | Kind::CronBackup | Kind::Probe => "run",
        Kind::Restore => "restore",
        Kind::Verification | Kind::CronVerification => "verify",
    }
}

/// Returns the containers of a task's Pod whose termination messages count, the most important one first.
pub(crate) const fn containers(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Backup | Kind::CronBackup | Kind::Probe => &[GOBACKUP],
        _ => &[RESTORE, FETCH],
    }
}

/// The name of the child Secret of a kind.
pub(crate) fn secret_name(request: &Request, kind: Kind) -> String {
    format!("{}-gobackup", suffixed(request, kind))
}

/// The name of the claim for storages of type local that the plugin creates for a parent.
pub(crate) fn local_claim_made(parent: &str) -> String {
    format!("{parent}-gobackup-local")
}
