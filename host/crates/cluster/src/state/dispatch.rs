//! Maps a changed object to the parents that it concerns.

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::ObjectId;

use super::{Enrolled, Member, Reader, Role, SlotId, State, id_of, key_of, lanes::District};
use crate::{
    store::Change,
    stored::Stored,
    triggers::{Cause, Trigger},
};

/// One parent that a change concerns.
struct Hit {
    member: Member,
    parent: ObjectId,
    /// None: no visible change, but possibly an own write that was expected.
    cause: Option<Cause>,
    object: ObjectId,
}

impl State {
    /// Triggers the parents that the changes of one watch concern; `first` marks changes from its first list.
    pub(super) fn dispatch(&mut self, id: SlotId, changes: &[Change], first: bool) {
        let hits: Vec<Hit> = changes
            .iter()
            .flat_map(|change| self.hits(id, change, first))
            .collect();
        for hit in hits {
            if hit.cause == Some(Cause::ParentGone) {
                self.forget(hit.member, &hit.parent);
            }
            let trigger = |cause| Trigger {
                cause,
                object: Some(hit.object.clone()),
            };
            if let Some(cause) = hit.cause {
                self.trigger(hit.member, hit.parent.clone(), trigger(cause));
            }
            if self.caught_up(hit.member, &hit.parent) {
                self.trigger(hit.member, hit.parent, trigger(Cause::CaughtUp));
            }
        }
    }

    fn hits(&self, id: SlotId, change: &Change, first: bool) -> Vec<Hit> {
        let (Some(slot), Some(last)) = (self.slots.get(&id), change.last()) else {
            return Vec::new();
        };
        let object = id_of(&slot.key.kind.group_kind(), last);
        let mut hits = Vec::new();
        for (member, role) in slot.users() {
            let Some(enrolled) = self.members.get(&member) else {
                continue;
            };
            let mut hit = |parent: ObjectId, cause: Option<Cause>| {
                hits.push(Hit {
                    member,
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
                        .filter_map(|stored| self.parent_of(enrolled, stored))
                        .collect();
                    for parent in parents {
                        hit(parent, cause);
                    }
                }
                Role::Read => {}
            }
        }
        let related = slot.subscriptions.touched(change).into_iter();
        hits.extend(related.map(|Reader { member, parent }| Hit {
            member,
            parent,
            cause: Some(Cause::RelatedChanged),
            object: object.clone(),
        }));
        hits
    }

    /// The parent of a child, if it is known.
    fn parent_of(&self, enrolled: &Enrolled, child: &Stored) -> Option<ObjectId> {
        let parents = &self.slots.get(&enrolled.held.parent)?.store;
        let kind = enrolled.interest.parent.group_kind();
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
        for (member, _) in slot.users() {
            if let Some(enrolled) = self.members.get(&member) {
                // Wake the consumer even without a trigger: it may be waiting for the first lists of parents that never
                // had a pass.
                enrolled.wake.notify_one();
            }
        }
        let users = slot.users().filter(|(_, role)| *role != Role::Read);
        let members: BTreeSet<Member> = users.map(|(member, _)| member).collect();
        for Reader { member, parent } in readers {
            let trigger = Trigger {
                cause: Cause::KindChanged,
                object: None,
            };
            self.trigger(member, parent, trigger);
        }
        let mut districts = self.districts();
        // Cluster-scoped parents may have objects in every namespace.
        districts.retain(|district| {
            let both = district.as_ref().zip(namespace);
            both.is_none_or(|(district, namespace)| district == namespace)
        });
        for member in members {
            let told = self.recheck(member);
            for district in &districts {
                // An optional kind may come or go without a change of readiness, so these parents were not triggered
                // above.
                if !told.contains(district) && self.is_ready(member, district) {
                    self.trigger_district(member, district, Cause::KindChanged);
                }
            }
        }
    }

    /// Recomputes the scopes in which passes can run, triggers the parents of every scope that changed, and returns
    /// those scopes.
    pub(super) fn recheck(&mut self, member: Member) -> BTreeSet<District> {
        let ready = self.ready_districts(member);
        let Some(enrolled) = self.members.get_mut(&member) else {
            return BTreeSet::new();
        };
        let new: BTreeSet<District> = ready
            .symmetric_difference(&enrolled.ready)
            .cloned()
            .collect();
        enrolled.ready = ready;
        for district in &new {
            self.trigger_district(member, district, Cause::KindChanged);
        }
        new
    }

    /// Triggers every known parent of a registration.
    pub(super) fn trigger_all(&mut self, member: Member, cause: Cause) {
        for parent in self.parents(member) {
            let object = None;
            self.trigger(member, parent, Trigger { cause, object });
        }
    }

    pub(crate) fn trigger(&mut self, member: Member, parent: ObjectId, trigger: Trigger) {
        if let Some(enrolled) = self.members.get_mut(&member) {
            enrolled.triggers.add(parent, trigger);
            enrolled.wake.notify_one();
        }
    }

    fn is_ready(&self, member: Member, district: &District) -> bool {
        let enrolled = self.members.get(&member);
        enrolled.is_some_and(|enrolled| enrolled.ready.contains(district))
    }

    /// Drops the expectations, waits and subscriptions of a parent.
    fn forget(&mut self, member: Member, parent: &ObjectId) {
        let Some(enrolled) = self.members.get_mut(&member) else {
            return;
        };
        enrolled.expectations.remove(parent);
        enrolled.behind.remove(parent);
        let reader = Reader {
            member,
            parent: parent.clone(),
        };
        for (_, slot) in &enrolled.held.reads {
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
