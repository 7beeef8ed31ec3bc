//! Small files that show the next process during which work this one ended.
//!
//! A mark has an owner, such as a Plugin, and the owner's text. It is lost with the directory, which only costs the
//! information.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::PathBuf,
};

use innkeeper_model::Digest;

use super::Cache;

/// A mark's longest text in bytes: far more than one Plugin's loads take.
const MARK_BYTES_MAX: usize = 4096;
/// The file prefix for marks; no component has such a name.
const PREFIX: &str = "mark-";

impl Cache {
    /// Returns an owner's mark; none if it is missing, unreadable or longer than 4 KiB.
    pub fn mark_of(&self, owner: &str) -> Option<Vec<u8>> {
        super::read_file(&self.mark_path(owner), MARK_BYTES_MAX).ok()
    }

    /// Replaces an owner's mark; without a text it is removed.
    pub fn set_mark(&self, owner: &str, text: Option<&[u8]>) -> io::Result<()> {
        let path = self.mark_path(owner);
        let Some(text) = text else {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        let mut file = self.begin()?;
        file.write_all(text)?;
        // Not synced: the text has to survive the process, not the machine, and every load writes one.
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Removes the marks except these owners'.
    pub fn keep_marks<'a>(&self, owners: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
        let names: BTreeSet<String> = owners.into_iter().map(mark_name).collect();
        for file in fs::read_dir(&self.directory)? {
            let file = file?;
            let name = file.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(PREFIX) && !names.contains(&*name) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    fn mark_path(&self, owner: &str) -> PathBuf {
        self.directory.join(mark_name(owner))
    }
}

/// Returns a file name; the owner may have any characters.
fn mark_name(owner: &str) -> String {
    format!("{PREFIX}{}", Digest::hash(owner.as_bytes()).to_hex())
}

#[cfg(test)]
mod tests {
    use super::{super::Needs, *};

    #[test]
    fn a_mark_stays_until_its_owner_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Cache::open(directory.path()).unwrap();
        let cache = open().with_bytes_max(0);
        assert_eq!(cache.mark_of("web"), None);
        cache.set_mark("web", Some(b"one")).unwrap();
        cache.set_mark("web", Some(b"two")).unwrap();
        cache.set_mark("../shop", Some(b"three")).unwrap();
        // The directory's bound counts components only.
        cache.know_all_needs();
        cache.need("web", Needs::default());
        let next = open();
        assert_eq!(next.mark_of("web").as_deref(), Some(b"two".as_slice()));
        assert_eq!(
            next.mark_of("../shop").as_deref(),
            Some(b"three".as_slice())
        );
        next.keep_marks(["web"]).unwrap();
        assert_eq!(
            (next.mark_of("web").is_some(), next.mark_of("../shop")),
            (true, None)
        );
        for _ in 0..2 {
            next.set_mark("web", None).unwrap();
        }
        assert_eq!(next.mark_of("web"), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_long_mark_counts_as_missing() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        cache
            .set_mark("web", Some(&[b'x'; MARK_BYTES_MAX]))
            .unwrap();
        assert!(cache.mark_of("web").is_some());
        cache
            .set_mark("web", Some(&[b'x'; MARK_BYTES_MAX + 1]))
            .unwrap();
        assert_eq!(cache.mark_of("web"), None);
    }
}
