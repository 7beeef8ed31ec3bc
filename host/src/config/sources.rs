//! Where the plugins of Plugin resources may come from.

use std::path::PathBuf;

use super::Error;
use crate::model::LabelSelector;

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
    /// Serve only the Plugins that this label selector chooses, written as for `kubectl get -l`, so that several hosts
    /// can share a cluster; a Plugin that it does not choose any more is let go, with all that was made for it.
    ///
    /// The selectors of two hosts must not choose the same Plugin, and no two Plugins may have the same kind of parents:
    /// a host does not know what another one serves [default: all Plugins].
    #[arg(
        long,
        value_name = "SELECTOR",
        env = "INNKEEPER_PLUGIN_SELECTOR",
        conflicts_with = "plugin-files"
    )]
    plugin_selector: Option<String>,
}

/// Where the plugins of Plugin resources may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSettings {
    /// The directory of the files that Plugins name; none: no Plugin may name a file.
    pub dir: Option<PathBuf>,
    /// Whether servers may be in the cluster's own network, on this node or in this Pod.
    pub allow_local: bool,
    /// Which Plugins are served, as a label selector; none: all.
    pub selector: Option<String>,
}

impl SourceArgs {
    pub(super) fn into_settings(self) -> Result<SourceSettings, Error> {
        let Self {
            source_dir,
            allow_local_sources,
            plugin_selector,
        } = self;
        Ok(SourceSettings {
            dir: source_dir,
            allow_local: allow_local_sources,
            selector: plugin_selector.map(checked_selector).transpose()?,
        })
    }
}

/// A selector that chooses something, and not all.
pub(super) fn checked_selector(text: String) -> Result<String, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::EmptyPluginSelector);
    }
    LabelSelector::parse(text).map_err(Error::PluginSelector)?;
    Ok(text.to_owned())
}
