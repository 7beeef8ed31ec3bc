//! Builds status, conditions and events from the observed state.
//!
//! Conditions report Pods that are ready now, not writes that the host has sent.

use innkeeper_kit::{prelude::*, workload::WorkloadStatus};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};

use crate::{
    api::MemcachedStatus,
    children::Pool,
    pods::{self, Member, members},
};

/// One pool's observed state.
pub(crate) struct Observation {
    /// The Deployment; `None` before it is created.
    pub(crate) workload: Option<Workload>,
    nodes: Vec<String>,
    /// Why replicas are missing: the Deployment's message, or else the first unready Pod's.
    cause: Option<String>,
}

impl Observation {
    pub(crate) fn read(request: &Request, host: &dyn Host, pool: &Pool<'_>) -> Result<Self, Fault> {
        let workload = Workload::find::<Deployment>(&request.children, request.name())?;
        let selector = labels::selector_text(&pool.labels);
        let pods = members(host.list_as("v1", "Pod", Some(request.namespace()), &selector)?);
        let cause = workload
            .as_ref()
            .and_then(Workload::replica_failure)
            .map(ToOwned::to_owned);
        Ok(Self {
            cause: cause.or_else(|| pods::cause(&pods)),
            workload,
            nodes: pods.into_iter().map(Member::into_name).collect(),
        })
    }

    /// The port for clients. It changes only when all Pods listen on the new one.
    pub(crate) fn port(&self, request: &Request, pool: &Pool<'_>, template: &TemplateHash) -> i32 {
        let port = request
            .children
            .find::<Service>(request.name())
            .and_then(|child| child.field("/spec/ports/0/port")?.as_i64());
        let announced = port.and_then(|port| i32::try_from(port).ok());
        let is_listening = pool.size() == 0 || self.is_rolled_out(pool.size(), template);
        announced
            .filter(|_| !is_listening)
            .unwrap_or_else(|| pool.port())
    }

    pub(crate) fn report(
        self,
        request: &Request,
        pool: &Pool<'_>,
        template: &TemplateHash,
        port: i32,
    ) -> Report {
        let conditions = self.conditions(pool.size(), template);
        let events = events(request, pool, &conditions);
        let was_listed = request
            .stored_status::<MemcachedStatus>()
            .is_some_and(|status| status.server_list.is_some());
        let is_ready = conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.is_true());
        // Kept while a Pod restarts: clients would lose the whole cache otherwise.
        let server_list = (is_ready || was_listed).then(|| match pool.size() {
            0 => Vec::new(),
            _ => pool.server_list(port),
        });
        let pods = self.pods();
        let status = MemcachedStatus {
            nodes: self.nodes,
            replicas: pods.replicas,
            ready_replicas: pods.ready_replicas,
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

    /// Pod counts; 0 before the Deployment is created.
    fn pods(&self) -> WorkloadStatus {
        self.workload
            .as_ref()
            .map(|workload| workload.status.clone())
            .unwrap_or_default()
    }

    fn conditions(&self, size: i32, template: &TemplateHash) -> Vec<Condition> {
        let ready = self.pods().ready_replicas;
        let ready_of = format!("{} of {size} replicas are ready", ready.min(size));
        let all_ready = format!("all {size} replicas are ready");
        let available = match ready {
            0 => Condition::new("Available", false, "Unavailable", &ready_of),
            _ => Condition::new("Available", true, "Available", &ready_of),
        };
        let degraded = self.degraded(size, template, &ready_of, &all_ready);
        let progressing = self.progressing(size, template);
        let is_ready = if size == 0 {
            Condition::new("Ready", false, "NotReady", "zero replicas are requested")
        } else if !self.is_rolled_out(size, template) {
            Condition::new("Ready", false, "RollingOut", &progressing.message)
        } else if ready < size {
            Condition::new("Ready", false, "NotReady", ready_of)
        } else {
            Condition::new("Ready", true, "Ready", all_ready)
        };
        vec![available, progressing, degraded, is_ready]
    }

    fn degraded(
        &self,
        size: i32,
        template: &TemplateHash,
        ready_of: &str,
        all_ready: &str,
    ) -> Condition {
        let workload = self.workload.as_ref();
        // A Deployment with another template reports on that template.
        let is_late =
            workload.is_some_and(|workload| workload.is_late() && workload.is_current(template));
        let cause = self
            .cause
            .as_ref()
            .map_or_else(String::new, |cause| format!("; {cause}"));
        if size > 0 && is_late {
            let message =
                format!("{ready_of}; the Deployment exceeded its progress deadline{cause}");
            Condition::new("Degraded", true, "ProgressDeadlineExceeded", message)
        } else if size > 0 && self.pods().ready_replicas < size {
            Condition::new("Degraded", true, "Degraded", format!("{ready_of}{cause}"))
        } else {
            Condition::new("Degraded", false, "NotDegraded", all_ready)
        }
    }

    /// True if enough Pods have the desired template and no others are left.
    fn is_rolled_out(&self, size: i32, template: &TemplateHash) -> bool {
        let is_enough = self.pods().updated_replicas >= size;
        let workload = self.workload.as_ref();
        is_enough && workload.is_some_and(|workload| workload.is_rolled_out(template))
    }

    fn progressing(&self, size: i32, template: &TemplateHash) -> Condition {
        let pods = self.pods();
        let message = match &self.workload {
            None => "waiting for the Deployment to be created".to_owned(),
            Some(workload) if !workload.is_current(template) => {
                "waiting for the Deployment to be updated".to_owned()
            }
            _ if pods.updated_replicas < size => {
                format!("{} of {size} replicas are updated", pods.updated_replicas)
            }
            _ if pods.replicas != size => {
                format!("{} replicas exist, {size} are requested", pods.replicas)
            }
            _ => {
                let message = format!("all {size} replicas are updated");
                return Condition::new("Progressing", false, "ProgressingComplete", message);
            }
        };
        Condition::new("Progressing", true, "Progressing", message)
    }
}

/// An event when `Ready` changes from the stored condition.
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
        // A rollout is intended and no problem.
        (true, false) if ready.reason == "NotReady" => {
            Some(Event::warning("NotReady", &ready.message))
        }
        _ => None,
    }
}
