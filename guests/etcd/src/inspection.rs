//! The inspection of etcd by a schedule: a CronJob that asks for alarms, and the last answer.
//!
//! The probes of the members do not show a full database, because its members keep serving reads.

use std::slice;

use innkeeper_kit::{
    job::{self, JobPod},
    labels,
};
use innkeeper_sdk::prelude::*;
use k8s_openapi::{
    api::batch::v1::{CronJob, CronJobSpec, JobSpec, JobTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{cluster::Cluster, jobs, observe::Observation, record::Record};

const COMPONENT: &str = "inspect";

/// The number of inspections without an answer after which the last answer counts no more.
const FAILURES: i32 = 3;

/// The longest message of a failed inspection in a condition, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// The first line of a result, which also tells that there is no alarm.
const HEADING: &str = "inspected";

/// Each member knows all alarms. A read of a key would fail while data differ.
const INSPECT: &str = r#"for endpoint in $ENDPOINTS; do
  if alarms=$(ctl alarm list); then
    printf 'inspected\n%s' "$alarms" >/dev/termination-log
    exit 0
  fi
  check_user alarm list
done
fail "no member answers"
"#;

/// The alarms of etcd at the last inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarms {
    /// The message of the last inspection, if none of the last ones had an answer.
    pub(crate) failure: Option<String>,
    /// A database has reached its quota.
    pub(crate) no_space: bool,
    /// The data of members differ.
    pub(crate) corrupt: bool,
}

impl Alarms {
    /// Reads the result of the last inspection that has one.
    pub(crate) fn read(host: &dyn Host, cluster: &Cluster<'_>) -> Result<Self, Fault> {
        if cluster.spec.inspection.is_none() {
            return Ok(Self::default());
        }
        let selector = labels::selector_text(&labels::base_labels("etcd", cluster.name, COMPONENT));
        let mut pods = host.list::<JobPod>(cluster.namespace, &selector)?;
        pods.sort_by_key(|pod| {
            pod.metadata
                .creation_timestamp
                .as_ref()
                .map(|timestamp| timestamp.0)
        });
        let message = |pod: &JobPod| {
            let uid = job::controller(&pod.metadata)?;
            job::termination_message(uid, slice::from_ref(pod), jobs::CONTAINER).map(str::to_owned)
        };
        let messages = pods.iter().rev().filter_map(message);
        let mut failures: Vec<String> = Vec::new();
        for message in messages {
            let Some(alarms) = message.strip_prefix(HEADING) else {
                failures.push(message);
                continue;
            };
            if failures.len() < usize::try_from(FAILURES).unwrap_or(usize::MAX) {
                return Ok(Self {
                    failure: None,
                    no_space: alarms.contains("NOSPACE"),
                    corrupt: alarms.contains("CORRUPT"),
                });
            }
        }
        let is_failed = failures.len() >= usize::try_from(FAILURES).unwrap_or(usize::MAX);
        let last = failures.first().filter(|_| is_failed);
        Ok(Self {
            failure: last.map(|failure| job::tail(failure.trim(), MESSAGE_CHARS_MAX).to_owned()),
            ..Self::default()
        })
    }
}

/// The CronJob of a formed cluster; none without a schedule.
///
/// While a Secret of its Jobs is missing, none begins. The CronJob stays, and with it the Pod of the last inspection.
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
