//! The priority between plugins that claim the same kind of parents: files first, then Plugins by age.
//!
//! Pure: it decides which plugin is active for a kind; the callers start and stop the passes.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use innkeeper_model::{GroupKind, PluginName};
use jiff::Timestamp;

/// The order between plugins, the first in it wins; plugins of equal priority are ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Priority {
    /// A plugin from a file. No two files claim the same kind: [`admit`](super::admit) rejects the second one.
    File,
    /// A Plugin resource by its creation time, which the API server stores in whole seconds.
    Resource(Timestamp),
}

/// A claimed kind that another plugin has or is first for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TakenKind {
    /// The kind.
    pub(super) kind: GroupKind,
    /// The other plugin.
    pub(super) by: PluginName,
}

/// All plugins of a host with the kinds of parents that they claim and hold.
#[derive(Debug, Default)]
pub(super) struct Priorities {
    contenders: BTreeMap<PluginName, Contender>,
    /// The plugins that need a pass since something changed for them.
    affected: BTreeSet<PluginName>,
}

#[derive(Debug)]
struct Contender {
    priority: Priority,
    /// The kinds of the revision that is to be active next.
    claimed: BTreeSet<GroupKind>,
    /// The kinds for whose parents passes of this plugin run or may begin; no kind is held twice.
    held: BTreeSet<GroupKind>,
    /// True if everything but another plugin's hold allows it to be active. A younger plugin stops only then, because
    /// one that still has to be fetched or checked may fail.
    is_ready: bool,
}

impl Priorities {
    /// Notes the kinds that a plugin may claim, so that no later plugin takes them before its own pass.
    pub(super) fn expect(
        &mut self,
        name: &PluginName,
        priority: Priority,
        kinds: &BTreeSet<GroupKind>,
    ) {
        if !kinds.is_empty() && !self.contenders.contains_key(name) {
            self.claim(name, priority, kinds);
        }
    }

    /// Claims kinds for a plugin, and holds them as soon as all are free.
    ///
    /// Fails if another plugin is first for one of them. While a younger plugin holds one, a plugin that is not ready
    /// may continue to prepare; for a ready one it fails, and the younger plugin has to yield.
    pub(super) fn take(
        &mut self,
        name: &PluginName,
        priority: Priority,
        kinds: &BTreeSet<GroupKind>,
        is_ready: bool,
    ) -> Result<(), TakenKind> {
        self.claim(name, priority, kinds);
        // An active plugin keeps its kinds until it has to yield, also while its revision is replaced.
        let is_held = |kind| self.holder(kind) == Some(name);
        if kinds.iter().all(is_held) {
            return Ok(());
        }
        let active = self.active_by_kind();
        if let Some(taken) = other(name, kinds, |kind| active.get(kind).copied()) {
            return Err(taken);
        }
        let taken = other(name, kinds, |kind| self.holder(kind));
        let Some(contender) = self.contenders.get_mut(name) else {
            return Ok(());
        };
        match taken {
            // All or none: a plugin that waits for one kind does not keep others from the rest.
            None => contender.held.extend(kinds.iter().cloned()),
            Some(taken) if is_ready => {
                if !mem::replace(&mut contender.is_ready, true) {
                    self.settle(Some(name));
                }
                return Err(taken);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns the kind that a plugin holds and an older, ready plugin is first for.
    pub(super) fn yields(&self, name: &PluginName) -> Option<TakenKind> {
        let active = self.active_by_kind();
        let ready = |kind: &GroupKind| {
            let by = active.get(kind).copied()?;
            self.contenders.get(by)?.is_ready.then_some(by)
        };
        other(name, &self.contenders.get(name)?.held, ready)
    }

    /// Returns true if a plugin is first for all kinds that it claims.
    pub(super) fn is_first(&self, name: &PluginName) -> bool {
        let active = self.active_by_kind();
        self.contenders.get(name).is_some_and(|contender| {
            let mut claimed = contender.claimed.iter();
            claimed.all(|kind| active.get(kind) == Some(&name))
        })
    }

    /// Gives up all kinds that a plugin holds but these.
    pub(super) fn release(&mut self, name: &PluginName, kept: &BTreeSet<GroupKind>) {
        let Some(contender) = self.contenders.get_mut(name) else {
            return;
        };
        if !contender.held.is_subset(kept) {
            contender.held.retain(|kind| kept.contains(kind));
            self.settle(None);
        }
    }

    /// Gives up all kinds that a plugin claims but does not hold. A plugin that holds none is forgotten.
    pub(super) fn keep_held(&mut self, name: &PluginName) {
        match self.contenders.get(name) {
            Some(Contender { priority, held, .. }) if !held.is_empty() => {
                let (priority, held) = (*priority, held.clone());
                self.claim(name, priority, &held);
            }
            Some(_) | None => self.withdraw(name),
        }
    }

    /// Forgets a plugin that cannot be active, or is gone.
    pub(super) fn withdraw(&mut self, name: &PluginName) {
        if self.contenders.remove(name).is_some() {
            self.settle(None);
        }
        self.affected.remove(name);
    }

    /// Takes the plugins that need a pass: they have to yield, or a kind that they wait for is free.
    pub(super) fn take_affected(&mut self) -> BTreeSet<PluginName> {
        mem::take(&mut self.affected)
    }

    /// Returns the plugin that is to be active for each kind: the first one that is first for all of its kinds.
    ///
    /// A plugin that cannot have all its kinds cannot be active, so it keeps no other from any of them. An active one
    /// whose next revision cannot have all its kinds keeps those of its active revision.
    fn active_by_kind(&self) -> BTreeMap<&GroupKind, &PluginName> {
        let mut contenders: Vec<_> = self.contenders.iter().collect();
        contenders.sort_by_key(|(name, contender)| (contender.priority, *name));
        let mut active = BTreeMap::new();
        for (name, Contender { claimed, held, .. }) in contenders {
            let all: BTreeSet<_> = claimed.union(held).collect();
            for kinds in [all, held.iter().collect()] {
                let is_free = |kind: &&GroupKind| match active.get(*kind) {
                    None => true,
                    Some(by) => *by == name,
                };
                if kinds.iter().all(is_free) {
                    active.extend(kinds.into_iter().map(|kind| (kind, name)));
                }
            }
        }
        active
    }

    /// Returns the plugin for whose parents of a kind passes run or may begin.
    pub(super) fn holder(&self, kind: &GroupKind) -> Option<&PluginName> {
        let mut contenders = self.contenders.iter();
        let (name, _) = contenders.find(|(_, contender)| contender.held.contains(kind))?;
        Some(name)
    }

    fn claim(&mut self, name: &PluginName, priority: Priority, kinds: &BTreeSet<GroupKind>) {
        let before = self.contenders.get(name);
        if before.is_some_and(|before| before.priority == priority && before.claimed == *kinds) {
            return;
        }
        let contender = Contender {
            priority,
            claimed: kinds.clone(),
            held: before.map_or_else(BTreeSet::new, |before| before.held.clone()),
            is_ready: false,
        };
        self.contenders.insert(name.clone(), contender);
        self.settle(Some(name));
    }

    /// Collects the plugins that a change affects: the first one for a kind that is free or held by another plugin, and
    /// a holder that has to yield. The plugin that makes the change in its own pass sees the kinds of others by itself.
    fn settle(&mut self, by: Option<&PluginName>) {
        let affected = self
            .active_by_kind()
            .into_iter()
            .filter_map(|(kind, name)| {
                let is_ready = || self.contenders.get(name).is_some_and(|one| one.is_ready);
                match self.holder(kind) {
                    None => Some(name),
                    Some(holder) if holder == name => None,
                    Some(holder) if is_ready() => Some(holder),
                    // It has to prepare before the holder yields.
                    Some(_) => (by != Some(name)).then_some(name),
                }
            });
        let affected: Vec<_> = affected.cloned().collect();
        self.affected.extend(affected);
    }
}

/// Returns the first of some kinds for which a lookup finds another plugin than this one.
fn other<'a>(
    name: &PluginName,
    kinds: &BTreeSet<GroupKind>,
    find: impl Fn(&GroupKind) -> Option<&'a PluginName>,
) -> Option<TakenKind> {
    kinds.iter().find_map(|kind| {
        let by = find(kind).filter(|by| *by != name)?.clone();
        let kind = kind.clone();
        Some(TakenKind { kind, by })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Plugin = (PluginName, Priority);

    fn plugin(age: i64, name: &str) -> Plugin {
        let created = Timestamp::from_second(age).unwrap();
        (PluginName::new(name).unwrap(), Priority::Resource(created))
    }

    fn kinds(kinds: &[&str]) -> BTreeSet<GroupKind> {
        let kinds = kinds.iter();
        kinds
            .map(|kind| GroupKind::new("example.com", *kind))
            .collect()
    }

    fn prepare(
        priorities: &mut Priorities,
        (name, priority): &Plugin,
        claimed: &[&str],
    ) -> Result<(), TakenKind> {
        priorities.take(name, *priority, &kinds(claimed), false)
    }

    /// Claims and, where it may, becomes active; the name of the plugin that prevents it otherwise.
    fn serve(priorities: &mut Priorities, plugin: &Plugin, claimed: &[&str]) -> Result<(), String> {
        let (name, priority) = plugin;
        prepare(priorities, plugin, claimed)
            .and_then(|()| priorities.take(name, *priority, &kinds(claimed), true))
            .map_err(|taken| taken.by.to_string())
    }

    fn affected(priorities: &mut Priorities) -> Vec<String> {
        let affected = priorities.take_affected();
        affected.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_younger_plugin_gives_way_once_the_older_one_can_begin() {
        let mut priorities = Priorities::default();
        let (old, young) = (plugin(1, "old"), plugin(2, "young"));
        assert_eq!(serve(&mut priorities, &young, &["Web"]), Ok(()));
        priorities.take_affected();

        // An active plugin does not stop for one that may still fail.
        prepare(&mut priorities, &old, &["Web"]).unwrap();
        assert_eq!(priorities.yields(&young.0), None);
        assert_eq!(
            serve(&mut priorities, &young, &["Web"]),
            Ok(()),
            "a swap of its own"
        );
        assert!(priorities.take_affected().is_empty());

        assert_eq!(
            serve(&mut priorities, &old, &["Web"]),
            Err("young".to_owned())
        );
        assert_eq!(affected(&mut priorities), ["young"]);
        assert_eq!(priorities.yields(&young.0).unwrap().by, old.0);
        priorities.release(&young.0, &BTreeSet::new());
        assert_eq!(affected(&mut priorities), ["old"]);
        assert_eq!(
            serve(&mut priorities, &young, &["Web"]),
            Err("old".to_owned())
        );
        assert_eq!(serve(&mut priorities, &old, &["Web"]), Ok(()));

        priorities.withdraw(&old.0);
        assert_eq!(affected(&mut priorities), ["young"]);
        assert_eq!(serve(&mut priorities, &young, &["Web"]), Ok(()));
        assert_eq!(priorities.yields(&young.0), None);
    }

    #[test]
    fn at_the_start_the_order_of_the_first_passes_does_not_matter() {
        let mut priorities = Priorities::default();
        let (old, young) = (plugin(1, "b"), plugin(1, "c"));
        let file = (PluginName::new("z").unwrap(), Priority::File);
        for (name, priority) in [&young, &old] {
            priorities.expect(name, *priority, &kinds(&["Web"]));
        }
        assert_eq!(
            serve(&mut priorities, &young, &["Web"]),
            Err("b".to_owned())
        );
        // It cannot be loaded.
        priorities.withdraw(&old.0);
        assert_eq!(affected(&mut priorities), ["c"]);
        assert_eq!(serve(&mut priorities, &young, &["Web"]), Ok(()));

        assert_eq!(serve(&mut priorities, &file, &["Pond"]), Ok(()));
        assert_eq!(serve(&mut priorities, &old, &["Pond"]), Err("z".to_owned()));
    }

    #[test]
    fn a_plugin_that_cannot_have_all_its_kinds_blocks_no_other() {
        let mut priorities = Priorities::default();
        let [first, second, third] = [1, 2, 3].map(|age| plugin(age, &format!("p{age}")));
        assert_eq!(serve(&mut priorities, &first, &["A"]), Ok(()));
        let both = serve(&mut priorities, &second, &["A", "B"]);
        assert_eq!(both, Err("p1".to_owned()));
        assert_eq!(serve(&mut priorities, &third, &["B"]), Ok(()));

        // It also does not keep kinds while it waits for the rest.
        let mut priorities = Priorities::default();
        let young = plugin(9, "young");
        assert_eq!(serve(&mut priorities, &young, &["A"]), Ok(()));
        let both = serve(&mut priorities, &second, &["A", "B"]);
        assert_eq!(both, Err("young".to_owned()));
        priorities.release(&young.0, &BTreeSet::new());
        assert_eq!(serve(&mut priorities, &first, &["A"]), Ok(()));
        assert_eq!(serve(&mut priorities, &third, &["B"]), Ok(()));
    }

    #[test]
    fn a_plugin_that_was_made_again_has_its_new_age() {
        let mut priorities = Priorities::default();
        let (old, other) = (plugin(1, "a"), plugin(2, "b"));
        assert_eq!(serve(&mut priorities, &other, &["Web"]), Ok(()));
        prepare(&mut priorities, &old, &["Web"]).unwrap();
        assert!(priorities.is_first(&old.0));
        let again = plugin(3, "a");
        let taken = serve(&mut priorities, &again, &["Web"]);
        assert_eq!(taken, Err("b".to_owned()));
        assert!(priorities.is_first(&other.0));
        assert_eq!(priorities.yields(&other.0), None);
    }

    #[test]
    fn a_plugin_is_told_to_prepare_when_its_rival_becomes_younger() {
        let mut priorities = Priorities::default();
        let (first, second) = (plugin(1, "a"), plugin(2, "b"));
        assert_eq!(serve(&mut priorities, &first, &["Web"]), Ok(()));
        let taken = serve(&mut priorities, &second, &["Web"]);
        assert_eq!(taken, Err("a".to_owned()));
        priorities.take_affected();
        let again = plugin(3, "a");
        assert_eq!(serve(&mut priorities, &again, &["Web"]), Ok(()));
        assert_eq!(affected(&mut priorities), ["b"]);
        let taken = serve(&mut priorities, &second, &["Web"]);
        assert_eq!(taken, Err("a".to_owned()));
        assert_eq!(affected(&mut priorities), ["a"]);
        assert_eq!(priorities.yields(&again.0).unwrap().by, second.0);
    }

    #[test]
    fn a_next_revision_does_not_cost_the_kinds_of_the_active_one() {
        let (old, young) = (plugin(1, "old"), plugin(2, "young"));
        let active = || {
            let mut priorities = Priorities::default();
            assert_eq!(serve(&mut priorities, &old, &["A"]), Ok(()));
            priorities
        };
        let mut priorities = active();
        let young_takes = |priorities: &mut Priorities, kind, expected: Result<(), &str>| {
            let taken = serve(priorities, &young, &[kind]);
            assert_eq!(taken, expected.map_err(str::to_owned), "{kind}");
            assert_eq!(priorities.yields(&old.0), None);
            priorities.withdraw(&young.0);
        };
        // While it is tried, it has its own kinds as well.
        prepare(&mut priorities, &old, &["B"]).unwrap();
        young_takes(&mut priorities, "A", Err("old"));
        young_takes(&mut priorities, "B", Err("old"));
        // It fails, and leaves only those of the active revision.
        priorities.release(&old.0, &kinds(&["A"]));
        priorities.keep_held(&old.0);
        young_takes(&mut priorities, "A", Err("old"));
        young_takes(&mut priorities, "B", Ok(()));

        // Also while it waits for a kind of an older plugin, and then it is told.
        let mut priorities = active();
        let older = plugin(0, "older");
        assert_eq!(serve(&mut priorities, &older, &["B"]), Ok(()));
        let waits = serve(&mut priorities, &old, &["B"]);
        assert_eq!(waits, Err("older".to_owned()));
        young_takes(&mut priorities, "A", Err("old"));
        assert!(!priorities.is_first(&old.0));
        priorities.take_affected();
        priorities.withdraw(&older.0);
        assert_eq!(affected(&mut priorities), ["old"]);
        assert!(priorities.is_first(&old.0));

        // Nothing is left of one without an active revision.
        let mut priorities = Priorities::default();
        prepare(&mut priorities, &old, &["A"]).unwrap();
        priorities.release(&old.0, &BTreeSet::new());
        priorities.keep_held(&old.0);
        young_takes(&mut priorities, "A", Ok(()));
    }

    proptest! {
        /// After any order of events the same plugins are active as if the oldest had come first, and no plugin is told
        /// to check again without end.
        #[test]
        fn the_order_of_events_does_not_matter(
            claims in prop::collection::vec(prop::collection::btree_set(0..4_usize, 1..3), 1..6),
            events in prop::collection::vec((0..6_usize, 0..3_u8), 0..40),
        ) {
            let names = ["A", "B", "C", "D"];
            let plugins: Vec<_> = claims
                .iter()
                .enumerate()
                .map(|(age, claims)| {
                    let claims: Vec<&str> = claims.iter().map(|at| names[*at]).collect();
                    (plugin(i64::try_from(age).unwrap(), &format!("p{age}")), claims)
                })
                .collect();
            let mut priorities = Priorities::default();
            let look = |priorities: &mut Priorities, at: usize| {
                let (plugin, claims) = &plugins[at % plugins.len()];
                if priorities.yields(&plugin.0).is_some() {
                    priorities.release(&plugin.0, &BTreeSet::new());
                }
                drop(serve(priorities, plugin, claims));
            };
            for (at, event) in events {
                let (plugin, claims) = &plugins[at % plugins.len()];
                match event {
                    0 => look(&mut priorities, at),
                    1 => drop(prepare(&mut priorities, plugin, claims)),
                    _ => priorities.withdraw(&plugin.0),
                }
            }
            for at in 0..plugins.len() {
                look(&mut priorities, at);
            }
            for _ in 0..100 {
                for name in priorities.take_affected() {
                    let at = plugins.iter().position(|((one, _), _)| *one == name);
                    look(&mut priorities, at.unwrap());
                }
            }
            prop_assert!(priorities.take_affected().is_empty());
            let mut expected = BTreeMap::new();
            for ((name, _), claims) in &plugins {
                let claims = kinds(claims);
                if claims.iter().all(|kind| !expected.contains_key(kind)) {
                    expected.extend(claims.into_iter().map(|kind| (kind, name.clone())));
                }
            }
            let held = priorities.contenders.iter().flat_map(|(name, contender)| {
                contender.held.iter().map(move |kind| (kind.clone(), name.clone()))
            });
            prop_assert_eq!(held.collect::<BTreeMap<_, _>>(), expected);
        }
    }
}
