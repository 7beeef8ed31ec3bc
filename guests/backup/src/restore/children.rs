//! The children of a restoration: the Job, and a Secret if a credential is written in clear text.

use std::collections::BTreeMap;

use innkeeper_sdk::prelude::*;
use k8s_openapi::api::{batch::v1::JobSpec, core::v1::Secret};

use super::{Restoration, config_key, pod};
use crate::{
    Kinds,
    names::{component, suffixed},
    task,
};

/// The annotation on the Job of a restore or verification: the archive.
pub(super) const FILE: &str = "gobackup.io/file";

/// The annotation on the Job of a restore or verification: the names of restored databases, and `files`.
pub(super) const RESTORED: &str = "gobackup.io/restored";

/// The annotation on a verification's Job: the archive's time.
pub(super) const TIME: &str = "gobackup.io/archive-time";

/// The annotation on a verification's Job: the databases that it does not restore.
pub(super) const SKIPPED: &str = "gobackup.io/skipped";

/// Returns the children, with more annotations for the Job.
pub(super) fn children<const N: usize>(
    restoration: &Restoration<'_>,
    further: [(&'static str, String); N],
) -> Vec<Child> {
    let plan = &restoration.plan;
    let kind = plan.parent.kind;
    let config = config_key(kind);
    let data: BTreeMap<_, _> = plan.clear_credentials().collect();
    let secret = (!data.is_empty()).then(|| {
        let secret = Secret {
            metadata: metadata(plan.secret_name(), &plan.labels("config")),
            data: Some(data),
            ..Default::default()
        };
        Kinds::child(config, &secret)
    });
    let annotations = [
        (FILE, restoration.file.clone()),
        (RESTORED, restoration.restored().join(",")),
    ];
    let spec = JobSpec {
        active_deadline_seconds: Some(restoration.spec.active_deadline_seconds),
        // A second try would meet what the first one left.
        backoff_limit: Some(0),
        template: pod::template(restoration),
        ..Default::default()
    };
    let job = task::child(
        plan,
        component(kind),
        &suffixed(plan.request, kind),
        annotations.into_iter().chain(further),
        spec,
        secret.iter().map(|_| config),
    );
    secret.into_iter().chain([job]).collect()
}
