//! Jobs that run a program for a parent: their phase, and the program's result in the container's termination
//! message.
//!
//! A guest cannot read logs or run commands, so the program writes the result, at most 4096 bytes, to
//! `/dev/termination-log`.

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::partial::Partial;
use innkeeper_sdk::child::Child;
use innkeeper_sdk::children::Children;
use innkeeper_sdk::kinds::{ChildKinds, Includes};

/// An observed Job without the Pod template.
pub type ObservedJob = Partial<Job, IgnoredAny, JobStatus>;

/// An observed Pod of a Job, with the containers' final states.
pub type JobPod = Partial<Pod, IgnoredAny, ContainerEnds>;

/// The final container states in a [`JobPod`], for [`termination_message`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerEnds {
    init_container_statuses: Vec<ContainerEnd>,
    container_statuses: Vec<ContainerEnd>,
}

#[derive(Clone, Debug, Deserialize)]
struct ContainerEnd {
    name: String,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Terminated {
    message: String,
}

/// A [`Job`]'s phase, from the conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobPhase {
    /// No Pod of the Job is active yet.
    #[default]
    Pending,
    /// At least one Pod is active.
    Running,
    /// The Job is complete. The phase is final.
    Succeeded,
    /// The Job has failed: no retries or no time left. The phase is final.
    Failed,
}

impl JobPhase {
    /// Returns whether the phase is final.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A program run, from the Job's status.
///
/// ```
/// use innkeeper_kit::job::{JobPhase, JobRun, termination_message};
/// use serde_json::json;
///
/// let job = serde_json::from_value(json!({
///     "metadata": {"name": "dump", "uid": "u"},
///     "status": {"conditions": [{"type": "Complete", "status": "True"}]},
/// }))
/// .unwrap();
/// let pod = serde_json::from_value(json!({
///     "metadata": {"ownerReferences": [
///         {"apiVersion": "batch/v1", "kind": "Job", "name": "dump", "uid": "u", "controller": true},
///     ]},
///     "status": {"containerStatuses": [{
///         "name": "dump", "image": "", "imageID": "", "ready": false, "restartCount": 0,
///         "state": {"terminated": {"exitCode": 0, "message": "12 tables"}},
///     }]},
/// }))
/// .unwrap();
/// assert_eq!(JobRun::new(&job).phase, JobPhase::Succeeded);
/// assert_eq!(termination_message("u", &[pod], "dump"), Some("12 tables"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRun {
    /// The phase.
    pub phase: JobPhase,
    /// The time at which the Job started; the creation until then.
    pub started: Option<Time>,
    /// The time at which the Job became complete or failed.
    pub ended: Option<Time>,
    /// The message of the final condition, written by the Job controller for a failure.
    pub message: Option<String>,
}

impl JobRun {
    /// Returns the run from a Job's status.
    pub fn new(job: &ObservedJob) -> Self {
        let status = &job.status;
        let end = status.conditions.iter().flatten().find(|condition| {
            condition.status == "True" && matches!(&*condition.type_, "Complete" | "Failed")
        });
        let is_active = status.active.unwrap_or(0) > 0;
        let phase = match end {
            Some(end) if end.type_ == "Complete" => JobPhase::Succeeded,
            Some(_) => JobPhase::Failed,
            None if is_active => JobPhase::Running,
            None => JobPhase::Pending,
        };
        let started = status.start_time.clone();
        let completed = status.completion_time.clone();
        Self {
            phase,
            started: started.or_else(|| job.metadata.creation_timestamp.clone()),
            // Only a successful Job has a completion time.
            ended: completed.or_else(|| end?.last_transition_time.clone()),
            message: end.and_then(|condition| condition.message.clone()),
        }
    }
}

/// Returns the termination message of this container, or init container, in the Job's newest Pod; none
/// while the container runs, and none for an empty message.
///
/// It finds the Job's Pods by the owner's UID, because any Pod can have the labels.
pub fn termination_message<'a>(
    job_uid: &str,
    pods: &'a [JobPod],
    container: &str,
) -> Option<&'a str> {
    let newest = pods
        .iter()
        .filter(|pod| controller(&pod.metadata) == Some(job_uid))
        .max_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            // Times have whole seconds, so the name makes the choice stable.
            (created, pod.metadata.name.as_deref())
        })?;
    let ContainerEnds {
        init_container_statuses: init,
        container_statuses: main,
    } = &newest.status;
    // Container names are unique within a Pod, init containers included.
    let status = init
        .iter()
        .chain(main)
        .find(|status| status.name == container)?;
    let terminated = status.state.terminated.as_ref()?;
    Some(&*terminated.message).filter(|message| !message.trim().is_empty())
}

/// Returns the controlling owner's UID.
pub fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let owner = metadata
        .owner_references
        .as_deref()?
        .iter()
        .find(|owner| owner.controller == Some(true))?;
    Some(&owner.uid)
}

/// Returns the child for a Job that runs once: applied until it is observed, and then held, because the API server
/// refuses most changes to Jobs.
///
/// A deleted Job is created and runs again; leave the child out of the answer where it must not.
pub fn once<K: ChildKinds + Includes<Job>>(
    key: impl Into<String>,
    job: &Job,
    children: &Children,
) -> Child {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let is_observed = children.find::<Job>(name).is_some();
    let child = K::child(key, job);
    if is_observed { child.hold() } else { child }
}

/// Returns at most this many last characters of a text, such as the end of a log, which explains a failure.
///
/// ```
/// assert_eq!(innkeeper_kit::job::tail("started\nfailed", 6), "failed");
/// ```
pub fn tail(text: &str, chars_max: usize) -> &str {
    let excess = text.chars().count().saturating_sub(chars_max);
    let start = text
        .char_indices()
        .nth(excess)
        .map_or(text.len(), |(at, _)| at);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::batch::v1::Job;
    use serde_json::{Value, json};

    use super::{JobPhase, JobPod, JobRun, ObservedJob, once, tail, termination_message};
    use innkeeper_sdk::child::{ApplyPolicy, metadata};
    use innkeeper_sdk::testing::TestRequest;

    fn job(status: Value) -> ObservedJob {
        let metadata = json!({"name": "a", "creationTimestamp": "2030-01-01T00:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn pod(owner: &str, created: &str, state: Value) -> JobPod {
        let owner = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": owner, "controller": true,
        });
        let status = json!({
            "name": "run", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        });
        serde_json::from_value(json!({
            "metadata": {"name": "a", "creationTimestamp": created, "ownerReferences": [owner]},
            "status": {"containerStatuses": [status]},
        }))
        .unwrap()
    }

    innkeeper_sdk::child_kinds!(Kinds: Job);

    #[test]
    fn follows_the_conditions_of_the_job() {
        let end = |type_: &str, status: &str| {
            json!({"conditions": [{
                "type": type_, "status": status, "message": "m",
                "lastTransitionTime": "2030-01-01T00:05:00Z",
            }]})
        };
        let phase = |status: Value| JobRun::new(&job(status)).phase;
        assert_eq!(phase(json!({})), JobPhase::Pending);
        assert_eq!(phase(json!({"active": 1})), JobPhase::Running);
        assert_eq!(phase(end("Complete", "True")), JobPhase::Succeeded);
        assert_eq!(phase(end("Failed", "True")), JobPhase::Failed);
        assert_eq!(phase(end("Failed", "False")), JobPhase::Pending);
        assert_eq!(phase(end("Suspended", "True")), JobPhase::Pending);
        assert!(phase(end("Failed", "True")).is_final());

        let run = JobRun::new(&job(end("Failed", "True")));
        assert_eq!(run.message.as_deref(), Some("m"));
        assert_eq!(run.started.unwrap().0.to_string(), "2030-01-01T00:00:00Z");
        assert_eq!(run.ended.unwrap().0.to_string(), "2030-01-01T00:05:00Z");
    }

    #[test]
    fn reads_the_newest_pod_of_the_job_alone() {
        let terminated = |message: &str| json!({"terminated": {"exitCode": 1, "message": message}});
        let old = pod("u", "2030-01-01T00:00:00Z", terminated("old"));
        let new = pod("u", "2030-01-01T00:01:00Z", terminated("new"));
        let other = pod("v", "2030-01-01T00:02:00Z", terminated("other"));
        let pods = [new, old.clone(), other];
        assert_eq!(termination_message("u", &pods, "run"), Some("new"));
        assert_eq!(termination_message("u", &pods, "sidecar"), None);
        assert_eq!(termination_message("w", &pods, "run"), None);

        let running = pod("u", "2030-01-01T00:03:00Z", json!({"running": {}}));
        assert_eq!(termination_message("u", &[old, running], "run"), None);
        let empty = pod("u", "2030-01-01T00:00:00Z", terminated(" \n"));
        assert_eq!(termination_message("u", &[empty], "run"), None);
    }

    #[test]
    fn holds_a_job_once_it_is_observed() {
        let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {}});
        let job = Job {
            metadata: metadata("a", &BTreeMap::new()),
            ..Default::default()
        };
        let before = TestRequest::new(&parent).build();
        assert_eq!(
            once::<Kinds>("run", &job, &before.children).apply,
            ApplyPolicy::Always
        );
        let after = TestRequest::new(&parent).child("run", &job).build();
        assert_eq!(
            once::<Kinds>("run", &job, &after.children).apply,
            ApplyPolicy::Hold
        );
    }

    #[test]
    fn keeps_the_end_of_a_text() {
        assert_eq!(tail("äöü", 2), "öü");
        assert_eq!(tail("abc", 5), "abc");
        assert_eq!(tail("abc", 0), "");
    }
}
