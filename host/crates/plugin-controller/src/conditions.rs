//! Plugin conditions. Pure.

use std::collections::BTreeSet;

use innkeeper_model::{Condition, ConditionStatus, GroupKind, PluginName, PluginReason, reason};
use innkeeper_plan::synced;

use crate::{
    decide::Facts,
    resource,
    rollout::{AnalysisVerdict, RolloutAnalysis},
    setback::LoadAttempt,
    stage::{Stage, StageFailure},
};

/// Condition type: the declared revision is not active, because a stage failed.
const DEGRADED: &str = "Degraded";

/// Condition type: the declared revision is active and passes run. `kubectl wait` and other tools wait for it.
pub(crate) const READY: &str = "Ready";

/// Condition type: in some namespaces the cache is too full for all children. Present only while true.
const CACHE_FULL: &str = "CacheFull";

/// Condition type: the declared revision faulted too often, and the previous revision is active again.
const ROLLED_BACK: &str = "RolledBack";

/// Returns the condition for parents of kinds that lost their grant.
pub(crate) fn kinds_not_served(plugin: &PluginName, kinds: &BTreeSet<GroupKind>) -> Condition {
    let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    let message = format!(
        "Plugin {plugin} no longer serves parents of {}: spec.grants.parents of the Plugin lacks the kind. The children stay as they are; the object is reconciled again once the kind is granted",
        kinds.join(", "),
    );
    synced(
        ConditionStatus::Unknown,
        reason::PLUGIN_NOT_SERVING,
        message,
    )
}

/// Returns the condition for all parents of a Plugin whose condition Serving is False with this reason.
pub(crate) fn not_served(plugin: &PluginName, why: &str) -> Condition {
    // Omits the failure message, which may differ in each attempt.
    let message = format!(
        "Plugin {plugin} does not serve: its condition {} is False with the reason {why}. The children stay as they are; the object is reconciled again once the Plugin serves, see kubectl describe plugin {plugin}",
        Stage::Serving,
    );
    synced(
        ConditionStatus::Unknown,
        reason::PLUGIN_NOT_SERVING,
        message,
    )
}

impl Facts<'_> {
    /// Returns all conditions in stage order; without a declaration, the reason for that.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let failure = self.failure();
        let failure = failure.as_ref();
        let attempt = self.attempt();
        let reduced = self.declared.ok().and_then(|declared| {
            let plugin = attempt?.plugin()?;
            resource::lines(&declared.terms.assess(plugin.manifest()))
        });
        let loading = |stage| loading(stage, failure, attempt, reduced.as_deref());
        let mut conditions = Vec::from(Stage::LOADING.map(loading));
        let serving = self.serving(failure);
        let ready = ready(&serving, failure);
        conditions.extend([serving, ready]);
        conditions.push(self.degraded(failure));
        conditions.push(self.rolled_back(self.faulting()));
        conditions
    }

    /// Returns the parents' Synced condition while the plugin does not serve; none while it serves or may still start.
    /// If another plugin serves the kind, that plugin reports on the parents.
    pub(crate) fn synced_of_parents(&self) -> Option<Condition> {
        let name = &self.declared.ok()?.name;
        let failure = self.failure();
        let serving = self.serving(failure.as_ref());
        let is_certain = |failure: &StageFailure| {
            failure.status == ConditionStatus::False && failure.reason != PluginReason::ParentTaken
        };
        let ungranted = self.ungranted();
        if serving.status == ConditionStatus::True && !ungranted.is_empty() {
            return Some(kinds_not_served(name, &ungranted));
        }
        // A missing kind has no parents, and other kinds' parents have passes.
        if serving.status != ConditionStatus::False
            || !self.missing.kinds.is_empty()
            || self.state.active.is_none() && !failure.as_ref().is_some_and(is_certain)
        {
            return None;
        }
        Some(not_served(name, &serving.reason))
    }

    /// Returns the parent kinds that the active revision stopped serving because their grant was removed.
    pub(crate) fn ungranted(&self) -> BTreeSet<GroupKind> {
        let active = self.state.active.as_ref();
        active
            .filter(|active| active.passes.is_some())
            .map_or_else(BTreeSet::new, |active| {
                &self.state.unserved.kinds - &active.served.kinds()
            })
    }

    fn serving(&self, failure: Option<&StageFailure>) -> Condition {
        let say =
            |status, reason, message: &str| condition(Stage::Serving, status, reason, message);
        match (&self.state.active, failure) {
            (Some(active), _) if active.terms.suspend => say(
                ConditionStatus::False,
                PluginReason::Suspended,
                "all passes are stopped by spec.suspend: set it to false to resume them",
            ),
            (Some(active), _) if !active.is_granted() => say(
                ConditionStatus::False,
                PluginReason::NotGranted,
                "all passes are stopped: the active revision needs more grants; the declared one is being loaded",
            ),
            (Some(_), _) if let Some(lacks) = self.missing.failure() => {
                // A failed installation explains why the kind is missing.
                let refused = failure.filter(|failure| failure.stage == Stage::Serving);
                failed(refused.unwrap_or(&lacks))
            }
            (Some(active), _) => {
                let message = format!("revision {} is active", active.name());
                condition(
                    Stage::Serving,
                    ConditionStatus::True,
                    Stage::Serving.to_string(),
                    &message,
                )
            }
            (None, Some(failure)) if failure.stage == Stage::Serving => failed(failure),
            (None, Some(failure)) => say(
                ConditionStatus::False,
                PluginReason::NotLoaded,
                &waits_for(failure),
            ),
            (None, None) => say(ConditionStatus::Unknown, PluginReason::Starting, ""),
        }
    }

    fn degraded(&self, failure: Option<&StageFailure>) -> Condition {
        let Some(failure) = failure else {
            return condition(
                DEGRADED,
                ConditionStatus::False,
                PluginReason::AsDeclared,
                "",
            );
        };
        let active = match &self.state.active {
            Some(active) if !self.missing.kinds.is_empty() => {
                format!("revision {} has no parents of some kinds", active.name())
            }
            Some(active) => {
                let name = active.name();
                format!("revision {name} stays active instead of the declared one")
            }
            None => "no revision is active".to_owned(),
        };
        let message = format!("{active}: {}", failure.message);
        let status = match failure.status {
            // Opposite to the stages. A stage that still runs is unknown in both.
            ConditionStatus::False => ConditionStatus::True,
            unknown => unknown,
        };
        condition(DEGRADED, status, failure.reason, &message)
    }

    /// Returns a note that the active revision faults too often, and why it is not rolled back.
    fn faulting(&self) -> Option<String> {
        let declared = self.declared.ok()?;
        let is_faulty = |analysis: &&RolloutAnalysis| analysis.verdict == AnalysisVerdict::Faulty;
        let analysis = self.analysis.as_ref().filter(is_faulty)?;
        let why = if declared.rollout.auto_rollback {
            "no earlier revision is good"
        } else {
            "spec.rollout.autoRollback is false"
        };
        let faults = analysis.faults.as_ref()?;
        Some(format!("{faults}; it stays active because {why}"))
    }

    fn rolled_back(&self, faulting: Option<String>) -> Condition {
        let (status, reason, message) =
            match (self.state.history.last_rollback(self.generation), faulting) {
                (Some(message), _) => (ConditionStatus::True, PluginReason::TooManyFaults, message),
                (None, Some(message)) => {
                    (ConditionStatus::False, PluginReason::TooManyFaults, message)
                }
                (None, None) => (
                    ConditionStatus::False,
                    PluginReason::NotNeeded,
                    String::new(),
                ),
            };
        condition(ROLLED_BACK, status, reason, &message)
    }
}

/// Returns the condition about namespaces without room in the cache; none if there is none. Each has a sentence.
pub(crate) fn cache_full(namespaces: &[String]) -> Option<Condition> {
    let (first, others) = namespaces.split_first()?;
    let message = match others.len() {
        0 => first.clone(),
        more => format!("{first}; {more} more namespaces are full"),
    };
    let status = ConditionStatus::True;
    Some(condition(
        CACHE_FULL,
        status,
        PluginReason::NamespaceCacheFull,
        &message,
    ))
}

/// Returns the Ready condition, with the first failure's reason or the one for stopped passes.
fn ready(serving: &Condition, failure: Option<&StageFailure>) -> Condition {
    match failure {
        Some(failure) => condition(READY, failure.status, failure.reason, &failure.message),
        None if serving.status == ConditionStatus::True => {
            condition(READY, serving.status, READY, &serving.message)
        }
        None => condition(READY, serving.status, &serving.reason, &serving.message),
    }
}

/// Returns a condition for a stage before activation.
fn loading(
    stage: Stage,
    failure: Option<&StageFailure>,
    attempt: Option<&LoadAttempt>,
    reduced: Option<&str>,
) -> Condition {
    let verified_by = attempt
        .and_then(|attempt| attempt.component.as_ref())
        .map_or("", |component| &component.verified_by);
    // Without granted parents, a component is described by the embedded description and not compiled.
    let is_uncompiled = attempt.is_some_and(
        |attempt| matches!(&attempt.result, Err(failure) if failure.stage == Stage::Granted),
    );
    let name = stage.to_string();
    let (reason, message) = match (failure, stage, reduced) {
        (Some(failure), ..) if failure.stage == stage => return failed(failure),
        (Some(failure), ..)
            if failure.stage < stage || stage == Stage::Compiled && is_uncompiled =>
        {
            let message = waits_for(failure);
            return condition(
                stage,
                ConditionStatus::Unknown,
                PluginReason::NotReached,
                &message,
            );
        }
        (_, Stage::Verified, _) => (PluginReason::AsExpected.as_ref(), verified_by),
        (_, Stage::Granted, Some(lines)) => (PluginReason::Reduced.as_ref(), lines),
        _ => (&*name, ""),
    };
    condition(stage, ConditionStatus::True, reason, message)
}

fn failed(failure: &StageFailure) -> Condition {
    condition(
        failure.stage,
        failure.status,
        failure.reason,
        &failure.message,
    )
}

fn waits_for(failure: &StageFailure) -> String {
    format!("waits for {}", failure.stage)
}

fn condition(
    kind: impl ToString,
    status: ConditionStatus,
    reason: impl AsRef<str>,
    message: &str,
) -> Condition {
    Condition {
        kind: kind.to_string(),
        status,
        reason: reason.as_ref().to_owned(),
        message: message.to_owned(),
    }
}
