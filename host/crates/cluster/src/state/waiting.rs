//! Kinds that passes wait for, and those that passes go on without.

use std::time::Duration;

use innkeeper_model::Gvk;

use super::{CacheState, SlotId, Subscriber, SubscriberId, WatchSlot};
use crate::interest::{ChildInterest, Waiting, Why};

/// The time after the first failure for which passes wait for an optional kind of which the plugin may have children: an API
/// server that starts refuses lists for some seconds.
pub(super) const OPTIONAL_KIND_WAIT: Duration = Duration::from_secs(5);

/// Returns true if passes go on without a kind that cannot be read: it is optional, and waiting does not help, or has not
/// helped so far.
pub(super) fn is_left_out(
    child: &ChildInterest,
    slot: &WatchSlot,
    why: &Why,
    namespace: Option<&str>,
) -> bool {
    let has_waited = || {
        slot.failing_since(namespace)
            .is_some_and(|since| !child.recorded || since.elapsed() >= OPTIONAL_KIND_WAIT)
    };
    !child.required && (why.is_lasting() || matches!(why, Why::Failing { .. }) && has_waited())
}

impl CacheState {
    /// Returns the kinds that block every pass; with a namespace: the passes of parents in it.
    ///
    /// An optional kind that the cluster does not serve, or that the host cannot read, is left out.
    pub(crate) fn waiting(
        &self,
        subscriber_id: SubscriberId,
        namespace: Option<&str>,
    ) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        let Some(Subscriber { interest, held, .. }) = self.subscribers.get(&subscriber_id) else {
            return waiting;
        };
        let children = held
            .children
            .iter()
            .map(|(child, slot)| (slot, &child.kind, Some(child)));
        let all = [(&held.parent, &interest.parent, None)];
        for (slot, kind, child) in all.into_iter().chain(children) {
            let Some((slot, wait)) = self.wait_for(*slot, kind, namespace) else {
                continue;
            };
            if !child.is_some_and(|child| is_left_out(child, slot, &wait.why, namespace)) {
                waiting.push(wait);
            }
        }
        waiting
    }

    /// Returns the served kinds of children that passes go on without.
    pub(crate) fn unreadable(
        &self,
        subscriber_id: SubscriberId,
        namespace: Option<&str>,
    ) -> Vec<Waiting> {
        let subscriber = self.subscribers.get(&subscriber_id);
        let children = subscriber.map(|subscriber| subscriber.held.children.iter());
        children
            .into_iter()
            .flatten()
            .filter_map(|(child, slot)| {
                let (slot, wait) = self.wait_for(*slot, &child.kind, namespace)?;
                let is_unreadable =
                    wait.why != Why::NotServed && is_left_out(child, slot, &wait.why, namespace);
                is_unreadable.then_some(wait)
            })
            .collect()
    }

    /// Returns a watch and the reason that it cannot be used; none if it can.
    fn wait_for(
        &self,
        slot: SlotId,
        kind: &Gvk,
        namespace: Option<&str>,
    ) -> Option<(&WatchSlot, Waiting)> {
        let slot = self.slots.get(&slot)?;
        let wait = Waiting {
            kind: kind.clone(),
            why: self.why(slot, namespace)?,
            since: slot.since(namespace)?,
        };
        Some((slot, wait))
    }
}
