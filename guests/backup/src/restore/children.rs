//! The children of a restoration: the Job, and a Secret if a credential is written in clear text.

use std::collections::BTreeMap;

use innkeeper_kit::job;
use innkeeper_sdk::prelude::*;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::Secret,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{Restoration, keys, pod};
use crate::names::suffixed;

/// The annotation on the Job of a restore or verification: the name of the archive.
pub(super) const FILE: &str = "gobackup.io/file";

/// The annotation on the Job of a restore or verification: the names of the restored databases, and `files`.
pub(super) const RESTORED: &str = "gobackup.io/restored";

/// The annotation on the Job of a verification: the time of the archive.
pub(super) const TIME: &str = "gobackup.io/archive-time";

/// The annotation on the Job of a verification: the names of the databases that it does not restore.
pub(super) const SKIPPED: &str = "gobackup.io/skipped";

/// The children, with further annotations of the Job.
pub(super) fn children<const N: usize>(
    restoration: &Restoration<'_>,
    further: [(&str, String); N],
) -> Vec<Child> {
    let plan = &restoration.plan;
    let [config, component] = keys(plan.parent.kind);
    let data: BTreeMap<_, _> = plan.clear_credentials().collect();
    let secret = (!data.is_empty()).then(|| {
        let secret = Secret {
            metadata: metadata(plan.secret_name(), &plan.labels("config")),
            data: Some(data),
            ..Default::default()
        };
        Child::new(config, &secret)
    });
    let annotations = [
        (FILE, restoration.file.clone()),
        (RESTORED, restoration.restored().join(",")),
    ];
    let annotations = annotations.into_iter().chain(further);
    let annotations = annotations
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let job = Job {
        metadata: ObjectMeta {
            annotations: Some(annotations),
            ..metadata(
                suffixed(plan.request, plan.parent.kind),
                &plan.labels(component),
            )
        },
        spec: Some(JobSpec {
            active_deadline_seconds: Some(restoration.spec.active_deadline_seconds),
            // A second try would meet what the first one left.
            backoff_limit: Some(0),
            template: pod::template(restoration),
            ..Default::default()
        }),
        ..Default::default()
    };
    let job = job::once(component, &job, &plan.request.children);
    let job = match (&secret, job.apply) {
        (Some(_), ApplyPolicy::Always) => job.after([config]),
        _ => job,
    };
    secret.into_iter().chain([job]).collect()
}
