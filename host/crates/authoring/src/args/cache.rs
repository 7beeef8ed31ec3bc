//! The cache of compiled plugins of the commands without a host.

use std::path::PathBuf;

use innkeeper_command::{Exit, Failure, OrFail as _, values::default_cache_dir};
use innkeeper_sandbox::artifact;

/// The flag of the cache.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CacheArgs {
    /// Cache directory for compiled plugins [default: $XDG_CACHE_HOME/innkeeper, or ~/.cache/innkeeper].
    #[arg(long, value_name = "DIR", env = "INNKEEPER_CACHE_DIR")]
    pub cache_dir: Option<PathBuf>,
    /// The usual directory.
    #[arg(skip = default_cache_dir())]
    usual: PathBuf,
}

impl CacheArgs {
    /// Opens the cache; none if the usual directory cannot be used, because the command works without it.
    pub fn open(&self) -> Result<Option<artifact::Cache>, Failure> {
        match &self.cache_dir {
            Some(directory) => artifact::Cache::open(directory).map(Some).or_fail(
                Exit::Usage,
                "failed to open the cache of compiled plugins; set another --cache-dir",
            ),
            None if self.usual.as_os_str().is_empty() => Ok(None),
            None => Ok(artifact::Cache::open(&self.usual).ok()),
        }
    }
}
