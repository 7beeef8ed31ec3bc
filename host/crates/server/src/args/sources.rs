//! Sources of Plugin resources.

use std::{collections::BTreeMap, path::PathBuf};

use innkeeper_command::values::{Pem, authorities, proxies, selector};
use innkeeper_model::Selector;
use innkeeper_source::{self as source, Proxies};

/// Registries with their mirrors, in the order of the flags.
type Mirrors = Vec<(String, String)>;

/// Flags for Plugin resources and their sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Plugin resources (HTTPS_PROXY, HTTP_PROXY and NO_PROXY apply)")]
pub struct SourceArgs {
    /// Serve Plugin resources beside plugin files, which win if both claim a parent kind. Without plugin files, the
    /// host always serves Plugin resources.
    #[arg(long, env = "INNKEEPER_PLUGIN_RESOURCES")]
    pub(super) plugin_resources: bool,
    /// Directory for spec.source.file of Plugins [default: Plugins cannot name files].
    #[arg(long, value_name = "DIR", env = "INNKEEPER_SOURCE_DIR")]
    pub source_dir: Option<PathBuf>,
    /// Allow sources in the cluster's network, on this node and in this Pod.
    ///
    /// A Plugin's author chooses the address, and the host may reach servers that the author must not.
    #[arg(long = "allow-local-sources", env = "INNKEEPER_ALLOW_LOCAL_SOURCES")]
    pub allow_local: bool,
    /// Trust the authorities in this PEM file in addition to the system's, for sources; read once at startup.
    #[arg(long = "source-ca-file", value_name = "FILE", env = "INNKEEPER_SOURCE_CA_FILE", value_parser = authorities())]
    pub ca_file: Option<Pem>,
    /// Try this mirror before the registry, as in `ghcr.io=mirror.example/ghcr`; repeatable, tried in order.
    ///
    /// A mirror is a host, optionally with a repository prefix; `http://` before it turns off TLS. A mirror in the
    /// cluster's network needs --allow-local-sources.
    #[arg(
        long = "source-mirror",
        value_name = "REGISTRY=MIRROR",
        env = "INNKEEPER_SOURCE_MIRRORS",
        value_parser = mirrors
    )]
    mirrors: Vec<Mirrors>,
    /// Serve only Plugins that match this label selector, as for `kubectl get -l`. The host releases a Plugin that no
    /// longer matches; its objects stay.
    ///
    /// Two hosts must not select the same Plugin, nor Plugins for the same parents: hosts do not know each other's
    /// Plugins.
    #[arg(long = "plugin-selector", value_name = "SELECTOR", env = "INNKEEPER_PLUGIN_SELECTOR", value_parser = selector)]
    pub selector: Option<Selector>,
    /// Proxies from the environment.
    #[arg(skip = proxies())]
    proxies: Proxies,
}

impl SourceArgs {
    /// Returns the first flag that has no effect without Plugin resources.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let flags = [
            (self.source_dir.is_some(), "--source-dir"),
            (self.allow_local, "--allow-local-sources"),
            (self.ca_file.is_some(), "--source-ca-file"),
            (!self.mirrors.is_empty(), "--source-mirror"),
            (self.selector.is_some(), "--plugin-selector"),
        ];
        flags
            .iter()
            .find_map(|(is_set, flag)| is_set.then_some(*flag))
    }

    /// Returns the fetcher's settings, with the default limits.
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

/// Parses comma-separated mirrors; an empty variable has none.
fn mirrors(text: &str) -> Result<Mirrors, String> {
    text.split(',')
        .filter(|part| !part.is_empty())
        .map(|part| match part.trim().split_once('=') {
            // References begin with a host alone.
            Some((registry, mirror))
                if !registry.is_empty() && !registry.contains('/') && !mirror.is_empty() =>
            {
                Ok((registry.to_owned(), mirror.to_owned()))
            }
            _ => Err(format!(
                "\"{part}\" is not REGISTRY=MIRROR: write it as ghcr.io=mirror.example, or ghcr.io=mirror.example/ghcr"
            )),
        })
        .collect()
}
