//! The state machine: one step from the observed state.
//!
//! Every pass computes the record from the observed one and makes at most one transition. A pass that is interrupted
//! after any write therefore starts again in the same or the next state.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use innkeeper_sdk::prelude::*;

use crate::{
    api::ExistingClaims,
    cluster::{Cluster, MEMBERS_MAX, quorum},
    jobs,
    members::{self, Template},
    observe::Observation,
    record::Record,
    replace::{self, Cause, Next, Seen, SeenPod},
};

/// Time that a Pod waits for data before it counts as empty. The init container checks every two seconds and lets a
/// member with data pass at once.
const EMPTY_AFTER: Duration = Duration::from_secs(30);

/// The cluster's state, and the children in the answer besides the Services.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a pass")]
pub(crate) struct Step {
    /// The record to apply; `None` before the first start.
    pub(crate) record: Option<Record>,
    /// The answer contains the existing claims.
    pub(crate) has_claims: bool,
    /// The answer contains claims that do not exist yet. Only once the record is in the cluster.
    pub(crate) makes_claims: bool,
    /// The StatefulSet's replicas; `None` omits the StatefulSet.
    pub(crate) replicas: Option<i32>,
    /// The cluster's stage.
    pub(crate) stage: Stage,
    /// The next step in replacing members that lost their data.
    pub(crate) replacement: Next,
    /// A Pod with the current template has not become ready within the deadline.
    pub(crate) is_late: bool,
    /// The spec is invalid, so nothing changes.
    pub(crate) is_unchanged: bool,
    /// Time until the next pass if nothing changes.
    pub(crate) requeue: Option<Duration>,
}

/// A cluster's stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The size is 0. Next: bootstrap or resume when the size is raised.
    Paused,
    /// The spec is invalid and nothing has been started. Next: bootstrap when the spec is valid.
    Refused,
    /// cert-manager has not written all Secrets. Next: bootstrap when it has.
    Certificates,
    /// An earlier cluster's claims exist. Next: bootstrap when they are deleted or may be adopted.
    StaleClaims(Vec<String>),
    /// Claims are to be adopted, but these are missing from their cluster. Next: bootstrap when all or none exist.
    MissingClaims(Vec<String>),
    /// The cluster is formed, but without these claims it has no quorum. Next: formed, when they are restored.
    LostClaims(Vec<String>),
    /// The first members start. Next: formed, or failed.
    Bootstrapping,
    /// The first members did not become ready within the deadline. Next: formed, when they do.
    BootstrapFailed,
    /// Formed and running.
    Formed,
    /// All members start again after a pause, or with an earlier cluster's data. Next: formed, when a quorum is
    /// ready.
    Resuming,
    /// Formed, but the size differs from the number of members.
    Resizing,
}

impl Step {
    const fn new(stage: Stage) -> Self {
        Self {
            record: None,
            has_claims: false,
            makes_claims: false,
            replicas: None,
            stage,
            replacement: Next::Idle,
            is_late: false,
            is_unchanged: false,
            requeue: None,
        }
    }
}

/// A cluster's next step.
pub(crate) fn next(
    cluster: &Cluster<'_>,
    observation: &Observation,
    template: &Template<'_>,
    host: &dyn Host,
) -> Step {
    match &observation.record {
        None => begin(cluster, observation),
        Some(record) if record.formed => next_formed(cluster, observation, record, template, host),
        Some(record) => form(cluster, observation, record, template, host),
    }
}

/// The step that repeats the observed state, for a parent with an invalid spec.
pub(crate) fn unchanged(observation: &Observation) -> Step {
    let stage = match &observation.record {
        None if observation.stateful_set.is_none() => Stage::Refused,
        Some(_) if observation.stateful_set.is_some() && observation.replicas() == 0 => {
            Stage::Paused
        }
        None => Stage::Bootstrapping,
        Some(record) if !record.formed => Stage::Bootstrapping,
        Some(_) if is_resuming(observation) => Stage::Resuming,
        Some(_) => Stage::Formed,
    };
    Step {
        record: observation.record.clone(),
        has_claims: true,
        replicas: Some(observation.replicas()),
        is_unchanged: true,
        ..Step::new(stage)
    }
}

/// The step without a record: it was never written, or it was deleted.
fn begin(cluster: &Cluster<'_>, observation: &Observation) -> Step {
    let size = cluster.spec.size;
    let has_own_claims = observation.claims.values().any(|claim| claim.is_ours);
    // Each of these survives a deleted record. Founding again would start an empty cluster beside the data.
    if observation.stateful_set.is_some() || has_own_claims || observation.was_formed {
        return reconstruct(cluster, observation);
    }
    if size == 0 {
        return Step::new(Stage::Paused);
    }
    if observation.waits_for_certificates() {
        return Step::new(Stage::Certificates);
    }
    let stale = stale(cluster, observation, size);
    let record = match cluster.spec.storage.existing_claims {
        _ if stale.is_empty() => Record::founding(cluster, (0..size).collect()),
        ExistingClaims::Refuse => return Step::new(Stage::StaleClaims(stale)),
        ExistingClaims::Adopt => return adopted(cluster, observation),
    };
    Step {
        record: Some(record),
        ..Step::new(Stage::Bootstrapping)
    }
}

/// The members' claims that were created for another parent.
fn stale(cluster: &Cluster<'_>, observation: &Observation, members: i32) -> Vec<String> {
    observation
        .claims
        .range(..members)
        .filter(|(_, claim)| !claim.is_ours)
        .map(|(ordinal, _)| cluster.claim(*ordinal))
        .collect()
}

/// The missing claims, if fewer members than a quorum have theirs; otherwise `None`.
fn lost_claims(
    cluster: &Cluster<'_>,
    observation: &Observation,
    members: &BTreeSet<i32>,
) -> Option<Vec<String>> {
    let ready = observation.ready();
    let is_missing =
        |ordinal: &&i32| !observation.claims.contains_key(ordinal) && !ready.contains(ordinal);
    let missing: Vec<&i32> = members.iter().filter(is_missing).collect();
    let remaining = members.len() - missing.len();
    let is_lost = cluster.is_persistent() && remaining < quorum(members.len());
    is_lost.then(|| {
        missing
            .into_iter()
            .map(|ordinal| cluster.claim(*ordinal))
            .collect()
    })
}

/// The step that adopts an earlier cluster's data; the claims determine the members.
///
/// All of them must exist: a cluster that lacks members may have lost the quorum and would wait forever.
fn adopted(cluster: &Cluster<'_>, observation: &Observation) -> Step {
    let existing = &observation.claims;
    // Claims from earlier plugin versions have no number: they count up to the highest one.
    let highest = existing.keys().next_back().map_or(0, |top| top + 1);
    let members = observation.members.unwrap_or(highest).clamp(1, MEMBERS_MAX);
    let missing: Vec<String> = (0..members)
        .filter(|ordinal| !existing.contains_key(ordinal))
        .map(|ordinal| cluster.claim(ordinal))
        .collect();
    if !missing.is_empty() {
        return Step::new(Stage::MissingClaims(missing));
    }
    let record = Record {
        formed: true,
        ..Record::founding(cluster, (0..members).collect())
    };
    Step {
        record: Some(record),
        ..Step::new(Stage::Resuming)
    }
}

/// The step that restores a cluster's record after the ConfigMap was deleted.
fn reconstruct(cluster: &Cluster<'_>, observation: &Observation) -> Step {
    let replicas = observation.replicas();
    let count = [observation.members.unwrap_or_default(), replicas]
        .into_iter()
        // A paused StatefulSet has 0 replicas, which says nothing about the members.
        .find(|count| *count > 0)
        .unwrap_or(cluster.spec.size);
    if count == 0 {
        return Step::new(Stage::Paused);
    }
    let foreign = stale(cluster, observation, count);
    let is_refused = cluster.spec.storage.existing_claims == ExistingClaims::Refuse;
    // A StatefulSet proves that the claims were adopted before, whatever the spec says now.
    if is_refused && observation.stateful_set.is_none() && !foreign.is_empty() {
        return Step::new(Stage::StaleClaims(foreign));
    }
    let is_adopted = !foreign.is_empty();
    let members: BTreeSet<i32> = (0..count).collect();
    let is_paused = observation.stateful_set.is_some() && replicas == 0;
    // On a volatile medium, a Pod that has run holds cluster data, and no admission proves it for the others.
    let has_run = !cluster.is_persistent() && observation.pods.values().any(|pod| pod.has_run);
    let formed = observation.was_formed
        || is_adopted
        || is_paused
        || has_run
        || !observation.ready().is_empty();
    let missing = lost_claims(cluster, observation, &members);
    let last = observation.jobs.keys().next_back().copied();
    let record = Record {
        formed,
        // Existing Job names are not reused: those Jobs did another step's work.
        sequence: last.unwrap_or_default() + 1,
        ..Record::founding(cluster, members)
    };
    let stage = match missing {
        Some(claims) if formed => Stage::LostClaims(claims),
        _ if formed => Stage::Formed,
        _ => Stage::Bootstrapping,
    };
    Step {
        record: Some(record),
        // The existing claims get the mark of a formed cluster together with the record.
        has_claims: true,
        replicas: observation.stateful_set.as_ref().map(|_| replicas),
        ..Step::new(stage)
    }
}

/// The step while the first members start.
fn form(
    cluster: &Cluster<'_>,
    observation: &Observation,
    record: &Record,
    template: &Template<'_>,
    host: &dyn Host,
) -> Step {
    let step = Step {
        record: Some(record.clone()),
        has_claims: true,
        makes_claims: true,
        replicas: Some(record.replicas()),
        ..Step::new(Stage::Bootstrapping)
    };
    let Some(stateful_set) = &observation.stateful_set else {
        return step;
    };
    if let Some(record) = admitting_founders(cluster, observation, record) {
        return Step {
            record: Some(record),
            ..step
        };
    }
    let ready = observation.ready();
    // A rolling update waits for each replaced Pod to become ready, and before formation no member becomes ready
    // alone. There is no data to lose yet, so the StatefulSet is omitted until it is deleted, and then recreated.
    let is_outdated = !template.is_written();
    // The cluster may have formed while the host was down: the data must outlive the StatefulSet.
    let keeps_data = if cluster.is_persistent() {
        members::keeps_claims(stateful_set)
    } else {
        record.admitted.iter().all(|(ordinal, uid)| {
            observation
                .pods
                .get(ordinal)
                .is_some_and(|pod| pod.uid == *uid && !pod.has_run)
        })
    };
    if observation.is_leaving || (is_outdated && ready.is_empty() && keeps_data) {
        return Step {
            replicas: None,
            ..step
        };
    }
    let ready_founders = record.members.intersection(&ready).count();
    if ready_founders == record.members.len() {
        return formed(template, step, record);
    }
    let deadline = i64::from(cluster.spec.progress_deadline_seconds) * 1000;
    let begin = stateful_set
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(0, |begin| begin.0.as_millisecond());
    let now = i64::try_from(host.now_ms()).unwrap_or(i64::MAX);
    let remaining_ms = begin.saturating_add(deadline).saturating_sub(now);
    match u64::try_from(remaining_ms) {
        Ok(remaining_ms) if remaining_ms > 0 => Step {
            requeue: Some(Duration::from_millis(remaining_ms)),
            ..step
        },
        // One founder that never starts must not keep the others unformed. It may still join later.
        _ if ready_founders >= quorum(record.members.len()) => formed(template, step, record),
        _ => Step {
            stage: Stage::BootstrapFailed,
            ..step
        },
    }
}

/// The record that admits the founders of a cluster on a volatile medium; `None` if there is nothing to admit.
///
/// All are admitted at once before any of them runs, and again only when no admitted Pod is left: then no cluster
/// data is left either.
fn admitting_founders(
    cluster: &Cluster<'_>,
    observation: &Observation,
    record: &Record,
) -> Option<Record> {
    let founders = record.members.iter().map(|ordinal| {
        let pod = observation.pods.get(ordinal)?;
        Some((*ordinal, pod.uid.clone()))
    });
    let founders: BTreeMap<i32, String> = founders.collect::<Option<_>>()?;
    let is_left = record
        .admitted
        .iter()
        .any(|(ordinal, uid)| founders.get(ordinal) == Some(uid));
    (!cluster.is_persistent() && !is_left).then(|| Record {
        admitted: founders,
        ..record.clone()
    })
}

/// The step once a quorum is ready. Founders that were never ready are already members in etcd, and their Pods may
/// still start without data.
fn formed(template: &Template<'_>, step: Step, record: &Record) -> Step {
    let cluster = template.cluster;
    let observation = template.observation;
    let pods = record.members.iter().filter_map(|ordinal| {
        let pod = observation.pods.get(ordinal)?;
        Some((*ordinal, pod.uid.clone()))
    });
    let admitted = if cluster.is_persistent() {
        pods.collect()
    } else {
        record.admitted.clone()
    };
    let record = Record {
        formed: true,
        admitted,
        ..record.clone()
    };
    Step {
        record: Some(confirmed(template, record)),
        stage: Stage::Formed,
        ..step
    }
}

/// A formed cluster's record with the facts that the ready members confirm.
fn confirmed(template: &Template<'_>, record: Record) -> Record {
    let cluster = template.cluster;
    let observation = template.observation;
    let ready = observation.ready();
    let pod = |ordinal| {
        let pod = observation.pods.get(&ordinal)?;
        Some((&*pod.uid, pod.is_ready))
    };
    let mut record = replace::without_used_admissions(record, pod);
    let is_whole = record.members.is_subset(&ready);
    if !is_whole || !template.is_rolled_out() {
        return record;
    }
    record.version = cluster.version().or(record.version);
    record
}

/// True if the last pass was in a pause, or in a start after it without a quorum yet.
fn is_resuming(observation: &Observation) -> bool {
    ["Paused", "Resuming"].contains(&&*observation.was_available)
}

/// A formed cluster's step.
fn next_formed(
    cluster: &Cluster<'_>,
    observation: &Observation,
    record: &Record,
    template: &Template<'_>,
    host: &dyn Host,
) -> Step {
    let size = cluster.spec.size;
    let record = confirmed(template, record.clone());
    let ready = observation.ready();
    let has_quorum = record.members.intersection(&ready).count() >= quorum(record.members.len());
    let members = i32::try_from(record.members.len()).unwrap_or(i32::MAX);
    let (replicas, stage) = if size == 0 {
        (0, Stage::Paused)
    } else if !has_quorum && (observation.replicas() == 0 || is_resuming(observation)) {
        (record.replicas(), Stage::Resuming)
    } else if size == members {
        (record.replicas(), Stage::Formed)
    } else {
        (record.replicas(), Stage::Resizing)
    };
    let step = Step {
        record: Some(record.clone()),
        has_claims: true,
        // During a pause, an empty claim would only get in the way of a restored one.
        makes_claims: size > 0,
        replicas: Some(replicas),
        ..Step::new(stage)
    };
    if size == 0 {
        return step;
    }
    if let Some(claims) = lost_claims(cluster, observation, &record.members) {
        let observed = observation.stateful_set.as_ref();
        return Step {
            makes_claims: false,
            // A new StatefulSet would create empty claims from the template, where the restored ones must go.
            replicas: observed.map(|_| replicas),
            stage: Stage::LostClaims(claims),
            ..step
        };
    }
    let (seen, requeue) = seen(cluster, observation, &record, host);
    let replacement = match replace::next(&record, &seen) {
        // A started Job continues, and the result counts.
        Next::Run(_) if seen.job.is_none() && observation.holds_jobs(cluster) => {
            Next::Wait(Cause::Secret)
        }
        next => next,
    };
    let remaining = remaining_empty_wait(cluster, observation, host);
    Step {
        record: match &replacement {
            Next::Write(record) => Some(record.clone()),
            _ => Some(record),
        },
        replacement,
        is_late: remaining == Some(Duration::ZERO),
        requeue: [requeue, remaining.filter(|duration| !duration.is_zero())]
            .into_iter()
            .flatten()
            .min(),
        ..step
    }
}

/// Time that the oldest unready Pod with the current template has left; `None` if all are ready.
fn remaining_empty_wait(
    cluster: &Cluster<'_>,
    observation: &Observation,
    host: &dyn Host,
) -> Option<Duration> {
    let since = observation
        .pods
        .values()
        .filter(|pod| !pod.is_ready && members::is_updated(observation, pod))
        .map(|pod| pod.created_ms)
        .min()?;
    let deadline = u64::try_from(cluster.spec.progress_deadline_seconds).unwrap_or_default();
    let passed = Duration::from_millis(host.now_ms().saturating_sub(since));
    Some(Duration::from_secs(deadline).saturating_sub(passed))
}

/// The facts for a replacement, and how long until a Pod has waited long enough or a Job may follow a failed one.
/// Asks for the time only if a Pod waits or a Job is observed.
fn seen(
    cluster: &Cluster<'_>,
    observation: &Observation,
    record: &Record,
    host: &dyn Host,
) -> (Seen, Option<Duration>) {
    let now_ms = || host.now_ms();
    let jobs = jobs::seen(&observation.jobs, cluster, record, &now_ms);
    let mut requeue = jobs.wait;
    let mut pods = BTreeMap::new();
    for (ordinal, pod) in &observation.pods {
        // An admitted Pod may start without data, so it does not wait for any.
        let is_admitted = record.admitted.get(ordinal) == Some(&pod.uid);
        let remaining = pod.waiting_since_ms.filter(|_| !is_admitted).map(|since| {
            let waited = Duration::from_millis(now_ms().saturating_sub(since));
            EMPTY_AFTER.saturating_sub(waited)
        });
        let soon = remaining.filter(|remaining| !remaining.is_zero());
        requeue = [requeue, soon].into_iter().flatten().min();
        let pod = SeenPod {
            uid: pod.uid.clone(),
            is_ready: pod.is_ready,
            is_empty: remaining.is_some_and(|remaining| remaining.is_zero()),
        };
        pods.insert(*ordinal, pod);
    }
    let facts = Seen {
        pods,
        job: jobs.job,
        is_pausing: jobs.is_pausing,
        is_surveyed: jobs.is_surveyed,
    };
    (facts, requeue)
}
