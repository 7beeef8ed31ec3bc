//! Marks running loads in the cache directory, and delays those during which the host crashed.
//!
//! Without a writable cache directory there are no marks: loads begin at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use innkeeper_model::{Digest, PluginReason, Retry, Uid};
use innkeeper_sandbox::artifact::Cache;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tracing::warn;

use super::marks::{LoadDecision, LoadMarks};
use crate::stage::{Stage, StageFailure};

/// The longest wait for another suspected load, so a slow server does not delay other Plugins for long. Most loads take
/// less than a second.
const TURN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Identifies a load: for the component that a Plugin generation declares, or for cached bytes.
#[derive(Clone, Debug)]
pub(crate) struct LoadId {
    pub(crate) uid: Uid,
    pub(crate) generation: Option<i64>,
    pub(crate) kept: Option<Digest>,
}

/// The marks for all loads.
pub(crate) struct LoadMarker {
    cache: Cache,
    now: fn() -> Timestamp,
    /// Held while marks are read and written.
    files: Mutex<()>,
    /// Loads during which the host crashed run one at a time. Otherwise a harmless load beside the culprit would be
    /// counted with it, every time.
    alone: Arc<Semaphore>,
    turn_wait_max: Duration,
    has_warned: AtomicBool,
}

/// A suspected load's turn; none for other loads.
pub(crate) type Turn = Option<OwnedSemaphorePermit>;

/// A running load; dropping it removes the mark.
///
/// A host that is stopped by a signal also drops it. Only a crash leaves the mark.
pub(crate) struct MarkedLoad<'a> {
    marker: &'a LoadMarker,
    load: &'a LoadId,
    _turn: Turn,
}

impl LoadMarker {
    pub(crate) fn new(cache: Cache, now: fn() -> Timestamp) -> Self {
        Self {
            cache,
            now,
            files: Mutex::default(),
            alone: Arc::new(Semaphore::new(1)),
            turn_wait_max: TURN_WAIT_MAX,
            has_warned: AtomicBool::default(),
        }
    }

    /// Waits for a load's turn; fails while the load must wait because the host crashed during it.
    pub(crate) async fn admit(&self, load: &LoadId) -> Result<Turn, StageFailure> {
        let decision = {
            // Not held while the load waits for its turn.
            let _files = self.files.lock();
            self.marks_of(load).decide(load.kept.as_ref(), (self.now)())
        };
        match decision {
            LoadDecision::Begin => Ok(None),
            LoadDecision::Alone => {
                let alone = Arc::clone(&self.alone).acquire_owned();
                // The semaphore is never closed.
                Ok(timeout(self.turn_wait_max, alone)
                    .await
                    .ok()
                    .and_then(Result::ok))
            }
            LoadDecision::Wait { ends, wait, rest } => Err(host_ended(ends, wait, rest)),
        }
    }

    /// Marks a load that begins.
    pub(crate) fn begin<'a>(&'a self, load: &'a LoadId, turn: Turn) -> MarkedLoad<'a> {
        self.change(load, |marks| {
            marks.begin(load.kept.as_ref(), (self.now)());
        });
        MarkedLoad {
            marker: self,
            load,
            _turn: turn,
        }
    }

    /// Forgets a deleted Plugin's loads.
    pub(crate) fn forget(&self, uid: &Uid) {
        let _files = self.files.lock();
        if let Err(error) = self.cache.set_mark(&uid.0, None) {
            self.warn(&error);
        }
    }

    /// Forgets the loads for all other Plugins.
    pub(crate) fn forget_others(&self, uids: &[Uid]) {
        let _files = self.files.lock();
        if let Err(error) = self.cache.keep_marks(uids.iter().map(|uid| &*uid.0)) {
            self.warn(&error);
        }
    }

    fn marks_of(&self, load: &LoadId) -> LoadMarks {
        let text = self.cache.mark_of(&load.uid.0);
        LoadMarks::read(text.as_deref(), load.generation)
    }

    fn change(&self, load: &LoadId, change: impl FnOnce(&mut LoadMarks)) {
        let _files = self.files.lock();
        let mut marks = self.marks_of(load);
        let before = marks.clone();
        change(&mut marks);
        if marks == before {
            return;
        }
        let text = marks.text();
        if let Err(error) = self.cache.set_mark(&load.uid.0, text.as_deref()) {
            self.warn(&error);
        }
    }

    fn warn(&self, error: &std::io::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            warn!(%error, "failed to mark a load in the cache directory: while this lasts, a component that ends the host is loaded again at every start");
        }
    }
}

impl Drop for MarkedLoad<'_> {
    fn drop(&mut self) {
        let Self { marker, load, .. } = self;
        // Before `_turn` is dropped: if the next suspect crashes the host, this load must not have a mark.
        // Marks from a later generation belong to another load.
        marker.change(load, |marks| marks.end(load.kept.as_ref()));
    }
}

fn host_ended(ends: u32, wait: Duration, rest: Duration) -> StageFailure {
    let minutes = wait.as_secs() / 60;
    let message = format!(
        "the host ended {ends} times in a row while it loaded this component, so the next attempt follows {minutes} min after the last one: see why the container of the host ended (kubectl describe pod, and the end of its log). If the component is the cause, delete the Plugin or declare another component; a change of the spec is tried at once"
    );
    Stage::Fetched.failure(PluginReason::HostEnded, message, Retry::At(rest))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use futures::FutureExt;

    use super::*;

    /// A process that has just started.
    fn marker(directory: &Path) -> LoadMarker {
        LoadMarker::new(Cache::open(directory).unwrap(), || {
            Timestamp::from_second(1000).unwrap()
        })
    }

    fn load(uid: &str, generation: i64) -> LoadId {
        LoadId {
            uid: Uid(uid.into()),
            generation: Some(generation),
            kept: None,
        }
    }

    fn refusal(marker: &LoadMarker, load: &LoadId) -> Option<StageFailure> {
        marker.admit(load).now_or_never()?.err()
    }

    /// Begins a load in a process that then ends without cleanup.
    fn crash(directory: &Path, loads: &[&LoadId]) {
        let marker = marker(directory);
        for load in loads {
            let turn = marker.admit(load).now_or_never().unwrap().unwrap();
            std::mem::forget(marker.begin(load, turn));
        }
    }

    #[tokio::test]
    async fn a_load_during_which_the_host_ended_once_begins_at_once_and_after_two_ends_it_waits() {
        let directory = tempfile::tempdir().unwrap();
        let poisoned = load("poisoned", 1);
        let other = load("other", 1);
        crash(directory.path(), &[&poisoned]);
        assert_eq!(refusal(&marker(directory.path()), &poisoned), None);
        crash(directory.path(), &[&poisoned]);
        let next = marker(directory.path());
        let failure = refusal(&next, &poisoned).unwrap();
        assert_eq!(failure.reason, PluginReason::HostEnded);
        assert_eq!(failure.retry, Retry::At(Duration::from_mins(1)));
        assert!(failure.message.contains("ended 2 times"), "{failure:?}");
        assert_eq!(refusal(&next, &other), None);
        assert_eq!(refusal(&next, &load("poisoned", 2)), None);
        next.forget(&poisoned.uid);
        assert_eq!(refusal(&next, &poisoned), None);
    }

    #[tokio::test]
    async fn an_ended_load_leaves_no_mark() {
        let directory = tempfile::tempdir().unwrap();
        let web = load("web", 1);
        for _ in 0..3 {
            crash(directory.path(), &[&web]);
            let marker = marker(directory.path());
            drop(marker.begin(&web, None));
            assert_eq!(refusal(&marker, &web), None);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// An earlier generation's load ends after the next one begins, because a cancelled load ends late.
    #[tokio::test]
    async fn a_late_end_leaves_the_mark_of_the_next_generation() {
        let directory = tempfile::tempdir().unwrap();
        let first = load("web", 1);
        let second = load("web", 2);
        let marker = marker(directory.path());
        let late = marker.begin(&first, None);
        std::mem::forget(marker.begin(&second, None));
        drop(late);
        let decision = marker.marks_of(&second).decide(None, (marker.now)());
        assert_eq!(decision, LoadDecision::Alone);
    }

    /// A harmless load that ran beside the cause recovers, because the next process runs them one after the other.
    #[tokio::test]
    async fn loads_during_which_the_host_ended_run_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let [poisoned, harmless, new] = ["poisoned", "harmless", "new"].map(|uid| load(uid, 1));
        crash(directory.path(), &[&poisoned, &harmless]);
        let next = marker(directory.path());
        let turn = next.admit(&poisoned).now_or_never().unwrap().unwrap();
        assert!(turn.is_some());
        assert!(next.admit(&harmless).now_or_never().is_none());
        assert!(matches!(next.admit(&new).now_or_never(), Some(Ok(None))));
        // It ends the host again, and the harmless load has not begun.
        std::mem::forget(next.begin(&poisoned, turn));
        let next = marker(directory.path());
        assert!(refusal(&next, &poisoned).is_some());
        let turn = next.admit(&harmless).now_or_never().unwrap().unwrap();
        drop(next.begin(&harmless, turn));
        let marks = next.marks_of(&harmless);
        assert_eq!(marks.decide(None, (next.now)()), LoadDecision::Begin);
    }

    #[tokio::test]
    async fn a_slow_load_does_not_hold_up_the_others_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let [slow, other] = ["slow", "other"].map(|uid| load(uid, 1));
        crash(directory.path(), &[&slow, &other]);
        let mut next = marker(directory.path());
        next.turn_wait_max = Duration::from_millis(20);
        let turn = next.admit(&slow).await.unwrap();
        let _slow = next.begin(&slow, turn);
        assert!(next.admit(&other).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn without_a_writable_directory_loads_begin_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let marker = marker(&path);
        // Removed rather than read-only: tests may run as root.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir(&path).unwrap();
        let web = load("web", 1);
        for _ in 0..3 {
            assert_eq!(refusal(&marker, &web), None);
            std::mem::forget(marker.begin(&web, None));
        }
        assert!(marker.has_warned.load(Ordering::Relaxed));
        marker.forget(&web.uid);
        marker.forget_others(&[]);
    }
}
