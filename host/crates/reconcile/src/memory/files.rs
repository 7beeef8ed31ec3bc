//! Stores remembered passes in the cache directory, so that a restarted host skips the same passes.
//!
//! A file only saves work: the host ignores one that is missing, damaged, or from another build, revision or grants, and
//! calls the guest for every parent.
//! A file needs no signature: whoever may write to the cache directory may replace compiled code, too.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, BufWriter, Read as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use innkeeper_model::{Digest, GroupKind, Gvk, ObjectId, PluginName, ReadKey};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tracing::{debug, warn};

use super::Remembered;
use crate::next::Next;

const DIRECTORY: &str = "passes";

/// The largest file that the host reads: a pass takes about 200 bytes, so it is enough for a million parents.
const BYTES_MAX: u64 = 256 << 20;

/// The age at which the host removes an unused file. A host that restarts less often calls the guests once more.
const UNUSED_MAX: Duration = Duration::from_hours(30 * 24);

/// The part of the program that identifies a build: the notes after its headers contain the build ID, which the linker
/// computes from everything else. Reading the whole program would take as long as a thousand passes.
const HEAD_BYTES: u64 = 64 * 1024;

/// The stored passes, one file for each plugin and parent kind.
pub struct PassFiles {
    directory: PathBuf,
    /// The digest of this program: another build may give the same inputs another answer.
    build: Digest,
}

impl PassFiles {
    /// Creates the directory if it is missing, and removes old files. Blocks.
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

    /// Reads a plugin's passes for a parent kind; empty if they are from another build or other terms.
    pub(crate) fn read(
        &self,
        plugin: &PluginName,
        parent: &Gvk,
        terms: &str,
    ) -> BTreeMap<ObjectId, Remembered> {
        let path = self.path(plugin, parent);
        let contents = match read(&path) {
            Ok(contents) => contents,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn!(%error, path = %path.display(), "failed to read the remembered passes, every parent gets a call");
                }
                return BTreeMap::new();
            }
        };
        if contents.belongs_to != self.belongs_to(plugin, parent, terms) {
            return BTreeMap::new();
        }
        mark_used(&path);
        let kind = parent.group_kind();
        contents
            .passes
            .into_iter()
            .filter_map(|pass| pass.remembered(&kind))
            .collect()
    }

    /// Replaces a plugin's passes for a parent kind. Blocks.
    pub(crate) fn write(
        &self,
        plugin: &PluginName,
        parent: &Gvk,
        terms: &str,
        passes: Vec<StoredPass>,
    ) -> io::Result<()> {
        let contents = Contents {
            belongs_to: self.belongs_to(plugin, parent, terms),
            passes,
        };
        let mut file = BufWriter::new(NamedTempFile::new_in(&self.directory)?);
        serde_json::to_writer(&mut file, &contents)?;
        file.flush()?;
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            // Not synced: a file that a machine crash damages is ignored.
            .persist(self.path(plugin, parent))?;
        Ok(())
    }

    fn path(&self, plugin: &PluginName, parent: &Gvk) -> PathBuf {
        let Gvk { group, kind, .. } = parent;
        self.directory.join(format!("{plugin}_{kind}.{group}.json"))
    }

    /// Digests what passes depend on beside their inputs.
    fn belongs_to(&self, plugin: &PluginName, parent: &Gvk, terms: &str) -> String {
        let text = format!("{plugin} {parent} {terms}");
        Digest::hash_parts([&self.build.as_bytes()[..], text.as_bytes()]).to_hex()
    }
}

#[derive(Serialize, Deserialize)]
struct Contents {
    belongs_to: String,
    passes: Vec<StoredPass>,
}

/// A remembered pass in a file for its parent's kind.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredPass {
    namespace: Option<String>,
    name: String,
    /// The inputs' key, in hexadecimal digits.
    key: String,
    /// The time to the next pass; `None`: only after a change.
    requeue_after_ms: Option<u64>,
    reads: Vec<ReadKey>,
}

impl StoredPass {
    /// Converts a remembered pass; `None` if it has no time for the next one.
    pub(super) fn new(parent: &ObjectId, pass: &Remembered) -> Option<Self> {
        let requeue_after_ms = match pass.next {
            Next::Settled => None,
            Next::RequeueAfter(after) => Some(u64::try_from(after.as_millis()).ok()?),
            _ => return None,
        };
        Some(Self {
            namespace: parent.namespace.as_deref().map(str::to_owned),
            name: parent.name.to_string(),
            key: innkeeper_model::hex(&pass.key),
            requeue_after_ms,
            reads: pass.reads.to_vec(),
        })
    }

    /// Converts to the remembered pass; `None` if the key is damaged.
    fn remembered(self, kind: &GroupKind) -> Option<(ObjectId, Remembered)> {
        let pass = Remembered {
            key: *Digest::from_hex(&self.key)?.as_bytes(),
            next: self.requeue_after_ms.map_or(Next::Settled, |after| {
                Next::RequeueAfter(Duration::from_millis(after))
            }),
            reads: self.reads.into(),
        };
        let parent = ObjectId {
            kind: kind.clone(),
            namespace: self.namespace.map(Arc::from),
            name: self.name.into(),
        };
        Some((parent, pass))
    }
}

/// Removes files that no plugin has read or written for a long time.
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
    let result = File::open(path).and_then(|file| Ok(futimens(file, &times)?));
    if let Err(error) = result {
        debug!(%error, path = %path.display(), "failed to mark the remembered passes as used");
    }
}

fn read(path: &Path) -> io::Result<Contents> {
    let mut text = Vec::new();
    // A larger file ends within the JSON, so the host ignores it as damaged.
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
