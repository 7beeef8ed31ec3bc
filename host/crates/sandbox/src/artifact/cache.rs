//! Compiled artifacts on disk, by content, and verdicts on bytes that cannot be compiled.
//!
//! Compiled code is native code and is run without further checks.
//! So the directory must belong to the user of this process and must not be writable by others, only this module writes to
//! it, and an entry whose bytes differ from the written ones is compiled again.

use std::{
    fs::{self, File},
    hash,
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use innkeeper_model::{Digest, Digester};
use tempfile::NamedTempFile;
use wasmtime::component::Component;

use super::{CompileBounds, Error, verdict::CompileVerdict};
use crate::Engine;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o400;
/// Write permission of group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Bytes of a file that are hashed at a time; the code itself never has to be on the heap.
const PIECE_BYTES: usize = 64 * 1024;
/// The prefix of the names of unfinished files.
const UNFINISHED: &str = ".new-";
/// The age from which an unfinished file is removed: no compiler may run for so long (two minutes at most), so a killed
/// process left it behind.
const UNFINISHED_AGE_MAX: Duration = Duration::from_hours(1);

/// A directory of compiled artifacts, and of the bytes of plugins.
///
/// # Expected flow
///
/// Open it once, and give it to [`compile`](super::compile) or to a [`Compiler`](super::Compiler), which fill and read the
/// compiled part. Keep the bytes of an active revision, so that it can start again while its source is down, and forget them
/// when no revision needs them.
///
/// ```
/// use innkeeper_model::Digest;
/// use innkeeper_sandbox::artifact::{Cache, Limits};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let cache = Cache::open(directory.path())?;
/// let bytes = b"the bytes of a plugin";
/// let digest = Digest::of(bytes);
/// cache.keep(&digest, bytes, None)?;
/// assert_eq!(cache.kept(&digest, &Limits::default()).as_deref(), Some(bytes.as_slice()));
/// cache.forget(&digest);
/// assert_eq!(cache.kept(&digest, &Limits::default()), None);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// Every entry is whole, also after a crash: a file gets its name after its last byte is on disk. A damaged entry counts as
/// missing.
///
/// # Assumptions
///
/// No other user can write to the directory. Several processes of one user may share it.
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
        // Resolved first: the target of a symbolic link has to be safe, not the link.
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
        let cache = Self { directory };
        cache.sweep().map_err(failed)?;
        Ok(cache)
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

    /// Returns the compiled form of the bytes with this digest; none if it is missing, damaged or of another engine.
    pub(super) fn load(&self, engine: &Engine, digest: &Digest) -> Option<Mapped> {
        let entry = self.entry(engine, digest);
        let expected = fs::read_to_string(&entry.sum).ok()?;
        let code = File::open(&entry.code).ok()?;
        let sum = sum_of(&code).ok()?;
        if sum != expected {
            tracing::warn!(path = %entry.code.display(), "a compiled artifact is damaged and is made again");
            return None;
        }
        Mapped::new(engine, code)
            .inspect_err(|error| {
                tracing::warn!(%error, path = %entry.code.display(), "failed to map compiled code");
            })
            .ok()
    }

    /// Creates an unfinished file, for compiled code.
    pub(super) fn begin(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempfile_in(&self.directory)
    }

    /// Finishes a file of [`Cache::begin`] and maps its code.
    ///
    /// The inner error is a refusal of the engine, which another attempt would not change.
    pub(super) fn adopt(
        &self,
        engine: &Engine,
        digest: &Digest,
        code: NamedTempFile,
    ) -> io::Result<Result<Mapped, wasmtime::Error>> {
        let entry = self.entry(engine, digest);
        let sum = sum_of(&code.reopen()?)?;
        // The sum first: a process that finds the code must find its sum too. A sum without code is only a miss.
        self.write(&entry.sum, sum.as_bytes())?;
        finish(code, &entry.code)?;
        let mapped = Mapped::new(engine, File::open(&entry.code)?);
        if mapped.is_err() {
            // The engine refuses it, and will at every attempt.
            fs::remove_file(&entry.code)?;
        }
        Ok(mapped)
    }

    /// Stores compiled code and returns it mapped from its file; none if that fails. The caller then keeps the code in
    /// memory, and the next start compiles again.
    pub(super) fn store(
        &self,
        engine: &Engine,
        digest: &Digest,
        component: &Component,
    ) -> Option<Mapped> {
        let entry = self.entry(engine, digest);
        let code = component
            .serialize()
            .inspect_err(|error| tracing::warn!(%error, "failed to serialize compiled code"))
            .ok()?;
        let kept = self.begin().and_then(|mut file| {
            file.write_all(&code)?;
            self.adopt(engine, digest, file)
        });
        kept.map_err(wasmtime::Error::from)
            .flatten()
            .inspect_err(|error| {
                tracing::warn!(%error, path = %entry.code.display(), "failed to keep compiled code");
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
        let text = fs::read(self.verdict_path(engine, digest, bounds)).ok()?;
        // An unreadable verdict is found again by compiling.
        serde_json::from_slice(&text).ok()
    }

    /// Stores a verdict, so that these bytes are not compiled again within the same bounds.
    pub(super) fn remember(
        &self,
        engine: &Engine,
        digest: &Digest,
        bounds: &CompileBounds,
        verdict: &CompileVerdict,
    ) {
        let path = self.verdict_path(engine, digest, bounds);
        let text = serde_json::to_vec(verdict).map_err(io::Error::from);
        if let Err(error) = text.and_then(|text| self.write(&path, &text)) {
            tracing::warn!(%error, path = %path.display(), "failed to remember that a plugin cannot be compiled");
        }
    }

    fn verdict_path(&self, engine: &Engine, digest: &Digest, bounds: &CompileBounds) -> PathBuf {
        let CompileBounds {
            processes_max: _,
            memory_bytes_max,
            cpu_seconds_max,
            code_bytes_max,
            wall_max: _,
            retries_max: _,
        } = bounds;
        let mut key = key(engine, digest);
        for bound in [memory_bytes_max, cpu_seconds_max, code_bytes_max] {
            key.update(&bound.to_le_bytes());
        }
        let key = key.finish().to_hex();
        self.directory.join(format!("{key}.refused"))
    }

    fn entry(&self, engine: &Engine, digest: &Digest) -> CodePaths {
        let key = key(engine, digest).finish().to_hex();
        CodePaths {
            code: self.directory.join(format!("{key}.cwasm")),
            sum: self.directory.join(format!("{key}.sum")),
        }
    }

    /// Writes a file as a whole or not at all.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.begin()?;
        file.write_all(bytes)?;
        finish(file, path)
    }
}

/// Gives a written file its mode and its name. It is on disk before it has its name, so that a crash leaves no half file.
fn finish(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Returns the digest of a file, read piece by piece, because compiled code can have hundreds of megabytes.
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

/// Starts the key of an entry with all that compiled code depends on: its source bytes, and the engine with its settings.
fn key(engine: &Engine, digest: &Digest) -> Digester {
    let mut key = Digester::default();
    key.update(digest.as_bytes());
    hash::Hash::hash(
        &engine.wasmtime().precompile_compatibility_hash(),
        &mut Feed(&mut key),
    );
    key
}

struct CodePaths {
    code: PathBuf,
    sum: PathBuf,
}

/// Feeds hashed values into a digest, because hashes of the standard library may differ between builds of the host.
struct Feed<'a>(&'a mut Digester);

impl hash::Hasher for Feed<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Not used: the caller takes the digest.
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

/// A component that is mapped from its file.
pub(super) struct Mapped {
    pub(super) component: Component,
    pub(super) file: CodeFile,
}

impl Mapped {
    fn new(engine: &Engine, file: File) -> wasmtime::Result<Self> {
        let file = CodeFile(Arc::new(file));
        Ok(Self {
            component: file.map(engine)?,
            file,
        })
    }
}

/// Compiled code on disk whose bytes were compared with their digest. The file is held open, so that a later mapping has
/// the same bytes even if the directory has changed.
#[derive(Clone)]
pub(crate) struct CodeFile(Arc<File>);

impl CodeFile {
    /// Maps the code.
    #[expect(
        unsafe_code,
        reason = "compiled code is trusted by its nature: the file is in a directory that only we can write to, and its bytes were compared with the digest that we stored"
    )]
    pub(crate) fn map(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // Opened by its descriptor: its name may belong to another file by now.
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        // SAFETY: an engine of this host made the file from a component. `finish` put it into a directory that no other
        // user can write to. It is read-only, and it is replaced as a whole, never changed in place.
        unsafe { Component::deserialize_file(engine.wasmtime(), path) }
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
