//! Revisions that serve again: after a restart the one that served last, and the last good one in place of one that
//! faults too often.
//!
//! Both come from bytes that are kept, so that no source is asked.

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::{Digest, Object, ObjectId, Retry};
use innkeeper_reconcile::TrialFault;
use innkeeper_sandbox::Plugin;
use tracing::{info, warn};

use super::{
    Attempt, Failed, Known, Manager, Refusal,
    load::{Component, configure},
    report::status_of,
};
use crate::{
    lifecycle::{Beginning, FirstPasses, History, Judgement, Past, Stage},
    resource::{self, Declared, revision_name},
};

impl Manager {
    /// Activates an earlier revision; on failure the active one stays.
    pub(super) async fn come_back(
        &self,
        declared: &Declared,
        known: &mut Known,
        revision: &Digest,
        why: Beginning,
    ) {
        let came_back = async {
            let plugin = self.revive(declared, known, revision).await?;
            let assessment = declared.charter.assess(plugin.manifest());
            if !assessment.serves() {
                let message = resource::lines(&assessment).unwrap_or_default();
                let (stage, retry) = (Stage::Granted, Retry::OnChange);
                return Err(Failed::new(stage, "NotGranted", message, retry));
            }
            self.serve(declared, known, plugin, why.clone()).await
        }
        .await;
        let (plugin, name) = (&declared.name, revision_name(revision));
        match (came_back, why) {
            (Ok(()), Beginning::RolledBack { why }) => {
                warn!(%plugin, revision = name, why, "rolled back to the last good revision");
            }
            (Ok(()), _) => info!(%plugin, revision = name, "what served before goes on"),
            (Err(Failed { problem, retry }), _) => {
                let error = &problem.message;
                warn!(%plugin, revision = name, error, "a revision that served before cannot serve again");
                let due = known.due(retry);
                let of = declared.clone();
                known
                    .lost
                    .insert(revision.clone(), Refusal { of, problem, due });
            }
        }
    }

    /// Returns an earlier revision from memory or the cache.
    async fn revive(
        &self,
        declared: &Declared,
        known: &Known,
        revision: &Digest,
    ) -> Result<Arc<Plugin>, Failed> {
        let past = known.past(revision).ok_or_else(|| {
            let message = "nothing is known of it any more";
            Failed::new(Stage::Fetched, "NotKept", message, Retry::OnChange)
        })?;
        let attempt = known.attempt.as_ref();
        let loaded = attempt.and_then(|attempt| attempt.component.clone());
        let component = match loaded.filter(|component| *component.digest() == past.digest) {
            Some(component) => component,
            None => self.parts.loader.kept(declared, &past.digest).await?,
        };
        configure(&component, &past.config)
    }

    /// Remembers the Plugins to check without a trigger of their own, and the bytes to keep.
    pub(super) fn look_after(&self, id: &ObjectId, known: &Known) {
        {
            let mut on_trial = self.on_trial.lock();
            if known.judgement().is_some() {
                on_trial.insert(id.clone());
            } else {
                on_trial.remove(id);
            }
        }
        let attempt = known.attempt.as_ref();
        let component = attempt.and_then(|attempt| attempt.component.as_ref());
        let loaded = component.map(|component| component.digest().clone());
        self.keep_only(id, known.history.digests().chain(loaded).collect());
    }

    /// Forgets the bytes of this Plugin that no Plugin needs any more.
    pub(super) fn keep_only(&self, id: &ObjectId, digests: BTreeSet<Digest>) {
        let mut kept = self.kept.lock();
        let before = kept.insert(id.clone(), digests).unwrap_or_default();
        let needed = |digest: &Digest| kept.values().any(|digests| digests.contains(digest));
        for digest in before.into_iter().filter(|digest| !needed(digest)) {
            if let Some(cache) = &self.parts.loader.workshop.cache {
                cache.forget(&digest);
            }
        }
        kept.retain(|_, digests| !digests.is_empty());
    }
}

impl Known {
    /// Returns the state of a Plugin in a process that has just started.
    pub(super) fn of(object: &Object) -> Self {
        let status = status_of(object);
        Self {
            left_serving: status
                .revision
                .zip(status.faults.map(|faults| faults.count)),
            history: History::of(status.history),
            ..Self::default()
        }
    }

    /// The revision that served last, where none does and it may be had.
    pub(super) fn last(&self) -> Option<Digest> {
        if self.running.is_some() {
            return None;
        }
        self.first_at_hand(self.history.past())
    }

    /// The last good revision before the one that serves, as far as it may be had.
    pub(super) fn good(&self) -> Option<Digest> {
        self.running.as_ref()?;
        self.first_at_hand(self.history.good())
    }

    /// Clears the failures of revisions with the component of the last attempt: their bytes may be available now.
    pub(super) fn find_again(&mut self) {
        let attempt = self.attempt.as_ref();
        let component = attempt.and_then(|attempt| attempt.component.as_ref());
        let Some(digest) = component.map(Component::digest) else {
            return;
        };
        for past in self.history.past().filter(|past| past.digest == *digest) {
            self.lost.remove(&past.revision);
        }
    }

    fn first_at_hand(&self, mut pasts: impl Iterator<Item = Past>) -> Option<Digest> {
        let past = pasts.find(|past| !self.lost.contains_key(&past.revision));
        past.map(|past| past.revision)
    }

    fn past(&self, revision: &Digest) -> Option<Past> {
        self.history.past().find(|past| past.revision == *revision)
    }

    /// Returns whether the loaded revision of an attempt was rolled back and the Plugin has not changed since.
    pub(super) fn is_rolled_back(&self, attempt: &Attempt) -> bool {
        attempt.ended.as_ref().is_ok_and(|plugin| {
            let why = self.history.rolled_back(plugin.revision(), self.generation);
            why.is_some()
        })
    }

    /// Returns the result of the first passes of the active revision; none if it is not on trial.
    pub(super) fn judgement(&self) -> Option<Judgement> {
        let running = self.running.as_ref()?;
        let since = running.passes_since()?;
        if !self.history.is_on_trial() {
            return None;
        }
        let passes = self.first_passes().map(|(passes, _)| passes);
        Some(passes.map_or(Judgement::Open, |passes| passes.judge(since.elapsed())))
    }

    /// Returns the reason why the active revision is not good enough, for people.
    pub(super) fn faults(&self) -> Option<String> {
        let (passes, first_fault) = self.first_passes()?;
        let TrialFault {
            parent,
            reason,
            message,
        } = first_fault?;
        Some(passes.describe(&format!("{reason} for {parent}: {message}")))
    }

    /// None while it is not known which parents there are.
    fn first_passes(&self) -> Option<(FirstPasses, Option<TrialFault>)> {
        let running = self.running.as_ref()?;
        let mut passes = FirstPasses::default();
        let mut first_fault = None;
        for reconciler in &running.served.reconcilers {
            let trial = reconciler.trial();
            let registration = reconciler.registration();
            // The first pass begins the trial, and without parents there is none.
            let has_begun =
                || registration.waiting().is_empty() && registration.parents().is_empty();
            if !trial.is_open() && !has_begun() {
                return None;
            }
            passes.pending += trial.pending();
            passes.well += trial.well();
            passes.faulted += trial.faulted();
            first_fault = first_fault.or_else(|| trial.first_fault().cloned());
        }
        Some((passes, first_fault))
    }
}
