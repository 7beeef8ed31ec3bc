//! Decides which components stay in the cache directory, and which ones its bound removes; see [`Cache`](super::Cache).
//!
//! Removed code costs a compilation at the next use, and removed bytes a fetch; code that is in use stays mapped.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use innkeeper_model::Digest;

/// The components that one owner, such as a Plugin, may use again, by digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Never removed: the active and the last good revision.
    pub kept: BTreeSet<Digest>,
    /// Removed beyond the bound, the least recently used first.
    pub spare: BTreeSet<Digest>,
}

/// All owners' needs.
#[derive(Debug, Default)]
pub(super) struct AllNeeds {
    owners: BTreeMap<String, Needs>,
    /// True once all owners' needs are known.
    pub(super) are_complete: bool,
}

/// One component's files in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheEntry {
    pub(super) digest: Digest,
    pub(super) size_bytes: u64,
    pub(super) used_at: SystemTime,
    /// True if the component's bytes are among them, which only a Plugin keeps.
    pub(super) has_bytes: bool,
}

impl AllNeeds {
    /// Replaces an owner's needs, and returns the components that no owner needs any more.
    pub(super) fn replace(&mut self, owner: String, needs: Needs) -> Vec<Digest> {
        let before = if needs == Needs::default() {
            self.owners.remove(&owner)
        } else {
            self.owners.insert(owner, needs)
        };
        let Needs { kept, spare } = before.unwrap_or_default();
        let is_needed = |digest: &Digest| {
            self.owners
                .values()
                .any(|needs| needs.kept.contains(digest) || needs.spare.contains(digest))
        };
        let named: BTreeSet<Digest> = kept.into_iter().chain(spare).collect();
        named
            .into_iter()
            .filter(|digest| !is_needed(digest))
            .collect()
    }

    /// Returns true if a component has to stay.
    pub(super) fn is_kept(&self, entry: &CacheEntry) -> bool {
        let mut all = self.owners.values();
        // Until all needs are known, any Plugin's component may be active.
        !self.are_complete && entry.has_bytes || all.any(|needs| needs.kept.contains(&entry.digest))
    }
}

/// Returns the components to remove, so that the others are within the bound: the least recently used first.
pub(super) fn excess(
    mut entries: Vec<CacheEntry>,
    is_kept: impl Fn(&CacheEntry) -> bool,
    bytes_max: u64,
) -> Vec<Digest> {
    let mut size_bytes: u64 = entries.iter().map(|entry| entry.size_bytes).sum();
    // After the sum: components that stay take up space too.
    entries.retain(|entry| !is_kept(entry));
    entries.sort_by_key(|entry| entry.used_at);
    entries
        .into_iter()
        .take_while(|entry| {
            let exceeds = size_bytes > bytes_max;
            size_bytes -= entry.size_bytes;
            exceeds
        })
        .map(|entry| entry.digest)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn digest(name: &str) -> Digest {
        Digest::hash(name.as_bytes())
    }

    fn digests(names: &str) -> BTreeSet<Digest> {
        names.split_whitespace().map(digest).collect()
    }

    /// A 10-byte entry with the time when it was last used.
    fn entry(name: &str, used_at: u64) -> CacheEntry {
        CacheEntry {
            digest: digest(name),
            size_bytes: 10,
            used_at: SystemTime::UNIX_EPOCH + Duration::from_secs(used_at),
            has_bytes: false,
        }
    }

    #[test]
    fn the_least_recently_used_goes_first_and_only_as_much_as_exceeds() {
        // a was used last, c first.
        let entries = || vec![entry("a", 3), entry("b", 2), entry("c", 1)];
        for (bytes_max, kept, expected) in [
            (30, "", ""),
            (29, "", "c"),
            (20, "", "c"),
            (19, "", "c b"),
            (0, "", "c b a"),
            (29, "c", "b"),
            (0, "a c", "b"),
            (0, "a b c", ""),
        ] {
            let kept = digests(kept);
            let removed = excess(entries(), |entry| kept.contains(&entry.digest), bytes_max);
            let expected: Vec<Digest> = expected.split_whitespace().map(digest).collect();
            assert_eq!(removed, expected, "{bytes_max} {kept:?}");
        }
    }

    #[test]
    fn a_component_goes_with_its_last_owner() {
        let mut all = AllNeeds::default();
        let needs = |kept, spare| Needs {
            kept: digests(kept),
            spare: digests(spare),
        };
        for (owner, kept, spare, removed) in [
            ("web", "a", "b", ""),
            ("shop", "b", "", ""),
            // Another owner still keeps b.
            ("web", "c", "a", ""),
            ("web", "d", "c", "a"),
            ("shop", "", "", "b"),
            ("web", "", "", "c d"),
        ] {
            let unneeded: BTreeSet<Digest> = all
                .replace(owner.to_owned(), needs(kept, spare))
                .into_iter()
                .collect();
            assert_eq!(unneeded, digests(removed), "{owner} {kept} {spare}");
        }
        assert!(all.owners.is_empty());
    }

    #[test]
    fn the_bytes_of_plugins_stay_until_all_needs_are_known() {
        let with_bytes = CacheEntry {
            has_bytes: true,
            ..entry("a", 1)
        };
        let code_only = entry("b", 1);
        let mut all = AllNeeds::default();
        assert!(all.is_kept(&with_bytes) && !all.is_kept(&code_only));
        all.are_complete = true;
        assert!(!all.is_kept(&with_bytes));
        let needs = Needs {
            kept: digests("a"),
            spare: digests("b"),
        };
        assert_eq!(all.replace("web".to_owned(), needs), []);
        assert!(all.is_kept(&with_bytes) && !all.is_kept(&code_only));
    }
}
