//! The active revision behind one pointer: a switch takes effect between two passes of a parent, never within one.
//!
//! The plugin controller decides on a switch and checks the candidate before it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use innkeeper_model::{
    Access, GroupKind, Gvk, Limits, ObjectId, ParentKind, PluginName, ReadKind, ReadScope, Scope,
    Selector,
};
use innkeeper_policy::{Grants, Selection};
use innkeeper_sandbox::Plugin;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::{analysis::Analysis, given_up::GivenUp, memory::Memory};

/// One revision of a plugin with its grants and limits.
///
/// Immutable, so that a pass ends with the values that it began with.
#[derive(Clone)]
pub struct Serving {
    /// The revision.
    pub plugin: Arc<Plugin>,
    /// The actions that it may take.
    pub grants: Arc<Grants>,
    /// The resources that it may use.
    pub limits: Arc<Limits>,
    /// The reads that it declares, as far as they are granted.
    pub(super) reads: Arc<[ReadKind]>,
    /// The user that its children are written as; none for the host itself.
    pub(super) account: Option<Arc<str>>,
    /// The field manager of its children; none for the plugin's own.
    pub(super) field_manager: Option<Arc<str>>,
    /// The selection of its parents.
    pub(super) selection: Arc<Selection>,
    /// The reads of the host itself that the selection needs.
    pub(super) own_reads: Arc<[ReadKind]>,
}

impl Serving {
    /// Combines a revision with its grants and limits.
    pub fn new(plugin: Arc<Plugin>, grants: Arc<Grants>, limits: Arc<Limits>) -> Self {
        let reads = grants.reads_for(plugin.manifest());
        Self {
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

    /// Returns the kinds of parents that it may serve.
    pub fn parents(&self) -> impl Iterator<Item = &ParentKind> {
        self.grants.parents_of(self.plugin.manifest())
    }

    /// Returns these kinds without their versions.
    pub fn parent_kinds(&self) -> BTreeSet<GroupKind> {
        let parents = self.parents();
        parents.map(|parent| parent.kind.group_kind()).collect()
    }

    /// Writes its children as this user, which needs the permissions for them.
    pub fn acting_as(self, user: Option<String>) -> Self {
        Self {
            account: user.map(Arc::from),
            ..self
        }
    }

    /// Applies its children with this field manager.
    pub fn applying_as(self, manager: &str) -> Self {
        Self {
            field_manager: Some(Arc::from(manager)),
            ..self
        }
    }

    /// Restricts its parents to the selected ones.
    pub fn selecting(self, selection: Selection) -> Self {
        let namespaces = selection.asks_for_namespaces().then(namespace_read);
        Self {
            own_reads: namespaces.into_iter().collect(),
            selection: Arc::new(selection),
            ..self
        }
    }

    /// Returns the field manager of its children.
    pub(super) fn manager(&self, plugin: &PluginName) -> Arc<str> {
        let own = || Arc::from(plugin.field_manager());
        self.field_manager.clone().unwrap_or_else(own)
    }

    /// Returns true if its guest may get the values of Secrets.
    pub fn shows_secrets(&self) -> bool {
        let secret = Gvk::new("", "v1", "Secret").group_kind();
        let reads = self.reads.iter();
        let mut full = reads.filter(|read| read.access == Access::Full);
        let as_child = |parent| self.grants.child_access(&secret, parent) == Access::Full;
        full.any(|read| read.kind.group_kind() == secret)
            || [Scope::Namespaced, Scope::Cluster]
                .into_iter()
                .any(as_child)
    }

    /// Returns true if its manifest declares children of this kind.
    pub fn declares_child(&self, kind: &Gvk) -> bool {
        let group_kind = kind.group_kind();
        let mut declared = self.plugin.manifest().children.iter();
        declared.any(|child| child.kind.group_kind() == group_kind)
    }
}

pub(super) fn namespace_kind() -> Gvk {
    Gvk::new("", "v1", "Namespace")
}

/// The read of namespaces.
fn namespace_read() -> ReadKind {
    ReadKind {
        kind: namespace_kind(),
        access: Access::Metadata,
        scope: ReadScope::Cluster,
        label_selector: Selector::default(),
    }
}

/// The period in which passes begin with the same [`Serving`]; each of them holds it until it has ended.
pub(super) struct Epoch {
    pub(super) serving: Serving,
    /// The time at which the host saw the change that caused the switch; none once a pass has begun.
    change: Mutex<Option<Instant>>,
    /// The number of passes of the revision that ended with a fault of the guest.
    pub(super) faults: AtomicU64,
    /// The rollout analysis of the revision.
    pub(super) analysis: Mutex<Analysis>,
    /// The passes that would do nothing.
    pub(super) memory: Memory,
    /// The parents for which the guest is not called any more.
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

    /// Returns the time of the change that caused the switch, if there was one, for the first pass only.
    pub(super) fn take_change(&self) -> Option<Instant> {
        self.change.lock().take()
    }

    /// Starts the rollout analysis if it still waits for the parents; callers do this before they call the guest.
    pub(super) fn begin_analysis(&self, parents: impl FnOnce() -> Vec<ObjectId>) {
        let mut analysis = self.analysis.lock();
        if !analysis.is_open() {
            analysis.open(parents());
        }
    }
}

/// The active revision.
pub(super) struct Active(RwLock<ActiveEpochs>);

struct ActiveEpochs {
    current: Arc<Epoch>,
    /// The earlier epochs whose passes may still run.
    leaving: Vec<Weak<Epoch>>,
}

impl Active {
    pub(super) fn new(serving: Serving) -> Self {
        Self(RwLock::new(ActiveEpochs {
            current: Epoch::new(serving, None, Analysis::default(), 0),
            leaving: Vec::new(),
        }))
    }

    /// Returns the epoch of a pass that begins now.
    pub(super) fn current(&self) -> Arc<Epoch> {
        Arc::clone(&self.0.read().current)
    }

    /// Returns true if this epoch is the current one.
    pub(super) fn is_current(&self, epoch: &Arc<Epoch>) -> bool {
        Arc::ptr_eq(&self.0.read().current, epoch)
    }

    /// Makes `serving` the active revision of every pass that begins from now on.
    ///
    /// `change` is the time at which the host saw the cause of the switch, if there was one.
    /// Before such a pass begins, `watch` gets the new revision and the earlier epochs with running passes, the newest
    /// first.
    pub(super) fn switch(
        &self,
        serving: Serving,
        change: Option<Instant>,
        analysis: Analysis,
        watch: impl FnOnce(&Serving, &[Arc<Epoch>]),
    ) {
        let mut state = self.0.write();
        let last = &state.current;
        // Other grants or limits make no other revision, so its faults still count.
        let is_same = last.serving.plugin.revision() == serving.plugin.revision();
        let faults = if is_same {
            last.faults.load(Ordering::Relaxed)
        } else {
            0
        };
        let next = Epoch::new(serving, change, analysis, faults);
        let last = std::mem::replace(&mut state.current, next);
        state.leaving.push(Arc::downgrade(&last));
        // This reference must go first: without running passes, the last epoch ends here and needs no watches.
        drop(last);
        state.leaving.retain(|epoch| epoch.strong_count() > 0);
        state.tell(watch);
    }

    /// Calls `watch` with the remaining epochs if the last pass of an earlier one has ended; callers do this after each
    /// pass.
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

    /// Calls `watch` with the epochs in use; no switch can happen meanwhile.
    pub(super) fn look(&self, watch: impl FnOnce(&Serving, &[Arc<Epoch>])) {
        // With the write lock, because `tell` holds references: a concurrent `settle` would count them as passes.
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
    fn an_earlier_epoch_is_watched_until_its_last_pass_has_ended() {
        let (old, new) = (serving_of(saying("old")), serving_of(saying("new")));
        let active = Active::new(old);
        let told = Mutex::new(Vec::new());
        let watch = |_: &Serving, others: &[Arc<Epoch>]| told.lock().push(others.len());
        let passes = [active.current(), active.current()];
        active.switch(new.clone(), None, Analysis::default(), watch);
        assert!(!active.is_current(&passes[0]));
        assert_eq!(
            active.current().serving.plugin.revision(),
            new.plugin.revision()
        );
        for pass in passes {
            active.settle(watch);
            drop(pass);
        }
        active.settle(watch);
        active.settle(watch);
        // No pass runs with the earlier epoch now.
        active.switch(new, None, Analysis::default(), watch);
        active.settle(watch);
        assert_eq!(*told.lock(), [1, 0, 0]);
    }
}
