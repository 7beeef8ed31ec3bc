//! The command `manifests`.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Map, Value};

use super::{
    Error,
    plugins::{PluginFileKind, by_plugin, name_and_file},
};

/// How `manifests` ends.
const EXIT_CODES: &str = "\
Exit codes:
  0  the manifests are written
  3  a plugin failed to describe itself
  4  the command line, or a file that it names, cannot be used";

/// Flags of `manifests`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct ManifestsArgs {
    /// Give the host what the plugins in these .wasm files need; the image has to hold them in /plugins
    #[arg(long = "plugin", value_name = "FILE", required = true, num_args = 1..)]
    plugins: Vec<PathBuf>,
    /// Let the plugin of this name do what this file says and nothing else, as for `run`; once per plugin
    #[arg(long = "grants", value_name = "PLUGIN=FILE", value_parser = name_and_file)]
    grants: Vec<(String, PathBuf)>,
    /// Put the host into this namespace
    #[arg(long, value_name = "NAME", default_value = "innkeeper-system")]
    namespace: String,
    /// Run this image
    #[arg(long, value_name = "IMAGE", default_value = concat!("innkeeper:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Write files into this directory, made when it is missing, instead of one stream to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What is to be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestsSettings {
    /// The plugins that the host is to run.
    pub plugins: Vec<PathBuf>,
    /// What plugins may do, by name, in the form of `spec.grants`.
    pub grants: BTreeMap<String, Map<String, Value>>,
    /// The namespace of the host.
    pub namespace: String,
    /// The image of the host.
    pub image: String,
    /// The directory that files are written into; none: one stream to the standard output.
    pub out: Option<PathBuf>,
}

impl ManifestsArgs {
    pub(super) fn into_settings(self) -> Result<ManifestsSettings, Error> {
        let Self {
            plugins,
            grants,
            namespace,
            image,
            out,
        } = self;
        Ok(ManifestsSettings {
            grants: by_plugin(PluginFileKind::Grants, grants)?,
            plugins,
            namespace,
            image,
            out,
        })
    }
}
