//! The bound of the cache directory: the components that are needed, and the removal of the others.
//!
//! Removed code costs its next user a compilation, and removed bytes a fetch; code that is in use stays mapped.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io, mem,
    time::SystemTime,
};

use innkeeper_model::Digest;

use super::{
    Cache,
    kept::{BYTES, SIGNED},
};

/// The size of a file beside its contents, so that many small files are bounded too: the block of a usual file system.
const FILE_BYTES: u64 = 4096;

/// The components that one owner, such as a Plugin, may use again, by the digests of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Never removed: the active and the last good revision.
    pub kept: BTreeSet<Digest>,
    /// Removed beyond the bound, the least recently used first.
    pub spare: BTreeSet<Digest>,
}

/// The needs of all owners.
#[derive(Debug, Default)]
pub(super) struct AllNeeds {
    owners: BTreeMap<String, Needs>,
    /// True once every owner has stated its needs.
    are_complete: bool,
}

/// All files of one component in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CacheEntry {
    digest: Digest,
    size_bytes: u64,
    used_at: SystemTime,
    /// True if the bytes of the component are among them, which only a Plugin keeps.
    has_bytes: bool,
}

impl AllNeeds {
    /// Replaces the needs of an owner, and returns the components that no owner needs any more.
    fn replace(&mut self, owner: String, needs: Needs) -> Vec<Digest> {
        let before = if needs == Needs::default() {
            self.owners.remove(&owner)
        } else {
            self.owners.insert(owner, needs)
        };
        let Needs { kept, spare } = before.unwrap_or_default();
        let is_needed = |digest: &Digest| {
            let mut all = self.owners.values();
            all.any(|needs| needs.kept.contains(digest) || needs.spare.contains(digest))
        };
        let named: BTreeSet<Digest> = kept.into_iter().chain(spare).collect();
        named.into_iter().filter(|one| !is_needed(one)).collect()
    }

    /// Returns true if a component has to stay. Until all needs are known, every component of a Plugin may be active.
    fn is_kept(&self, entry: &CacheEntry) -> bool {
        let mut all = self.owners.values();
        !self.are_complete && entry.has_bytes || all.any(|needs| needs.kept.contains(&entry.digest))
    }
}

/// Returns the components to remove, so that the others are within the bound: the least recently used first.
fn excess(
    mut entries: Vec<CacheEntry>,
    is_kept: impl Fn(&CacheEntry) -> bool,
    bytes_max: u64,
) -> Vec<Digest> {
    let mut size_bytes: u64 = entries.iter().map(|entry| entry.size_bytes).sum();
    entries.retain(|entry| !is_kept(entry));
    entries.sort_by_key(|entry| entry.used_at);
    let removed = entries.into_iter().take_while(|entry| {
        let exceeds = size_bytes > bytes_max;
        size_bytes -= entry.size_bytes;
        exceeds
    });
    removed.map(|entry| entry.digest).collect()
}

impl Cache {
    /// Replaces the needs of an owner. Components that no owner needs any more are removed at once.
    pub fn need(&self, owner: impl Into<String>, needs: Needs) {
        let removed = self.needs.lock().replace(owner.into(), needs);
        for digest in removed {
            self.remove(&digest);
        }
    }

    /// Declares that every owner has stated its needs: from now on, the bound removes all other components.
    pub fn know_all_needs(&self) {
        let were_complete = mem::replace(&mut self.needs.lock().are_complete, true);
        if !were_complete {
            self.keep_within(None);
        }
    }

    /// Removes components beyond the bound. One that was just written stays: its owner has not stated its needs yet.
    pub(super) fn keep_within(&self, written: Option<&Digest>) {
        let Some(bytes_max) = self.bytes_max else {
            return;
        };
        let entries = match self.entries() {
            Ok(entries) => entries,
            Err(error) => {
                let path = self.directory.display();
                tracing::warn!(%error, %path, "failed to bound the cache directory");
                return;
            }
        };
        let removed = {
            let needs = self.needs.lock();
            let stays = |entry: &CacheEntry| written == Some(&entry.digest) || needs.is_kept(entry);
            excess(entries, stays, bytes_max)
        };
        for digest in removed {
            tracing::debug!(%digest, "removed a component: the cache directory is full");
            self.remove(&digest);
        }
    }

    /// Returns the components in the directory. Other files do not count.
    fn entries(&self) -> io::Result<Vec<CacheEntry>> {
        let mut entries = BTreeMap::new();
        for file in fs::read_dir(&self.directory)? {
            let file = file?;
            let name = file.file_name();
            let name = name.to_string_lossy();
            let Some((digest, suffix)) = name.split_once('.') else {
                continue;
            };
            // Another process may remove the file at any time.
            let (Some(digest), Ok(metadata)) = (Digest::from_hex(digest), file.metadata()) else {
                continue;
            };
            let used_at = metadata.accessed()?.max(metadata.modified()?);
            let entry = entries.entry(digest.clone()).or_insert(CacheEntry {
                digest,
                size_bytes: 0,
                used_at,
                has_bytes: false,
            });
            entry.size_bytes += metadata.len() + FILE_BYTES;
            entry.used_at = entry.used_at.max(used_at);
            entry.has_bytes |= suffix == BYTES;
        }
        Ok(entries.into_values().collect())
    }

    /// Removes all files of a component.
    fn remove(&self, digest: &Digest) {
        let prefix = format!("{}.", digest.to_hex());
        let files = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<_> = files.map(|file| file.file_name()).collect();
        names.retain(|name| name.to_string_lossy().starts_with(&prefix));
        // The marks of signatures first: if the process ends in between, the bytes only count as unsigned.
        names.sort_by_key(|name| !name.to_string_lossy().ends_with(SIGNED));
        for name in names {
            let path = self.directory.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, path = %path.display(), "failed to remove a file that is no longer needed");
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn digest(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    fn digests(names: &str) -> BTreeSet<Digest> {
        names.split_whitespace().map(digest).collect()
    }

    /// An entry of 10 bytes with the time of its last use.
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
            let gone: BTreeSet<Digest> = all
                .replace(owner.to_owned(), needs(kept, spare))
                .into_iter()
                .collect();
            assert_eq!(gone, digests(removed), "{owner} {kept} {spare}");
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
