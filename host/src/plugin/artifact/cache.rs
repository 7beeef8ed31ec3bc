//! Compiled artifacts on disk, by content.
//!
//! Compiled code is native code and trusted as it is.
//! So the directory must belong to this process's user and to nobody else, only this module writes to it, and an entry
//! whose bytes are not those that were written is compiled again.

use std::{
    fs, hash,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;

use super::Error;
use crate::{model::Digest, plugin::Engine};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o400;
/// Write permission of group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A directory of compiled artifacts.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(super) directory: PathBuf,
}

impl Cache {
    /// Opens a directory, making it and its parents where they are missing.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = || directory.display().to_string();
        let failed = |source| Error::OpenCache {
            path: path(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)
            .map_err(failed)?;
        // Resolved first: what a symbolic link of ours points to is what has to be safe.
        let directory = directory.canonicalize().map_err(failed)?;
        let metadata = fs::symlink_metadata(&directory).map_err(failed)?;
        check_owner(
            metadata.uid(),
            metadata.mode(),
            rustix::process::geteuid().as_raw(),
        )
        .map_err(|problem| Error::UnsafeCacheDirectory {
            path: path(),
            problem,
        })?;
        Ok(Self { directory })
    }

    /// The compiled form of the bytes with this digest; none if it is missing, damaged or of another engine.
    pub(super) fn load(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let entry = self.entry(engine, digest);
        let expected = fs::read_to_string(&entry.sum).ok()?;
        let code = fs::read(&entry.code).ok()?;
        if Digest::of(&code).to_string() != expected {
            tracing::warn!(path = %entry.code.display(), "a compiled artifact is damaged and is made again");
            return None;
        }
        map(engine, &entry.code)
    }

    /// Stores a compiled form and gives it back mapped from its file; none if that fails, which costs memory and the
    /// next start's time, but nothing else.
    pub(super) fn store(
        &self,
        engine: &Engine,
        digest: &Digest,
        component: &Component,
    ) -> Option<Component> {
        let entry = self.entry(engine, digest);
        let code = component
            .serialize()
            .inspect_err(|error| tracing::warn!(%error, "failed to serialize compiled code"))
            .ok()?;
        // The sum goes first: whoever sees the code sees its sum, and a sum without code is just a miss.
        let sum = Digest::of(&code).to_string();
        self.write(&entry.sum, sum.as_bytes())
            .and_then(|()| self.write(&entry.code, &code))
            .inspect_err(|error| {
                tracing::warn!(%error, path = %entry.code.display(), "failed to keep compiled code");
            })
            .ok()?;
        map(engine, &entry.code)
    }

    fn entry(&self, engine: &Engine, digest: &Digest) -> Entry {
        let mut key = Sha256::new();
        key.update(digest.as_bytes());
        hash::Hash::hash(
            &engine.wasmtime().precompile_compatibility_hash(),
            &mut Feed(&mut key),
        );
        let key = Digest::of(&key.finalize()).to_hex();
        Entry {
            code: self.directory.join(format!("{key}.cwasm")),
            sum: self.directory.join(format!("{key}.sum")),
        }
    }

    /// Writes a file as a whole or not at all.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(&self.directory)?;
        file.write_all(bytes)?;
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }
}

struct Entry {
    code: PathBuf,
    sum: PathBuf,
}

/// Feeds what is hashed into a digest, because the standard library's hashes may differ between builds of the host.
struct Feed<'a>(&'a mut Sha256);

impl hash::Hasher for Feed<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Never asked for: the digest is taken instead.
        0
    }
}

fn check_owner(owner: u32, mode: u32, us: u32) -> Result<(), String> {
    if owner != us {
        return Err(format!(
            "it belongs to user {owner} and this process runs as user {us}: compiled code in it could be replaced; choose another with --cache-dir"
        ));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(format!(
            "others may write to it (mode {:o}): run chmod 700 on it, or choose another with --cache-dir",
            mode & 0o7777
        ));
    }
    Ok(())
}

#[expect(
    unsafe_code,
    reason = "compiled code is trusted by its nature: the file is in a directory that only we can write to, and its bytes were just compared with the digest that we stored"
)]
fn map(engine: &Engine, path: &Path) -> Option<Component> {
    // SAFETY: the file was written by `Cache::write` from `Component::serialize`, in a directory that nobody else can
    // write to, is read-only, and is replaced as a whole, never changed in place.
    unsafe { Component::deserialize_file(engine.wasmtime(), path) }
        .inspect_err(|error| {
            tracing::warn!(%error, path = %path.display(), "failed to map compiled code");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::check_owner;

    #[test]
    fn only_our_own_directories_will_do() {
        assert_eq!(check_owner(1000, 0o40_755, 1000), Ok(()));
        assert!(
            check_owner(0, 0o40_700, 1000)
                .unwrap_err()
                .contains("belongs to user 0")
        );
        for mode in [0o40_770, 0o40_707, 0o41_777] {
            assert!(
                check_owner(1000, mode, 1000)
                    .unwrap_err()
                    .contains("chmod 700")
            );
        }
    }
}
