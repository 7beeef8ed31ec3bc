//! Builds status, conditions and events from the observed state.

mod events;
mod messages;
mod warnings;

use std::collections::BTreeSet;

use innkeeper_kit::prelude::*;

use crate::{
    api::{Endpoints, EtcdClusterStatus, Member},
    cluster::{Cluster, quorum},
    members::{self, Template},
    observe::Observation,
    replace::{Cause, Next},
    step::{Stage, Step},
    version::Version,
};

use self::messages::{CORRUPT, NO_SPACE, NOT_STARTED};

/// The parent's report.
pub(crate) fn report(
    request: &Request,
    cluster: &Cluster<'_>,
    observation: &Observation,
    step: &Step,
    template: &Template<'_>,
) -> Report {
    let view = View::new(cluster, observation, step, template);
    let conditions = view.conditions();
    let status = view.status(request);
    let events = view.events(request, &conditions, &status.warnings);
    let mut report = Report::new()
        .status(&status)
        .conditions(conditions)
        .events(events);
    let leaving = observation
        .leaving
        .values()
        .map(|pod| pod.left)
        .filter(|left| !left.is_zero());
    report.requeue = leaving.chain(step.requeue).min();
    report
}

/// The report's inputs.
struct View<'a> {
    cluster: &'a Cluster<'a>,
    observation: &'a Observation,
    step: &'a Step,
    /// The number of members in the record.
    members: usize,
    /// The number of them with ready Pods.
    ready: usize,
    /// All Pods have the desired template.
    is_rolled_out: bool,
    /// The StatefulSet has the desired template.
    is_written: bool,
}

impl<'a> View<'a> {
    fn new(
        cluster: &'a Cluster<'a>,
        observation: &'a Observation,
        step: &'a Step,
        template: &Template<'_>,
    ) -> Self {
        let ready = observation.ready();
        let members = step.record.as_ref().map(|record| &record.members);
        Self {
            cluster,
            observation,
            step,
            members: members.map_or(0, BTreeSet::len),
            ready: members.map_or(0, |members| members.intersection(&ready).count()),
            is_rolled_out: template.is_rolled_out(),
            is_written: template.is_written(),
        }
    }

    fn current_version(&self) -> Option<Version> {
        let record = self.step.record.as_ref();
        record
            .and_then(|record| record.version)
            .or_else(|| self.observation.current_version())
    }

    fn is_formed(&self) -> bool {
        self.step
            .record
            .as_ref()
            .is_some_and(|record| record.formed)
    }

    fn status(&self, request: &Request) -> EtcdClusterStatus {
        let pods = &self.observation.pods;
        // A member without a Pod is a member too.
        let member = |ordinal: i32| Member {
            name: self.cluster.member(ordinal),
            ordinal,
            ready: pods.get(&ordinal).is_some_and(|pod| pod.is_ready),
            version: pods
                .get(&ordinal)
                .and_then(|pod| pod.version)
                .map(|version| version.to_string()),
        };
        let members = self.step.record.as_ref().map(|record| &record.members);
        let listed: BTreeSet<i32> = members
            .into_iter()
            .flatten()
            .chain(pods.keys())
            .copied()
            .collect();
        // A Service with this name may send traffic to another owner's Pods.
        let missing = &self.observation.missing_services;
        let client = self.cluster.client_service();
        let own = members.filter(|_| missing.iter().all(|name| name != self.cluster.name));
        let endpoints = Endpoints {
            client: (!missing.contains(&client)).then(|| {
                let scheme = self.cluster.scheme();
                let namespace = self.cluster.namespace;
                format!("{scheme}://{client}.{namespace}.svc:2379")
            }),
            members: own
                .into_iter()
                .flatten()
                .map(|ordinal| self.cluster.client_url(*ordinal))
                .collect(),
        };
        EtcdClusterStatus {
            observed_generation: request.generation(),
            size: self.cluster.spec.size,
            replicas: self.observation.replicas(),
            ready_replicas: i32::try_from(self.ready).unwrap_or(i32::MAX),
            selector: labels::selector_text(&self.cluster.selector()),
            cluster_formed: self.is_formed() || self.observation.was_formed,
            members: listed.into_iter().map(member).collect(),
            image: Some(self.cluster.image.clone()),
            current_version: self
                .current_version()
                .map(|current_version| current_version.to_string()),
            target_version: self.cluster.target.map(|version| version.to_string()),
            endpoints: Some(endpoints),
            warnings: self.warnings(),
        }
    }

    fn conditions(&self) -> Vec<Condition> {
        let available = self.available();
        let progressing = self.progressing();
        let degraded = self.degraded();
        let size = usize::try_from(self.cluster.spec.size).unwrap_or(0);
        let is_ready = self.is_formed()
            && size > 0
            && self.ready == self.members
            && self.members == size
            && self.is_rolled_out;
        // The host itself sets it to False when a Service belongs to another owner.
        let ready = if is_ready {
            Condition::new("Ready", true, "Ready", available.message.clone())
        } else {
            let cause = if available.is_true() {
                &progressing
            } else {
                &available
            };
            Condition::new("Ready", false, cause.reason.clone(), cause.message.clone())
        };
        vec![available, progressing, degraded, ready]
    }

    /// True if the rollout waits for a member that it does not replace itself.
    fn is_held(&self) -> bool {
        self.ready < self.members && !self.waits_for_new() && !self.cluster.allows_unsafe_rollout
    }

    /// True if the rollout waits for a member that it has just replaced.
    fn is_replacing(&self) -> bool {
        self.waits_for_new() && !self.step.is_late
    }

    /// True if the rollout has waited for such a member for too long.
    fn is_stuck(&self) -> bool {
        self.waits_for_new() && self.step.is_late
    }

    /// True if the only unready member is one that the rollout has replaced.
    fn waits_for_new(&self) -> bool {
        let Some(record) = self.step.record.as_ref() else {
            return false;
        };
        if self.is_rolled_out || !self.is_written {
            return false;
        }
        let ready = self.observation.ready();
        let mut down = record.members.difference(&ready);
        let one = down.next();
        let more = down.next();
        let is_replaced = |ordinal: &i32| match self.observation.pods.get(ordinal) {
            Some(pod) => members::is_updated(self.observation, pod),
            None => *ordinal >= members::observed_partition(self.observation),
        };
        one.is_some_and(is_replaced) && more.is_none()
    }

    /// The `Progressing` condition for a replacement; `None` without one.
    fn replacement(&self) -> Option<(bool, &'static str, String)> {
        let replaced = self.replaced();
        Some(match &self.step.replacement {
            Next::Idle => return None,
            Next::Wait(Cause::Quorum) => (
                false,
                "WaitingForHealthyMembers",
                format!("{replaced}: replaced when a quorum of the other members is ready"),
            ),
            Next::Wait(Cause::Members) => (
                false,
                "WaitingForHealthyMembers",
                format!("{replaced}: added to etcd again when all other members are ready"),
            ),
            Next::Wait(Cause::Failure) => (false, "OperationFailed", self.failure()),
            Next::Wait(Cause::Pod) => (
                true,
                "ReplacingMember",
                format!("{replaced}: waiting for the Pod"),
            ),
            Next::Wait(Cause::Secret) => {
                let (reason, problem) = self.certificates().unwrap_or_default();
                (false, reason, format!("{replaced}: {problem}"))
            }
            Next::Run(_) | Next::Write(_) => (
                true,
                "ReplacingMember",
                format!("replacing members without data: {replaced}"),
            ),
        })
    }

    fn available(&self) -> Condition {
        let quorum = quorum(self.members);
        let (status, reason, message) = match &self.step.stage {
            Stage::Paused => (false, "Paused", self.paused()),
            Stage::StaleClaims(claims) => (false, "StaleClaims", self.stale(claims)),
            Stage::MissingClaims(claims) => (false, "StaleClaims", self.missing(claims)),
            Stage::LostClaims(claims) => (false, "QuorumLost", self.lost(claims)),
            Stage::Refused => (false, "SpecInvalid", NOT_STARTED.to_owned()),
            Stage::Certificates => self.awaited(),
            Stage::BootstrapFailed => (false, "BootstrapFailed", self.counts()),
            _ if !self.is_formed() => (false, "Bootstrapping", self.counts()),
            _ if self.ready == self.members => (true, "QuorumHealthy", self.counts()),
            _ if self.ready >= quorum => (true, "QuorumAvailable", self.counts()),
            Stage::Resuming => (false, "Resuming", self.counts()),
            _ => {
                let message = format!("{}, quorum is {quorum}{}", self.counts(), self.loss());
                (false, "QuorumLost", message)
            }
        };
        Condition::new("Available", status, reason, message)
    }

    fn progressing(&self) -> Condition {
        let size = self.cluster.spec.size;
        let members = self.members;
        let replacement = self.replacement();
        let (status, reason, message) = match &self.step.stage {
            Stage::Formed | Stage::Resizing if replacement.is_some() => {
                replacement.unwrap_or_default()
            }
            Stage::Paused => (false, "Paused", self.paused()),
            Stage::StaleClaims(claims) => (false, "StaleClaims", self.stale(claims)),
            Stage::MissingClaims(claims) => (false, "StaleClaims", self.missing(claims)),
            Stage::LostClaims(claims) => (false, "WaitingForHealthyMembers", self.lost(claims)),
            Stage::Refused => (false, "SpecInvalid", NOT_STARTED.to_owned()),
            Stage::Certificates => self.awaited(),
            Stage::BootstrapFailed => (
                false,
                "DeadlineExceeded",
                format!(
                    "the members did not form a cluster within {} s: {}",
                    self.cluster.spec.progress_deadline_seconds,
                    self.counts()
                ),
            ),
            Stage::Bootstrapping => (true, "Bootstrapping", format!("starting {members} members")),
            Stage::Resuming => (
                true,
                "Resuming",
                format!("starting {members} members again"),
            ),
            Stage::Resizing => (
                false,
                "SizeNotSupported",
                format!(
                    "size is {size}, but members of a formed cluster cannot be added or removed: \
                     the cluster keeps its {members} members; set size to {members}"
                ),
            ),
            Stage::Formed if self.is_stuck() => (false, "DeadlineExceeded", self.stuck()),
            Stage::Formed if !self.is_rolled_out && self.is_held() => (
                false,
                "RolloutHeld",
                format!(
                    "no member is replaced while another one is down: {}{}",
                    self.counts(),
                    self.way_past()
                ),
            ),
            Stage::Formed if self.cluster.preparing.is_some() => {
                (true, "PreparingUpgrade", self.preparing())
            }
            Stage::Formed if !self.is_rolled_out => (
                true,
                "RollingUpdate",
                format!("members are replaced one by one: {}", self.counts()),
            ),
            Stage::Formed if self.ready < members => (
                false,
                "WaitingForHealthyMembers",
                format!("waiting for members: {}", self.counts()),
            ),
            Stage::Formed => (false, "ProgressingComplete", self.complete()),
        };
        Condition::new("Progressing", status, reason, message)
    }

    fn degraded(&self) -> Condition {
        let (status, reason, message) = match &self.step.stage {
            Stage::Paused => (false, "Paused", self.paused()),
            Stage::BootstrapFailed => (true, "BootstrapFailed", self.counts()),
            Stage::LostClaims(claims) => (true, "QuorumLost", self.lost(claims)),
            _ if self.observation.alarms.corrupt => (true, "Corrupt", CORRUPT.to_owned()),
            _ if self.observation.alarms.no_space => (true, "NoSpace", NO_SPACE.to_owned()),
            _ if !self.is_formed() || self.ready == self.members => {
                (false, "NotDegraded", "no problem is known".to_owned())
            }
            Stage::Formed if self.is_replacing() => (
                false,
                "RollingUpdate",
                "a member is being replaced".to_owned(),
            ),
            Stage::Resuming => (false, "NotDegraded", "members start again".to_owned()),
            _ if self.ready < quorum(self.members) => (true, "QuorumLost", self.counts()),
            _ if self.step.replacement == Next::Wait(Cause::Failure) => {
                (true, "OperationFailed", self.failure())
            }
            _ if self.is_stuck() => (true, "DeadlineExceeded", self.stuck()),
            _ if !self.broken().is_empty() => (true, "MemberBroken", self.repair()),
            _ => (true, "MembersUnhealthy", self.counts()),
        };
        match &self.observation.alarms.failure {
            Some(failure) if reason == "NotDegraded" => Condition::new(
                "Degraded",
                ConditionStatus::Unknown,
                "InspectionFailed",
                format!("the last inspections failed: {failure}"),
            ),
            _ => Condition::new("Degraded", status, reason, message),
        }
    }
}
