//! The memory of passes in files of the cache directory: a host that starts skips the passes that the last one would have
//! skipped.
//!
//! A file only saves work. One that is missing, damaged, or of another build, revision or grants is ignored, and every
//! parent gets its call.
//! A file needs no seal: the right to write to the cache directory includes compiled code.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, BufWriter, Read as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use innkeeper_model::{Digest, Gvk, ObjectId, PluginName};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tracing::{debug, warn};

use crate::{
    memory::{KeptPass, Remembered},
    revision::Serving,
};

/// The name of the directory below the cache directory.
const DIRECTORY: &str = "passes";

/// The largest file that is read. Chosen: a pass takes about 200 bytes, so that it is enough for a million parents.
const BYTES_MAX: u64 = 256 << 20;

/// The time after which an unused file is removed. Chosen: a host that is restarted less often calls the
/// guests once more.
const UNUSED_MAX: Duration = Duration::from_hours(30 * 24);

/// The part of the program that tells builds apart: the notes after its headers have the build ID, which the linker computes
/// from everything else. The whole program would take as long to read as the passes of a thousand parents.
const HEAD_BYTES: u64 = 64 * 1024;

/// The files with the memory of passes, one for each plugin and kind of parents.
pub struct PassFiles {
    directory: PathBuf,
    /// The digest of this program: another build may answer the same inputs in another way.
    build: Digest,
}

impl PassFiles {
    /// Makes the directory where it is missing, and removes old files. Blocks.
    pub fn open(cache_directory: &Path) -> io::Result<Self> {
        let directory = cache_directory.join(DIRECTORY);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        remove_old(&directory)?;
        let mut head = Vec::new();
        let program = File::open("/proc/self/exe")?;
        let len = program.metadata()?.len();
        program.take(HEAD_BYTES).read_to_end(&mut head)?;
        Ok(Self {
            directory,
            build: Digest::hash_parts([&head[..], &len.to_be_bytes()[..]]),
        })
    }

    /// Reads the passes of a plugin for a kind of parents; none if they are not those of this build and revision.
    pub(crate) fn read(
        &self,
        plugin: &PluginName,
        parent: &Gvk,
        serving: &Serving,
    ) -> BTreeMap<ObjectId, Remembered> {
        let path = self.path(plugin, parent);
        let contents = match read(&path) {
            Ok(contents) => contents,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn!(%error, path = %path.display(), "failed to read the memory of passes, every parent gets a call");
                }
                return BTreeMap::new();
            }
        };
        if contents.belongs_to != self.belongs_to(plugin, parent, serving) {
            return BTreeMap::new();
        }
        mark_used(&path);
        let kind = parent.group_kind();
        let passes = contents.passes.into_iter();
        passes.filter_map(|pass| pass.remembered(&kind)).collect()
    }

    /// Writes the passes of a plugin for a kind of parents as a whole. Blocks.
    pub(crate) fn write(
        &self,
        plugin: &PluginName,
        parent: &Gvk,
        serving: &Serving,
        passes: Vec<KeptPass>,
    ) -> io::Result<()> {
        let contents = Contents {
            belongs_to: self.belongs_to(plugin, parent, serving),
            passes,
        };
        let mut file = BufWriter::new(NamedTempFile::new_in(&self.directory)?);
        serde_json::to_writer(&mut file, &contents)?;
        file.flush()?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // Not synced: after a crash of the machine the file may be damaged, and is ignored.
        file.persist(self.path(plugin, parent))?;
        Ok(())
    }

    fn path(&self, plugin: &PluginName, parent: &Gvk) -> PathBuf {
        let Gvk { group, kind, .. } = parent;
        self.directory.join(format!("{plugin}_{kind}.{group}.json"))
    }

    /// Returns a digest of everything that passes depend on beside their inputs.
    fn belongs_to(&self, plugin: &PluginName, parent: &Gvk, serving: &Serving) -> String {
        let Serving {
            // Its revision is among the inputs.
            plugin: _,
            grants,
            limits,
            reads,
            account,
            field_manager,
            selection,
            own_reads,
        } = serving;
        let text = format!(
            "{plugin} {parent} {grants:?} {limits:?} {reads:?} {account:?} {field_manager:?} {selection:?} {own_reads:?}"
        );
        Digest::hash_parts([&self.build.as_bytes()[..], text.as_bytes()]).to_hex()
    }
}

#[derive(Serialize, Deserialize)]
struct Contents {
    belongs_to: String,
    passes: Vec<KeptPass>,
}

/// Removes the files of plugins that are gone: those that were neither written nor read for a long time.
fn remove_old(directory: &Path) -> io::Result<()> {
    for entry in directory.read_dir()? {
        let entry = entry?;
        let age = entry.metadata()?.modified()?.elapsed();
        if age.is_ok_and(|age| age > UNUSED_MAX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn mark_used(path: &Path) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    let marked = File::open(path).and_then(|file| Ok(futimens(file, &times)?));
    if let Err(error) = marked {
        debug!(%error, path = %path.display(), "failed to mark the memory of passes as used");
    }
}

fn read(path: &Path) -> io::Result<Contents> {
    let mut text = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
