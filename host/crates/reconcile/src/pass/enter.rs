//! Enter: the decision whether the guest is called for a parent.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_cluster::{Observation, Recording, Waiting};
use innkeeper_model::{GroupKind, HashKey, Phase};
use innkeeper_plan::{self as plan, PassEntry};

use super::{
    observe::Observed,
    state::{Pass, Step, Stopped},
};
use crate::{
    pass::selection::{Choice, choose},
    pass::skip::Stop,
};

/// A pass that may call its guest.
pub(crate) struct Entered {
    pub(crate) observation: Observation,
    pub(crate) phase: Phase,
    /// True if nothing can be created in the namespace of the parent, which is being deleted as well.
    pub(crate) namespace_terminating: bool,
    /// The reads of the host itself that led to the decision.
    pub(crate) own_reads: Recording,
    pub(crate) hash_key: HashKey,
    /// The field manager of the children.
    pub(crate) manager: Arc<str>,
    /// The kinds of children that the pass goes on without, with the reasons.
    pub(crate) unreadable: BTreeMap<GroupKind, String>,
}

impl<'a> Pass<'a, Observed> {
    /// Checks if the parent belongs to the plugin and is neither paused nor ignored.
    pub(crate) fn enter(self) -> Step<'a, Pass<'a, Entered>> {
        let (context, serving) = (self.context, &self.epoch.serving);
        let parent = &self.state.observation.parent;
        let entry = plan::enter(parent, &context.plugin, serving.plugin.manifest());
        if !matches!(entry, PassEntry::Pass(_)) {
            context.exempt(&self.epoch, self.id);
        }
        match entry {
            PassEntry::Ignore => return Err(self.stop_observed(Stop::Ignored)),
            // The plugin that set the finalizer removes it, also from a parent that it no longer selects.
            PassEntry::Release => return Err(self.stop_observed(Stop::Released)),
            PassEntry::Paused | PassEntry::Pass(_) => {}
        }
        let host_namespaces = &*context.shared.host_namespaces;
        let (choice, own_reads) = choose(serving, host_namespaces, self.registration, parent);
        match choice {
            Choice::Selected => {}
            Choice::NotSelected(why) => {
                return Err(self.stop_observed(Stop::NotSelected {
                    why,
                    reads: own_reads,
                }));
            }
            Choice::NotSeen => return Err(self.stop_observed(Stop::NamespaceNotSeen)),
            Choice::NotCached(kind) => {
                return Err(self.stop_observed(Stop::NamespacesNotCached(kind)));
            }
        }
        let PassEntry::Pass(phase) = entry else {
            return Err(self.stop_observed(Stop::Paused));
        };
        let unreadable = self.state.observation.unreadable.clone();
        if phase == Phase::Finalize && self.may_have_children_of(&unreadable) {
            // The guest would take them for deleted.
            return Err(self.stop_observed(Stop::NotCached(unreadable)));
        }
        let Some(hash_key) = context.shared.hash_key.get().cloned() else {
            return Err(self.stop_observed(Stop::HashKeyMissing));
        };
        let manager = serving.manager(&context.plugin);
        let namespace_terminating =
            phase == Phase::Finalize && context.ledger.lock().is_namespace_terminating(self.id);
        Ok(self.advance(|observed| Entered {
            observation: observed.observation,
            phase,
            namespace_terminating,
            own_reads,
            hash_key,
            manager,
            unreadable: unreadable
                .into_iter()
                .map(|wait| (wait.kind.group_kind(), wait.why.to_string()))
                .collect(),
        }))
    }

    fn may_have_children_of(&self, unreadable: &[Waiting]) -> bool {
        let recorded = self.context.shared.inventory.of(&self.context.plugin);
        let mut kinds = unreadable.iter().map(|wait| wait.kind.group_kind());
        kinds.any(|kind| {
            recorded
                .iter()
                .any(|recorded| recorded.group_kind() == kind)
        })
    }

    fn stop_observed(self, reason: Stop) -> Box<Pass<'a, Stopped>> {
        self.stop(|observed| Some(observed.observation.parent), reason)
    }
}

impl<'a> Pass<'a, Entered> {
    pub(super) fn stop_entered(self, reason: Stop) -> Box<Pass<'a, Stopped>> {
        self.stop(|entered| Some(entered.observation.parent), reason)
    }
}
