//! Maps a changed object to the parents that it concerns.

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::ObjectId;

use super::{
    CacheState, Reader, Role, SlotId, Subscriber, SubscriberId, id_of, key_of,
    namespaces::NamespaceScope,
};
use crate::{
    store::Change,
    stored::Stored,
    triggers::{Cause, Trigger},
};

/// One parent that a change concerns.
struct Hit {
    subscriber_id: SubscriberId,
    parent: ObjectId,
    /// None: no visible change, but possibly an own write that was expected.
    cause: Option<Cause>,
    object: ObjectId,
}

impl CacheState {
    /// Triggers the parents that the changes of one watch concern; `first` marks changes from its first list.
    pub(super) fn dispatch(&mut self, id: SlotId, changes: &[Change], first: bool) {
        let hits: Vec<Hit> = changes
            .iter()
            .flat_map(|change| self.hits(id, change, first))
            .collect();
        for hit in hits {
            if hit.cause == Some(Cause::ParentGone) {
                self.forget(hit.subscriber_id, &hit.parent);
            }
            let trigger = |cause| Trigger {
                cause,
                object: Some(hit.object.clone()),
            };
            if let Some(cause) = hit.cause {
                self.trigger(hit.subscriber_id, hit.parent.clone(), trigger(cause));
            }
            if self.caught_up(hit.subscriber_id, &hit.parent) {
                self.trigger(hit.subscriber_id, hit.parent, trigger(Cause::CaughtUp));
            }
        }
    }

    fn hits(&self, id: SlotId, change: &Change, first: bool) -> Vec<Hit> {
        let (Some(slot), Some(last)) = (self.slots.get(&id), change.last()) else {
            return Vec::new();
        };
        let object = id_of(&slot.key.kind.group_kind(), last);
        let mut hits = Vec::new();
        for (subscriber_id, role) in slot.users() {
            let Some(subscriber) = self.subscribers.get(&subscriber_id) else {
                continue;
            };
            let mut hit = |parent: ObjectId, cause: Option<Cause>| {
                hits.push(Hit {
                    subscriber_id,
                    parent,
                    cause,
                    object: object.clone(),
                });
            };
            match role {
                Role::Parent => hit(object.clone(), parent_cause(change, first)),
                Role::Child => {
                    let cause = if first {
                        Cause::Listed
                    } else {
                        Cause::ChildChanged
                    };
                    let cause = change.matters().then_some(cause);
                    let stored = [&change.before, &change.after].into_iter().flatten();
                    let parents: BTreeSet<ObjectId> = stored
                        .filter_map(|stored| self.parent_of(subscriber, stored))
                        .collect();
                    for parent in parents {
                        hit(parent, cause);
                    }
                }
                Role::Read => {}
            }
        }
        let related = slot.subscriptions.touched(change).into_iter();
        hits.extend(related.map(
            |Reader {
                 subscriber_id,
                 parent,
             }| Hit {
                subscriber_id,
                parent,
                cause: Some(Cause::RelatedChanged),
                object: object.clone(),
            },
        ));
        hits
    }

    /// The parent of a child, if it is known.
    fn parent_of(&self, subscriber: &Subscriber, child: &Stored) -> Option<ObjectId> {
        let parents = &self.slots.get(&subscriber.held.parent)?.store;
        let kind = subscriber.interest.parent.group_kind();
        if let Some(uid) = &child.controller {
            return parents.by_uid(uid).map(|parent| id_of(&kind, parent));
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
        let usable = self.why(slot, namespace.map(|name| &**name)).is_none();
        let readers: Vec<Reader> = if usable {
            slot.subscriptions.waiting().cloned().collect()
        } else {
            slot.subscriptions.readers().cloned().collect()
        };
        for (subscriber_id, _) in slot.users() {
            if let Some(subscriber) = self.subscribers.get(&subscriber_id) {
                // Wake the consumer even without a trigger: it may be waiting for the first lists of parents that never
                // had a pass.
                subscriber.wake.notify_one();
            }
        }
        let users = slot.users().filter(|(_, role)| *role != Role::Read);
        let subscribers: BTreeSet<SubscriberId> =
            users.map(|(subscriber_id, _)| subscriber_id).collect();
        for Reader {
            subscriber_id,
            parent,
        } in readers
        {
            let trigger = Trigger {
                cause: Cause::KindChanged,
                object: None,
            };
            self.trigger(subscriber_id, parent, trigger);
        }
        let mut namespace_scopes = self.namespace_scopes();
        // Cluster-scoped parents may have objects in every namespace.
        namespace_scopes.retain(|namespace_scope| {
            let both = namespace_scope.as_ref().zip(namespace);
            both.is_none_or(|(namespace_scope, namespace)| namespace_scope == namespace)
        });
        for subscriber_id in subscribers {
            let told = self.recheck(subscriber_id);
            for namespace_scope in &namespace_scopes {
                // An optional kind may come or go without a change of readiness, so these parents were not triggered
                // above.
                if !told.contains(namespace_scope) && self.is_ready(subscriber_id, namespace_scope)
                {
                    self.trigger_namespace_scope(
                        subscriber_id,
                        namespace_scope,
                        Cause::KindChanged,
                    );
                }
            }
        }
    }

    /// Recomputes the scopes in which passes can run, triggers the parents of every scope that changed, and returns
    /// those scopes.
    pub(super) fn recheck(&mut self, subscriber_id: SubscriberId) -> BTreeSet<NamespaceScope> {
        let ready = self.ready_namespace_scopes(subscriber_id);
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return BTreeSet::new();
        };
        let new: BTreeSet<NamespaceScope> = ready
            .symmetric_difference(&subscriber.ready)
            .cloned()
            .collect();
        subscriber.ready = ready;
        for namespace_scope in &new {
            self.trigger_namespace_scope(subscriber_id, namespace_scope, Cause::KindChanged);
        }
        new
    }

    /// Triggers every known parent of a registration.
    pub(super) fn trigger_all(&mut self, subscriber_id: SubscriberId, cause: Cause) {
        for parent in self.parents(subscriber_id) {
            let object = None;
            self.trigger(subscriber_id, parent, Trigger { cause, object });
        }
    }

    pub(crate) fn trigger(
        &mut self,
        subscriber_id: SubscriberId,
        parent: ObjectId,
        trigger: Trigger,
    ) {
        if let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) {
            subscriber.triggers.add(parent, trigger);
            subscriber.wake.notify_one();
        }
    }

    fn is_ready(&self, subscriber_id: SubscriberId, namespace_scope: &NamespaceScope) -> bool {
        let subscriber = self.subscribers.get(&subscriber_id);
        subscriber.is_some_and(|subscriber| subscriber.ready.contains(namespace_scope))
    }

    /// Drops the expectations, waits and subscriptions of a parent.
    fn forget(&mut self, subscriber_id: SubscriberId, parent: &ObjectId) {
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return;
        };
        subscriber.expectations.remove(parent);
        subscriber.behind.remove(parent);
        let reader = Reader {
            subscriber_id,
            parent: parent.clone(),
        };
        for (_, slot) in &subscriber.held.reads {
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.subscriptions.retain(&reader, &BTreeSet::new());
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
