//! Plugin state between passes. It records the results from actions; [`decide`] reads it.
//!
//! [`decide`]: crate::decide

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use innkeeper_model::{Backoff, Digest, HashKey, Object, Retry, Uid};
use innkeeper_plan::Repeats;
use innkeeper_reconcile::RecentFault;
use innkeeper_sandbox::{Plugin, artifact::Needs};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{
    act::{Activated, Refusal},
    active::ActivePlugin,
    context,
    crds::CheckedDefinitions,
    load::{Loading, VerifiedComponent},
    parent_watches::ParentWatches,
    resource::{Declared, Terms},
    rollout::{
        Activation, AnalysisCounts, Candidate, History, Moment, PastRevision, RolloutAnalysis,
    },
    setback::{LoadAttempt, Setback},
    stage::{StageFailure, has_the_same_component, loads_the_same, verifies_the_same},
    status::{status_of, stored_status},
    unserved::Unserved,
};

/// The wait after the first of several failed steps, doubled by each further one.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest wait after a failed step: at most twelve attempts per hour and Plugin while a registry is down.
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// Interval for removing finalizers from parent kinds that the active revision lacks.
const RELEASE_PERIOD: Duration = Duration::from_secs(1);

/// Refresh interval for parent and fault counts in the status, because their changes trigger no pass. A refresh
/// costs one write.
pub(crate) const REFRESH_PERIOD: Duration = Duration::from_secs(10);

/// One Plugin's state.
#[derive(Default)]
pub(crate) struct PluginState {
    /// The Plugin's UID: a recreated Plugin is a different one.
    pub(crate) uid: Option<Uid>,
    /// The last parsed declaration with its generation; none if the spec is invalid.
    pub(crate) read: Option<(i64, Arc<Declared>)>,
    /// The last finished attempt to load a declaration.
    pub(crate) attempt: Option<LoadAttempt>,
    /// The running load, for the next attempt or for an earlier revision.
    pub(crate) loading: Option<Loading>,
    /// The generation for which an earlier process reported conditions. They stay until an attempt in this process
    /// has ended, so a restart alone changes no status.
    pub(crate) reported: Option<i64>,
    /// The active or suspended revision.
    pub(crate) active: Option<ActivePlugin>,
    /// Revisions that could not become active.
    pub(crate) setbacks: BTreeMap<Digest, Setback>,
    /// Revisions that have been active.
    pub(crate) history: History,
    /// True while the hash key is missing and the stored history is not read. The status keeps it.
    pub(crate) is_unverified: bool,
    /// An earlier process's active revision by name, with the number of faults that it reported.
    pub(crate) faults_before: Option<(String, i64)>,
    /// Watches on parents that lose the plugin's finalizer.
    pub(crate) releasing: ParentWatches,
    /// True if some parents still have the finalizer.
    pub(crate) is_releasing: bool,
    /// The definitions after the last activation.
    pub(crate) definitions: CheckedDefinitions,
    /// The parents while the plugin does not serve.
    pub(crate) unserved: Unserved,
    /// The backoff for failed steps; none after a success.
    pub(crate) delays: Option<Backoff>,
    /// Recent status writes, which other clients may undo.
    pub(crate) repeats: Repeats,
}

impl PluginState {
    /// Returns a Plugin's state in a new process. Without the hash key it has no history yet.
    pub(crate) fn new(object: &Object, key: Option<&HashKey>) -> Self {
        let status = status_of(object);
        let mut state = Self {
            uid: Some(object.uid.clone()),
            reported: status.observed_generation,
            faults_before: status
                .revision
                .zip(status.faults.map(|faults| faults.count)),
            is_unverified: true,
            ..Self::default()
        };
        if let Some(key) = key {
            state.verify_history(object, key);
        }
        state
    }

    /// Returns true if this is the object's state, and not one for an earlier object with the same name.
    pub(crate) fn is_of(&self, object: &Object) -> bool {
        self.uid.as_ref() == Some(&object.uid)
    }

    /// Restores the history from the status if its seal is valid for this key.
    fn verify_history(&mut self, object: &Object, key: &HashKey) {
        self.is_unverified = false;
        let stored = stored_status(object);
        self.history = History::unsealed(&stored, &object.uid, key);
        if self.history.0.is_empty() && stored.contains_key("history") {
            warn!(plugin = %object.name, "ignored status.history of a Plugin: this host did not write it, or has another hash key now");
        }
    }

    /// Restores the history from the status once a lost hash key is known again. The active revision, which came from
    /// its source, is then the latest entry.
    pub(crate) fn recover_history(
        &mut self,
        object: &Object,
        key: Option<&HashKey>,
        moment: Moment,
    ) {
        let Some(key) = key.filter(|_| self.is_unverified) else {
            return;
        };
        self.verify_history(object, key);
        if let Some(active) = &self.active {
            let past = PastRevision::from_plugin(&active.plugin);
            self.history.begin(&past, &Activation::Declared, moment);
        }
    }

    /// Returns a Plugin's declaration; parses it only after a change.
    pub(crate) fn declared(&mut self, object: &Object) -> Result<Arc<Declared>, StageFailure> {
        if let Some((generation, declared)) = &self.read
            && Some(*generation) == object.generation
        {
            return Ok(Arc::clone(declared));
        }
        self.read = None;
        // Another declaration may be accepted, and any change may be a user's request for another attempt.
        self.setbacks.clear();
        self.attempt.take_if(|attempt| attempt.waits_for_change());
        if let Some(loading) = &mut self.loading {
            loading.record_change();
        }
        let declared = Arc::new(context::declared(object)?);
        let read = |generation| (generation, Arc::clone(&declared));
        self.read = object.generation.map(read);
        Ok(declared)
    }

    /// Accepts a changed declaration without loading anything: cancels outdated loads, and applies the pull interval.
    pub(crate) fn accept(&mut self, declared: &Declared) {
        self.loading
            .take_if(|loading| loading.is_outdated(declared));
        if let Some(attempt) = &mut self.attempt
            && loads_the_same(&attempt.declared, declared)
        {
            attempt.declared.pull_every = declared.pull_every;
        }
    }

    /// Forgets setbacks with a due attempt; `is_first` is true if the parent kinds are free for the plugin.
    pub(crate) fn forget_due_setbacks(&mut self, is_first: bool) {
        self.setbacks
            .retain(|_, setback| !(setback.is_due() || is_first && setback.waits_for_kind()));
    }

    /// Returns true if the loaded component is the declared one, with another configuration.
    pub(crate) fn needs_configuration(&self, declared: &Declared) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| {
            attempt.component.is_some()
                && has_the_same_component(&attempt.declared, declared)
                && !loads_the_same(&attempt.declared, declared)
        })
    }

    /// Returns the terms to apply to the active revision before loading anything: the declared grants, limits, selected
    /// parents and suspension. None if they already apply.
    pub(crate) fn terms_to_bind(&self, declared: &Declared) -> Option<Terms> {
        let active = &self.active.as_ref()?.terms;
        let terms = Terms {
            // An activation checks these first.
            field_manager: active.field_manager.clone(),
            service_account: active.service_account.clone(),
            crds: active.crds,
            ..declared.terms.clone()
        };
        (terms != *active).then_some(terms)
    }

    /// Returns the loaded component with this digest, if it was verified as the declaration requires.
    pub(crate) fn component(
        &self,
        declared: &Declared,
        digest: &Digest,
    ) -> Option<&VerifiedComponent> {
        // A component without a signature must not become active again after the Plugin requires one.
        let attempt = self.attempt.as_ref();
        attempt
            .filter(|attempt| verifies_the_same(&attempt.declared, declared))?
            .component(digest)
    }

    /// Returns a revision's loaded or active plugin.
    pub(crate) fn plugin(&self, revision: &Digest) -> Option<Arc<Plugin>> {
        let loaded = self.attempt.as_ref().and_then(LoadAttempt::plugin);
        let active = self.active.as_ref().map(|active| &active.plugin);
        loaded
            .into_iter()
            .chain(active)
            .find(|plugin| plugin.revision() == revision)
            .cloned()
    }

    /// Returns the last attempt if it was for this declaration.
    pub(crate) fn attempt_for(&self, declared: &Declared) -> Option<&LoadAttempt> {
        self.attempt
            .as_ref()
            .filter(|attempt| loads_the_same(&attempt.declared, declared))
            .filter(|attempt| !attempt.is_stale_after_grant_change(declared))
    }

    /// Returns a refused revision's dry run.
    pub(crate) fn candidate(&self) -> Option<&Candidate> {
        self.setbacks.values().find_map(Setback::candidate)
    }

    /// Returns true if a revision waits for a parent kind that another plugin has.
    pub(crate) fn waits_for_kind(&self) -> bool {
        self.setbacks.values().any(Setback::waits_for_kind)
    }

    /// Returns true while an earlier process's conditions stay.
    pub(crate) fn keeps_conditions(&self, generation: Option<i64>) -> bool {
        self.loading.is_some() && self.reported.is_some() && self.reported == generation
    }

    /// Returns the components that the Plugin needs.
    pub(crate) fn needs(&self, plugin: &Object) -> Needs {
        let component = self
            .attempt
            .as_ref()
            .and_then(|attempt| attempt.component.as_ref());
        let mut needs = self.history.needs();
        if self.is_unverified {
            let Needs { kept, spare } = stored_needs(plugin);
            needs.kept.extend(kept);
            needs.spare.extend(spare);
        }
        // A component that waits for an approval, for example, is not in the history yet.
        needs
            .kept
            .extend(component.map(|component| component.digest().clone()));
        needs
    }
}

/// Records results from actions.
impl PluginState {
    /// Records a finished attempt to load a declaration.
    pub(crate) fn record_load(&mut self, mut attempt: LoadAttempt) {
        let declared = &attempt.declared;
        // A changed declaration does not inherit the long waits of the one before it.
        if self.attempt_for(declared).is_none() {
            self.delays = None;
        }
        attempt.retry_at = match &attempt.result {
            Ok(_) => {
                self.delays = None;
                None
            }
            Err(failure) => {
                warn!(plugin = %declared.name, stage = ?failure.stage, error = failure.message, "failed to load the component of a Plugin");
                self.retry_at(failure.retry)
            }
        };
        // Earlier revisions with this component could not become active again, but their bytes may be available now.
        if let Some(component) = &attempt.component {
            for past in self.history.past() {
                if past.digest == *component.digest()
                    && matches!(
                        self.setbacks.get(&past.revision),
                        Some(Setback::Lost { .. })
                    )
                {
                    self.setbacks.remove(&past.revision);
                }
            }
        }
        // The conditions of an earlier process have lasted until now, so a restart alone changed no status.
        self.reported = None;
        self.attempt = Some(attempt);
    }

    /// Records that a revision became active.
    pub(crate) fn record_activation(&mut self, activated: Activated) {
        let Activated {
            active,
            history,
            replaces_another,
        } = activated;
        // They were the replaced revision's faults.
        if replaces_another {
            self.faults_before = None;
        }
        self.history = history;
        self.setbacks.remove(active.plugin.revision());
        self.unserved
            .record_kinds(active.served.kinds(), active.plugin.manifest());
        self.active = Some(active);
    }

    /// Records that the declared revision could not become active.
    pub(crate) fn record_refusal(&mut self, revision: Digest, refusal: Refusal) {
        let Refusal { failure, candidate } = refusal;
        let setback = Setback::Refused {
            retry_at: self.retry_at(failure.retry),
            failure,
            candidate,
        };
        self.setbacks.insert(revision, setback);
    }

    /// Records that an earlier revision could not become active again.
    pub(crate) fn record_loss(&mut self, revision: Digest, failure: StageFailure) {
        let setback = Setback::Lost {
            retry_at: self.retry_at(failure.retry),
            failure,
        };
        self.setbacks.insert(revision, setback);
    }

    /// Records that the declared revision is the active one.
    pub(crate) fn forget_refusals(&mut self) {
        self.setbacks
            .retain(|_, setback| setback.refusal().is_none());
    }

    /// Records that the active revision's first passes succeeded.
    pub(crate) fn record_good(&mut self, declared: &Declared) {
        info!(plugin = %declared.name, "the new revision is good: its first passes succeeded");
        self.history.pass();
    }

    /// Returns when to retry after a failure; none if only a change helps.
    fn retry_at(&mut self, retry: Retry) -> Option<Instant> {
        let least = match retry {
            Retry::Never | Retry::OnChange => return None,
            Retry::Backoff => Duration::ZERO,
            Retry::At(least) => least,
        };
        let delays = || Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
        let delay = self.delays.get_or_insert_with(delays).delay();
        Some(Instant::now() + delay.max(least))
    }
}

/// Observations about the active revision, and when the next pass runs.
impl PluginState {
    /// Returns the active revision's analysis; none if it is not on trial or has no passes.
    pub(crate) fn analysis(&self) -> Option<RolloutAnalysis> {
        let since = self.active.as_ref()?.passes_since()?;
        if !self.history.is_on_trial() {
            return None;
        }
        let Some((passes, first_fault)) = self.first_passes() else {
            return Some(RolloutAnalysis::default());
        };
        Some(RolloutAnalysis {
            verdict: passes.verdict(since.elapsed()),
            faults: first_fault.map(|fault| {
                passes.describe(&format!(
                    "{} for {}: {}",
                    fault.reason, fault.parent, fault.message
                ))
            }),
        })
    }

    /// Returns none while the parents are not all known.
    fn first_passes(&self) -> Option<(AnalysisCounts, Option<RecentFault>)> {
        let mut passes = AnalysisCounts::default();
        let mut first_fault = None;
        for reconciler in &self.active.as_ref()?.served.reconcilers {
            let analysis = reconciler.analysis();
            let registration = reconciler.registration();
            // The first pass opens a trial, and without parents there is none.
            let has_no_parents =
                || registration.waiting().is_empty() && registration.parents().is_empty();
            if !analysis.is_open() && !has_no_parents() {
                return None;
            }
            passes.pending += analysis.pending();
            passes.well += analysis.well();
            passes.faulted += analysis.faulted();
            first_fault = first_fault.or_else(|| analysis.first_fault().cloned());
        }
        Some((passes, first_fault))
    }

    /// Returns how many faults of the active revision an earlier process reported.
    pub(crate) fn faults_before(&self) -> i64 {
        let active = self.active.as_ref().map(ActivePlugin::name);
        match &self.faults_before {
            Some((revision, faults)) if active.as_ref() == Some(revision) => *faults,
            _ => 0,
        }
    }

    /// Returns when the next pass runs without a change.
    pub(crate) fn due_next(&self) -> Option<Instant> {
        // A running load triggers a pass when it ends.
        let running = self.loading.as_ref().and_then(Loading::stage);
        let attempt = self
            .attempt
            .as_ref()
            .filter(|_| running.is_none())
            .and_then(LoadAttempt::due);
        let setback = self.setbacks.values().filter_map(Setback::retry_at).min();
        [attempt, setback, self.unserved.due, self.due_report()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns when a Plugin without a valid declaration has its next pass. Its passes take no step, so a step's
    /// deadline would stay in the past.
    pub(crate) fn due_report(&self) -> Option<Instant> {
        let now = Instant::now();
        let refresh = self.active.as_ref().map(|_| now + REFRESH_PERIOD);
        let release = self.is_releasing.then(|| now + RELEASE_PERIOD);
        // No event triggers a pass when the hash key is restored.
        let verify = self.is_unverified.then(|| now + REFRESH_PERIOD);
        [refresh, release, verify].into_iter().flatten().min()
    }
}

/// Returns the components that a Plugin needs before this process has read its history. Does not check the seal: the
/// components are only kept.
pub(crate) fn stored_needs(plugin: &Object) -> Needs {
    History(status_of(plugin).history).needs()
}
