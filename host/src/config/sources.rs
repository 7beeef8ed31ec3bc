//! Where the plugins of Plugin resources may come from.

use std::path::PathBuf;

/// Flags for the sources of Plugin resources.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Plugin resources, which are served where no plugin files are given")]
pub(super) struct SourceArgs {
    /// Take the files that Plugins name in spec.source.file from this directory; nothing in it is loaded by itself
    /// [default: no Plugin may name a file].
    #[arg(
        long,
        value_name = "DIR",
        env = "INNKEEPER_SOURCE_DIR",
        conflicts_with = "plugin-files"
    )]
    source_dir: Option<PathBuf>,
    /// Let Plugins name servers in the cluster's own network, on this node and in this Pod.
    ///
    /// Whoever writes a Plugin chooses the address, and the host may reach what they may not.
    #[arg(
        long,
        env = "INNKEEPER_ALLOW_LOCAL_SOURCES",
        conflicts_with = "plugin-files"
    )]
    allow_local_sources: bool,
}

/// Where the plugins of Plugin resources may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSettings {
    /// The directory of the files that Plugins name; none: no Plugin may name a file.
    pub dir: Option<PathBuf>,
    /// Whether servers may be in the cluster's own network, on this node or in this Pod.
    pub allow_local: bool,
}

impl SourceArgs {
    pub(super) fn into_settings(self) -> SourceSettings {
        let Self {
            source_dir,
            allow_local_sources,
        } = self;
        SourceSettings {
            dir: source_dir,
            allow_local: allow_local_sources,
        }
    }
}
