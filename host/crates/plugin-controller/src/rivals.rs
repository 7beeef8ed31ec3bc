//! The priority between plugins that want the same kind of parents: files first, then Plugins by age.
//!
//! Pure: it decides the priority; the callers stop and start the plugins.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use innkeeper_model::{GroupKind, PluginName};
use jiff::Timestamp;

/// The priority of a plugin for its kinds of parents; the least comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seniority {
    /// It is given as a file; no two files want the same.
    File(PluginName),
    /// It is a Plugin, made at this time; of those made in the same second the name decides.
    Plugin(Timestamp, PluginName),
}

impl Seniority {
    /// The plugin.
    pub(super) const fn name(&self) -> &PluginName {
        match self {
            Self::File(name) | Self::Plugin(_, name) => name,
        }
    }
}

/// The plugin that keeps another one from a kind of parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    /// The kind.
    pub(super) kind: GroupKind,
    /// The plugin that serves it, or is first for it.
    pub(super) by: PluginName,
}

/// The kinds of parents that plugins want and hold.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    wants: BTreeMap<Seniority, Want>,
    /// The first plugin for each kind, and true if it can begin at once.
    rightful: BTreeMap<GroupKind, (PluginName, bool)>,
    /// The holder of each kind: passes for its parents run, or may begin.
    holders: BTreeMap<GroupKind, PluginName>,
    /// The plugins that have to check again.
    affected: BTreeSet<PluginName>,
}

/// The request of a plugin.
#[derive(Debug)]
struct Want {
    kinds: BTreeSet<GroupKind>,
    /// True if only other plugins keep it from being active; a younger plugin stops only then.
    insists: bool,
}

impl Rivals {
    /// Notes that a plugin may want kinds: none that comes after it takes them before it was looked at.
    pub(super) fn expect(&mut self, plugin: Seniority, kinds: BTreeSet<GroupKind>) {
        if !kinds.is_empty() && !self.wants.contains_key(&plugin) {
            self.want(plugin, kinds);
        }
    }

    /// Checks if a plugin may prepare to serve these kinds of parents. If all of them are free, it holds them at once.
    pub(super) fn ask(
        &mut self,
        plugin: &Seniority,
        kinds: &BTreeSet<GroupKind>,
    ) -> Result<(), Rival> {
        let name = plugin.name();
        let wanted = self.wants.get(plugin).map(|want| &want.kinds);
        if wanted != Some(kinds) {
            self.want(plugin.clone(), kinds.clone());
        }
        // It keeps its kinds until it has to give way.
        if self.check(name, kinds).is_ok() && self.holds(name, kinds) {
            return Ok(());
        }
        let rightful = |kind: &GroupKind| self.rightful.get(kind).map(|(name, _)| name);
        first_other(name, kinds, rightful)?;
        // All or none: who waits for one kind must not keep others from the rest.
        if self.check(name, kinds).is_ok() {
            self.hold(name, kinds);
        }
        Ok(())
    }

    /// Checks if a prepared plugin may begin; if not, a younger holder has to give way.
    pub(super) fn insist(
        &mut self,
        plugin: &Seniority,
        kinds: &BTreeSet<GroupKind>,
    ) -> Result<(), Rival> {
        let free = self.check(plugin.name(), kinds);
        if free.is_ok() {
            self.hold(plugin.name(), kinds);
        } else if let Some(want) = self.wants.get_mut(plugin)
            && !mem::replace(&mut want.insists, true)
        {
            self.settle();
        }
        free
    }

    /// Returns the plugin that a plugin has to give way to, with the kind; none if it may stay active.
    pub(super) fn in_the_way_of(&self, name: &PluginName) -> Option<Rival> {
        let mut held = self.holders.iter().filter(|(_, holder)| *holder == name);
        held.find_map(|(kind, _)| {
            let (by, insists) = self.rightful.get(kind)?;
            let (kind, by) = (kind.clone(), by.clone());
            (*insists && by != *name).then_some(Rival { kind, by })
        })
    }

    /// Returns whether a plugin is first for all kinds that it wants.
    pub(super) fn has_turn(&self, name: &PluginName) -> bool {
        let mut wants = self.wants.iter();
        let want = wants.find_map(|(plugin, want)| (plugin.name() == name).then_some(want));
        want.is_some_and(|want| {
            let rightful = |kind| self.rightful.get(kind).is_some_and(|(by, _)| by == name);
            want.kinds.iter().all(rightful)
        })
    }

    /// Lets others have all kinds but these.
    pub(super) fn release(&mut self, name: &PluginName, kept: &BTreeSet<GroupKind>) {
        let before = self.holders.len();
        self.holders
            .retain(|kind, holder| holder != name || kept.contains(kind));
        if self.holders.len() < before {
            self.settle();
        }
    }

    /// Forgets a plugin that cannot serve, or is gone.
    pub(super) fn withdraw(&mut self, name: &PluginName) {
        self.release(name, &BTreeSet::new());
        let before = self.wants.len();
        self.wants.retain(|plugin, _| plugin.name() != name);
        if self.wants.len() < before {
            self.settle();
        }
        self.affected.remove(name);
    }

    /// Returns whether a plugin has to check again.
    pub(super) fn concerns_somebody(&self) -> bool {
        !self.affected.is_empty()
    }

    /// Takes the plugins that have to check again: they have to give way, or a kind that they wait for is free.
    pub(super) fn take_affected(&mut self) -> BTreeSet<PluginName> {
        mem::take(&mut self.affected)
    }

    fn want(&mut self, plugin: Seniority, kinds: BTreeSet<GroupKind>) {
        let want = Want {
            kinds,
            insists: false,
        };
        self.wants.insert(plugin, want);
        self.settle();
    }

    fn hold(&mut self, name: &PluginName, kinds: &BTreeSet<GroupKind>) {
        let held = kinds.iter().map(|kind| (kind.clone(), name.clone()));
        self.holders.extend(held);
    }

    fn holds(&self, name: &PluginName, kinds: &BTreeSet<GroupKind>) -> bool {
        let mut kinds = kinds.iter();
        kinds.all(|kind| self.holders.get(kind) == Some(name))
    }

    /// Checks that no other plugin holds one of these kinds.
    fn check(&self, name: &PluginName, kinds: &BTreeSet<GroupKind>) -> Result<(), Rival> {
        first_other(name, kinds, |kind| self.holders.get(kind))
    }

    /// Computes the first plugin of each kind again, and the plugins that this affects.
    fn settle(&mut self) {
        self.rightful.clear();
        for (plugin, Want { kinds, insists }) in &self.wants {
            // A plugin that cannot have all its kinds serves none, so it does not block others.
            if kinds.iter().all(|kind| !self.rightful.contains_key(kind)) {
                let own = kinds.iter();
                let own = own.map(|kind| (kind.clone(), (plugin.name().clone(), *insists)));
                self.rightful.extend(own);
            }
        }
        for (kind, (rightful, insists)) in &self.rightful {
            let concerned = match self.holders.get(kind) {
                None => rightful,
                Some(holder) if holder != rightful && *insists => holder,
                Some(_) => continue,
            };
            self.affected.insert(concerned.clone());
        }
    }
}

fn first_other<'a>(
    name: &PluginName,
    kinds: &BTreeSet<GroupKind>,
    who: impl Fn(&GroupKind) -> Option<&'a PluginName>,
) -> Result<(), Rival> {
    let rival = kinds.iter().find_map(|kind| {
        let by = who(kind).filter(|by| *by != name)?;
        let (kind, by) = (kind.clone(), by.clone());
        Some(Rival { kind, by })
    });
    rival.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plugin(age: i64, name: &str) -> Seniority {
        let created = Timestamp::from_second(age).unwrap();
        Seniority::Plugin(created, PluginName::new(name).unwrap())
    }

    fn kinds(kinds: &[&str]) -> BTreeSet<GroupKind> {
        let kinds = kinds.iter();
        kinds
            .map(|kind| GroupKind::new("example.com", *kind))
            .collect()
    }

    /// Asks and, where it may, begins; the name of who is in the way otherwise.
    fn serve(rivals: &mut Rivals, plugin: &Seniority, wanted: &[&str]) -> Result<(), String> {
        let wanted = kinds(wanted);
        rivals
            .ask(plugin, &wanted)
            .and_then(|()| rivals.insist(plugin, &wanted))
            .map_err(|rival| rival.by.to_string())
    }

    fn affected(rivals: &mut Rivals) -> Vec<String> {
        let affected = rivals.take_affected();
        affected.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_younger_plugin_gives_way_once_the_older_one_can_begin() {
        let mut rivals = Rivals::default();
        let (old, young) = (plugin(1, "old"), plugin(2, "young"));
        let web = kinds(&["Web"]);
        assert_eq!(serve(&mut rivals, &young, &["Web"]), Ok(()));
        rivals.take_affected();

        // An active plugin does not stop for one that may still fail.
        rivals.ask(&old, &web).unwrap();
        assert_eq!(rivals.in_the_way_of(young.name()), None);
        assert_eq!(
            serve(&mut rivals, &young, &["Web"]),
            Ok(()),
            "a swap of its own"
        );
        assert!(!rivals.concerns_somebody());

        assert_eq!(serve(&mut rivals, &old, &["Web"]), Err("young".to_owned()));
        assert_eq!(affected(&mut rivals), ["young"]);
        let rival = rivals.in_the_way_of(young.name()).unwrap();
        assert_eq!(rival.by, *old.name());
        rivals.release(young.name(), &BTreeSet::new());
        assert_eq!(affected(&mut rivals), ["old"]);
        assert_eq!(serve(&mut rivals, &young, &["Web"]), Err("old".to_owned()));
        assert_eq!(serve(&mut rivals, &old, &["Web"]), Ok(()));

        rivals.withdraw(old.name());
        assert_eq!(affected(&mut rivals), ["young"]);
        assert_eq!(serve(&mut rivals, &young, &["Web"]), Ok(()));
        assert_eq!(rivals.in_the_way_of(young.name()), None);
    }

    #[test]
    fn at_the_start_the_order_in_which_they_are_looked_at_does_not_matter() {
        let mut rivals = Rivals::default();
        let (old, young) = (plugin(1, "b"), plugin(1, "c"));
        let file = Seniority::File(PluginName::new("z").unwrap());
        for expected in [&young, &old] {
            rivals.expect(expected.clone(), kinds(&["Web"]));
        }
        assert_eq!(serve(&mut rivals, &young, &["Web"]), Err("b".to_owned()));
        // It cannot be loaded.
        rivals.withdraw(old.name());
        assert_eq!(affected(&mut rivals), ["c"]);
        assert_eq!(serve(&mut rivals, &young, &["Web"]), Ok(()));

        assert_eq!(serve(&mut rivals, &file, &["Pond"]), Ok(()));
        assert_eq!(serve(&mut rivals, &old, &["Pond"]), Err("z".to_owned()));
    }

    #[test]
    fn who_cannot_have_all_is_in_nobodys_way() {
        let mut rivals = Rivals::default();
        let [first, second, third] = [1, 2, 3].map(|age| plugin(age, &format!("p{age}")));
        assert_eq!(serve(&mut rivals, &first, &["A"]), Ok(()));
        let both = serve(&mut rivals, &second, &["A", "B"]);
        assert_eq!(both, Err("p1".to_owned()));
        assert_eq!(serve(&mut rivals, &third, &["B"]), Ok(()));

        // It also does not keep kinds while it waits for the rest.
        let mut rivals = Rivals::default();
        let young = plugin(9, "young");
        assert_eq!(serve(&mut rivals, &young, &["A"]), Ok(()));
        let both = serve(&mut rivals, &second, &["A", "B"]);
        assert_eq!(both, Err("young".to_owned()));
        rivals.release(young.name(), &BTreeSet::new());
        assert_eq!(serve(&mut rivals, &first, &["A"]), Ok(()));
        assert_eq!(serve(&mut rivals, &third, &["B"]), Ok(()));
    }

    proptest! {
        /// After any order of events the same plugins are active as if the oldest had come first, and no plugin is told
        /// to look again without end.
        #[test]
        fn the_order_of_events_does_not_matter(
            wants in prop::collection::vec(prop::collection::btree_set(0..4_usize, 1..3), 1..6),
            events in prop::collection::vec((0..6_usize, 0..3_u8), 0..40),
        ) {
            let names = ["A", "B", "C", "D"];
            let plugins: Vec<_> = wants
                .iter()
                .enumerate()
                .map(|(age, wants)| {
                    let wants: Vec<&str> = wants.iter().map(|at| names[*at]).collect();
                    (plugin(i64::try_from(age).unwrap(), &format!("p{age}")), wants)
                })
                .collect();
            let mut rivals = Rivals::default();
            let look = |rivals: &mut Rivals, at: usize| {
                let (plugin, wants) = &plugins[at % plugins.len()];
                if rivals.in_the_way_of(plugin.name()).is_some() {
                    rivals.release(plugin.name(), &BTreeSet::new());
                }
                drop(serve(rivals, plugin, wants));
            };
            for (at, event) in events {
                match event {
                    0 => look(&mut rivals, at),
                    1 => drop(rivals.ask(&plugins[at % plugins.len()].0, &kinds(&plugins[at % plugins.len()].1))),
                    _ => rivals.withdraw(plugins[at % plugins.len()].0.name()),
                }
            }
            for at in 0..plugins.len() {
                look(&mut rivals, at);
            }
            for _ in 0..100 {
                for name in rivals.take_affected() {
                    let at = plugins.iter().position(|(plugin, _)| *plugin.name() == name);
                    look(&mut rivals, at.unwrap());
                }
            }
            prop_assert!(!rivals.concerns_somebody());
            let mut expected = BTreeMap::new();
            for (plugin, wants) in &plugins {
                let wants = kinds(wants);
                if wants.iter().all(|kind| !expected.contains_key(kind)) {
                    expected.extend(wants.into_iter().map(|kind| (kind, plugin.name().clone())));
                }
            }
            prop_assert_eq!(rivals.holders, expected);
        }
    }
}
