//! etcd's alarms, from the termination messages of inspection Pods.

use std::slice;

use innkeeper_kit::prelude::*;

use crate::{cluster::Cluster, jobs};

/// The label value and name suffix for inspections.
pub(crate) const COMPONENT: &str = "inspect";

/// Number of inspections without an answer after which the last answer no longer counts.
pub(crate) const FAILURES: i32 = 3;

/// Longest message from a failed inspection in a condition, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// A result's first line, which also shows that there is no alarm.
const HEADING: &str = "inspected";

/// etcd's alarms at the last inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarms {
    /// The last inspection's message, if none of the recent ones had an answer.
    pub(crate) failure: Option<String>,
    /// A member's database has reached the quota.
    pub(crate) no_space: bool,
    /// The members' data differ.
    pub(crate) corrupt: bool,
}

impl Alarms {
    /// Reads the last inspection that has a result.
    pub(crate) fn read(host: &dyn Host, cluster: &Cluster<'_>) -> Result<Self, Fault> {
        if cluster.spec.inspection.is_none() {
            return Ok(Self::default());
        }
        let selector = labels::selector_text(&base_labels("etcd", cluster.name, COMPONENT));
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
