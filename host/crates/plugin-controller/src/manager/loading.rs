//! Loads components beside the passes of Plugins: no pass waits for a server or a compiler.
//!
//! A pass starts the work and ends; another pass follows each time that the work gets further. A [`Loading`] belongs to
//! one Plugin, and dropping it cancels the work.
//! [`Places`] bounds all work together, and the share of one source in it.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_cluster::{Cause, Registration};
use innkeeper_model::{Digest, Retry};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};

use super::{
    id_of,
    load::{Loader, VerifiedComponent},
};
use crate::{
    lifecycle::{Stage, StageFailure, has_the_same_component},
    resource::{Declared, Origin},
};

/// The number of components that are fetched from servers and then compiled at the same time.
///
/// Chosen, not measured: each may hold 32 MiB, the largest component.
const REMOTE_MAX: usize = 8;
/// The part of these places that one source may have: a server that answers slowly leaves the others to the rest.
const SHARE_MAX: usize = 2;
/// The number of components that are read from the cache directory, ConfigMaps and files at the same time. They have
/// places of their own, so that no server delays the start of a host.
const LOCAL_MAX: usize = 4;

/// The places for work that takes long.
pub struct Places {
    remote: Arc<Semaphore>,
    local: Arc<Semaphore>,
    /// The shares of the sources from which a component is being fetched or waits to be.
    shares: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// The permits of one load.
pub(super) type Place = Vec<OwnedSemaphorePermit>;

impl Default for Places {
    fn default() -> Self {
        Self {
            remote: Arc::new(Semaphore::new(REMOTE_MAX)),
            local: Arc::new(Semaphore::new(LOCAL_MAX)),
            shares: Mutex::default(),
        }
    }
}

impl Places {
    /// Waits for a place for a component that is on this machine or in the cluster.
    pub(super) async fn local(&self) -> Place {
        // The semaphores are never closed.
        let permit = Arc::clone(&self.local).acquire_owned().await;
        permit.into_iter().collect()
    }

    /// Waits for a place for the component of a declaration.
    pub(super) async fn of(&self, declared: &Declared) -> Place {
        let Some(source) = share_of(declared) else {
            return self.local().await;
        };
        let share = {
            let mut shares = self.shares.lock();
            shares.retain(|_, share| Arc::strong_count(share) > 1);
            let new = || Arc::new(Semaphore::new(SHARE_MAX));
            Arc::clone(shares.entry(source).or_insert_with(new))
        };
        // The share first: one that waits for its share holds no place of the others.
        let share = share.acquire_owned().await;
        let remote = Arc::clone(&self.remote).acquire_owned().await;
        share.into_iter().chain(remote).collect()
    }
}

/// Returns the source whose share a load takes; none for one without a server.
///
/// Plugins without granted parents cannot be active, and an author without the right to grant can make any number of
/// them for any number of servers. So they have one share together.
fn share_of(declared: &Declared) -> Option<String> {
    let server = match &declared.origin {
        Origin::Oci(_, reference) => reference.registry().to_owned(),
        Origin::Http(http) => {
            let (_, address) = http.url.split_once("://")?;
            let server = address.split(['/', '?']).next()?;
            server.to_lowercase()
        }
        Origin::ConfigMap(_) | Origin::File(_) => return None,
    };
    let is_granted = !declared.terms.grants.parents.is_empty();
    Some(if is_granted { server } else { String::new() })
}

/// The progress of a load.
#[derive(Clone)]
enum LoadProgress {
    /// This stage runs, or waits for a place.
    At(Stage),
    /// It has ended.
    Ended(Result<VerifiedComponent, StageFailure>),
}

/// A component that is being loaded.
pub(super) struct Loading {
    declared: Declared,
    /// The bytes to take from the cache directory; none: those that are declared.
    kept: Option<Digest>,
    progress: watch::Receiver<LoadProgress>,
    /// The work, which ends when this is dropped.
    task: JoinSet<()>,
}

/// Reports the progress of a load.
pub(super) struct Reporter {
    progress: watch::Sender<LoadProgress>,
    /// Triggers a pass of the Plugin.
    trigger: Box<dyn Fn() + Send + Sync>,
}

impl Reporter {
    /// Notes that a stage begins.
    pub(super) fn at(&self, stage: Stage) {
        self.report(LoadProgress::At(stage));
    }

    /// Notes the result.
    pub(super) fn end(&self, result: Result<VerifiedComponent, StageFailure>) {
        self.report(LoadProgress::Ended(result));
    }

    fn report(&self, progress: LoadProgress) {
        self.progress.send_replace(progress);
        (self.trigger)();
    }
}

impl Drop for Reporter {
    /// Ends a load that has panicked: its Plugin would wait for ever.
    fn drop(&mut self) {
        let has_ended = matches!(*self.progress.borrow(), LoadProgress::Ended(_));
        if !has_ended {
            let message = "the host failed to load the component; it is tried again";
            let (stage, retry) = (Stage::Fetched, Retry::Backoff);
            let failure = StageFailure::new(stage, "HostFault", message, retry);
            self.end(Err(failure));
        }
    }
}

impl Loading {
    /// Returns the component once it is loaded, and then clears the slot. Starts the work if the slot holds no such
    /// work.
    pub(super) fn poll(
        slot: &mut Option<Self>,
        loader: &Arc<Loader>,
        registration: &Registration,
        declared: &Declared,
        kept: Option<&Digest>,
    ) -> Option<Result<VerifiedComponent, StageFailure>> {
        slot.take_if(|loading| !loading.is_for(declared, kept));
        let start = || Self::start(loader, registration, declared, kept);
        let ended = slot.get_or_insert_with(start).ended()?;
        *slot = None;
        Some(ended)
    }

    /// Returns true if the work loads the component of a declaration, or takes these bytes from the cache directory.
    pub(super) fn is_for(&self, declared: &Declared, kept: Option<&Digest>) -> bool {
        self.kept.as_ref() == kept && !self.is_outdated(declared)
    }

    /// Returns true if a declaration has another component, or other grants: these decide if it is compiled.
    pub(super) fn is_outdated(&self, declared: &Declared) -> bool {
        !has_the_same_component(&self.declared, declared)
            || self.declared.terms.grants != declared.terms.grants
    }

    /// Ends the work, and waits until it has ended: it states no needs any more. A compiler may still run, and its code is
    /// then an unneeded component.
    pub(super) async fn cancel(mut self) {
        self.task.shutdown().await;
    }

    /// Returns the stage that runs; none once the work has ended.
    pub(super) fn stage(&self) -> Option<Stage> {
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
        kept: Option<&Digest>,
    ) -> Self {
        let (registration, id) = (registration.clone(), id_of(&declared.name));
        let trigger = move || registration.trigger([id.clone()], Cause::Swapped);
        let (mut loading, reporter) = Self::reported(trigger, declared, kept);
        let (loader, declared, kept) = (Arc::clone(loader), declared.clone(), kept.cloned());
        loading.task.spawn(async move {
            let result = match &kept {
                None => loader.component(&declared, &reporter).await,
                Some(digest) => loader.kept(&declared, digest).await,
            };
            reporter.end(result);
        });
        loading
    }

    /// Returns work without a task yet, and the reporter for the task.
    pub(super) fn reported(
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
            task: JoinSet::new(),
        };
        (loading, reporter)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::declared;

    fn at(url: &str, granted: bool) -> Declared {
        let mut spec = json!({"source": {"http": {"url": url}}});
        if !granted {
            spec["grants"] = json!({});
        }
        declared(spec)
    }

    /// A load that still runs when its Plugin is forgotten would state needs that no other pass removes.
    #[tokio::test]
    async fn a_cancelled_load_has_ended() {
        let (mut loading, _reporter) = Loading::reported(|| {}, &declared(json!({})), None);
        let (work, running) = (Arc::new(()), Arc::new(Semaphore::new(0)));
        let (held, runs) = (Arc::clone(&work), Arc::clone(&running));
        loading.task.spawn(async move {
            runs.add_permits(1);
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(running.acquire().await);
        assert_eq!(Arc::strong_count(&work), 2);
        loading.cancel().await;
        assert_eq!(Arc::strong_count(&work), 1);
    }

    #[test]
    fn a_share_belongs_to_the_server_and_to_all_plugins_without_granted_parents() {
        let share = |source: Value| share_of(&declared(json!({"source": source})));
        let server = |text: &str| Some(text.to_owned());
        let oci = json!({"oci": {"reference": "registry.example:5000/a/b:1"}});
        assert_eq!(share(oci), server("registry.example:5000"));
        for url in ["https://A.example/x.wasm", "http://a.example?x=/y"] {
            let http = json!({"http": {"url": url}});
            assert_eq!(share(http), server("a.example"), "{url}");
        }
        assert_eq!(share(json!({"file": {"path": "a"}})), None);
        assert_eq!(share(json!({"configMap": {"name": "a"}})), None);
        assert_eq!(share_of(&at("https://b.example/x", false)), server(""));
    }

    /// Takes places for Plugins at these servers; returns true for each that has one at once.
    fn take(places: &Places, urls: &[(&str, bool)]) -> Vec<Option<Place>> {
        let take = |(url, granted): &(&str, bool)| places.of(&at(url, *granted)).now_or_never();
        urls.iter().map(take).collect()
    }

    #[tokio::test]
    async fn a_slow_server_and_plugins_without_granted_parents_leave_places_to_others() {
        let places = Places::default();
        let slow = [
            ("https://slow/1", true),
            ("https://slow/2", true),
            ("https://slow/3", true),
        ];
        let held = take(&places, &slow);
        let has_place =
            |held: &[Option<Place>]| -> Vec<bool> { held.iter().map(Option::is_some).collect() };
        assert_eq!(has_place(&held), [true, true, false]);
        let poor = [
            ("https://a/", false),
            ("https://b/", false),
            ("https://c/", false),
        ];
        let poor = take(&places, &poor);
        assert_eq!(has_place(&poor), [true, true, false]);
        let other = take(&places, &[("https://other/", true)]);
        assert_eq!(has_place(&other), [true]);
        drop(held);
        let held = take(&places, &slow);
        assert_eq!(has_place(&held), [true, true, false]);

        // All together are bounded as well, and those without a server have places of their own.
        let more = ["d", "e", "f", "g"].map(|host| format!("https://{host}/"));
        let more: Vec<_> = more.iter().map(|url| (&**url, true)).collect();
        let more = take(&places, &more);
        assert_eq!(has_place(&more), [true, true, true, false]);
        let file = declared(json!({}));
        assert!(places.of(&file).now_or_never().is_some());
        assert!(places.local().now_or_never().is_some());
        drop((held, poor, other, more));
        assert_eq!(places.remote.available_permits(), REMOTE_MAX);
    }
}
