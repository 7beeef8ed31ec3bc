//! Content-addressed component cache, so that a known revision starts without its registry.
//!
//! Files are named by digest, and every read checks it.
//! The bytes do not show their signature, so a checked one is noted in a file beside them. This is as safe as the
//! compiled code in the same directory.
//! The owners decide which components are needed: [`Needs`](super::Needs).

use std::{io, path::PathBuf};

use innkeeper_model::Digest;

use super::{
    Cache, Limits,
    cache::{BYTES, SIGNED},
};

impl Cache {
    /// Stores bytes, and the key whose signature on them was checked.
    pub fn keep(
        &self,
        digest: &Digest,
        bytes: &[u8],
        signed_by: Option<&Digest>,
    ) -> io::Result<()> {
        // The bytes first: a mark must never be there for bytes that are not.
        self.write(&self.bytes(digest), bytes)?;
        if let Some(key) = signed_by {
            self.write(&self.mark(digest, key), b"")?;
        }
        self.keep_within(Some(digest));
        Ok(())
    }

    /// Returns the bytes with this digest; none if they are missing, damaged, or larger than the present limit.
    pub fn kept(&self, digest: &Digest, limits: &Limits) -> Option<Vec<u8>> {
        let path = self.bytes(digest);
        let bytes = super::read_file(&path, limits.bytes_max).ok()?;
        if Digest::hash(&bytes) != *digest {
            tracing::warn!(path = %path.display(), "a plugin's bytes on disk are damaged and are fetched again");
            return None;
        }
        Some(bytes)
    }

    /// Returns the first of these keys whose signature on the bytes with this digest was checked.
    pub fn signer<'a>(&self, digest: &Digest, keys: &'a [Digest]) -> Option<&'a Digest> {
        keys.iter().find(|key| self.mark(digest, key).exists())
    }

    fn bytes(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}.{BYTES}", digest.to_hex()))
    }

    fn mark(&self, digest: &Digest, key: &Digest) -> PathBuf {
        let digest = digest.to_hex();
        let key = key.to_hex();
        self.directory.join(format!("{digest}.{key}.{SIGNED}"))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::{super::Needs, *};

    #[test]
    fn bytes_are_kept_by_content_with_their_signers_until_they_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        let limits = Limits::default();
        let one = Digest::hash(b"one");
        let other = Digest::hash(b"other");
        let [key, another] = ["key", "another"].map(|text| Digest::hash(text.as_bytes()));
        cache.keep(&one, b"one", Some(&key)).unwrap();
        cache.keep(&other, b"other", None).unwrap();
        // Also a second time, although the file is read-only.
        cache.keep(&one, b"one", None).unwrap();
        assert_eq!(cache.kept(&one, &limits).unwrap(), b"one");
        let keys = [another, key];
        assert_eq!(cache.signer(&one, &keys), Some(&keys[1]));
        assert_eq!(cache.signer(&one, &keys[..1]), None);
        assert_eq!(cache.signer(&other, &keys), None);

        let small = Limits {
            bytes_max: 2,
            ..Limits::default()
        };
        assert_eq!(cache.kept(&one, &small), None);
        let needed = Needs {
            kept: [one.clone()].into(),
            ..Needs::default()
        };
        for needs in [needed, Needs::default(), Needs::default()] {
            cache.need("web", needs);
        }
        assert_eq!(cache.kept(&one, &limits), None);
        assert_eq!(cache.signer(&one, &keys), None);
        assert_eq!(cache.kept(&other, &limits).unwrap(), b"other");
    }

    #[test]
    fn damaged_bytes_are_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        let digest = Digest::hash(b"good");
        cache.keep(&digest, b"good", None).unwrap();
        let path = cache.bytes(&digest);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"evil").unwrap();
        assert_eq!(cache.kept(&digest, &Limits::default()), None);
    }
}
