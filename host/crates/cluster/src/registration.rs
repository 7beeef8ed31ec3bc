//! The handle of one controller: what is due, what is observed, what was read and written.

use std::sync::Arc;

use innkeeper_model::{GroupKind, Gvk, Object, ObjectId, ReadKind, ResourceVersion, Uid};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    error::chain,
    interest::{Interest, Observation, Observed, Waiting},
    reads::{PassReads, Recording},
    shared::Shared,
    state::{Expected, Member, Reader, Unseen},
    stored::keep,
    triggers::{Cause, Trigger},
    wire::Failure,
};

/// One plugin's view of one kind of parent; the watches that it needs run until the last clone is dropped.
#[derive(Clone)]
pub struct Registration(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    member: Member,
    wake: Arc<Notify>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.state.lock().leave(self.member, Instant::now());
        self.shared.rearrange.notify_one();
    }
}

impl Registration {
    pub(super) fn new(shared: &Arc<Shared>, interest: Interest) -> Self {
        let wake = Arc::new(Notify::new());
        let member = shared
            .state
            .lock()
            .enrol(interest, Arc::clone(&wake), Instant::now());
        shared.rearrange.notify_one();
        Self(Arc::new(Handle {
            shared: Arc::clone(shared),
            member,
            wake,
        }))
    }

    /// Changes what is wanted, for the same plugin and the same kind of parent.
    ///
    /// What stays wanted goes on undisturbed, and what parents read stays subscribed to.
    /// Parents are triggered only where a watch begins anew; who else needs a pass, the caller has to say.
    pub fn update(&self, interest: Interest) {
        let mut state = self.0.shared.state.lock();
        state.change(self.0.member, interest, Instant::now());
        drop(state);
        self.0.shared.rearrange.notify_one();
    }

    /// Makes parents due, in this order.
    pub fn trigger(&self, parents: impl IntoIterator<Item = ObjectId>, cause: Cause) {
        let mut state = self.0.shared.state.lock();
        for parent in parents {
            let object = None;
            state.trigger(self.0.member, parent, Trigger { cause, object });
        }
    }

    /// Waits until at least one parent is due, and takes up to `max`, most urgent first.
    ///
    /// Nobody is due before the first lists are there, or for some seconds if they do not come.
    /// Dropping the future loses nothing. For one consumer only: a second one may wait although something is due.
    pub async fn triggers(&self, max: usize) -> Vec<(ObjectId, Trigger)> {
        loop {
            let taken = {
                let mut state = self.0.shared.state.lock();
                state.take(self.0.member, max, Instant::now())
            };
            match taken {
                Ok(taken) if !taken.is_empty() => return taken,
                Ok(_) => self.0.wake.notified().await,
                Err(until) => timeout_at(until, self.0.wake.notified())
                    .await
                    .unwrap_or_default(),
            }
        }
    }

    /// Everything observed of a parent, from memory.
    ///
    /// Waits only when own writes stayed unseen for too long: then the written objects are read live.
    pub async fn observe(&self, parent: &ObjectId) -> Observed {
        if let Some(missing) = self.missing(parent) {
            return missing;
        }
        let unseen = {
            let mut state = self.0.shared.state.lock();
            state.unseen(self.0.member, parent, Instant::now())
        };
        if let Unseen::Read(ids) = unseen {
            for id in ids {
                self.read_live(parent, &id).await;
            }
        }
        let mut state = self.0.shared.state.lock();
        match state.unseen(self.0.member, parent, Instant::now()) {
            Unseen::None => {}
            Unseen::Until(until) => return Observed::Behind { until },
            // Some could not be read; their time is put off from when they were tried.
            Unseen::Read(_) => {
                let until = Instant::now();
                return Observed::Behind { until };
            }
        }
        let Some(parent) = state.parent(self.0.member, parent) else {
            return Observed::Gone;
        };
        let children = state.children(self.0.member, &parent);
        let namespace = parent.namespace.as_deref();
        let unavailable = state.unavailable(self.0.member, namespace);
        Observed::Ready(Observation {
            parent,
            children,
            unavailable,
        })
    }

    /// The reads of the pass that is about to run for a parent, answered as far as they are among `granted`.
    pub fn reads(&self, parent: &Object, granted: &Arc<[ReadKind]>) -> PassReads {
        let reader = self.reader(&parent.id());
        PassReads::new(Arc::clone(&self.0.shared), reader, Arc::clone(granted))
    }

    /// Makes what a pass read the subscriptions of its parent; after a parked pass it only adds.
    pub fn commit(&self, parent: &ObjectId, recording: &Recording) {
        if recording.parked.is_none() {
            let mut state = self.0.shared.state.lock();
            state.commit(&self.reader(parent), &recording.made);
        }
    }

    /// Remembers a write that the API server has confirmed: the parent is not observed before the cache shows it.
    pub fn note_write(&self, parent: &ObjectId, id: &ObjectId, version: ResourceVersion) {
        let due = Instant::now() + self.0.shared.options.own_writes_timeout;
        self.expect(parent, id, Expected::Version(version), due);
    }

    /// Remembers a deletion that the API server has confirmed.
    pub fn note_delete(&self, parent: &ObjectId, id: &ObjectId, uid: &Uid) {
        let due = Instant::now() + self.0.shared.options.own_writes_timeout;
        self.expect(parent, id, Expected::Deleted(uid.clone()), due);
    }

    /// Remembers that the API server refused a write because the object is not any more what was observed, in this
    /// version: the parent is not observed before the cache shows what came after it.
    pub fn note_stale(&self, parent: &ObjectId, id: &ObjectId, version: ResourceVersion) {
        let due = Instant::now() + self.0.shared.options.own_writes_timeout;
        self.expect(parent, id, Expected::After(version), due);
    }

    /// Remembers a write of which nobody knows whether it was done: the object is read live before the next pass.
    pub fn note_unknown(&self, parent: &ObjectId, id: &ObjectId) {
        self.expect(parent, id, Expected::Unknown, Instant::now());
    }

    /// Whether the cache has not yet shown all own writes for a parent; asking changes nothing.
    pub fn is_behind(&self, parent: &ObjectId) -> bool {
        let state = self.0.shared.state.lock();
        state.is_behind(self.0.member, parent)
    }

    /// Every known parent.
    pub fn parents(&self) -> Vec<ObjectId> {
        self.0.shared.state.lock().parents(self.0.member)
    }

    /// A known parent as it was last seen; to look at, not to act on.
    pub fn parent(&self, id: &ObjectId) -> Option<Object> {
        self.0.shared.state.lock().parent(self.0.member, id)
    }

    /// The metadata of an object of a cluster-scoped kind that is read, as it was last seen; none if that is not known.
    ///
    /// To look at: nobody is subscribed to it.
    pub fn related(&self, kind: &Gvk, name: &str) -> Option<Arc<str>> {
        let state = self.0.shared.state.lock();
        state.related(self.0.member, kind, name)
    }

    /// How many children of a kind the plugin has in the whole cluster; none if that is not known.
    pub fn child_count(&self, kind: &GroupKind) -> Option<usize> {
        self.0.shared.state.lock().child_count(self.0.member, kind)
    }

    /// What every pass needs and does not have; nothing when passes can run.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.0.shared.state.lock().waiting(self.0.member, None)
    }

    fn reader(&self, parent: &ObjectId) -> Reader {
        Reader {
            member: self.0.member,
            parent: parent.clone(),
        }
    }

    fn expect(&self, parent: &ObjectId, id: &ObjectId, expected: Expected, due: Instant) {
        let mut state = self.0.shared.state.lock();
        state.expect(self.0.member, parent, id, expected, due);
    }

    fn missing(&self, parent: &ObjectId) -> Option<Observed> {
        let state = self.0.shared.state.lock();
        let namespace = parent.namespace.as_deref();
        let waiting = state.waiting(self.0.member, namespace);
        (!waiting.is_empty()).then(|| Observed::NotReady {
            parent: state.parent(self.0.member, parent),
            waiting,
        })
    }

    async fn read_live(&self, parent: &ObjectId, id: &ObjectId) {
        let Handle { shared, member, .. } = &*self.0;
        let Some(read) = shared.state.lock().live_read(*member, parent, id) else {
            return;
        };
        let found = shared
            .wire
            .object(&read.served, id.namespace.as_deref(), &id.name)
            .await;
        let found = found.and_then(|text| {
            let kept = text.map(|text| keep(&text, &read.shape)).transpose();
            kept.map_err(Failure::Malformed)
        });
        let mut state = shared.state.lock();
        match found {
            Ok(found) => state.live(*member, parent, id, &read, found),
            Err(failure) => {
                let error = chain(&failure);
                tracing::warn!(%parent, object = %id, %error, "failed to read a written object live");
                state.live_failed(*member, parent, id, Instant::now());
            }
        }
    }
}
