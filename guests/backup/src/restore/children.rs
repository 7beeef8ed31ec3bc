//! The children of a restoration: the Job, and a Secret if a credential is written in clear text.

use std::collections::BTreeMap;

use innkeeper_sdk::{job, prelude::*};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::Secret,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{Restoration, pod};

/// The annotation of the Job with the name of the archive.
pub(super) const FILE: &str = "gobackup.io/file";

/// The annotation of the Job with the names of the restored databases, and `files`.
pub(super) const RESTORED: &str = "gobackup.io/restored";

/// The name of the Job of a restoration.
pub(super) fn job_name(request: &Request) -> String {
    format!("{}-restore", request.name())
}

pub(super) fn children(restoration: &Restoration<'_>) -> Vec<Child> {
    let plan = &restoration.plan;
    let data: BTreeMap<_, _> = plan.clear_credentials().collect();
    let secret = (!data.is_empty()).then(|| {
        let secret = Secret {
            metadata: metadata(plan.secret_name(), &plan.labels("config")),
            data: Some(data),
            ..Default::default()
        };
        Child::new("config", &secret)
    });
    let annotations = BTreeMap::from([
        (FILE.to_owned(), restoration.file.clone()),
        (RESTORED.to_owned(), restoration.restored().join(",")),
    ]);
    let job = Job {
        metadata: ObjectMeta {
            annotations: Some(annotations),
            ..metadata(job_name(plan.request), &plan.labels("restore"))
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
    let job = job::once("restore", &job, &plan.request.children);
    let job = match (&secret, job.apply) {
        (Some(_), ApplyPolicy::Always) => job.after(["config"]),
        _ => job,
    };
    secret.into_iter().chain([job]).collect()
}
