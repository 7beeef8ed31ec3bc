//! The sources of Plugin resources.

use std::{collections::BTreeMap, path::PathBuf};

use innkeeper_command::values::{Pem, authorities, proxies, selector};
use innkeeper_model::Selector;
use innkeeper_source::{self as source, Proxies};

/// Mirrors in the order of the flag, with their registries.
type Mirrors = Vec<(String, String)>;

/// Flags for the sources of Plugin resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(
    next_help_heading = "Plugin resources, which are served without plugin files or with --plugin-resources (HTTPS_PROXY, HTTP_PROXY and NO_PROXY apply to their sources)"
)]
pub struct SourceArgs {
    /// Run Plugin resources beside the plugins of --plugin and --plugin-dir. If both claim the same parent kind, the
    /// file is active. Without plugin files, Plugin resources always run.
    #[arg(long, env = "INNKEEPER_PLUGIN_RESOURCES")]
    pub(super) plugin_resources: bool,
    /// Directory of the files that Plugins name in spec.source.file; no file in it is loaded by itself
    /// [default: Plugins must not name files].
    #[arg(long, value_name = "DIR", env = "INNKEEPER_SOURCE_DIR")]
    pub source_dir: Option<PathBuf>,
    /// Allow sources in the cluster's own network, on this node and in this Pod.
    ///
    /// The author of a Plugin chooses the address, and the host may reach servers that the author must not reach.
    #[arg(long = "allow-local-sources", env = "INNKEEPER_ALLOW_LOCAL_SOURCES")]
    pub allow_local: bool,
    /// Trust the authorities in this PEM file in addition to those of the system, for registries and web servers; read
    /// once at the start.
    #[arg(long = "source-ca-file", value_name = "FILE", env = "INNKEEPER_SOURCE_CA_FILE", value_parser = authorities())]
    pub ca_file: Option<Pem>,
    /// Ask this mirror before the registry, as in `ghcr.io=mirror.example/ghcr`; may be given several times, also for
    /// one registry, whose mirrors are asked in this order.
    ///
    /// A mirror is a host, optionally with a prefix of its repositories; with `http://` before it, it is asked without
    /// TLS. A mirror in the cluster's own network needs --allow-local-sources. The registry itself is asked last.
    #[arg(
        long = "source-mirror",
        value_name = "REGISTRY=MIRROR",
        env = "INNKEEPER_SOURCE_MIRRORS",
        value_parser = mirrors
    )]
    mirrors: Vec<Mirrors>,
    /// Run only the Plugins that this label selector selects, written as for `kubectl get -l`, so that several hosts can
    /// share a cluster. A Plugin that it no longer selects is released, and its objects stay.
    ///
    /// The selectors of two hosts must not select the same Plugin, and no two Plugins may select the same parents:
    /// hosts do not know each other's Plugins [default: all Plugins].
    #[arg(long = "plugin-selector", value_name = "SELECTOR", env = "INNKEEPER_PLUGIN_SELECTOR", value_parser = selector)]
    pub selector: Option<Selector>,
    /// The proxies of the environment.
    #[arg(skip = proxies())]
    proxies: Proxies,
}

impl SourceArgs {
    /// Returns the first flag that has no effect without Plugin resources.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.source_dir.is_some(), "--source-dir"),
            (self.allow_local, "--allow-local-sources"),
            (self.ca_file.is_some(), "--source-ca-file"),
            (!self.mirrors.is_empty(), "--source-mirror"),
            (self.selector.is_some(), "--plugin-selector"),
        ];
        given
            .iter()
            .find_map(|(is_given, flag)| is_given.then_some(*flag))
    }

    /// Returns the settings of the fetcher; the limits of a fetch are always the defaults.
    pub fn settings(&self) -> source::Settings {
        let mut mirrors = BTreeMap::<String, Vec<String>>::new();
        for (registry, mirror) in self.mirrors.iter().flatten().cloned() {
            mirrors.entry(registry).or_default().push(mirror);
        }
        source::Settings {
            source_dir: self.source_dir.clone(),
            allow_local: self.allow_local,
            certificates_pem: self.ca_file.clone().unwrap_or_default(),
            proxies: self.proxies.clone(),
            mirrors,
            ..source::Settings::default()
        }
    }
}

/// Parses mirrors with commas between them; an empty text, as from an empty variable, has none.
fn mirrors(text: &str) -> Result<Mirrors, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let mirrors = parts.map(|part| match part.trim().split_once('=') {
        // References begin with a host alone.
        Some((registry, mirror))
            if !registry.is_empty() && !registry.contains('/') && !mirror.is_empty() =>
        {
            Ok((registry.to_owned(), mirror.to_owned()))
        }
        _ => Err(format!(
            "\"{part}\" is not REGISTRY=MIRROR: write it as ghcr.io=mirror.example, or ghcr.io=mirror.example/ghcr"
        )),
    });
    mirrors.collect()
}
