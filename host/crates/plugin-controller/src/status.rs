//! The Plugin status, from a pass's facts and the active revision's counters. Pure except for [`measure`].

use std::collections::BTreeMap;

use innkeeper_cluster::ParentConditions;
use innkeeper_model::{ANNOTATION_PAUSED, Limits, Object};
use innkeeper_reconcile::{RecentFault, Reconciler, Role, Usage};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    active::ActivePlugin,
    conditions::cache_full,
    context::Context,
    decide::Facts,
    resource::{
        ChildKindStatus, FaultReason, Faults, LAST_FAULTS_MAX, LimitUsage, LimitsSpec, ObjectName,
        Parents, PluginStatus, number, whole_seconds,
    },
    stage::dated,
};

/// The active revision's counters, and other host facts in the status.
pub(crate) struct Measured {
    now: Timestamp,
    /// The history's seal; none without entries.
    history_seal: Option<String>,
    child_kinds: Vec<ChildKindStatus>,
    /// None while some parents are not in the cache.
    parents: Option<Parents>,
    fault_count: i64,
    /// This process's last faults, latest first.
    faults: Vec<FaultReason>,
    usage: Vec<LimitUsage>,
    /// A sentence for each namespace whose cache is full.
    full_namespaces: Vec<String>,
    limits: Option<LimitsSpec>,
}

/// Reads the active revision's counters from the cache and the controllers.
pub(crate) fn measure(cx: &Context, facts: &Facts<'_>, object: &Object) -> Measured {
    let active = facts.state.active.as_ref();
    let key = cx.shared.hash_key.get();
    let reconcilers = || {
        active
            .into_iter()
            .flat_map(|active| &active.served.reconcilers)
    };
    let fault_count: u64 = reconcilers()
        .map(|reconciler| Reconciler::faults(reconciler))
        .sum();
    let recent = active.map(|active| active.served.recent_faults());
    Measured {
        now: (cx.shared.now)(),
        history_seal: key.and_then(|key| facts.state.history.seal(&object.uid, key)),
        child_kinds: active.map_or_else(Vec::new, |active| child_kinds(cx, active)),
        parents: active.and_then(parents),
        fault_count: i64::try_from(fault_count).unwrap_or(i64::MAX),
        faults: recent.into_iter().flatten().map(fault_reason).collect(),
        usage: active.map_or_else(Vec::new, usage),
        // The cache counts for the whole plugin, so one controller answers for all.
        full_namespaces: reconcilers()
            .next()
            .map(|reconciler| reconciler.full_namespaces())
            .unwrap_or_default(),
        limits: active.map(|active| {
            let limits = &active.terms.limits;
            let engine = &cx.loader.context.engine;
            LimitsSpec::from_limits(&Limits {
                memory_bytes_max: engine.memory_bytes_max(limits.memory_bytes_max),
                ..limits.clone()
            })
        }),
    }
}

/// Returns the Plugin status; `before` is the stored one.
pub(crate) fn status(facts: &Facts<'_>, measured: Measured, before: &PluginStatus) -> PluginStatus {
    let state = facts.state;
    let active = state.active.as_ref();
    let mut conditions = facts.conditions();
    conditions.extend(cache_full(&measured.full_namespaces));
    let faults = match &before.faults {
        // The rollback's own write counts them. Otherwise a host that crashes at each status write would add one fault
        // per restart, and never get to the rollback.
        Some(before) if facts.rolls_back() => Some(before.clone()),
        _ => active.map(|_| faults(&measured, state.faults_before(), before)),
    };
    let (history, history_seal) = if state.is_unverified {
        (before.history.clone(), before.history_seal.clone())
    } else {
        (state.history.0.clone(), measured.history_seal)
    };
    let mut status = PluginStatus {
        observed_generation: facts.generation,
        revision: active.map(ActivePlugin::name),
        digest: active.map(|active| active.plugin.digest().to_string()),
        version: active.map(|active| active.plugin.manifest().version.clone()),
        candidate: state.candidate().map(|candidate| candidate.status.clone()),
        child_kinds: measured.child_kinds,
        // A restart keeps the earlier counts until the cache has all parents.
        parents: active.and_then(|_| measured.parents.or(before.parents)),
        faults,
        limits: measured.limits,
        usage: measured.usage,
        history,
        history_seal,
        conditions: dated(
            conditions,
            &before.conditions,
            facts.generation,
            measured.now,
        ),
    };
    if state.keeps_conditions(facts.generation) {
        status.conditions.clone_from(&before.conditions);
        status.candidate.clone_from(&before.candidate);
    }
    status
}

/// Returns every kind once, even if children were created in several versions.
fn child_kinds(cx: &Context, active: &ActivePlugin) -> Vec<ChildKindStatus> {
    // Group and kind are the list's keys, and the API server refuses a status with a duplicate.
    let by_kind: BTreeMap<_, _> = cx
        .shared
        .inventory
        .kinds(&active.served.name, Role::Child)
        .into_iter()
        .map(|kind| (kind.group_kind(), kind))
        .collect();
    by_kind
        .into_values()
        .map(|kind| ChildKindStatus {
            group: kind.group.to_string(),
            version: kind.version.to_string(),
            kind: kind.kind.to_string(),
        })
        .collect()
}

/// Reads only the status, because a spec from another host version may be unreadable.
pub(crate) fn stored_status(object: &Object) -> Map<String, Value> {
    #[derive(Default, Deserialize)]
    struct StatusOnly {
        #[serde(default)]
        status: Map<String, Value>,
    }
    let StatusOnly { status } = serde_json::from_str(&object.json).unwrap_or_default();
    status
}

/// Returns the readable status fields.
pub(crate) fn status_of(object: &Object) -> PluginStatus {
    let mut status = stored_status(object);
    // By reference, to copy nothing; the type reads objects and lists alike.
    let read = |status: &Map<String, Value>| PluginStatus::deserialize(status);
    read(&status)
        .or_else(|_| {
            // A field from another host version may be unreadable; the others count.
            status.retain(|field, value| {
                read(&Map::from_iter([(field.clone(), value.clone())])).is_ok()
            });
            read(&status)
        })
        .unwrap_or_default()
}

/// Counts selected parents; none while some parents, or their namespaces, are not in the cache.
fn parents(active: &ActivePlugin) -> Option<Parents> {
    let mut counts = Parents::default();
    for reconciler in &active.served.reconcilers {
        let registration = reconciler.registration();
        if !registration.waiting().is_empty() {
            return None;
        }
        for id in registration.parents() {
            let Some(parent) = registration.parent(&id) else {
                continue;
            };
            if reconciler.selects(&parent)? {
                count(&mut counts, &parent);
            }
        }
    }
    Some(counts)
}

/// Returns used limits, rounded to ten percent, so most child writes do not change the Plugin status.
fn usage(active: &ActivePlugin) -> Vec<LimitUsage> {
    let all = active
        .served
        .reconcilers
        .first()
        .map(|reconciler| reconciler.usage())
        .unwrap_or_default();
    let used = |usage: &Usage| limit_usage(usage.limit, &usage.namespace, usage.share.percent());
    all.iter().filter_map(used).collect()
}

fn limit_usage(limit: &str, namespace: &str, percent: u32) -> Option<LimitUsage> {
    (percent >= 10).then(|| LimitUsage {
        limit: limit.to_owned(),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        percent: number(percent / 10 * 10),
    })
}

/// Counts one parent, reading conditions as `innkeeper status` does.
pub(crate) fn count(counts: &mut Parents, parent: &Object) {
    let conditions = ParentConditions::new(parent);
    counts.total += 1;
    counts.synced += i32::from(conditions.synced_status() == Some("True"));
    counts.ready += i32::from(conditions.is_ready());
    counts.paused += i32::from(parent.annotation(ANNOTATION_PAUSED) == Some("true"));
}

/// Returns faults from this and earlier processes: earlier faults stay listed, so a host restart alone changes no
/// status.
fn faults(measured: &Measured, earlier: i64, before: &PluginStatus) -> Faults {
    let mut last = measured.faults.clone();
    let reported = before.faults.iter().flat_map(|faults| &faults.last);
    for fault in reported {
        if !last.contains(fault) {
            last.push(fault.clone());
        }
    }
    last.truncate(LAST_FAULTS_MAX);
    Faults {
        count: measured.fault_count.saturating_add(earlier),
        last,
    }
}

fn fault_reason(fault: RecentFault) -> FaultReason {
    FaultReason {
        reason: fault.reason,
        message: fault.message,
        parent: ObjectName::from_id(&fault.parent),
        // As stored, so that `faults` recognizes it in the status.
        time: whole_seconds(fault.time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_the_used_limits_in_tens_of_percent() {
        let check = |namespace, percent, expected: Option<(Option<&str>, i32)>| {
            let usage = limit_usage("objectsPerNamespace", namespace, percent);
            let expected = expected.map(|(namespace, percent)| LimitUsage {
                limit: "objectsPerNamespace".to_owned(),
                namespace: namespace.map(str::to_owned),
                percent,
            });
            assert_eq!(usage, expected, "{namespace:?} {percent}");
        };
        check("demo", 0, None);
        check("demo", 9, None);
        check("demo", 10, Some((Some("demo"), 10)));
        check("demo", 99, Some((Some("demo"), 90)));
        check("demo", 100, Some((Some("demo"), 100)));
        // Cluster-scoped parents have no namespace.
        check("", 55, Some((None, 50)));
    }
}
