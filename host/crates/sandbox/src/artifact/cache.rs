//! Compiled artifacts on disk, by content, and verdicts on bytes that cannot be compiled.
//!
//! Compiled code is native code and is run without further checks.
//! So the directory must belong to this process's user and must not be writable by others, only this module writes to
//! it, and an entry whose bytes differ from the written ones is compiled again.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    mem,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use innkeeper_model::{Digest, Digester};
use parking_lot::Mutex;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use tempfile::NamedTempFile;
use wasmtime::component::Component;

use super::{
    Error, confinement,
    needs::{AllNeeds, CacheEntry, Needs, excess},
    verdict::{CompileBounds, CompileVerdict},
};
use crate::{Engine, Metering, code::CodeSource};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o400;
/// Write permission for group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Bytes hashed at a time; the code itself never has to be on the heap.
const PIECE_BYTES: usize = 64 * 1024;
/// Sets when a file was last used, and leaves when it was last changed.
const USED_NOW: Timestamps = Timestamps {
    last_access: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    },
    last_modification: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    },
};
/// The file suffix for compiled code.
const CODE: &str = "cwasm";
/// The file suffix for compiled code's digests.
const SUM: &str = "sum";
/// The file suffix for verdicts.
const VERDICT: &str = "refused";
/// The longest verdict that is read, in bytes; the host writes one line from the compiler.
const VERDICT_BYTES_MAX: u64 = 256 << 10;
/// The file suffix for plugin bytes.
pub(super) const BYTES: &str = "wasm";
/// The file suffix for marks that a signature was checked.
pub(super) const SIGNED: &str = "signed";
/// The file prefix for unfinished files.
const UNFINISHED: &str = ".new-";
/// The age from which an unfinished file is removed: no compiler may run for so long (two minutes at most), so a killed
/// process left it behind.
const UNFINISHED_AGE_MAX: Duration = Duration::from_hours(1);
/// A file's size beside the contents, so that many small files are bounded too: a usual file system's block.
const FILE_BYTES: u64 = 4096;

/// A directory with compiled artifacts and plugin bytes.
///
/// # Expected flow
///
/// Open it once, and give it to [`compile`](super::compile) or to a [`Compiler`](super::Compiler), which fill and read
/// the compiled part. Keep an active revision's bytes, so that it can start again while the registry is down, and state
/// the components that each owner needs: the others are removed.
///
/// ```
/// use innkeeper_model::Digest;
/// use innkeeper_sandbox::artifact::{Cache, Limits, Needs};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let cache = Cache::open(directory.path())?;
/// let bytes = b"the bytes of a plugin";
/// let digest = Digest::hash(bytes);
/// cache.keep(&digest, bytes, None)?;
/// assert_eq!(cache.kept(&digest, &Limits::default()).as_deref(), Some(bytes.as_slice()));
/// cache.need("a Plugin", Needs { kept: [digest.clone()].into(), ..Needs::default() });
/// cache.need("a Plugin", Needs::default());
/// assert_eq!(cache.kept(&digest, &Limits::default()), None);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// Every entry is whole, also after a crash: a file gets its name after the last byte is on disk. A damaged entry
/// counts as missing.
///
/// With a bound, the directory exceeds it only by components that are kept, and for a moment by the last one that was
/// written.
///
/// # Assumptions
///
/// Only this user can write to the directory. Several processes may share it if they have the same user.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(super) directory: PathBuf,
    /// The directory's bound; none if it may grow without bound.
    bytes_max: Option<u64>,
    needs: Arc<Mutex<AllNeeds>>,
}

impl Cache {
    /// Opens a directory, and creates it and the parents where they are missing.
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
        // Resolved first: a symbolic link's target has to be safe, not the link.
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
        let cache = Self {
            directory,
            bytes_max: None,
            needs: Arc::default(),
        };
        cache.sweep().map_err(failed)?;
        Ok(cache)
    }

    /// Bounds the directory: beyond this size, unneeded components are removed, the least recently used first.
    pub fn with_bytes_max(self, bytes_max: u64) -> Self {
        Self {
            bytes_max: Some(bytes_max),
            ..self
        }
    }

    /// Replaces an owner's needs, and removes components that no owner needs any more.
    pub fn need(&self, owner: impl Into<String>, needs: Needs) {
        let removed = self.needs.lock().replace(owner.into(), needs);
        for digest in removed {
            self.remove(&digest);
        }
    }

    /// Declares that all owners' needs are known: from now on, the bound removes all other components.
    pub fn know_all_needs(&self) {
        let were_complete = mem::replace(&mut self.needs.lock().are_complete, true);
        if !were_complete {
            // Only now: afterwards, each write keeps the bound.
            self.keep_within(None);
        }
    }

    /// Returns why compiled code could not be stored.
    pub(super) fn not_kept(&self, source: io::Error) -> Error {
        let path = self.directory.display().to_string();
        Error::Keep { path, source }
    }

    /// Removes unfinished files that killed processes left behind.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
            // Another process may finish or remove the file at any time, so that errors are no failures.
            let age = entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .ok()
                .and_then(|modified| modified.elapsed().ok());
            if unfinished && age.is_some_and(|age| age > UNFINISHED_AGE_MAX) {
                drop(fs::remove_file(entry.path()));
            }
        }
        Ok(())
    }

    /// Returns the compiled form for this digest; none if it is missing, damaged or for another engine.
    pub(super) fn load(&self, engine: &Engine, digest: &Digest) -> Option<Compiled> {
        let path = self.path(engine, digest, CODE);
        let expected = fs::read_to_string(self.path(engine, digest, SUM)).ok()?;
        // Opened once: the file that is hashed is the one that is mapped, whatever gets its name in between.
        let code = File::open(&path).ok()?;
        let sum = sum_of(&code).ok()?;
        if sum != expected {
            tracing::warn!(path = %path.display(), "a compiled artifact is damaged and is made again");
            return None;
        }
        // Not every file system notes a use itself. Without the note, the code only goes earlier.
        if let Err(error) = futimens(&code, &USED_NOW) {
            tracing::debug!(%error, path = %path.display(), "failed to note the use of compiled code");
        }
        // Also after a host update, because the new engine refuses the old one's code.
        Compiled::map(engine, code)
            .inspect_err(|error| {
                tracing::warn!(%error, path = %path.display(), "failed to map compiled code, which is made again");
            })
            .ok()
    }

    /// Creates an unfinished file, for compiled code.
    pub(super) fn begin(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempfile_in(&self.directory)
    }

    /// Finishes a file from [`Cache::begin`] and maps the code.
    ///
    /// The inner error is the engine's refusal, which a retry would not change.
    pub(super) fn adopt(
        &self,
        engine: &Engine,
        digest: &Digest,
        code: NamedTempFile,
    ) -> io::Result<wasmtime::Result<Compiled>> {
        let path = self.path(engine, digest, CODE);
        // Opened again, because the handle that wrote the file is at the end.
        let sum = sum_of(&code.reopen()?)?;
        // The sum first: a process that finds the code must find the sum too. A sum without code is only a miss.
        self.write(&self.path(engine, digest, SUM), sum.as_bytes())?;
        finish(code, &path)?;
        let mapped = Compiled::map(engine, File::open(&path)?);
        if mapped.is_err() {
            // The engine refuses it, and will at every attempt.
            fs::remove_file(&path)?;
        }
        self.keep_within(Some(digest));
        Ok(mapped)
    }

    /// Stores compiled code and returns it mapped from the file; none if that fails. The caller then keeps the code in
    /// memory, and the next start compiles again.
    pub(super) fn store(
        &self,
        engine: &Engine,
        digest: &Digest,
        component: &Component,
    ) -> Option<Compiled> {
        component
            .serialize()
            .and_then(|code| {
                let mut file = self.begin()?;
                file.write_all(&code)?;
                self.adopt(engine, digest, file)?
            })
            .inspect_err(|error| {
                tracing::warn!(%error, %digest, "failed to keep compiled code");
            })
            .ok()
    }

    /// Returns the verdict on bytes that could not be compiled within these bounds; none if there is none.
    pub(super) fn verdict(
        &self,
        engine: &Engine,
        digest: &Digest,
        bounds: &CompileBounds,
    ) -> Option<CompileVerdict> {
        let file = File::open(self.path(engine, digest, VERDICT)).ok()?;
        let mut text = Vec::new();
        file.take(VERDICT_BYTES_MAX).read_to_end(&mut text).ok()?;
        // An unreadable verdict is found again by compiling.
        let (key, verdict): (u64, _) = serde_json::from_slice(&text).ok()?;
        (key == verdict_key(engine, bounds)).then_some(verdict)
    }

    /// Stores a verdict, so that these bytes are not compiled again within the same bounds.
    pub(super) fn remember(
        &self,
        engine: &Engine,
        digest: &Digest,
        bounds: &CompileBounds,
        verdict: &CompileVerdict,
    ) {
        let path = self.path(engine, digest, VERDICT);
        let written = serde_json::to_vec(&(verdict_key(engine, bounds), verdict))
            .map_err(io::Error::from)
            .and_then(|text| self.write(&path, &text));
        self.keep_within(Some(digest));
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "failed to remember that a plugin cannot be compiled");
        }
    }

    /// Removes components beyond the bound.
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
            // One that was just written stays: its owner has not stated any needs yet.
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

    /// Removes a component's files.
    fn remove(&self, digest: &Digest) {
        let prefix = format!("{}.", digest.to_hex());
        let mut names: Vec<_> = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|file| file.file_name())
            .collect();
        names.retain(|name| name.to_string_lossy().starts_with(&prefix));
        // Signature marks first: if the process ends in between, the bytes only count as unsigned.
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

    /// Returns the path to a file about a component; engines with another metering have separate files.
    fn path(&self, engine: &Engine, digest: &Digest, suffix: &str) -> PathBuf {
        let metering = match engine.settings().metering {
            Metering::Epochs => "epochs",
            Metering::Fuel => "fuel",
        };
        let digest = digest.to_hex();
        self.directory.join(format!("{digest}.{metering}.{suffix}"))
    }

    /// Writes a file as a whole or not at all.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.begin()?;
        file.write_all(bytes)?;
        finish(file, path)
    }
}

/// Sets a written file's mode and name.
fn finish(file: NamedTempFile, path: &Path) -> io::Result<()> {
    // Read-only, because code that is mapped must not change in place. A rename still replaces the file.
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    // On disk before it gets the name, so that a crash leaves no half file.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Hashes a file piece by piece, because compiled code can have hundreds of megabytes.
fn sum_of(mut file: &File) -> io::Result<String> {
    let mut sum = Digester::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(sum.finish().to_string()),
            len => sum.update(&piece[..len]),
        }
    }
}

/// Hashes all that a verdict depends on beside the bytes: the engine with its settings, the bounds, and the rules
/// of the confinement. If another host build has another hash, it only compiles once more.
fn verdict_key(engine: &Engine, bounds: &CompileBounds) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine
        .wasmtime()
        .precompile_compatibility_hash()
        .hash(&mut hasher);
    // The other bounds decide when a process runs, and not what it can compile.
    let CompileBounds {
        processes_max: _,
        memory_bytes_max,
        cpu_seconds_max,
        code_bytes_max,
        wall_max: _,
        retries_max: _,
    } = bounds;
    (memory_bytes_max, cpu_seconds_max, code_bytes_max).hash(&mut hasher);
    confinement::RULES.hash(&mut hasher);
    hasher.finish()
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

/// A compiled component.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(crate) component: Component,
    pub(crate) source: CodeSource,
}

impl Compiled {
    fn map(engine: &Engine, file: File) -> wasmtime::Result<Self> {
        let source = CodeSource::File(Arc::new(file));
        Ok(Self {
            component: source.map(engine.wasmtime())?,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::check_owner;

    #[test]
    fn takes_only_directories_of_this_user_that_others_cannot_write_to() {
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
