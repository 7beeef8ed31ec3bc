//! The decisions about a Plugin: what to do next, and why the declared revision is not active. Pure.

use std::sync::Arc;

use innkeeper_model::{Digest, PluginReason, Retry};
use innkeeper_sandbox::Plugin;

use crate::{
    claims::TakenKind,
    load::{Loading, granted},
    missing::MissingParents,
    resource::{Declared, Terms},
    rollout::{AnalysisVerdict, PastRevision, RolloutAnalysis},
    setback::{LoadAttempt, Setback},
    stage::{Stage, StageFailure},
    state::PluginState,
};

/// All that a decision about a Plugin depends on.
pub(crate) struct Facts<'a> {
    /// The declaration, or the reason why there is none to follow.
    pub(crate) declared: Result<&'a Declared, &'a StageFailure>,
    /// The spec's generation.
    pub(crate) generation: Option<i64>,
    /// Results from earlier passes.
    pub(crate) state: &'a PluginState,
    /// The active revision's parent kinds that the cluster does not serve.
    pub(crate) missing: &'a MissingParents,
    /// The active revision's analysis, while it is on trial.
    pub(crate) analysis: Option<RolloutAnalysis>,
    /// A kind that the plugin holds and an older, ready plugin is first for.
    pub(crate) must_stop: Option<TakenKind>,
}

/// One thing to do for a Plugin. [`decide`] returns actions in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Give the loaded component the declared configuration.
    Configure,
    /// Put these terms in force for the active revision. Before all that takes long, because grants bind at once.
    Bind(Box<Terms>),
    /// End all passes, because an older plugin becomes active for the kind.
    StopFor(TakenKind),
    /// End all passes: the active revision lacks required grants and cannot be replaced.
    Stop,
    /// Reactivate this revision, the last active one, without access to the source.
    Resume(Digest),
    /// Replace the active revision by this earlier one, which was good.
    RollBack {
        /// The earlier revision.
        to: Digest,
        /// The active revision's faults.
        why: String,
    },
    /// Fetch, verify, compile and describe the declared revision.
    Load,
    /// Activate this revision under the declared terms, as the first one or replacing the active one.
    Activate(Digest),
    /// Keep the active revision, which is the declared one, and forget earlier refusals.
    Keep,
}

/// Returns the actions for the current facts, in order. Some actions change the facts, so the caller repeats the
/// decision until there is no action left.
///
/// This ends, because no failed action is repeated before its retry time.
pub(crate) fn decide(facts: &Facts<'_>) -> Vec<Action> {
    let Ok(declared) = facts.declared else {
        return Vec::new();
    };
    let mut actions = Vec::new();
    if facts.state.needs_configuration(declared) {
        actions.push(Action::Configure);
    }
    if let Some(terms) = facts.state.terms_to_bind(declared) {
        actions.push(Action::Bind(Box::new(terms)));
    }
    if let Some(taken) = &facts.must_stop {
        actions.push(Action::StopFor(taken.clone()));
    }
    // The actions above change the facts that the next step depends on.
    if actions.is_empty() {
        // Without a refusal to forget, `Keep` changes no fact, and the decision would repeat for ever.
        let has_refusals = || {
            facts
                .state
                .setbacks
                .values()
                .any(|setback| setback.refusal().is_some())
        };
        let step = facts.next_step(declared);
        actions.extend(step.filter(|step| *step != Action::Keep || has_refusals()));
    }
    actions
}

impl Facts<'_> {
    /// Returns the next step towards the declared revision; none while waiting.
    ///
    /// The declared terms come first, because loading may take long. After any failure the active revision stays active
    /// under them. Only missing required grants end it, once no declared revision can replace it.
    ///
    /// A new process has no active revision. It resumes the last one before it fetches anything, so an unavailable
    /// source stops no plugin, and new revisions still go through a rollout.
    pub(crate) fn next_step(&self, declared: &Declared) -> Option<Action> {
        let state = self.state;
        let is_granted = |plugin: &&Arc<Plugin>| declared.terms.assess(plugin.manifest()).serves();
        let is_refused = |plugin: &Plugin| self.refusal(plugin).is_some();
        let attempt = state.attempt_for(declared);
        // A load that has ended does not count: the action `Load` collects its result.
        let is_loading = state
            .loading
            .as_ref()
            .is_some_and(|loading| loading.is_for(declared, None) && loading.stage().is_some());
        // The last attempt counts until the next one has ended.
        let must_load = !is_loading && attempt.is_none_or(LoadAttempt::is_due);
        let loaded = attempt
            .and_then(LoadAttempt::plugin)
            .filter(|plugin| !is_refused(plugin))
            .filter(is_granted);
        let Some(active) = &state.active else {
            let last = self.first_available(state.history.past());
            return match (last, loaded) {
                (Some(last), None) => Some(Action::Resume(last)),
                (Some(last), Some(loaded)) if *loaded.revision() != last => {
                    Some(Action::Resume(last))
                }
                _ if must_load => Some(Action::Load),
                // Also for a revision that was rolled back: it is better than none.
                (_, Some(loaded)) => Some(Action::Activate(loaded.revision().clone())),
                (None, None) => None,
            };
        };
        let may_reactivate = is_granted(&&active.plugin) && !is_refused(&active.plugin);
        let has_other_terms = declared.terms != active.accepted;
        if attempt.is_none_or(LoadAttempt::is_due) && has_other_terms && may_reactivate {
            return Some(Action::Activate(active.plugin.revision().clone()));
        }
        // Before anything is loaded: until then the parents have no passes.
        if self
            .missing
            .must_install(declared, active.plugin.manifest())
            && may_reactivate
        {
            return Some(Action::Activate(active.plugin.revision().clone()));
        }
        if let Some(analysis) = &self.analysis
            && analysis.verdict == AnalysisVerdict::Faulty
            && declared.rollout.auto_rollback
            && let Some(to) = self.first_available(state.history.good())
        {
            let why = analysis.faults.clone().unwrap_or_default();
            return Some(Action::RollBack { to, why });
        }
        if must_load {
            return Some(Action::Load);
        }
        attempt?;
        let loaded = loaded.filter(|plugin| self.rollback(plugin).is_none());
        let Some(next) = loaded.or_else(|| Some(&active.plugin).filter(is_granted)) else {
            return Some(Action::Stop);
        };
        if next.revision() != active.plugin.revision() || has_other_terms {
            (!is_refused(next)).then(|| Action::Activate(next.revision().clone()))
        } else {
            loaded.map(|_| Action::Keep)
        }
    }

    /// Returns the last attempt, if it was for the declaration.
    pub(crate) fn attempt(&self) -> Option<&LoadAttempt> {
        self.state.attempt_for(self.declared.ok()?)
    }

    /// Returns why the declared revision is not active, if it is not.
    pub(crate) fn failure(&self) -> Option<StageFailure> {
        let declared = match self.declared {
            Ok(declared) => declared,
            Err(failure) => return Some(failure.clone()),
        };
        let Some(attempt) = self.attempt() else {
            let stage = self.state.loading.as_ref().and_then(Loading::stage);
            return Some(StageFailure::running(stage.unwrap_or(Stage::Fetched)));
        };
        let plugin = match &attempt.result {
            Ok(plugin) => plugin,
            Err(failure) => return Some(failure.clone()),
        };
        if let Err(failure) = granted(&declared.terms, plugin.manifest()) {
            return Some(failure);
        }
        if let Some(message) = self.rollback(plugin) {
            return Some(Stage::Serving.failure(
                PluginReason::RolledBack,
                message,
                Retry::OnChange,
            ));
        }
        // The loaded revision comes first; another refused one is the active revision under changed terms.
        let mut others = self.state.setbacks.values().filter_map(Setback::refusal);
        self.refusal(plugin)
            .or_else(|| others.next())
            .cloned()
            .or_else(|| self.missing.failure())
    }

    /// Returns true if the next step is a rollback.
    pub(crate) fn rolls_back(&self) -> bool {
        let step = self
            .declared
            .ok()
            .and_then(|declared| self.next_step(declared));
        matches!(step, Some(Action::RollBack { .. }))
    }

    fn refusal(&self, plugin: &Plugin) -> Option<&StageFailure> {
        self.state.setbacks.get(plugin.revision())?.refusal()
    }

    fn first_available(&self, mut past: impl Iterator<Item = PastRevision>) -> Option<Digest> {
        // While a revision waits for its retry, the one before it gets a turn.
        let setbacks = &self.state.setbacks;
        let available = past.find(|past| !setbacks.contains_key(&past.revision))?;
        Some(available.revision)
    }

    /// Returns the reason why a plugin was rolled back, if the spec has not changed since.
    fn rollback(&self, plugin: &Plugin) -> Option<String> {
        self.state
            .history
            .rolled_back(plugin.revision(), self.generation)
    }
}
