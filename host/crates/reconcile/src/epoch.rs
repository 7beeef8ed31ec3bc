//! What passes run with, behind one pointer that is switched between two passes and never within one.
//!
//! Who decides on a switch, and what a candidate has to prove before, is not decided here.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use innkeeper_model::{Access, GroupKind, Gvk, Limits, ObjectId, PluginName, ReadKind, Scope};
use innkeeper_policy::{Grants, Selection};
use innkeeper_sandbox::Plugin;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::{analysis::Analysis, given_up::GivenUp, memory::Memory, selection};

/// One revision of a plugin under one set of rules; immutable, so that a pass ends under what it began with.
#[derive(Clone)]
pub struct Serving {
    /// The revision.
    pub plugin: Arc<Plugin>,
    /// What it may do.
    pub grants: Arc<Grants>,
    /// What it may use.
    pub limits: Arc<Limits>,
    /// What it asked to read, as far as it is granted.
    pub(super) reads: Arc<[ReadKind]>,
    /// The user as whom its children are written; none: the host itself.
    pub(super) account: Option<Arc<str>>,
    /// The field manager of its children; none: the plugin's own.
    pub(super) field_manager: Option<Arc<str>>,
    /// Which parents it has.
    pub(super) selection: Arc<Selection>,
    /// What the host itself reads to find that out.
    pub(super) own_reads: Arc<[ReadKind]>,
    /// The kinds of which it may adopt objects.
    pub(super) adoptable: Arc<BTreeSet<GroupKind>>,
}

impl Serving {
    /// Brings a revision together with what it may do and use.
    pub fn new(plugin: Arc<Plugin>, grants: Arc<Grants>, limits: Arc<Limits>) -> Self {
        let reads = grants.reads_for(plugin.manifest());
        let kinds = grants.children.keys();
        let adoptable = kinds
            .filter(|kind| grants.allows_adoption(kind))
            .cloned()
            .collect();
        Self {
            adoptable: Arc::new(adoptable),
            plugin,
            grants,
            limits,
            reads: reads.into(),
            account: None,
            field_manager: None,
            selection: Arc::default(),
            own_reads: Arc::default(),
        }
    }

    /// Has its children written as a user of this name, who needs the rights for it.
    pub fn acting_as(self, user: Option<String>) -> Self {
        Self {
            account: user.map(Arc::from),
            ..self
        }
    }

    /// Has its children applied under a field manager of this name.
    pub fn applying_as(self, manager: &str) -> Self {
        Self {
            field_manager: Some(Arc::from(manager)),
            ..self
        }
    }

    /// Has only the parents that are selected.
    pub fn selecting(self, selection: Selection) -> Self {
        let namespaces = selection
            .asks_for_namespaces()
            .then(selection::namespace_read);
        Self {
            own_reads: namespaces.into_iter().collect(),
            selection: Arc::new(selection),
            ..self
        }
    }

    /// The field manager of its children.
    pub(super) fn manager(&self, plugin: &PluginName) -> Arc<str> {
        let own = || Arc::from(plugin.field_manager());
        self.field_manager.clone().unwrap_or_else(own)
    }

    /// Whether its guest may be shown values of Secrets.
    pub(super) fn shows_secrets(&self) -> bool {
        let secret = Gvk::new("", "v1", "Secret").group_kind();
        let reads = self.reads.iter();
        let mut full = reads.filter(|read| read.access == Access::Full);
        let as_child = |parent| self.grants.child_access(&secret, parent) == Access::Full;
        full.any(|read| read.kind.group_kind() == secret)
            || [Scope::Namespaced, Scope::Cluster]
                .into_iter()
                .any(as_child)
    }

    /// Whether it may state children of this kind.
    pub fn declares_child(&self, kind: &Gvk) -> bool {
        let group_kind = kind.group_kind();
        let mut declared = self.plugin.manifest().children.iter();
        declared.any(|child| child.kind.group_kind() == group_kind)
    }
}

/// The time during which passes begin with the same [`Serving`]; held by each of them until it has ended.
pub(super) struct Epoch {
    pub(super) serving: Serving,
    /// When the change was seen that brought it; none once a pass has begun with it.
    change: Mutex<Option<Instant>>,
    /// Passes of the revision that ended with a fault of the guest.
    pub(super) faults: AtomicU64,
    /// How the first passes of a new revision end.
    pub(super) analysis: Mutex<Analysis>,
    /// Which passes would do nothing.
    pub(super) memory: Memory,
    /// Parents that the guest is not asked about any more.
    pub(super) given_up: GivenUp,
}

impl Epoch {
    fn new(
        serving: Serving,
        change: Option<Instant>,
        analysis: Analysis,
        faults: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            serving,
            change: Mutex::new(change),
            faults: AtomicU64::new(faults),
            analysis: Mutex::new(analysis),
            memory: Memory::default(),
            given_up: GivenUp::default(),
        })
    }

    /// Returns an epoch for the dry runs of a candidate, which nothing else uses.
    pub(super) fn of_candidate(serving: Serving) -> Arc<Self> {
        Self::new(serving, None, Analysis::default(), 0)
    }

    /// Takes note that a pass begins; of the first one it gives when the change was seen that it is on, if one was.
    pub(super) fn begin_pass(&self) -> Option<Instant> {
        self.change.lock().take()
    }

    /// Begins a trial that waits for it; to be called before the guest is.
    pub(super) fn begin_analysis(&self, parents: impl FnOnce() -> Vec<ObjectId>) {
        let mut analysis = self.analysis.lock();
        if !analysis.is_open() {
            analysis.open(parents());
        }
    }
}

/// The pointer.
pub(super) struct Active(RwLock<ActiveEpochs>);

struct ActiveEpochs {
    current: Arc<Epoch>,
    /// Those of which passes may still run.
    leaving: Vec<Weak<Epoch>>,
}

impl Active {
    pub(super) fn new(serving: Serving) -> Self {
        Self(RwLock::new(ActiveEpochs {
            current: Epoch::new(serving, None, Analysis::default(), 0),
            leaving: Vec::new(),
        }))
    }

    /// What a pass that begins now runs with.
    pub(super) fn current(&self) -> Arc<Epoch> {
        Arc::clone(&self.0.read().current)
    }

    /// Whether a pass that began with this epoch would begin with it now.
    pub(super) fn is_current(&self, epoch: &Arc<Epoch>) -> bool {
        Arc::ptr_eq(&self.0.read().current, epoch)
    }

    /// Lets every pass that begins from now on run with `serving`.
    ///
    /// `change` is when was seen what asks for it, if anything does.
    /// Before the first of them begins, `watch` is told of it and of those, newest first, that passes still run with.
    pub(super) fn switch(
        &self,
        serving: Serving,
        change: Option<Instant>,
        analysis: Analysis,
        watch: impl FnOnce(&Serving, &[Arc<Epoch>]),
    ) {
        let mut state = self.0.write();
        let last = &state.current;
        // Under other rules it is the same revision.
        let is_same = last.serving.plugin.revision() == serving.plugin.revision();
        let faults = if is_same {
            last.faults.load(Ordering::Relaxed)
        } else {
            0
        };
        let next = Epoch::new(serving, change, analysis, faults);
        let last = std::mem::replace(&mut state.current, next);
        state.leaving.push(Arc::downgrade(&last));
        // One that nobody runs with is gone before anybody is told of it.
        drop(last);
        state.leaving.retain(|epoch| epoch.strong_count() > 0);
        state.tell(watch);
    }

    /// Tells `watch` what is left once the last pass of a former epoch has ended; to be called after every pass.
    pub(super) fn settle(&self, watch: impl FnOnce(&Serving, &[Arc<Epoch>])) {
        let ended = |epoch: &Weak<Epoch>| epoch.strong_count() == 0;
        if !self.0.read().leaving.iter().any(ended) {
            return;
        }
        let mut state = self.0.write();
        let before = state.leaving.len();
        state.leaving.retain(|epoch| !ended(epoch));
        if state.leaving.len() < before {
            state.tell(watch);
        }
    }

    /// Tells `watch` what passes run with, while nobody can switch it.
    pub(super) fn look(&self, watch: impl FnOnce(&Serving, &[Arc<Epoch>])) {
        // Not as a reader: a epoch that is looked at does not seem to have ended.
        self.0.write().tell(watch);
    }
}

impl ActiveEpochs {
    fn tell(&self, watch: impl FnOnce(&Serving, &[Arc<Epoch>])) {
        let leaving: Vec<_> = self
            .leaving
            .iter()
            .rev()
            .filter_map(Weak::upgrade)
            .collect();
        watch(&self.current.serving, &leaving);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{saying, serving_of};

    #[test]
    fn what_was_left_is_told_of_until_its_last_pass_has_ended() {
        let (old, new) = (serving_of(saying("old")), serving_of(saying("new")));
        let slot = Active::new(old);
        let told = Mutex::new(Vec::new());
        let watch = |_: &Serving, others: &[Arc<Epoch>]| told.lock().push(others.len());
        let passes = [slot.current(), slot.current()];
        slot.switch(new.clone(), None, Analysis::default(), watch);
        assert!(!slot.is_current(&passes[0]));
        assert_eq!(
            slot.current().serving.plugin.revision(),
            new.plugin.revision()
        );
        for pass in passes {
            slot.settle(watch);
            drop(pass);
        }
        slot.settle(watch);
        slot.settle(watch);
        // Nobody runs with what is left now.
        slot.switch(new, None, Analysis::default(), watch);
        slot.settle(watch);
        assert_eq!(*told.lock(), [1, 0, 0]);
    }
}
