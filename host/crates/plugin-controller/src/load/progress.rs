//! Loads components in the background: no pass waits for a server or a compiler.
//!
//! A pass starts the load and ends; another pass follows on each progress. A [`Loading`] belongs to one Plugin, and
//! dropping it cancels the load.

use std::sync::Arc;

use innkeeper_cluster::{Cause, Registration};
use innkeeper_model::{Digest, PluginReason, Retry};
use tokio::{sync::watch, task::JoinSet};

use super::{Loader, VerifiedComponent, marker::LoadId};
use crate::{
    context::id_of,
    resource::Declared,
    stage::{Stage, StageFailure, has_the_same_component},
};

/// A load's progress.
#[derive(Clone)]
enum LoadProgress {
    /// This stage runs, or waits for a permit.
    At(Stage),
    /// It has ended.
    Ended(Result<VerifiedComponent, StageFailure>),
}

/// A component that is loading.
pub(crate) struct Loading {
    declared: Declared,
    /// The cached bytes to load; none: the declared component.
    kept: Option<Digest>,
    progress: watch::Receiver<LoadProgress>,
    /// True if the Plugin has changed since the work began.
    has_changed: bool,
    /// The task; dropping this ends it.
    task: JoinSet<()>,
}

/// Reports a load's progress.
pub(crate) struct Reporter {
    progress: watch::Sender<LoadProgress>,
    /// Triggers a Plugin pass.
    trigger: Box<dyn Fn() + Send + Sync>,
}

impl Reporter {
    /// Reports that a stage begins.
    pub(crate) fn at(&self, stage: Stage) {
        self.report(LoadProgress::At(stage));
    }

    /// Reports the result.
    pub(crate) fn end(&self, result: Result<VerifiedComponent, StageFailure>) {
        self.report(LoadProgress::Ended(result));
    }

    fn report(&self, progress: LoadProgress) {
        // First, because the triggered pass reads it.
        self.progress.send_replace(progress);
        (self.trigger)();
    }
}

impl Drop for Reporter {
    /// Ends a load that panicked, or the Plugin would wait forever.
    fn drop(&mut self) {
        // A cancelled load comes here as well, but then nobody reads the result.
        let has_ended = matches!(*self.progress.borrow(), LoadProgress::Ended(_));
        if !has_ended {
            let message = "the host failed to load the component; it is tried again";
            let failure = Stage::Fetched.failure(PluginReason::HostFault, message, Retry::Backoff);
            self.end(Err(failure));
        }
    }
}

impl Loading {
    /// Returns the component once it is loaded, and then clears the slot. Starts the load unless the slot already holds
    /// it.
    pub(crate) fn poll(
        slot: &mut Option<Self>,
        loader: &Arc<Loader>,
        registration: &Registration,
        declared: &Declared,
        load: LoadId,
    ) -> Option<Result<VerifiedComponent, StageFailure>> {
        let cached = load.kept.clone();
        slot.take_if(|loading| {
            !loading.is_for(declared, cached.as_ref()) || loading.has_failed_before()
        });
        let start = || Self::start(loader, registration, declared, load);
        let outcome = slot.get_or_insert_with(start).ended()?;
        *slot = None;
        Some(outcome)
    }

    /// Returns true if this loads the declared component, or takes these bytes from the cache directory.
    pub(crate) fn is_for(&self, declared: &Declared, kept: Option<&Digest>) -> bool {
        self.kept.as_ref() == kept && !self.is_outdated(declared)
    }

    /// Returns true if a declaration has another component or other grants, because grants decide whether it is
    /// compiled.
    pub(crate) fn is_outdated(&self, declared: &Declared) -> bool {
        !has_the_same_component(&self.declared, declared)
            || self.declared.terms.grants != declared.terms.grants
    }

    /// Records that any field of the Plugin has changed.
    pub(crate) fn record_change(&mut self) {
        self.has_changed = true;
    }

    /// Returns true if the work has failed, and began before the Plugin changed. The user may have removed the cause
    /// before the change, and after a failure that only a change can fix, nothing else would start the work again.
    fn has_failed_before(&self) -> bool {
        self.has_changed && matches!(self.ended(), Some(Err(_)))
    }

    /// Ends the task and waits for that, so it registers no more needs. A compiler may still run; its result is then an
    /// unneeded component.
    pub(crate) async fn cancel(mut self) {
        self.task.shutdown().await;
    }

    /// Returns the stage that runs; none once the work has ended.
    pub(crate) fn stage(&self) -> Option<Stage> {
        match &*self.progress.borrow() {
            LoadProgress::At(stage) => Some(*stage),
            LoadProgress::Ended(_) => None,
        }
    }

    fn ended(&self) -> Option<Result<VerifiedComponent, StageFailure>> {
        match &*self.progress.borrow() {
            LoadProgress::At(_) => None,
            LoadProgress::Ended(result) => Some(result.clone()),
        }
    }

    fn start(
        loader: &Arc<Loader>,
        registration: &Registration,
        declared: &Declared,
        load: LoadId,
    ) -> Self {
        let registration = registration.clone();
        let id = id_of(&declared.name);
        let trigger = move || registration.trigger([id.clone()], Cause::Swapped);
        let (mut loading, reporter) = Self::reported(trigger, declared, load.kept.as_ref());
        let loader = Arc::clone(loader);
        let declared = declared.clone();
        loading.task.spawn(async move {
            let result = match &load.kept {
                None => {
                    loader
                        .component(&declared, &load, |stage| reporter.at(stage))
                        .await
                }
                Some(digest) => loader.kept(&declared, digest, &load).await,
            };
            reporter.end(result);
        });
        loading
    }

    /// Returns work without a task yet, and the reporter for the task.
    pub(crate) fn reported(
        trigger: impl Fn() + Send + Sync + 'static,
        declared: &Declared,
        kept: Option<&Digest>,
    ) -> (Self, Reporter) {
        let (sender, progress) = watch::channel(LoadProgress::At(Stage::Fetched));
        let reporter = Reporter {
            progress: sender,
            trigger: Box::new(trigger),
        };
        let loading = Self {
            declared: declared.clone(),
            kept: kept.cloned(),
            progress,
            has_changed: false,
            task: JoinSet::new(),
        };
        (loading, reporter)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::testing::declared;

    /// The failure shows the registry as it was before the change.
    #[test]
    fn a_failure_of_a_load_does_not_count_for_a_later_change() {
        let (mut loading, reporter) = Loading::reported(|| {}, &declared(json!({})), None);
        let stage = Stage::Verified;
        let retry = Retry::OnChange;
        assert!(!loading.has_failed_before());
        reporter.end(Err(stage.failure(PluginReason::BadSignature, "", retry)));
        assert!(!loading.has_failed_before());
        loading.record_change();
        assert!(loading.has_failed_before());
    }

    /// A load that still runs when its Plugin is forgotten would register needs that no later pass removes.
    #[tokio::test]
    async fn a_cancelled_load_has_ended() {
        let (mut loading, _reporter) = Loading::reported(|| {}, &declared(json!({})), None);
        let work = Arc::new(());
        let running = Arc::new(Semaphore::new(0));
        let clone = Arc::clone(&work);
        let runs = Arc::clone(&running);
        loading.task.spawn(async move {
            runs.add_permits(1);
            std::future::pending::<()>().await;
            drop(clone);
        });
        drop(running.acquire().await);
        assert_eq!(Arc::strong_count(&work), 2);
        loading.cancel().await;
        assert_eq!(Arc::strong_count(&work), 1);
    }
}
