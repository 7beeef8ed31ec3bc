//! Enter: decides whether to call the guest for a parent.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_cluster::{Observation, Recording, Waiting};
use innkeeper_model::{GroupKind, HashKey, Phase};
use innkeeper_plan::{self as plan, PassEntry};

use super::{
    context::{Pass, Step},
    rollout,
    selection::{Choice, choose},
    skip::Skip,
};
use crate::inventory::Role;

/// The facts that the later steps need beside the observation.
pub(crate) struct Entered {
    pub(crate) phase: Phase,
    /// True if the parent's namespace is being deleted too, so that nothing can be created in it.
    pub(crate) namespace_terminating: bool,
    /// The host's own reads that led to the decision.
    pub(crate) own_reads: Recording,
    pub(crate) hash_key: HashKey,
    /// The children's field manager.
    pub(crate) manager: Arc<str>,
    /// The child kinds that this pass cannot read, with the reasons.
    pub(crate) unreadable: BTreeMap<GroupKind, String>,
}

/// Checks that the plugin selects the parent, and that the parent is neither paused nor ignored.
pub(crate) fn enter(pass: &Pass<'_>, observed: &Observation) -> Step<Entered> {
    let context = pass.context;
    let revision = &pass.epoch.revision;
    let entry = plan::enter(
        &observed.parent,
        &context.plugin,
        revision.plugin.manifest(),
    );
    if !matches!(entry, PassEntry::Pass(_)) {
        rollout::exempt(context, &pass.epoch, pass.id);
    }
    match entry {
        PassEntry::Ignore => return Err(Box::new(Skip::Ignored)),
        // The plugin that set the finalizer removes it, also from a parent that it no longer selects.
        PassEntry::Release => return Err(Box::new(Skip::Released)),
        PassEntry::Paused | PassEntry::Pass(_) => {}
    }
    // Before the pause: a paused parent that is not selected may belong to another host, and gets no condition.
    let (choice, own_reads) = choose(pass, &observed.parent);
    match choice {
        Choice::Selected => {}
        Choice::NotSelected(why) => {
            return Err(Box::new(Skip::NotSelected {
                why,
                reads: own_reads,
            }));
        }
        Choice::NotSeen => return Err(Box::new(Skip::NamespaceNotSeen)),
        Choice::NotCached(kind) => return Err(Box::new(Skip::NamespacesNotCached(kind))),
    }
    let PassEntry::Pass(phase) = entry else {
        return Err(Box::new(Skip::Paused));
    };
    if phase == Phase::Finalize && may_have_children_of(pass, &observed.unreadable) {
        // The guest would take them for deleted.
        return Err(Box::new(Skip::NotCached(observed.unreadable.clone())));
    }
    let Some(hash_key) = context.shared.hash_key.get().cloned() else {
        return Err(Box::new(Skip::HashKeyMissing));
    };
    Ok(Entered {
        phase,
        namespace_terminating: phase == Phase::Finalize
            && context.ledger.lock().is_namespace_terminating(pass.id),
        own_reads,
        hash_key,
        manager: revision.manager(&context.plugin),
        unreadable: observed
            .unreadable
            .iter()
            .map(|waiting| (waiting.kind.group_kind(), waiting.why.to_string()))
            .collect(),
    })
}

fn may_have_children_of(pass: &Pass<'_>, unreadable: &[Waiting]) -> bool {
    let context = pass.context;
    let recorded = context.shared.inventory.kinds(&context.plugin, Role::Child);
    unreadable.iter().any(|waiting| {
        let kind = waiting.kind.group_kind();
        recorded
            .iter()
            .any(|recorded| recorded.group_kind() == kind)
    })
}
