//! Maps a changed object to the parents that it concerns.

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::ObjectId;

use super::{
    CacheState, Reader, Role, SlotId, Subscriber, SubscriberId, WatchSlot, id_of, key_of,
    namespaces::NamespaceScope,
};
use crate::{
    store::Change,
    stored::Stored,
    triggers::{Cause, Trigger},
};

impl CacheState {
    /// Triggers the parents that changes concern; `first` marks those from the first list of a watch.
    pub(super) fn dispatch(&mut self, id: SlotId, changes: &[Change], first: bool) {
        for change in changes {
            let (Some(slot), Some(last)) = (self.slots.get(&id), change.last()) else {
                return;
            };
            let object = id_of(&slot.key.kind.group_kind(), last);
            let concerned = self.concerned(slot, &object, change, first);
            if let (Some(before), None) = (&change.before, &change.after) {
                self.drop_children_of(id, &before.uid);
            }
            for (reader, cause) in concerned {
                if cause == Some(Cause::ParentGone) {
                    self.forget(&reader);
                }
                if let Some(cause) = cause {
                    let trigger = Trigger {
                        object: Some(object.clone()),
                        ..cause.into()
                    };
                    self.trigger(&reader, trigger);
                }
                self.catch_up(&reader, Some(&object));
            }
        }
    }

    /// Returns the parents that a change concerns. Without a cause, the change is not visible to them, but possibly an
    /// own write that was expected.
    fn concerned(
        &self,
        slot: &WatchSlot,
        object: &ObjectId,
        change: &Change,
        first: bool,
    ) -> Vec<(Reader, Option<Cause>)> {
        let mut concerned = Vec::new();
        for (subscriber_id, role) in slot.users() {
            let Some(subscriber) = self.subscribers.get(&subscriber_id) else {
                continue;
            };
            let (parents, cause) = match role {
                Role::Parent => (
                    BTreeSet::from([object.clone()]),
                    parent_cause(change, first),
                ),
                Role::Child => {
                    let cause = if first {
                        Cause::Listed
                    } else {
                        Cause::ChildChanged
                    };
                    let stored = [&change.before, &change.after].into_iter().flatten();
                    let parents = stored.filter_map(|stored| self.parent_of(subscriber, stored));
                    (parents.collect(), change.matters().then_some(cause))
                }
                Role::Read => continue,
            };
            concerned.extend(parents.into_iter().map(|parent| {
                let reader = Reader {
                    subscriber_id,
                    parent,
                };
                (reader, cause)
            }));
        }
        let related = slot.subscriptions.touched(change).into_iter();
        concerned.extend(related.map(|reader| (reader, Some(Cause::RelatedChanged))));
        concerned
    }

    /// The parent of a child, if it is known.
    fn parent_of(&self, subscriber: &Subscriber, child: &Stored) -> Option<ObjectId> {
        let parents = &self.slots.get(&subscriber.held.parent)?.store;
        let kind = subscriber.interest.parent.group_kind();
        let controller = child.controller.as_ref();
        if let Some(parent) = controller.and_then(|uid| parents.by_uid(uid)) {
            return Some(id_of(&kind, parent));
        }
        let identity = ObjectId::parse_identity(child.retained_for.as_deref()?)?;
        let known = identity.kind == kind && parents.get(&key_of(&identity)).is_some();
        known.then_some(identity)
    }

    /// Triggers the parents that depend on a kind when it becomes readable or unreadable.
    ///
    /// With a namespace, only parents in that namespace are concerned.
    pub(super) fn kind_changed(&mut self, id: SlotId, namespace: Option<&Arc<str>>) {
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let readers: Vec<Reader> = if self.why(slot, namespace.map(|name| &**name)).is_none() {
            slot.subscriptions.waiting().cloned().collect()
        } else {
            slot.subscriptions.readers().cloned().collect()
        };
        let users: Vec<(SubscriberId, Role)> = slot.users().collect();
        for (subscriber_id, _) in &users {
            if let Some(subscriber) = self.subscribers.get(subscriber_id) {
                // Wake the consumer even without a trigger: it may be waiting for the first lists of parents that never
                // had a pass.
                subscriber.wake.notify_one();
            }
        }
        for reader in &readers {
            self.trigger(reader, Cause::KindChanged.into());
        }
        let mut scopes = self.namespace_scopes();
        // Cluster-scoped parents may have objects in every namespace.
        scopes.retain(|scope| {
            let both = scope.as_ref().zip(namespace);
            both.is_none_or(|(scope, namespace)| scope == namespace)
        });
        for subscriber_id in self.waiting_users(id) {
            let told = self.recheck(subscriber_id);
            for scope in scopes.iter().filter(|scope| !told.contains(*scope)) {
                let subscriber = self.subscribers.get(&subscriber_id);
                // An optional kind may come or go without a change of readiness, so these parents were not triggered
                // above.
                if subscriber.is_some_and(|subscriber| subscriber.ready.contains(scope)) {
                    self.trigger_scope(subscriber_id, scope);
                }
            }
        }
    }

    /// Recomputes the scopes in which passes can run, triggers the parents of every scope that changed, and returns
    /// those scopes.
    pub(super) fn recheck(&mut self, subscriber_id: SubscriberId) -> BTreeSet<NamespaceScope> {
        let ready = self.ready_scopes(subscriber_id);
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return BTreeSet::new();
        };
        let changed = &ready ^ &subscriber.ready;
        subscriber.ready = ready;
        for scope in &changed {
            self.trigger_scope(subscriber_id, scope);
        }
        changed
    }

    /// Rechecks the registrations whose parents or children a watch shows.
    pub(super) fn recheck_users(&mut self, id: SlotId) {
        for subscriber_id in self.waiting_users(id) {
            self.recheck(subscriber_id);
        }
    }

    /// The registrations whose passes may wait for a watch.
    fn waiting_users(&self, id: SlotId) -> BTreeSet<SubscriberId> {
        let users = self.slots.get(&id).into_iter().flat_map(WatchSlot::users);
        let users = users.filter(|(_, role)| *role != Role::Read);
        users.map(|(subscriber_id, _)| subscriber_id).collect()
    }

    /// Triggers the known parents of a scope.
    fn trigger_scope(&mut self, subscriber_id: SubscriberId, scope: &NamespaceScope) {
        let mut parents = self.parents(subscriber_id);
        if self.namespaces.is_some() {
            parents.retain(|parent| parent.namespace == *scope);
        }
        if let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) {
            for parent in parents {
                subscriber.trigger(parent, Cause::KindChanged.into());
            }
        }
    }

    pub(crate) fn trigger(&mut self, reader: &Reader, trigger: Trigger) {
        if let Some(subscriber) = self.subscribers.get_mut(&reader.subscriber_id) {
            subscriber.trigger(reader.parent.clone(), trigger);
        }
    }

    /// Drops the expectations, waits and subscriptions of a parent.
    fn forget(&mut self, reader: &Reader) {
        let Some(subscriber) = self.subscribers.get_mut(&reader.subscriber_id) else {
            return;
        };
        subscriber.expectations.remove(&reader.parent);
        subscriber.behind.remove(&reader.parent);
        for (_, slot) in &subscriber.held.reads {
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.subscriptions.retain(reader, &BTreeSet::new());
            }
        }
    }
}

fn parent_cause(change: &Change, first: bool) -> Option<Cause> {
    match (&change.before, &change.after) {
        (_, None) => Some(Cause::ParentGone),
        (None, Some(_)) if first => Some(Cause::Listed),
        _ if !change.matters() => None,
        _ if change.is_status_only() => Some(Cause::ParentStatus),
        _ => Some(Cause::ParentChanged),
    }
}
