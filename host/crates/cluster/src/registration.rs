//! One controller's handle: queued parents, observations, reads and own writes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use innkeeper_model::{
    GroupKind, Gvk, Object, ObjectId, ReadKind, ResourceVersion, Uid, error_chain,
};
use parking_lot::MutexGuard;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    interest::{Interest, NamespaceFull, Observation, Observed, Waiting},
    reader::{Reader, SubscriberId},
    reads::{PassReads, Recording},
    section::Section,
    shared::CacheShared,
    state::{CacheState, ExpectationStatus, ExpectedState, MissingTexts},
    store::CacheSize,
    stored::keep,
    triggers::{Cause, Trigger},
};

/// The pause before a parent's remaining children are read: reads may have failed, and other parents wait too.
const UNREAD_PAUSE: Duration = Duration::from_secs(1);

/// One plugin's view of one parent kind; the watches run until the last clone is dropped.
///
/// # Expected flow
///
/// Take triggers, begin a pass for each parent, observe it, answer and commit the reads, and report every write.
///
/// # Guarantees
///
/// A change either is in the observation or triggers another pass. No parent is observed before the cache shows the
/// host's own writes for it.
///
/// ```
/// use innkeeper_cluster::{Cluster, Interest, Observed};
///
/// async fn passes(cluster: &Cluster, interest: Interest) {
///     let registration = cluster.register(interest);
///     loop {
///         for (parent, trigger) in registration.triggers(10).await {
///             let running = registration.begin(&parent);
///             // A parent that is not ready or behind is triggered again when that changes.
///             if let Observed::Ready(observed) = running.observe().await {
///                 println!("{parent}: {} children, {:?}", observed.children.len(), trigger.cause);
///             }
///         }
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Registration(Arc<Handle>);

struct Handle {
    shared: Arc<CacheShared>,
    subscriber_id: SubscriberId,
    wake: Arc<Notify>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared
            .state
            .lock()
            .remove_subscriber(self.subscriber_id, Instant::now());
        self.shared.rearrange.notify_one();
    }
}

/// A running pass of a parent.
pub struct Running {
    registration: Registration,
    reader: Reader,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.registration.state().subscribers.end(&self.reader);
    }
}

impl Running {
    /// Observes the parent as [`Registration::observe`] does, and drops the triggers that the observation covers.
    pub async fn observe(&self) -> Observed {
        let Self {
            registration,
            reader,
        } = self;
        registration
            .observe_and(&reader.parent, |state| {
                state.subscribers.observed(reader);
            })
            .await
    }
}

impl Registration {
    pub(super) fn new(shared: &Arc<CacheShared>, interest: Interest) -> Self {
        let wake = Arc::new(Notify::new());
        let subscriber_id =
            shared
                .state
                .lock()
                .add_subscriber(interest, Arc::clone(&wake), Instant::now());
        shared.rearrange.notify_one();
        Self(Arc::new(Handle {
            shared: Arc::clone(shared),
            subscriber_id,
            wake,
        }))
    }

    /// Changes the interest for the same plugin and parent kind.
    ///
    /// Watches that are still needed continue, and subscriptions stay. Parents are triggered only where a watch
    /// restarts; the caller triggers all others that need a pass.
    pub fn update(&self, interest: Interest) {
        self.state()
            .change_interest(self.0.subscriber_id, interest, Instant::now());
        self.0.shared.rearrange.notify_one();
    }

    /// Queues parents in this order.
    pub fn trigger(&self, parents: impl IntoIterator<Item = ObjectId>, cause: Cause) {
        let mut state = self.state();
        for parent in parents {
            state.subscribers.trigger(&self.reader(&parent), cause);
        }
    }

    /// Begins a pass, which ends when the returned value is dropped.
    ///
    /// Meanwhile the parent's triggers wait: those that the pass observes itself are dropped, and the others are queued
    /// at the end.
    pub fn begin(&self, parent: &ObjectId) -> Running {
        let reader = self.reader(parent);
        self.state().subscribers.begin(&reader);
        Running {
            registration: self.clone(),
            reader,
        }
    }

    /// Waits until at least one parent is queued, and takes up to `max`, most urgent first.
    ///
    /// Returns no parent before the first lists are complete or a few seconds have passed.
    /// Dropping the future loses nothing. For one consumer only: a second one may wait although a parent is queued.
    pub async fn triggers(&self, max: usize) -> Vec<(ObjectId, Trigger)> {
        loop {
            let taken = self
                .state()
                .take_triggers(self.0.subscriber_id, max, Instant::now());
            match taken {
                Ok(taken) if !taken.is_empty() => return taken,
                // A trigger since the lock was released is not lost: `Notify` stores one permit.
                Ok(_) => self.0.wake.notified().await,
                Err(until) => timeout_at(until, self.0.wake.notified())
                    .await
                    .unwrap_or_default(),
            }
        }
    }

    /// Returns the cached observation of a parent. The triggers that a running pass holds stay: only the pass itself
    /// [drops](Running::observe) them.
    ///
    /// Waits only to read objects live: own writes that the cache has not shown in time, and children that are cached
    /// without texts.
    pub async fn observe(&self, parent: &ObjectId) -> Observed {
        self.observe_and(parent, |_| {}).await
    }

    /// Observes a parent, and calls `on_observed` under the same lock: an earlier change is in the observation, a later
    /// one is not.
    async fn observe_and(
        &self,
        parent: &ObjectId,
        on_observed: impl Fn(&mut CacheState) + Send,
    ) -> Observed {
        let reader = self.reader(parent);
        // The lock is not held during the live reads, so all is checked again after them: there may be other writes by
        // then.
        let status = {
            let mut state = self.state();
            if let Some(missing) = self.missing(&state, parent) {
                return missing;
            }
            state.expectation_status(&reader, Instant::now())
        };
        if let ExpectationStatus::Read(ids) = status {
            for id in ids {
                self.read_live(&reader, &id).await;
            }
        }
        let missing = match self.observe_cached(&reader, &on_observed) {
            Ok(observed) => return observed,
            Err(unobserved) => unobserved.1,
        };
        for id in &missing.unread {
            self.read_live(&reader, id).await;
        }
        match self.observe_cached(&reader, &on_observed) {
            Ok(observed) => observed,
            Err(unobserved) => match *unobserved {
                (
                    parent,
                    MissingTexts {
                        unread,
                        full: Some(full),
                    },
                ) if unread.is_empty() => Observed::NamespaceFull { parent, full },
                _ => Observed::Behind {
                    until: Instant::now() + UNREAD_PAUSE,
                },
            },
        }
    }

    /// Observes a parent without live reads; fails if children have no texts.
    fn observe_cached(
        &self,
        reader: &Reader,
        on_observed: impl Fn(&mut CacheState),
    ) -> Result<Observed, Box<(Object, MissingTexts)>> {
        let mut state = self.state();
        if let Some(missing) = self.missing(&state, &reader.parent) {
            return Ok(missing);
        }
        match state.expectation_status(reader, Instant::now()) {
            ExpectationStatus::None => {}
            ExpectationStatus::Until(until) => return Ok(Observed::Behind { until }),
            // Due again: the live reads took longer than the pause after a failed one. Observe again at once.
            ExpectationStatus::Read(_) => {
                let until = Instant::now();
                return Ok(Observed::Behind { until });
            }
        }
        let Some(parent) = state.table.parent(self.0.subscriber_id, &reader.parent) else {
            on_observed(&mut state);
            return Ok(Observed::Gone);
        };
        match state.table.children(self.0.subscriber_id, &parent) {
            Ok(children) => {
                on_observed(&mut state);
                let section = Section::at(parent.namespace.as_ref());
                let unreadable = state.table.unreadable(self.0.subscriber_id, &section);
                Ok(Observed::Ready(Observation {
                    parent,
                    children,
                    unreadable,
                }))
            }
            Err(missing) => Err(Box::new((parent, missing))),
        }
    }

    /// Returns the reads for a parent's next pass, limited to the kinds in `granted`.
    pub fn reads(&self, parent: &Object, granted: &Arc<[ReadKind]>) -> PassReads {
        let reader = self.reader(&parent.id());
        PassReads::new(Arc::clone(&self.0.shared), reader, Arc::clone(granted))
    }

    /// Replaces a parent's subscriptions by a pass's reads. If a kind was not cached, the pass stopped early, so its
    /// reads are only added.
    pub fn commit(&self, parent: &ObjectId, recording: &Recording) {
        if recording.not_cached.is_none() {
            self.state()
                .table
                .commit(&self.reader(parent), &recording.record);
        }
    }

    /// Stores the response to a running pass's write in the cache, ahead of the watch event. The write must have been
    /// bound to the observed state. Returns false if the cache cannot show the object: then call
    /// [`expect_version`](Self::expect_version).
    pub fn apply_write_response(&self, parent: &ObjectId, id: &ObjectId, response: &str) -> bool {
        let reader = self.reader(parent);
        let Some(read) = self.state().table.live_read(&reader, id) else {
            return false;
        };
        // Parsed without the lock.
        let Ok(stored) = keep(response, &read.shape) else {
            return false;
        };
        self.state()
            .apply_write_response(&reader, id, &read, stored)
    }

    /// Expects a confirmed write: the parent is not observed before the cache shows it.
    pub fn expect_version(&self, parent: &ObjectId, id: &ObjectId, version: ResourceVersion) {
        self.expect(parent, id, ExpectedState::Version(version));
    }

    /// Expects a confirmed deletion.
    pub fn expect_deletion(&self, parent: &ObjectId, id: &ObjectId, uid: &Uid) {
        self.expect(parent, id, ExpectedState::Deleted(uid.clone()));
    }

    /// Expects a newer version, because the API server refused a write as stale: the parent is not observed before the
    /// cache shows such a version or the object's end.
    pub fn expect_newer(&self, parent: &ObjectId, id: &ObjectId, version: ResourceVersion) {
        self.expect(parent, id, ExpectedState::After(version));
    }

    /// Expects an unknown write outcome: the object is read live before the next pass.
    pub fn expect_unknown(&self, parent: &ObjectId, id: &ObjectId) {
        self.expect(parent, id, ExpectedState::Unknown);
    }

    /// Returns true if the cache has not yet shown all own writes for a parent. Registers no wait.
    pub fn is_behind(&self, parent: &ObjectId) -> bool {
        let state = self.state();
        state
            .subscribers
            .is_behind(&state.table, &self.reader(parent))
    }

    /// Returns every cached parent in a held shard.
    pub fn parents(&self) -> Vec<ObjectId> {
        self.state().table.parents(self.0.subscriber_id)
    }

    /// Returns a cached parent, for display and not for decisions.
    pub fn parent(&self, id: &ObjectId) -> Option<Object> {
        self.state().table.parent(self.0.subscriber_id, id)
    }

    /// Returns an object's cached metadata, for a cluster-scoped kind that the plugin reads; none if it is unknown.
    ///
    /// Only for display: this does not subscribe a parent.
    pub fn related(&self, kind: &Gvk, name: &str) -> Option<Arc<str>> {
        self.state().table.related(self.0.subscriber_id, kind, name)
    }

    /// Returns how many children of a kind the plugin has in the whole cluster; none if it is unknown,
    /// as it is while other processes hold some of the shards.
    pub fn child_count(&self, kind: &GroupKind) -> Option<usize> {
        self.state().table.child_count(self.0.subscriber_id, kind)
    }

    /// Returns number and size of the plugin's cached children in a namespace, over all counted kinds; cluster-scoped
    /// children have the empty name.
    pub fn child_usage(
        &self,
        namespace: &str,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> CacheSize {
        self.state()
            .table
            .child_usage(self.0.subscriber_id, namespace, is_counted)
    }

    /// Returns number and size of the plugin's cached children by namespace, over all counted kinds.
    pub fn usage_by_namespace(
        &self,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> BTreeMap<Arc<str>, CacheSize> {
        self.state()
            .table
            .usage_by_namespace(self.0.subscriber_id, is_counted)
    }

    /// Returns the highest number of children that one parent retains, with the parent's namespace; cluster-scoped
    /// parents have the empty name.
    pub fn retained_most(&self) -> Option<(Arc<str>, usize)> {
        self.state().table.retained_most(self.0.subscriber_id)
    }

    /// Returns the namespaces in which children are cached without texts, because they exceed the bound.
    pub fn full_namespaces(&self) -> Vec<NamespaceFull> {
        self.state().table.full_namespaces(self.0.subscriber_id)
    }

    /// Returns the kinds that block every pass; empty when passes can run.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.state()
            .table
            .waiting(self.0.subscriber_id, &Section::Whole)
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.0.shared.state.lock()
    }

    fn reader(&self, parent: &ObjectId) -> Reader {
        Reader::new(self.0.subscriber_id, parent.clone())
    }

    fn expect(&self, parent: &ObjectId, id: &ObjectId, expected: ExpectedState) {
        let timeout = match expected {
            // No event can prove an unknown outcome, so the live read is due at once.
            ExpectedState::Unknown => Duration::ZERO,
            _ => self.0.shared.options.own_writes_timeout,
        };
        let due = Instant::now() + timeout;
        self.state()
            .subscribers
            .expect(&self.reader(parent), id, expected, due);
    }

    fn missing(&self, state: &CacheState, parent: &ObjectId) -> Option<Observed> {
        let namespace = parent.namespace.as_deref();
        if !state.table.has_passes(self.0.subscriber_id, namespace) {
            return Some(Observed::NotHeld);
        }
        let section = Section::at(parent.namespace.as_ref());
        let waiting = state.table.waiting(self.0.subscriber_id, &section);
        (!waiting.is_empty()).then(|| Observed::NotReady {
            parent: state.table.parent(self.0.subscriber_id, parent),
            waiting,
        })
    }

    async fn read_live(&self, reader: &Reader, id: &ObjectId) {
        let read = self.state().table.live_read(reader, id);
        let Some(read) = read else {
            // The kind is not readable, so there is nothing to wait for.
            self.state().subscribers.drop_expectation(reader, id);
            return;
        };
        let wire = &self.0.shared.wire;
        let namespace = id.namespace.as_deref();
        let parse = |text: &str| keep(text, &read.shape);
        match wire.object(&read.served, namespace, &id.name, parse).await {
            Ok(object) => self.state().apply_live_read(reader, id, &read, object),
            Err(failure) => {
                let parent = &reader.parent;
                let error = error_chain(&failure);
                tracing::warn!(%parent, object = %id, %error, "failed to read an object live");
                self.state()
                    .subscribers
                    .live_read_failed(reader, id, Instant::now());
            }
        }
    }
}
