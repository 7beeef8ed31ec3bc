//! The inspection of etcd by a schedule: a CronJob that asks for alarms, and the last answer.
//!
//! The probes of the members do not show a full database, because its members keep serving reads.

use std::slice;

use innkeeper_sdk::{
    job::{self, JobPod},
    labels,
    prelude::*,
};
use k8s_openapi::{
    api::batch::v1::{CronJob, CronJobSpec, JobSpec, JobTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{cluster::Cluster, jobs, observe::Observation, record::Record};

const COMPONENT: &str = "inspect";

/// The first line of a result, which also tells that there is no alarm.
const HEADING: &str = "inspected";

/// Each member knows all alarms. A read of a key would fail while data differ.
const INSPECT: &str = r#"for endpoint in $ENDPOINTS; do
  if alarms=$(ctl alarm list); then
    printf 'inspected\n%s' "$alarms" >/dev/termination-log
    exit 0
  fi
done
fail "no member answers"
"#;

/// The alarms of etcd at the last inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarms {
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
        pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|it| it.0));
        let result = |pod: &JobPod| {
            let uid = job::controller(&pod.metadata)?;
            let message = job::termination_message(uid, slice::from_ref(pod), jobs::CONTAINER)?;
            let alarms = message.strip_prefix(HEADING)?;
            Some(Self {
                no_space: alarms.contains("NOSPACE"),
                corrupt: alarms.contains("CORRUPT"),
            })
        };
        Ok(pods.iter().rev().find_map(result).unwrap_or_default())
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
    let given = cluster.spec.inspection.as_ref()?;
    if !record.formed {
        return None;
    }
    let labels = cluster.labels(COMPONENT);
    let endpoints = jobs::endpoints(cluster, record, None);
    let template = jobs::template(cluster, labels.clone(), INSPECT, vec![endpoints]);
    Some(CronJob {
        metadata: metadata(format!("{}-{COMPONENT}", cluster.name), &labels),
        spec: Some(CronJobSpec {
            schedule: given.schedule.clone(),
            time_zone: Some("Etc/UTC".to_owned()),
            suspend: Some(cluster.spec.size == 0 || observation.holds_jobs(cluster)),
            concurrency_policy: Some("Forbid".to_owned()),
            successful_jobs_history_limit: Some(1),
            failed_jobs_history_limit: Some(1),
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
