//! Child names and labels. Parents with different kinds may share a name, so their children have different
//! suffixes.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;

use crate::api::Kind;

/// The label on each child: the parent's kind, because a `Backup` and a `CronBackup` may share a name.
pub(crate) const PARENT_KIND: &str = "gobackup.io/parent-kind";

/// The container with gobackup.
pub(crate) const GOBACKUP: &str = "gobackup";

/// The container that restores.
pub(crate) const RESTORE: &str = "restore";

/// The init container that fetches the archive.
pub(crate) const FETCH: &str = "fetch";

/// Returns a component's labels.
pub(crate) fn labels(request: &Request, kind: Kind, component: &str) -> BTreeMap<String, String> {
    let mut labels = base_labels("gobackup", request.name(), component);
    labels.insert(PARENT_KIND.to_owned(), lower(kind).to_owned());
    labels
}

/// Returns the parent's kind in lower case.
pub(crate) const fn lower(kind: Kind) -> &'static str {
    match kind {
        Kind::Backup | Kind::Verification => "backup",
        Kind::CronBackup | Kind::CronVerification => "cronbackup",
        Kind::Restore => "restore",
        Kind::Probe => "storage",
    }
}

/// Returns the parent's name with the suffix for children of a kind.
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

/// Returns a task's containers with relevant termination messages, the most important one first.
pub(crate) const fn containers(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Backup | Kind::CronBackup | Kind::Probe => &[GOBACKUP],
        _ => &[RESTORE, FETCH],
    }
}

/// Returns the name of a kind's child Secret.
pub(crate) fn secret_name(request: &Request, kind: Kind) -> String {
    format!("{}-gobackup", suffixed(request, kind))
}

/// Returns the name of the claim that the plugin creates for a parent's local storages.
pub(crate) fn default_local_claim(parent: &str) -> String {
    format!("{parent}-gobackup-local")
}
