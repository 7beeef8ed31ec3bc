//! Claims on parent kinds: plugin files come first, then the oldest Plugin.
//!
//! Pure: claims are sorted by age. A change that affects another plugin's standing marks that plugin for a pass. The
//! callers start and stop the passes.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use innkeeper_model::{GroupKind, PluginName};
use jiff::Timestamp;

/// A plugin's age. The smallest comes first; plugins with the same age are ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Age {
    /// A plugin from a file. No two files claim the same kind: [`admit`](super::admit) rejects the second one.
    File,
    /// A Plugin resource, by creation time in whole seconds, as the API server stores it.
    Created(Timestamp),
}

/// A claimed kind that another plugin holds or is first for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TakenKind {
    /// The kind.
    pub(crate) kind: GroupKind,
    /// The other plugin.
    pub(crate) by: PluginName,
}

/// All plugins' claims on one host.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    claims: BTreeMap<PluginName, Claim>,
    /// Plugins that need a pass, because others changed their standing.
    affected: BTreeSet<PluginName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    age: Age,
    /// The next revision's kinds.
    kinds: BTreeSet<GroupKind>,
    /// Kinds with passes that run or may begin. Only one plugin holds a kind.
    held: BTreeSet<GroupKind>,
    /// True if only a younger plugin's hold keeps this one from being active. Only then the younger plugin stops,
    /// because a revision that is not yet fetched and checked may fail.
    is_ready: bool,
}

/// A claim's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// It holds all kinds.
    Holds,
    /// All other kinds are free.
    MayTake,
    /// It is first, and a younger plugin holds a kind until this one is ready.
    Awaits(TakenKind),
    /// Another plugin is first for a kind.
    Second(TakenKind),
    /// An older plugin is ready for a kind that this one holds.
    MustStop(TakenKind),
}

impl Claims {
    /// Claims the kinds that a plugin may serve, so no later plugin takes them first.
    pub(crate) fn expect(&mut self, name: &PluginName, age: Age, kinds: &BTreeSet<GroupKind>) {
        // A plugin file with this name keeps its claim.
        if !kinds.is_empty() && !self.claims.contains_key(name) {
            self.claim(name, age, kinds);
        }
    }

    /// Claims kinds for a plugin, and holds them once all are free.
    ///
    /// Fails if another plugin is first for one of them. While a younger plugin holds one, an unready plugin may
    /// continue to prepare. For a ready plugin it fails, and the younger plugin must stop.
    pub(crate) fn acquire(
        &mut self,
        name: &PluginName,
        age: Age,
        kinds: &BTreeSet<GroupKind>,
        is_ready: bool,
    ) -> Result<(), TakenKind> {
        self.claim(name, age, kinds);
        // An active plugin keeps the kinds until it has to stop, also during a rollout.
        if self.claims[name].has_all() {
            return Ok(());
        }
        match self.standings().remove(name) {
            // All or none: a plugin that waits for one kind does not keep others from the rest.
            Some(Standing::MayTake) => {
                self.change(name, |claim| {
                    let mut claim = claim?;
                    claim.held.extend(claim.kinds.iter().cloned());
                    Some(claim)
                });
                Ok(())
            }
            Some(Standing::Awaits(taken)) if is_ready => {
                self.change(name, |claim| claim.map(|claim| Claim { is_ready, ..claim }));
                Err(taken)
            }
            Some(Standing::Second(taken) | Standing::MustStop(taken)) => Err(taken),
            Some(Standing::Holds | Standing::Awaits(_)) | None => Ok(()),
        }
    }

    /// Returns the kind that a plugin holds and an older, ready plugin is first for.
    pub(crate) fn must_stop(&self, name: &PluginName) -> Option<TakenKind> {
        match self.standings().remove(name)? {
            Standing::MustStop(taken) => Some(taken),
            _ => None,
        }
    }

    /// Returns true if a plugin is first for all kinds that it claims.
    pub(crate) fn is_first(&self, name: &PluginName) -> bool {
        let winners = self.winners();
        self.claims.get(name).is_some_and(|claim| {
            claim
                .kinds
                .iter()
                .all(|kind| winners.get(kind) == Some(&name))
        })
    }

    /// Returns the plugin whose passes for this parent kind run or may begin.
    pub(crate) fn holder(&self, kind: &GroupKind) -> Option<&PluginName> {
        self.claims
            .iter()
            .find_map(|(name, claim)| claim.held.contains(kind).then_some(name))
    }

    /// Releases all held kinds except these.
    pub(crate) fn release(&mut self, name: &PluginName, kept: &BTreeSet<GroupKind>) {
        self.change(name, |claim| {
            let mut claim = claim?;
            claim.held.retain(|kind| kept.contains(kind));
            Some(claim)
        });
    }

    /// Releases all claimed kinds that a plugin does not hold. Removes a plugin that holds none.
    pub(crate) fn release_unheld(&mut self, name: &PluginName) {
        self.change(name, |claim| {
            let Claim { age, held, .. } = claim.clone().filter(|claim| !claim.held.is_empty())?;
            Some(Claim::new(age, held, claim))
        });
    }

    /// Removes a plugin that cannot be active or was deleted.
    pub(crate) fn remove(&mut self, name: &PluginName) {
        self.change(name, |_| None);
        self.affected.remove(name);
    }

    /// Takes the plugins that need a pass: they have to stop, or a kind that they wait for is free.
    pub(crate) fn take_affected(&mut self) -> BTreeSet<PluginName> {
        mem::take(&mut self.affected)
    }

    fn claim(&mut self, name: &PluginName, age: Age, kinds: &BTreeSet<GroupKind>) {
        let kinds = kinds.clone();
        self.change(name, |claim| Some(Claim::new(age, kinds, claim)));
    }

    /// Changes one claim, and collects other plugins whose standing changes. The plugin itself handles the change in
    /// its own pass.
    fn change(&mut self, name: &PluginName, change: impl FnOnce(Option<Claim>) -> Option<Claim>) {
        let before = self.claims.get(name).cloned();
        let after = change(before.clone());
        if before == after {
            return;
        }
        let standings = self.standings();
        match after {
            Some(claim) => drop(self.claims.insert(name.clone(), claim)),
            None => drop(self.claims.remove(name)),
        }
        // Only changed standings: plugins that wait for each other would otherwise trigger passes for ever.
        let changed = self
            .standings()
            .into_iter()
            .filter(|(other, standing)| other != name && standings.get(other) != Some(standing))
            .map(|(other, _)| other);
        self.affected.extend(changed);
    }

    /// Returns the plugin to activate for each kind: the first one that is first for all claimed kinds.
    fn winners(&self) -> BTreeMap<&GroupKind, &PluginName> {
        let mut claims: Vec<_> = self.claims.iter().collect();
        claims.sort_by_key(|(name, claim)| (claim.age, *name));
        let mut winners = BTreeMap::new();
        for (name, Claim { kinds, held, .. }) in claims {
            let all: BTreeSet<_> = kinds.union(held).collect();
            // If the next revision cannot have all kinds, the active revision keeps its own.
            for kinds in [all, held.iter().collect()] {
                let is_free = |kind: &&GroupKind| winners.get(*kind).is_none_or(|by| *by == name);
                // A plugin that lacks one kind cannot be active, so it must not block others from the rest.
                if kinds.iter().all(is_free) {
                    winners.extend(kinds.into_iter().map(|kind| (kind, name)));
                }
            }
        }
        winners
    }

    fn standings(&self) -> BTreeMap<PluginName, Standing> {
        let winners = self.winners();
        let holders: BTreeMap<&GroupKind, &PluginName> = self
            .claims
            .iter()
            .flat_map(|(name, claim)| claim.held.iter().map(move |kind| (kind, name)))
            .collect();
        let is_ready =
            |name: &PluginName| self.claims.get(name).is_some_and(|claim| claim.is_ready);
        self.claims
            .iter()
            .map(|(name, claim)| {
                let taken = |kinds: &BTreeSet<GroupKind>,
                             by: &BTreeMap<&GroupKind, &PluginName>| {
                    kinds.iter().find_map(|kind| {
                        let by = *by.get(kind).filter(|by| **by != name)?;
                        Some(TakenKind {
                            kind: kind.clone(),
                            by: by.clone(),
                        })
                    })
                };
                let ready_winners = winners
                    .iter()
                    .filter(|(_, by)| is_ready(by))
                    .map(|(kind, by)| (*kind, *by))
                    .collect();
                // First, because a plugin that holds all its kinds must stop as well.
                let standing = if let Some(taken) = taken(&claim.held, &ready_winners) {
                    Standing::MustStop(taken)
                } else if claim.has_all() {
                    Standing::Holds
                } else if let Some(taken) = taken(&claim.kinds, &winners) {
                    Standing::Second(taken)
                } else if let Some(taken) = taken(&claim.kinds, &holders) {
                    Standing::Awaits(taken)
                } else {
                    Standing::MayTake
                };
                (name.clone(), standing)
            })
            .collect()
    }
}

impl Claim {
    /// Returns a claim that replaces the plugin's earlier one.
    fn new(age: Age, kinds: BTreeSet<GroupKind>, before: Option<Self>) -> Self {
        match before {
            Some(before) if before.age == age && before.kinds == kinds => before,
            before => Self {
                age,
                kinds,
                held: before.map_or_else(BTreeSet::new, |before| before.held),
                // Another age is a recreated Plugin, and other kinds are another revision: it must be prepared anew.
                is_ready: false,
            },
        }
    }

    fn has_all(&self) -> bool {
        self.kinds.is_subset(&self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Plugin = (PluginName, Age);

    fn plugin(age: i64, name: &str) -> Plugin {
        let created = Timestamp::from_second(age).unwrap();
        (PluginName::new(name).unwrap(), Age::Created(created))
    }

    fn kinds(kinds: &[&str]) -> BTreeSet<GroupKind> {
        kinds
            .iter()
            .map(|kind| GroupKind::new("example.com", *kind))
            .collect()
    }

    fn prepare(
        claims: &mut Claims,
        (name, age): &Plugin,
        claimed: &[&str],
    ) -> Result<(), TakenKind> {
        claims.acquire(name, *age, &kinds(claimed), false)
    }

    /// Claims and, if possible, activates; otherwise returns the name of the plugin that prevents it.
    fn serve(claims: &mut Claims, plugin: &Plugin, claimed: &[&str]) -> Result<(), String> {
        let (name, age) = plugin;
        prepare(claims, plugin, claimed)
            .and_then(|()| claims.acquire(name, *age, &kinds(claimed), true))
            .map_err(|taken| taken.by.to_string())
    }

    fn affected(claims: &mut Claims) -> Vec<String> {
        claims
            .take_affected()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_younger_plugin_gives_way_once_the_older_one_can_begin() {
        let mut claims = Claims::default();
        let old = plugin(1, "old");
        let young = plugin(2, "young");
        assert_eq!(serve(&mut claims, &young, &["Web"]), Ok(()));
        claims.take_affected();

        // An active plugin does not stop for a plugin that may still fail.
        prepare(&mut claims, &old, &["Web"]).unwrap();
        assert_eq!(claims.must_stop(&young.0), None);
        assert_eq!(
            serve(&mut claims, &young, &["Web"]),
            Ok(()),
            "a swap of its own"
        );
        assert!(claims.take_affected().is_empty());

        assert_eq!(serve(&mut claims, &old, &["Web"]), Err("young".to_owned()));
        assert_eq!(affected(&mut claims), ["young"]);
        assert_eq!(claims.must_stop(&young.0).unwrap().by, old.0);
        claims.release(&young.0, &BTreeSet::new());
        assert_eq!(affected(&mut claims), ["old"]);
        assert_eq!(serve(&mut claims, &young, &["Web"]), Err("old".to_owned()));
        assert_eq!(serve(&mut claims, &old, &["Web"]), Ok(()));

        claims.remove(&old.0);
        assert_eq!(affected(&mut claims), ["young"]);
        assert_eq!(serve(&mut claims, &young, &["Web"]), Ok(()));
        assert_eq!(claims.must_stop(&young.0), None);
    }

    #[test]
    fn at_the_start_the_order_of_the_first_passes_does_not_matter() {
        let mut claims = Claims::default();
        let old = plugin(1, "b");
        let young = plugin(1, "c");
        let file = (PluginName::new("z").unwrap(), Age::File);
        for (name, age) in [&young, &old] {
            claims.expect(name, *age, &kinds(&["Web"]));
        }
        assert_eq!(serve(&mut claims, &young, &["Web"]), Err("b".to_owned()));
        // It cannot be loaded.
        claims.remove(&old.0);
        assert_eq!(affected(&mut claims), ["c"]);
        assert_eq!(serve(&mut claims, &young, &["Web"]), Ok(()));

        assert_eq!(serve(&mut claims, &file, &["Pond"]), Ok(()));
        assert_eq!(serve(&mut claims, &old, &["Pond"]), Err("z".to_owned()));
    }

    #[test]
    fn a_plugin_that_cannot_have_all_its_kinds_blocks_no_other() {
        let mut claims = Claims::default();
        let [first, second, third] = [1, 2, 3].map(|age| plugin(age, &format!("p{age}")));
        assert_eq!(serve(&mut claims, &first, &["A"]), Ok(()));
        let both = serve(&mut claims, &second, &["A", "B"]);
        assert_eq!(both, Err("p1".to_owned()));
        assert_eq!(serve(&mut claims, &third, &["B"]), Ok(()));

        // It also does not keep kinds while it waits for the rest.
        let mut claims = Claims::default();
        let young = plugin(9, "young");
        assert_eq!(serve(&mut claims, &young, &["A"]), Ok(()));
        let both = serve(&mut claims, &second, &["A", "B"]);
        assert_eq!(both, Err("young".to_owned()));
        claims.release(&young.0, &BTreeSet::new());
        assert_eq!(serve(&mut claims, &first, &["A"]), Ok(()));
        assert_eq!(serve(&mut claims, &third, &["B"]), Ok(()));
    }

    #[test]
    fn a_plugin_that_was_made_again_has_its_new_age() {
        let mut claims = Claims::default();
        let old = plugin(1, "a");
        let other = plugin(2, "b");
        assert_eq!(serve(&mut claims, &other, &["Web"]), Ok(()));
        prepare(&mut claims, &old, &["Web"]).unwrap();
        assert!(claims.is_first(&old.0));
        let again = plugin(3, "a");
        let taken = serve(&mut claims, &again, &["Web"]);
        assert_eq!(taken, Err("b".to_owned()));
        assert!(claims.is_first(&other.0));
        assert_eq!(claims.must_stop(&other.0), None);
    }

    #[test]
    fn a_plugin_is_told_to_prepare_when_its_rival_becomes_younger() {
        let mut claims = Claims::default();
        let first = plugin(1, "a");
        let second = plugin(2, "b");
        assert_eq!(serve(&mut claims, &first, &["Web"]), Ok(()));
        let taken = serve(&mut claims, &second, &["Web"]);
        assert_eq!(taken, Err("a".to_owned()));
        claims.take_affected();
        let again = plugin(3, "a");
        assert_eq!(serve(&mut claims, &again, &["Web"]), Ok(()));
        assert_eq!(affected(&mut claims), ["b"]);
        let taken = serve(&mut claims, &second, &["Web"]);
        assert_eq!(taken, Err("a".to_owned()));
        assert_eq!(affected(&mut claims), ["a"]);
        assert_eq!(claims.must_stop(&again.0).unwrap().by, second.0);
    }

    #[test]
    fn a_next_revision_does_not_cost_the_kinds_of_the_active_one() {
        let old = plugin(1, "old");
        let young = plugin(2, "young");
        let active = || {
            let mut claims = Claims::default();
            assert_eq!(serve(&mut claims, &old, &["A"]), Ok(()));
            claims
        };
        let mut claims = active();
        let young_takes = |claims: &mut Claims, kind, expected: Result<(), &str>| {
            let taken = serve(claims, &young, &[kind]);
            assert_eq!(taken, expected.map_err(str::to_owned), "{kind}");
            assert_eq!(claims.must_stop(&old.0), None);
            claims.remove(&young.0);
        };
        // During the attempt it also has its own kinds.
        prepare(&mut claims, &old, &["B"]).unwrap();
        young_takes(&mut claims, "A", Err("old"));
        young_takes(&mut claims, "B", Err("old"));
        // It fails, and only the active revision's kinds stay.
        claims.release(&old.0, &kinds(&["A"]));
        claims.release_unheld(&old.0);
        young_takes(&mut claims, "A", Err("old"));
        young_takes(&mut claims, "B", Ok(()));

        // Also while it waits for an older plugin's kind; then it gets a pass.
        let mut claims = active();
        let older = plugin(0, "older");
        assert_eq!(serve(&mut claims, &older, &["B"]), Ok(()));
        let waits = serve(&mut claims, &old, &["B"]);
        assert_eq!(waits, Err("older".to_owned()));
        young_takes(&mut claims, "A", Err("old"));
        assert!(!claims.is_first(&old.0));
        claims.take_affected();
        claims.remove(&older.0);
        assert_eq!(affected(&mut claims), ["old"]);
        assert!(claims.is_first(&old.0));

        // Without an active revision, nothing remains.
        let mut claims = Claims::default();
        prepare(&mut claims, &old, &["A"]).unwrap();
        claims.release(&old.0, &BTreeSet::new());
        claims.release_unheld(&old.0);
        young_takes(&mut claims, "A", Ok(()));
    }

    proptest! {
        /// Any order of events activates the same plugins as oldest first, and no plugin gets passes forever.
        #[test]
        fn the_order_of_events_does_not_matter(
            wanted in prop::collection::vec(prop::collection::btree_set(0..4_usize, 1..3), 1..6),
            events in prop::collection::vec((0..6_usize, 0..3_u8), 0..40),
        ) {
            let names = ["A", "B", "C", "D"];
            let plugins: Vec<_> = wanted
                .iter()
                .enumerate()
                .map(|(age, kinds)| {
                    let kinds: Vec<&str> = kinds.iter().map(|index| names[*index]).collect();
                    (plugin(i64::try_from(age).unwrap(), &format!("p{age}")), kinds)
                })
                .collect();
            let mut claims = Claims::default();
            let look = |claims: &mut Claims, at: usize| {
                let (plugin, kinds) = &plugins[at % plugins.len()];
                if claims.must_stop(&plugin.0).is_some() {
                    claims.release(&plugin.0, &BTreeSet::new());
                }
                drop(serve(claims, plugin, kinds));
            };
            for (at, event) in events {
                let (plugin, kinds) = &plugins[at % plugins.len()];
                match event {
                    0 => look(&mut claims, at),
                    1 => drop(prepare(&mut claims, plugin, kinds)),
                    _ => claims.remove(&plugin.0),
                }
            }
            for at in 0..plugins.len() {
                look(&mut claims, at);
            }
            for _ in 0..100 {
                for name in claims.take_affected() {
                    let at = plugins.iter().position(|((one, _), _)| *one == name);
                    look(&mut claims, at.unwrap());
                }
            }
            prop_assert!(claims.take_affected().is_empty());
            let mut expected = BTreeMap::new();
            for ((name, _), names) in &plugins {
                    let kinds = kinds(names);
                    if kinds.iter().all(|kind| !expected.contains_key(kind)) {
                        expected.extend(kinds.into_iter().map(|kind| (kind, name.clone())));
                }
            }
            let owned = claims.claims.iter().flat_map(|(name, claim)| {
                claim.held.iter().map(move |kind| (kind.clone(), name.clone()))
            });
            prop_assert_eq!(owned.collect::<BTreeMap<_, _>>(), expected);
        }
    }
}
