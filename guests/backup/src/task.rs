//! A Job whose result outlives it: a run, a restoration, a verification or a probe.
//!
//! The status records the result. A final record does not change, not even when the Job is deleted, except that a
//! pass may see the end of the Job before the Pod's termination message, which completes the record later.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;
use k8s_openapi::{
    api::batch::v1::{Job, JobSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{Kinds, api::Kind, names, plan::Plan, status::Phase};

/// Message about a Job that was deleted before a pass saw the end.
pub(crate) const JOB_LOST: &str = "the Job was deleted before the plugin saw its end";

/// Maximum length of a message in characters.
pub(crate) const MESSAGE_MAX: usize = 1024;

/// A task's Job.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) phase: Phase,
    pub(crate) start_time: Option<String>,
    pub(crate) completion_time: Option<String>,
    annotations: BTreeMap<String, String>,
    /// The message of the Job's final condition.
    message: Option<String>,
}

impl Task {
    pub(crate) fn new(job: &ObservedJob) -> Self {
        let run = JobRun::new(job);
        Self {
            name: job.metadata.name.clone().unwrap_or_default(),
            uid: job.metadata.uid.clone().unwrap_or_default(),
            phase: run.phase.into(),
            start_time: run.started.map(|time| time.0.to_string()),
            completion_time: run.ended.map(|time| time.0.to_string()),
            annotations: job.metadata.annotations.clone().unwrap_or_default(),
            message: run.message,
        }
    }

    /// Returns the termination message of a finished task, from the first container that has one.
    pub(crate) fn termination_message<'a>(
        &self,
        kind: Kind,
        pods: &'a [JobPod],
    ) -> Option<&'a str> {
        names::containers(kind)
            .iter()
            .find_map(|container| job::termination_message(&self.uid, pods, container))
            .filter(|_| self.phase.is_terminal())
    }

    /// Returns an annotation's value; empty if there is none.
    pub(crate) fn annotation(&self, key: &str) -> &str {
        self.annotations.get(key).map_or("", String::as_str)
    }

    /// Returns the cause of a failure: the last lines of the termination message, or the message of the Job.
    pub(crate) fn failure(&self, termination_message: Option<&str>) -> Option<String> {
        let message = termination_message
            .or(self.message.as_deref())
            .unwrap_or("the Job failed");
        let message = job::tail(message.trim(), MESSAGE_MAX);
        (self.phase == Phase::Failed).then(|| message.to_owned())
    }
}

/// A task's result in a status.
pub(crate) trait Record: PartialEq {
    fn is_of(&self, task: &Task) -> bool;
    fn phase(&self) -> Phase;
    fn fail(&mut self, message: &str);
}

/// Returns the result of a kind's newest task: the Job's, or the recorded one if it is final.
///
/// `result` gets the task and the Pod's termination message.
pub(crate) fn newest<R: Record>(
    request: &Request,
    host: &dyn Host,
    kind: Kind,
    mut stored: Option<R>,
    result: impl Fn(&Task, Option<&str>) -> R,
) -> Result<Option<R>, Fault> {
    let Some(job) = request.children.get(&names::suffixed(request, kind))? else {
        if let Some(record) = &mut stored
            && !record.phase().is_terminal()
        {
            record.fail(JOB_LOST);
        }
        return Ok(stored);
    };
    let task = Task::new(&job);
    let record = stored.filter(|record| record.phase().is_terminal() && record.is_of(&task));
    // A success is complete. A failure that only has the Job's message may still get the Pod's.
    if let Some(record) = record
        && (record.phase() == Phase::Succeeded || record != result(&task, None))
    {
        return Ok(Some(record));
    }
    // A running Pod has no termination message, so the Pods are not read.
    if !task.phase.is_terminal() {
        return Ok(Some(result(&task, None)));
    }
    let selector = labels::selector_text(&names::labels(request, kind, names::component(kind)));
    let pods = host.list::<JobPod>(request.namespace(), &selector)?;
    Ok(Some(result(&task, task.termination_message(kind, &pods))))
}

/// Returns the stored condition if it has one of these reasons: the last result, while the next task runs.
pub(crate) fn last_result(request: &Request, type_: &str, reasons: &[&str]) -> Option<Condition> {
    let stored = request.stored_condition(type_)?;
    reasons
        .contains(&stored.reason.as_str())
        .then(|| Condition::new(type_, stored.status, stored.reason, stored.message))
}

/// Returns the child for a task's Job, which is applied after the children in `needed` until it is observed, and held from
/// then on.
pub(crate) fn child<'a>(
    plan: &Plan<'_>,
    key: &str,
    name: &str,
    annotations: impl IntoIterator<Item = (&'static str, String)>,
    spec: JobSpec,
    needed: impl IntoIterator<Item = &'a str>,
) -> Child {
    let annotations = annotations.into_iter();
    let job = Job {
        metadata: ObjectMeta {
            annotations: Some(
                annotations
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect(),
            ),
            ..metadata(name, &plan.labels(names::component(plan.parent.kind)))
        },
        spec: Some(spec),
        ..Default::default()
    };
    let job = job::once::<Kinds>(key, &job, &plan.request.children);
    match job.apply {
        ApplyPolicy::Hold => job,
        _ => job.after(needed),
    }
}
