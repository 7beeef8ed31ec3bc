//! The handle of one controller: queued parents, observations, reads, and own writes.

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
    shared::CacheShared,
    state::{CacheState, ExpectationStatus, ExpectedState, MissingTexts},
    store::CacheSize,
    stored::keep,
    triggers::{Cause, Trigger},
};

/// The pause before the rest of a parent's children is read. The reads may have failed, and other parents wait too.
const UNREAD_PAUSE: Duration = Duration::from_secs(1);

/// One plugin's view of one kind of parent; its watches run until the last clone is dropped.
///
/// # Expected flow
///
/// Take triggers, begin a pass for each parent, observe the parent, answer the reads of its pass, commit them, and note
/// every write of the pass.
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
    /// Returns the cached observation of the parent for its pass, as [`Registration::observe`] does, and drops the
    /// triggers that the pass has observed with it.
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

    /// Changes the interest, for the same plugin and the same kind of parent.
    ///
    /// Watches that stay wanted continue undisturbed, and the subscriptions of parents stay. Parents are triggered only
    /// where a watch starts over; the caller triggers all others that need a pass.
    pub fn update(&self, interest: Interest) {
        self.state()
            .change_interest(self.0.subscriber_id, interest, Instant::now());
        self.0.shared.rearrange.notify_one();
    }

    /// Queues parents, in this order.
    pub fn trigger(&self, parents: impl IntoIterator<Item = ObjectId>, cause: Cause) {
        let mut state = self.state();
        for parent in parents {
            state
                .subscribers
                .trigger(&self.reader(&parent), cause.into());
        }
    }

    /// Begins a pass of a parent, until the returned value is dropped.
    ///
    /// Meanwhile the triggers of the parent wait: those that the pass observes itself are dropped, and the others are
    /// released at its end.
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
    /// No parent is released before the first lists are complete, or before a few seconds have passed without them.
    /// Dropping the future loses nothing. For one consumer only: a second one may wait although a parent is queued.
    pub async fn triggers(&self, max: usize) -> Vec<(ObjectId, Trigger)> {
        loop {
            let taken = self
                .state()
                .take_triggers(self.0.subscriber_id, max, Instant::now());
            match taken {
                Ok(taken) if !taken.is_empty() => return taken,
                Ok(_) => self.0.wake.notified().await,
                Err(until) => timeout_at(until, self.0.wake.notified())
                    .await
                    .unwrap_or_default(),
            }
        }
    }

    /// Returns the cached observation of a parent. The triggers that its running pass holds stay: only the pass itself
    /// [knows](Running::observe) what it has observed.
    ///
    /// Waits only when own writes stayed unseen for too long, or when children are cached without their texts: then it
    /// reads these objects live.
    pub async fn observe(&self, parent: &ObjectId) -> Observed {
        self.observe_and(parent, |_| {}).await
    }

    /// Observes a parent, and `note`s it under the same lock: a change before is in the observation, one after is not.
    async fn observe_and(
        &self,
        parent: &ObjectId,
        note: impl Fn(&mut CacheState) + Send,
    ) -> Observed {
        if let Some(missing) = self.missing(parent) {
            return missing;
        }
        let reader = self.reader(parent);
        // The lock is not held during the live reads. So the status is asked again after them: other writes may be unseen
        // by then.
        let unseen = self.state().expectation_status(&reader, Instant::now());
        if let ExpectationStatus::Read(ids) = unseen {
            for id in ids {
                self.read_live(&reader, &id).await;
            }
        }
        let missing = match self.observe_cached(&reader, &note) {
            Ok(observed) => return observed,
            Err(unobserved) => unobserved.1,
        };
        for id in &missing.unread {
            self.read_live(&reader, id).await;
        }
        match self.observe_cached(&reader, &note) {
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

    /// Observes a parent without live reads; fails if the texts of children are missing.
    fn observe_cached(
        &self,
        reader: &Reader,
        note: impl Fn(&mut CacheState),
    ) -> Result<Observed, Box<(Object, MissingTexts)>> {
        let mut state = self.state();
        match state.expectation_status(reader, Instant::now()) {
            ExpectationStatus::None => {}
            ExpectationStatus::Until(until) => return Ok(Observed::Behind { until }),
            // Due again: the live reads took longer than the pause after a failed one. Ask again at once.
            ExpectationStatus::Read(_) => {
                let until = Instant::now();
                return Ok(Observed::Behind { until });
            }
        }
        let Some(parent) = state.table.parent(self.0.subscriber_id, &reader.parent) else {
            note(&mut state);
            return Ok(Observed::Gone);
        };
        match state.table.children(self.0.subscriber_id, &parent) {
            Ok(children) => {
                note(&mut state);
                let namespace = parent.namespace.as_deref();
                let unreadable = state.table.unreadable(self.0.subscriber_id, namespace);
                Ok(Observed::Ready(Observation {
                    parent,
                    children,
                    unreadable,
                }))
            }
            Err(missing) => Err(Box::new((parent, missing))),
        }
    }

    /// Returns the reads of the next pass of a parent, limited to the kinds in `granted`.
    pub fn reads(&self, parent: &Object, granted: &Arc<[ReadKind]>) -> PassReads {
        let reader = self.reader(&parent.id());
        PassReads::new(Arc::clone(&self.0.shared), reader, Arc::clone(granted))
    }

    /// Replaces the subscriptions of a parent by the reads of its pass. A parked pass stopped early, so its reads are
    /// only added.
    pub fn commit(&self, parent: &ObjectId, recording: &Recording) {
        if recording.not_cached.is_none() {
            self.state()
                .table
                .commit(&self.reader(parent), &recording.record);
        }
    }

    /// Takes the answer to a write of a running pass into the cache, ahead of its watch event; the write must have been bound
    /// to the state that the pass observed. Returns false if the cache cannot show the object, so that the write has to be
    /// noted instead.
    pub fn apply_write_response(&self, parent: &ObjectId, id: &ObjectId, written: &str) -> bool {
        let reader = self.reader(parent);
        let Some(read) = self.state().table.live_read(&reader, id) else {
            return false;
        };
        // Parsed without the lock.
        let Ok(stored) = keep(written, &read.shape) else {
            return false;
        };
        self.state()
            .apply_write_response(&reader, id, &read, stored)
    }

    /// Records a write that the API server has confirmed: the parent is not observed before the cache shows it.
    pub fn expect_version(&self, parent: &ObjectId, id: &ObjectId, version: ResourceVersion) {
        self.expect(parent, id, ExpectedState::Version(version));
    }

    /// Records a deletion that the API server has confirmed.
    pub fn expect_deletion(&self, parent: &ObjectId, id: &ObjectId, uid: &Uid) {
        self.expect(parent, id, ExpectedState::Deleted(uid.clone()));
    }

    /// Records a write that the API server refused because the object is newer than the observed version: the parent is
    /// not observed before the cache shows a newer version or the end of the object.
    pub fn expect_newer(&self, parent: &ObjectId, id: &ObjectId, version: ResourceVersion) {
        self.expect(parent, id, ExpectedState::After(version));
    }

    /// Records a write with an unknown outcome: the object is read live before the next pass.
    pub fn expect_unknown(&self, parent: &ObjectId, id: &ObjectId) {
        self.expect(parent, id, ExpectedState::Unknown);
    }

    /// Returns true if the cache has not yet shown all own writes for a parent. Asking changes nothing.
    pub fn is_behind(&self, parent: &ObjectId) -> bool {
        let state = self.state();
        state
            .subscribers
            .is_behind(&state.table, &self.reader(parent))
    }

    /// Returns every known parent.
    pub fn parents(&self) -> Vec<ObjectId> {
        self.state().table.parents(self.0.subscriber_id)
    }

    /// Returns the last seen state of a parent, for display and not for decisions.
    pub fn parent(&self, id: &ObjectId) -> Option<Object> {
        self.state().table.parent(self.0.subscriber_id, id)
    }

    /// Returns the last seen metadata of an object of a cluster-scoped kind that the plugin reads; none if it is
    /// unknown.
    ///
    /// Only for display: it makes no subscription.
    pub fn related(&self, kind: &Gvk, name: &str) -> Option<Arc<str>> {
        self.state().table.related(self.0.subscriber_id, kind, name)
    }

    /// Returns the number of children of a kind that the plugin has in the whole cluster; none if it is unknown.
    pub fn child_count(&self, kind: &GroupKind) -> Option<usize> {
        self.state().table.child_count(self.0.subscriber_id, kind)
    }

    /// Returns the number and the size of the plugin's children of these kinds in a namespace, as the cache shows them; the
    /// empty name is that of cluster-scoped children.
    pub fn child_usage(
        &self,
        namespace: &str,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> CacheSize {
        self.state()
            .table
            .child_usage(self.0.subscriber_id, namespace, is_counted)
    }

    /// Returns the number and the size of the plugin's children of these kinds by namespace.
    pub fn usage_by_namespace(
        &self,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> BTreeMap<Arc<str>, CacheSize> {
        self.state()
            .table
            .usage_by_namespace(self.0.subscriber_id, is_counted)
    }

    /// Returns the number of children that the parent with the most of them retains, with the namespace of the parent; the
    /// empty name is that of cluster-scoped parents.
    pub fn retained_most(&self) -> Option<(Arc<str>, usize)> {
        self.state().table.retained_most(self.0.subscriber_id)
    }

    /// Returns the namespaces in which children of the plugin are cached without their texts, because they exceed the
    /// bound.
    pub fn full_namespaces(&self) -> Vec<NamespaceFull> {
        self.state().table.full_namespaces(self.0.subscriber_id)
    }

    /// Returns the kinds that block every pass; empty when passes can run.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.state().table.waiting(self.0.subscriber_id, None)
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.0.shared.state.lock()
    }

    fn reader(&self, parent: &ObjectId) -> Reader {
        Reader {
            subscriber_id: self.0.subscriber_id,
            parent: parent.clone(),
        }
    }

    fn expect(&self, parent: &ObjectId, id: &ObjectId, expected: ExpectedState) {
        let patience = match expected {
            ExpectedState::Unknown => Duration::ZERO,
            _ => self.0.shared.options.own_writes_timeout,
        };
        let due = Instant::now() + patience;
        self.state()
            .subscribers
            .expect(&self.reader(parent), id, expected, due);
    }

    fn missing(&self, parent: &ObjectId) -> Option<Observed> {
        let state = self.state();
        let namespace = parent.namespace.as_deref();
        let waiting = state.table.waiting(self.0.subscriber_id, namespace);
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
        let (wire, namespace) = (&self.0.shared.wire, id.namespace.as_deref());
        let parse = |text: &str| keep(text, &read.shape);
        let found = wire.object(&read.served, namespace, &id.name, parse).await;
        match found {
            Ok(found) => self.state().apply_live_read(reader, id, &read, found),
            Err(failure) => {
                let (parent, error) = (&reader.parent, error_chain(&failure));
                tracing::warn!(%parent, object = %id, %error, "failed to read an object live");
                self.state()
                    .subscribers
                    .live_read_failed(reader, id, Instant::now());
            }
        }
    }
}
