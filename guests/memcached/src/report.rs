//! Status, conditions and events, from what is observed.
//!
//! Conditions follow the pods that are ready now, not the writes that were sent.

use innkeeper_sdk::{labels, prelude::*};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use serde::Deserialize;

use crate::{api::MemcachedStatus, children::Pool};

/// What the cluster shows of one parent's pool.
pub(crate) struct Observation {
    exists: bool,
    /// The workload's status is older than its spec.
    stale: bool,
    replicas: i32,
    ready: i32,
    updated: i32,
    nodes: Vec<String>,
}

/// What is read of the Deployment: to parse its spec would cost more than the rest of a pass, and
/// says nothing new.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Workload {
    metadata: WorkloadMetadata,
    status: DeploymentStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkloadMetadata {
    generation: i64,
}

/// What is read of a Pod.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Member {
    metadata: MemberMetadata,
    status: MemberStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MemberMetadata {
    name: String,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MemberStatus {
    phase: String,
}

impl Observation {
    pub(crate) fn read(request: &Request, host: &dyn Host, pool: &Pool<'_>) -> Result<Self, Fault> {
        let workload = request.children.find::<Deployment>(request.name());
        let exists = workload.is_some();
        let workload: Workload = workload
            .map(Observed::parse)
            .transpose()?
            .unwrap_or_default();
        let status = &workload.status;
        let count = |value: Option<i32>| value.unwrap_or(0);
        let selector = labels::selector_text(&pool.labels);
        let pods = host.list_as("v1", "Pod", Some(request.namespace()), &selector)?;
        Ok(Self {
            exists,
            stale: status.observed_generation.unwrap_or(0) < workload.metadata.generation,
            replicas: count(status.replicas),
            ready: count(status.ready_replicas),
            updated: count(status.updated_replicas),
            nodes: nodes(pods),
        })
    }

    pub(crate) fn report(self, request: &Request, pool: &Pool<'_>) -> Report {
        let conditions = self.conditions(pool);
        let events = events(request, pool, &conditions);
        let was_listed = request
            .stored_status::<MemcachedStatus>()
            .is_some_and(|status| status.server_list.is_some());
        let is_ready = conditions
            .iter()
            .any(|it| it.type_ == "Ready" && it.is_true());
        // The list does not vanish when one pod restarts: consumers would lose their cache.
        let server_list = (is_ready || was_listed).then(|| match pool.size() {
            0 => Vec::new(),
            _ => pool.server_list(),
        });
        let status = MemcachedStatus {
            nodes: self.nodes,
            replicas: self.replicas,
            ready_replicas: self.ready,
            selector: labels::selector_text(&pool.labels),
            server_list,
            image: pool.image.to_owned(),
            observed_generation: request.generation(),
        };
        Report::new()
            .status(&status)
            .conditions(conditions)
            .events(events)
    }

    fn conditions(&self, pool: &Pool<'_>) -> Vec<Condition> {
        let wanted = pool.size();
        let ready = format!("{} of {wanted} replicas are ready", self.ready);
        let available = match self.ready {
            0 => Condition::new("Available", false, "Unavailable", &ready),
            _ => Condition::new("Available", true, "Available", &ready),
        };
        let is_complete =
            self.exists && !self.stale && self.updated >= wanted && self.replicas == wanted;
        let progressing = if is_complete {
            let message = format!("all {wanted} replicas are updated");
            Condition::new("Progressing", false, "ProgressingComplete", message)
        } else if self.exists {
            let message = format!("{} of {wanted} replicas are updated", self.updated);
            Condition::new("Progressing", true, "Progressing", message)
        } else {
            let message = "waiting for the Deployment to be created";
            Condition::new("Progressing", true, "Progressing", message)
        };
        let all_ready = format!("all {wanted} replicas are ready");
        let degraded = if wanted > 0 && self.ready < wanted {
            Condition::new("Degraded", true, "Degraded", &ready)
        } else {
            Condition::new("Degraded", false, "NotDegraded", &all_ready)
        };
        let is_ready = if wanted == 0 {
            Condition::new("Ready", false, "NotReady", "zero replicas are requested")
        } else if self.ready == wanted {
            Condition::new("Ready", true, "Ready", all_ready)
        } else {
            Condition::new("Ready", false, "NotReady", ready)
        };
        vec![available, progressing, degraded, is_ready]
    }
}

/// Names of the Pods that are there to stay, sorted.
fn nodes(pods: Vec<Member>) -> Vec<String> {
    let mut names: Vec<String> = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        // The status is there only where the administrator grants more than metadata.
        .filter(|pod| !matches!(&*pod.status.phase, "Succeeded" | "Failed"))
        .map(|pod| pod.metadata.name)
        .collect();
    names.sort_unstable();
    names
}

/// Events on transitions of `Ready`, found by comparing with the stored condition.
fn events(request: &Request, pool: &Pool<'_>, conditions: &[Condition]) -> Option<Event> {
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")?;
    let stored = request.stored_condition("Ready");
    let was_ready = stored.as_ref().is_some_and(StoredCondition::is_true);
    let is_new = stored
        .as_ref()
        .is_none_or(|stored| stored.message != ready.message);
    match (was_ready, ready.is_true()) {
        (false, true) => Some(Event::normal("Ready", &ready.message)),
        (_, false) if pool.size() == 0 && is_new => {
            Some(Event::normal("ScaledToZero", &ready.message))
        }
        (true, false) if pool.size() > 0 => Some(Event::warning("NotReady", &ready.message)),
        _ => None,
    }
}
