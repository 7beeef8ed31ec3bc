//! The record of a parent's Restores. It outlives them, so a Restore that is applied again does not count as new.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    api::{Kind, restore::BackupReference},
    status::Restored,
};

/// Maximum number of recorded Restores.
const RESTORES_MAX: usize = 16;

/// A Restore without the fields that do not matter here.
#[derive(Deserialize)]
struct Observed {
    metadata: ObjectMeta,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    backup_ref: BackupReference,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    job_name: Option<String>,
    start_time: Option<String>,
}

/// Returns the stored record, with Restores that have started since.
pub(super) fn read(
    request: &Request,
    host: &dyn Host,
    kind: Kind,
    stored: Vec<Restored>,
) -> Result<Vec<Restored>, Fault> {
    let kind = match kind {
        Kind::CronBackup => "CronBackup",
        _ => "Backup",
    };
    let namespace = Some(request.namespace());
    let observed = host.list_as("gobackup.io/v1", "Restore", namespace, "");
    let observed: Vec<Observed> = match observed {
        // Without the kind, or the right to serve it, no Restore runs.
        Err(ReadError::NotServed { .. } | ReadError::NotGranted { .. }) => Vec::new(),
        observed => observed?,
    };
    let mut by_name: BTreeMap<String, Restored> = BTreeMap::new();
    let started = observed.into_iter().filter_map(|restore| {
        let backup = &restore.spec.backup_ref;
        let is_own = backup.kind.as_str() == kind && backup.name == request.name();
        restore.status.job_name.filter(|_| is_own)?;
        Some(Restored {
            name: restore.metadata.name?,
            uid: restore.metadata.uid?,
            time: restore.status.start_time?,
        })
    });
    for restored in stored.into_iter().chain(started) {
        by_name.insert(restored.name.clone(), restored);
    }
    let mut restores: Vec<Restored> = by_name.into_values().collect();
    restores.sort_by(|a, b| b.time.cmp(&a.time));
    restores.truncate(RESTORES_MAX);
    Ok(restores)
}
