//! The state of one Plugin in this process, and all decisions from it: the next step and the failure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use innkeeper_apply::Target;
use innkeeper_model::{Backoff, Digest, Object, Retry, Uid};
use innkeeper_plan::Repeats;
use innkeeper_reconcile::RecentFault;
use innkeeper_sandbox::Plugin;
use tokio::time::Instant;
use tracing::warn;

use super::{
    REFRESH_PERIOD,
    active::ActiveRevision,
    attempt::{LoadAttempt, RefusedRevision, is_past},
    dry_run::Candidate,
    load::{VerifiedComponent, granted},
    loading::Loading,
    missing::MissingParents,
    unserved::Unserved,
};
use crate::{
    crds::CheckedDefinitions,
    finalizers::Finalizers,
    lifecycle::{
        AnalysisCounts, AnalysisVerdict, History, NextStep, PastRevision, RolloutAnalysis, Stage,
        StageFailure, has_the_same_component, loads_the_same, verifies_the_same,
    },
    resource::Declared,
};

/// The wait after the first of several failed steps, doubled by each further one. Chosen, not measured.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest wait after a failed step: at most twelve attempts per hour and Plugin while a registry is down.
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// The interval between attempts to remove finalizers from kinds of parents that the active revision lacks.
const RELEASE_PERIOD: Duration = Duration::from_secs(1);

/// The state of one Plugin.
#[derive(Default)]
pub(super) struct PluginState {
    /// The UID of the Plugin: one that was deleted and created again is another one.
    pub(super) uid: Option<Uid>,
    /// The last parsed declaration with its generation; none if the spec is invalid.
    pub(super) read: Option<(i64, Arc<Declared>)>,
    /// The last attempt to load a declaration that has ended.
    pub(super) attempt: Option<LoadAttempt>,
    /// The work on the next attempt, or on the component of an earlier revision.
    pub(super) loading: Option<Loading>,
    /// The generation for which an earlier process reported its conditions. They stay until an attempt of this process
    /// has ended, so that a restart alone changes no status.
    pub(super) reported: Option<i64>,
    /// The active or suspended revision.
    pub(super) active: Option<ActiveRevision>,
    /// Declared revisions that could not become active.
    pub(super) refused: BTreeMap<Digest, RefusedRevision>,
    /// Earlier revisions that could not become active again.
    pub(super) lost: BTreeMap<Digest, RefusedRevision>,
    /// The revisions that have been active.
    pub(super) history: History,
    /// True while the history in the status is not read, because the hash key is missing. The status keeps it.
    pub(super) is_unverified: bool,
    /// The active revision of an earlier process by name, with the number of faults that it reported.
    pub(super) faults_before: Option<(String, i64)>,
    /// The generation of the Plugin's spec.
    pub(super) generation: Option<i64>,
    /// The time at which the change that caused the pass was observed; none if the pass has no change.
    pub(super) change: Option<Instant>,
    /// The Plugin for writes; every write of a pass updates its version.
    pub(super) target: Option<Target>,
    /// The watches of parents that lose the plugin's finalizer.
    pub(super) finalizers: Finalizers,
    /// True if some of them still have it.
    pub(super) is_releasing: bool,
    /// The kinds of parents of the active revision that the cluster no longer serves.
    pub(super) missing: MissingParents,
    /// The definitions as the last activation left them.
    pub(super) definitions: CheckedDefinitions,
    /// The parents while the plugin does not serve.
    pub(super) unserved: Unserved,
    /// A refused revision with the result of its dry run.
    pub(super) candidate: Option<Candidate>,
    /// The back-off of failed steps; none after a success.
    pub(super) delays: Option<Backoff>,
    /// The recent writes of the status, which other clients may undo.
    pub(super) repeats: Repeats,
}

impl PluginState {
    /// Returns true if this is the state of the object, and not of an earlier one of its name.
    pub(super) fn is_of(&self, object: &Object) -> bool {
        self.uid.as_ref() == Some(&object.uid)
    }

    /// Returns the declaration of a Plugin; parsed again only if it has changed.
    pub(super) fn declared(&mut self, object: &Object) -> Result<Arc<Declared>, StageFailure> {
        if let Some((generation, declared)) = &self.read
            && Some(*generation) == object.generation
        {
            return Ok(Arc::clone(declared));
        }
        self.read = None;
        // Another declaration may be accepted, and with any change a user may ask for another attempt.
        self.refused.clear();
        self.lost.clear();
        self.attempt.take_if(|attempt| attempt.waits_for_change());
        if let Some(loading) = &mut self.loading {
            loading.note_change();
        }
        let declared = Arc::new(super::declared(object)?);
        let read = |generation| (generation, Arc::clone(&declared));
        self.read = object.generation.map(read);
        Ok(declared)
    }

    /// Returns the next step.
    ///
    /// The declared terms come first, because loading may take long. After any failure the active revision stays active
    /// under them. Only terms without the required grants end it, once no declared revision can replace it.
    ///
    /// A process that has just started has no active revision. It resumes the last one before it fetches anything, so
    /// that an unavailable source stops no plugin, and another revision has to replace it in the usual way.
    pub(super) fn next_step(
        &self,
        declared: &Declared,
        analysis: Option<&RolloutAnalysis>,
    ) -> NextStep {
        let is_granted = |plugin: &&Arc<Plugin>| declared.terms.assess(plugin.manifest()).serves();
        let is_refused = |plugin: &Plugin| self.refused.contains_key(plugin.revision());
        let attempt = self.attempt_for(declared);
        let loads = |loading: &Loading| loading.is_for(declared, None) && loading.stage().is_some();
        // The last attempt counts until the next one has ended.
        let must_load =
            !self.loading.as_ref().is_some_and(loads) && attempt.is_none_or(LoadAttempt::is_due);
        let loaded = attempt
            .and_then(LoadAttempt::plugin)
            .filter(|plugin| !is_refused(plugin))
            .filter(is_granted);
        let Some(active) = &self.active else {
            return match (self.first_available(self.history.past()), loaded) {
                (Some(last), None) => NextStep::Resume(last),
                (Some(last), Some(loaded)) if *loaded.revision() != last => NextStep::Resume(last),
                _ if must_load => NextStep::Load,
                // Also one that was rolled back: it is better than no revision.
                (_, Some(loaded)) => NextStep::Activate(loaded.revision().clone()),
                (None, None) => NextStep::Wait,
            };
        };
        if attempt.is_none_or(LoadAttempt::is_due)
            && declared.terms != active.accepted
            && is_granted(&&active.plugin)
            && !is_refused(&active.plugin)
        {
            return NextStep::Activate(active.plugin.revision().clone());
        }
        // Before anything is loaded: until then the parents have no passes.
        let manifest = active.plugin.manifest();
        if self.missing.must_install(declared, manifest)
            && is_granted(&&active.plugin)
            && !is_refused(&active.plugin)
        {
            return NextStep::Activate(active.plugin.revision().clone());
        }
        let is_faulty = analysis.is_some_and(|one| one.verdict == AnalysisVerdict::Faulty);
        if is_faulty
            && declared.rollout.auto_rollback
            && let Some(good) = self.first_available(self.history.good())
        {
            return NextStep::RollBack(good);
        }
        if must_load {
            return NextStep::Load;
        }
        if attempt.is_none() {
            return NextStep::Wait;
        }
        let loaded = loaded.filter(|plugin| self.rollback(plugin).is_none());
        let Some(next) = loaded.or_else(|| Some(&active.plugin).filter(is_granted)) else {
            return NextStep::Stop;
        };
        if next.revision() != active.plugin.revision() || declared.terms != active.accepted {
            NextStep::Activate(next.revision().clone())
        } else if loaded.is_some() {
            NextStep::Keep
        } else {
            NextStep::Wait
        }
    }

    /// Returns the reason why the declared revision is not active; none if it is.
    pub(super) fn failure(&self, declared: &Declared) -> Option<StageFailure> {
        let Some(attempt) = self.attempt_for(declared) else {
            let stage = self.loading.as_ref().and_then(Loading::stage);
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
            let (stage, retry) = (Stage::Serving, Retry::OnChange);
            return Some(StageFailure::new(stage, "RolledBack", message, retry));
        }
        // The loaded revision comes first; another refused one is the active revision under changed terms.
        let mut refused = self
            .refused
            .get(plugin.revision())
            .into_iter()
            .chain(self.refused.values());
        let refused = refused.next().map(|refused| refused.failure.clone());
        refused.or_else(|| self.missing.failure())
    }

    /// Returns the loaded component with this digest, if it was verified as the declaration requires.
    pub(super) fn component(
        &self,
        declared: &Declared,
        digest: &Digest,
    ) -> Option<&VerifiedComponent> {
        let attempt = self
            .attempt
            .as_ref()
            .filter(|attempt| verifies_the_same(&attempt.declared, declared))?;
        let component = attempt.component.as_ref();
        component.filter(|component| component.digest() == digest)
    }

    /// Returns the loaded or active plugin of a revision.
    pub(super) fn plugin(&self, revision: &Digest) -> Option<Arc<Plugin>> {
        let loaded = self.attempt.as_ref().and_then(LoadAttempt::plugin);
        let active = self.active.as_ref().map(|active| &active.plugin);
        let mut plugins = loaded.into_iter().chain(active);
        plugins
            .find(|plugin| plugin.revision() == revision)
            .cloned()
    }

    /// Returns the refused revision for a failure, with the time of the next attempt.
    pub(super) fn refused(&mut self, failure: StageFailure) -> RefusedRevision {
        RefusedRevision {
            retry_at: self.retry_at(failure.retry),
            failure,
        }
    }

    /// Forgets refused revisions for which an attempt is due.
    pub(super) fn forget_refused(&mut self, is_first: bool) {
        let is_due = |refused: &RefusedRevision| {
            is_past(refused.retry_at) || is_first && refused.waits_for_kind()
        };
        for refused in [&mut self.refused, &mut self.lost] {
            refused.retain(|_, refused| !is_due(refused));
        }
    }

    /// Returns true if a revision waits for a kind of parents that another plugin has.
    pub(super) fn waits_for_kind(&self) -> bool {
        let mut refused = self.refused.values().chain(self.lost.values());
        refused.any(RefusedRevision::waits_for_kind)
    }

    /// Follows a changed declaration without loading anything: cancels outdated work. Returns the loaded component with the
    /// time of its attempt, if it needs another configuration.
    pub(super) fn follow(&mut self, declared: &Declared) -> Option<(VerifiedComponent, Instant)> {
        self.loading
            .take_if(|loading| loading.is_outdated(declared));
        let attempt = self.attempt.as_mut()?;
        if loads_the_same(&attempt.declared, declared) {
            attempt.declared.pull_every = declared.pull_every;
            return None;
        }
        if !has_the_same_component(&attempt.declared, declared) {
            return None;
        }
        Some((attempt.component.clone()?, attempt.at))
    }

    /// Notes the result of an attempt to load a declaration: the component with its configuration.
    pub(super) fn attempted(
        &mut self,
        declared: &Declared,
        loaded: Result<(VerifiedComponent, Result<Arc<Plugin>, StageFailure>), StageFailure>,
        at: Instant,
    ) {
        if self.attempt_for(declared).is_none() {
            self.delays = None;
        }
        let (component, result) = match loaded {
            Ok((component, result)) => (Some(component), result),
            Err(failure) => (None, Err(failure)),
        };
        let retry_at = match &result {
            Ok(_) => {
                self.delays = None;
                None
            }
            Err(failure) => {
                warn!(plugin = %declared.name, stage = ?failure.stage, error = failure.message, "failed to load the component of a Plugin");
                self.retry_at(failure.retry)
            }
        };
        // Earlier revisions with this component could not become active again: their bytes may be available now.
        if let Some(component) = &component {
            let past = self.history.past();
            for past in past.filter(|past| past.digest == *component.digest()) {
                self.lost.remove(&past.revision);
            }
        }
        self.reported = None;
        self.attempt = Some(LoadAttempt {
            declared: declared.clone(),
            component,
            result,
            at,
            retry_at,
        });
    }

    /// Returns the last attempt if it was for this declaration.
    pub(super) fn attempt_for(&self, declared: &Declared) -> Option<&LoadAttempt> {
        let attempt = self.attempt.as_ref();
        attempt
            .filter(|attempt| loads_the_same(&attempt.declared, declared))
            .filter(|attempt| !attempt.is_outgrown(declared))
    }

    /// Returns true while the conditions that an earlier process reported stay.
    pub(super) fn keeps_conditions(&self) -> bool {
        self.loading.is_some() && self.reported.is_some() && self.reported == self.generation
    }

    fn first_available(&self, mut pasts: impl Iterator<Item = PastRevision>) -> Option<Digest> {
        let past = pasts.find(|past| !self.lost.contains_key(&past.revision));
        past.map(|past| past.revision)
    }

    /// Returns the reason why a plugin was rolled back, if the spec has not changed since.
    fn rollback(&self, plugin: &Plugin) -> Option<String> {
        self.history.rolled_back(plugin.revision(), self.generation)
    }

    /// Returns the analysis of the active revision; none if it is not on trial or has no passes.
    pub(super) fn analysis(&self) -> Option<RolloutAnalysis> {
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

    /// Returns none while the set of parents is not known.
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

    /// Returns the number of faults of the active revision that an earlier process reported.
    pub(super) fn faults_before(&self) -> i64 {
        let active = self.active.as_ref().map(ActiveRevision::name);
        match &self.faults_before {
            Some((revision, faults)) if active.as_ref() == Some(revision) => *faults,
            _ => 0,
        }
    }

    /// Returns the time of the next attempt after a failure; none if only a change helps.
    pub(super) fn retry_at(&mut self, retry: Retry) -> Option<Instant> {
        let least = match retry {
            Retry::Never | Retry::OnChange => return None,
            Retry::Backoff => Duration::ZERO,
            Retry::At(least) => least,
        };
        let delays = || Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
        let delay = self.delays.get_or_insert_with(delays).delay();
        Some(Instant::now() + delay.max(least))
    }

    /// Returns the time of the next pass if nothing changes before.
    pub(super) fn due_next(&self) -> Option<Instant> {
        // The end of work that runs triggers a pass.
        let running = self.loading.as_ref().and_then(Loading::stage);
        let attempt = self
            .attempt
            .as_ref()
            .filter(|_| running.is_none())
            .and_then(LoadAttempt::due);
        let refused = self
            .refused
            .values()
            .chain(self.lost.values())
            .filter_map(|refused| refused.retry_at)
            .min();
        let dues = [attempt, refused, self.unserved.due, self.due_report()];
        dues.into_iter().flatten().min()
    }

    /// Returns the time of the next pass of a Plugin without a valid declaration. Its passes take no step, so the time of a
    /// step would stay in the past.
    pub(super) fn due_report(&self) -> Option<Instant> {
        let now = Instant::now();
        let refresh = self.active.as_ref().map(|_| now + REFRESH_PERIOD);
        let release = self.is_releasing.then(|| now + RELEASE_PERIOD);
        // No event triggers a pass when the hash key is restored.
        let verify = self.is_unverified.then(|| now + REFRESH_PERIOD);
        [refresh, release, verify].into_iter().flatten().min()
    }
}
