//! One watch task: lists, watches, checks, and applies the results to the state.
//!
//! `machine` decides the next step, `stored` which part of an object is cached, and `state` which parents it concerns.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use innkeeper_model::{Backoff, Gvk, ResourceVersion, error_chain};
use tokio::time::{Instant, sleep};

use super::{
    fields::ObjectFields,
    machine::{Pause, Since, StepFailure, StepOutcome, WatchStep, next},
    shared::CacheShared,
    state::{CacheState, Stale, TaskId, TaskSpec},
    stored::{Malformed, ObjectIdentity, Stored, check_requested, keep_fields},
    wire::{Line, LineKind, WatchStream, WireFailure, bookmark_version, error_line},
};

/// Why a step has no outcome.
enum StepError {
    Stale(Stale),
    Failed(WireFailure),
}

impl From<Stale> for StepError {
    fn from(stale: Stale) -> Self {
        Self::Stale(stale)
    }
}

impl From<WireFailure> for StepError {
    fn from(failure: WireFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Malformed> for StepError {
    fn from(malformed: Malformed) -> Self {
        Self::Failed(malformed.into())
    }
}

/// One watch task.
pub(super) struct Watcher {
    shared: Arc<CacheShared>,
    task: TaskId,
    spec: TaskSpec,
    rng: Rng,
    /// The last logged failure, so that a lasting one is logged only once.
    last_logged: Option<String>,
    /// True if the connection broke and no watch has made progress since.
    has_broken: bool,
    /// True if the last watch was not refused, however it ended.
    has_lasted: bool,
    /// The version after which the last watch ended within a line, if it did.
    cut_after: Option<ResourceVersion>,
}

impl Watcher {
    pub(super) fn new(shared: Arc<CacheShared>, task: TaskId, spec: TaskSpec, rng: Rng) -> Self {
        Self {
            shared,
            task,
            spec,
            rng,
            last_logged: None,
            has_broken: false,
            has_lasted: false,
            cut_after: None,
        }
    }

    /// Runs until another task replaces this one or the future is dropped.
    pub(super) async fn run(mut self) {
        let mut step = self.spec.first;
        let mut pauses = self.pauses();
        loop {
            let outcome = match self.perform(step).await {
                Ok(outcome) => outcome,
                Err(StepError::Stale(Stale::Superseded)) => return,
                Err(StepError::Stale(Stale::WentBack)) => {
                    let version = self.shared.state.lock().table.version(self.task);
                    tracing::warn!(kind = %self.kind(), ?step, seen = %version, "the API server shows an older state than before, listing again");
                    StepOutcome::WentBack
                }
                Err(StepError::Failed(failure)) => match self.record_failure(&failure) {
                    Ok(failed) => StepOutcome::Failed(failed),
                    Err(_) => return,
                },
            };
            let last = self.shared.state.lock().table.version(self.task);
            let (next_step, pause) = next(step, outcome, last);
            step = next_step;
            // Before the pause is chosen: a watch that lasted shows that the API server is well, however it ended.
            if std::mem::take(&mut self.has_lasted) {
                pauses = self.pauses();
            }
            match pause {
                Pause::None => {
                    pauses = self.pauses();
                    self.last_logged = None;
                    self.has_broken = false;
                }
                Pause::Brief => {}
                Pause::First => {
                    pauses = self.pauses();
                    sleep(pauses.delay()).await;
                }
                Pause::Backoff => sleep(pauses.delay()).await,
                // The jittered backoff is added, because all throttled watches would return together.
                Pause::AtLeast(wait) => {
                    sleep(wait.min(self.shared.options.retry_max) + pauses.delay()).await;
                }
            }
        }
    }

    async fn perform(&mut self, step: WatchStep) -> Result<StepOutcome, StepError> {
        // The section may have lost shards since the last step.
        self.spec.target = self.shared.state.lock().table.target(self.task)?;
        match step {
            WatchStep::List { since, paged } => self.list(since, paged).await,
            WatchStep::Check { .. } => {
                let target = self.spec.target.clone();
                let version = self.shared.wire.version(target).await?;
                Ok(StepOutcome::At(version))
            }
            WatchStep::Watch { from } => self.follow(from).await,
        }
    }

    async fn list(&self, since: Since, paged: bool) -> Result<StepOutcome, StepError> {
        let CacheShared { wire, state, .. } = &*self.shared;
        let mut list_version = None;
        let keep = |object: &ObjectFields<'_>, list: Option<&str>| {
            let stored = self.keep(object, list)?;
            // A page in progress does not hold texts that will not be cached.
            Ok(stored.map(|stored| state.lock().table.fitted(self.task, stored)))
        };
        let target = &self.spec.target;
        let listed = wire.list(target, since, paged, keep, |page| {
            let mut state = state.lock();
            if list_version.is_none() {
                state.table.begin_list(self.task, since, page.version)?;
                if target.section.shards().is_some() {
                    state.table.set_selects(page.is_sharded);
                }
                list_version = Some(page.version);
            }
            state.page(self.task, page.items.into_iter().flatten().collect())?;
            Ok::<(), StepError>(())
        });
        listed.await?;
        let version = list_version.unwrap_or_default();
        {
            let mut state = state.lock();
            state.end_list(self.task, version, Instant::now())?;
            state.table.merge(self.task.0);
        }
        // Watches of children start after their parents', and restart if they came first.
        self.shared.rearrange.notify_one();
        self.hint();
        Ok(StepOutcome::At(version))
    }

    async fn follow(&mut self, from: ResourceVersion) -> Result<StepOutcome, StepError> {
        let started = Instant::now();
        let duration = self.duration();
        let mut stream = self
            .shared
            .wire
            .watch(&self.spec.target, from, duration)
            .await?;
        let result = self.lines(&mut stream).await;
        self.has_lasted = started.elapsed() >= self.shared.options.watch_held;
        // Before the result: a connection that breaks within a line is an error too.
        self.check_cut(stream.is_within_line)?;
        let version = result?;
        Ok(StepOutcome::Ended {
            version: version.unwrap_or(from),
            progressed: version.is_some() || self.has_lasted,
        })
    }

    /// Fails if the same line was cut off twice: a list then shows the object that the line is about.
    fn check_cut(&mut self, is_cut: bool) -> Result<(), StepError> {
        let after = is_cut.then(|| self.shared.state.lock().table.version(self.task));
        let before = std::mem::replace(&mut self.cut_after, after);
        if after.is_some() && after == before {
            self.cut_after = None;
            return Err(Malformed::CutOff.into());
        }
        Ok(())
    }

    /// Applies lines until the watch ends; returns the last seen version, none without any line.
    async fn lines(&self, stream: &mut WatchStream) -> Result<Option<ResourceVersion>, StepError> {
        let mut version = None;
        while let Some(line) = stream.next().await? {
            version = Some(self.line(&line)?);
            self.hint();
        }
        Ok(version)
    }

    /// Applies one line; returns the version up to which every event is cached.
    fn line(&self, line: &[u8]) -> Result<ResourceVersion, StepError> {
        let text = std::str::from_utf8(line).map_err(|_| Malformed::NotUtf8)?;
        let line: Line<'_> = serde_json::from_str(text).map_err(Malformed::Parse)?;
        let now = Instant::now();
        match line.kind {
            LineKind::Error => Err(error_line(&line.object).into()),
            LineKind::Bookmark => {
                let version = bookmark_version(&line.object)?;
                let mut state = self.shared.state.lock();
                state.bookmark(self.task, version, now)?;
                self.merge(&mut state);
                Ok(version)
            }
            LineKind::Added | LineKind::Modified | LineKind::Deleted => {
                #[cfg(feature = "failpoints")]
                fail::fail_point!("before-event", |_| std::process::abort());
                let stored = self.keep(&line.object, None)?;
                let version = match &stored {
                    Some(stored) => stored.version,
                    None => ObjectIdentity::new(&line.object)?.version,
                };
                let mut state = self.shared.state.lock();
                let applied = match stored {
                    None => state.bookmark(self.task, version, now),
                    Some(stored) if line.kind == LineKind::Deleted => {
                        state.remove(self.task, &stored, now)
                    }
                    Some(stored) => state.put(self.task, stored, now),
                };
                self.merge(&mut state);
                drop(state);
                #[cfg(feature = "failpoints")]
                fail::fail_point!("after-event", |_| std::process::abort());
                applied?;
                Ok(version)
            }
        }
    }

    /// Lets one task go on for all that watch the kind, if they have shown the same changes.
    fn merge(&self, state: &mut CacheState) {
        if state.table.merge(self.task.0) {
            self.shared.rearrange.notify_one();
        }
    }

    /// Caches an object from an event or a list of this kind; none if it is outside of the section.
    fn keep(
        &self,
        object: &ObjectFields<'_>,
        list: Option<&str>,
    ) -> Result<Option<Stored>, Malformed> {
        let section = &self.spec.target.section;
        let namespace = section.namespace().map(|name| &**name);
        check_requested(object, list, self.kind(), (namespace, None))?;
        // A server that does not select by shard sends the objects of all shards.
        if section.shards().is_some() && !section.covers(&ObjectIdentity::new(object)?.namespace) {
            return Ok(None);
        }
        keep_fields(object, &self.spec.shape).map(Some)
    }

    /// Logs a failure and applies it to the state.
    fn record_failure(&mut self, failure: &WireFailure) -> Result<StepFailure, Stale> {
        let failed = failure.meaning();
        let message = error_chain(failure).to_string();
        let is_expected = matches!(failed, StepFailure::Gone | StepFailure::Behind)
            || failure.is_initializing()
            || self.is_outage(failure);
        if is_expected || self.last_logged.as_ref() == Some(&message) {
            tracing::debug!(kind = %self.kind(), error = %message, "restarting a watch");
        } else {
            tracing::warn!(kind = %self.kind(), error = %message, "failed to watch, trying again");
            self.last_logged = Some(message);
        }
        // The kind may be gone, or no longer served in this version.
        if failure.is_not_found() {
            self.shared.rediscover.notify_one();
        }
        let mut state = self.shared.state.lock();
        state.failed(self.task, failure, Instant::now())?;
        // Children do not wait for parents that cannot be listed.
        self.shared.rearrange.notify_one();
        Ok(failed)
    }

    /// Returns true if the whole API server is unreachable, or if one connection broke for the first time.
    fn is_outage(&mut self, failure: &WireFailure) -> bool {
        if !matches!(failure, WireFailure::Transport(_)) {
            return false;
        }
        // Discovery notices an outage at once, and logs it for all watches.
        self.shared.rediscover.notify_one();
        // One broken connection is normal: proxies and API servers that restart close them.
        let is_first = !std::mem::replace(&mut self.has_broken, true);
        is_first || self.shared.discovery_error.lock().is_some()
    }

    /// Requests discovery, because any changed CustomResourceDefinition may change the served kinds.
    fn hint(&self) {
        if self.kind().group_kind() == crd_kind().group_kind() {
            self.shared.rediscover.notify_one();
        }
    }

    fn kind(&self) -> &Gvk {
        &self.spec.target.served.kind
    }

    fn duration(&mut self) -> Duration {
        let options = &self.shared.options;
        let range = options.watch_max.saturating_sub(options.watch_min);
        options.watch_min + range.mul_f64(self.rng.f64())
    }

    fn pauses(&mut self) -> Backoff {
        pauses(&self.shared.options, self.rng.u64(..))
    }
}

/// Returns the delays between failing requests.
pub(super) fn pauses(options: &super::options::Options, seed: u64) -> Backoff {
    Backoff::with_jitter(options.retry_min, options.retry_max, seed)
}

/// The kind CustomResourceDefinition.
pub(super) fn crd_kind() -> Gvk {
    Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}
