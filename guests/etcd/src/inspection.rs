//! Scheduled inspections: a CronJob that asks etcd for alarms; `observe::alarms` reads the answers.
//!
//! Probes do not show a full database, because members keep serving reads.

use innkeeper_sdk::prelude::*;
use k8s_openapi::{
    api::batch::v1::{CronJob, CronJobSpec, JobSpec, JobTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    cluster::Cluster,
    jobs,
    observe::{
        Observation,
        alarms::{COMPONENT, FAILURES},
    },
    record::Record,
};

/// Each member knows all alarms. Reading a key instead would fail while data differ.
const INSPECT: &str = r#"for endpoint in $ENDPOINTS; do
  if alarms=$(ctl alarm list); then
    printf 'inspected\n%s' "$alarms" >/dev/termination-log
    exit 0
  fi
  check_user alarm list
done
fail "no member answers"
"#;

/// A formed cluster's CronJob; `None` without a schedule.
///
/// It does not start Jobs while one of their Secrets is missing. It still exists, and so does the Pod of the last
/// inspection.
pub(crate) fn cron_job(
    cluster: &Cluster<'_>,
    observation: &Observation,
    record: &Record,
) -> Option<CronJob> {
    let inspection = cluster.spec.inspection.as_ref()?;
    if !record.formed {
        return None;
    }
    let labels = cluster.labels(COMPONENT);
    let endpoints = jobs::endpoints(cluster, record, None);
    let template = jobs::template(cluster, labels.clone(), INSPECT, vec![endpoints]);
    Some(CronJob {
        metadata: metadata(format!("{}-{COMPONENT}", cluster.name), &labels),
        spec: Some(CronJobSpec {
            schedule: inspection.schedule.clone(),
            // Otherwise the schedule follows the time zone of the controller manager.
            time_zone: Some("Etc/UTC".to_owned()),
            suspend: Some(cluster.spec.size == 0 || observation.holds_jobs(cluster)),
            concurrency_policy: Some("Forbid".to_owned()),
            successful_jobs_history_limit: Some(1),
            failed_jobs_history_limit: Some(FAILURES),
            job_template: JobTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..Default::default()
                }),
                spec: Some(JobSpec {
                    // A retry would count as another inspection without an answer.
                    backoff_limit: Some(0),
                    active_deadline_seconds: Some(300),
                    template,
                    ..Default::default()
                }),
            },
            ..Default::default()
        }),
        ..Default::default()
    })
}
