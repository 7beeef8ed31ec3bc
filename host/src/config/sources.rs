//! Where the plugins of Plugin resources may come from.

use std::{collections::BTreeMap, path::PathBuf};

use innkeeper_model::LabelSelector;

use super::{Error, registry};

/// Flags for the sources of Plugin resources.
#[derive(Debug, clap::Args)]
#[command(
    next_help_heading = "Plugin resources, which are served where no plugin files are given or with --plugin-resources (proxies for their sources are taken from HTTPS_PROXY, HTTP_PROXY and NO_PROXY)"
)]
pub(super) struct SourceArgs {
    /// Serve Plugin resources beside the plugins of --plugin and --plugin-dir; where both want the same kind of parents
    /// the file gets it. Without plugin files they are served anyway.
    #[arg(long, env = "INNKEEPER_PLUGIN_RESOURCES")]
    plugin_resources: bool,
    /// Take the files that Plugins name in spec.source.file from this directory; nothing in it is loaded by itself
    /// [default: no Plugin may name a file].
    #[arg(long, value_name = "DIR", env = "INNKEEPER_SOURCE_DIR")]
    source_dir: Option<PathBuf>,
    /// Let Plugins name servers in the cluster's own network, on this node and in this Pod.
    ///
    /// Whoever writes a Plugin chooses the address, and the host may reach what they may not.
    #[arg(long, env = "INNKEEPER_ALLOW_LOCAL_SOURCES")]
    allow_local_sources: bool,
    /// Trust the authorities of this PEM file as well as those of the system when plugins are fetched, for registries and
    /// web servers with an authority of their own; read once, at the start.
    #[arg(long, value_name = "FILE", env = "INNKEEPER_SOURCE_CA_FILE")]
    source_ca_file: Option<PathBuf>,
    /// Ask this registry first for what plugins another one has, as in `ghcr.io=mirror.example/ghcr`; may be given
    /// several times, also for one registry, whose mirrors are asked in their order.
    ///
    /// A mirror is written as a host, or as a host and what stands before its repositories; `http://` before it does
    /// without TLS. One in the cluster's own network needs --allow-local-sources. The registry itself is asked last.
    #[arg(
        long = "source-mirror",
        value_name = "REGISTRY=MIRROR",
        env = "INNKEEPER_SOURCE_MIRRORS",
        value_delimiter = ','
    )]
    source_mirrors: Vec<String>,
    /// Serve only the Plugins that this label selector chooses, written as for `kubectl get -l`, so that several hosts
    /// can share a cluster; a Plugin that it does not choose any more is let go, with all that was made for it.
    ///
    /// The selectors of two hosts must not choose the same Plugin, and no two Plugins may have the same kind of parents:
    /// a host does not know what another one serves [default: all Plugins].
    #[arg(long, value_name = "SELECTOR", env = "INNKEEPER_PLUGIN_SELECTOR")]
    plugin_selector: Option<String>,
}

/// Where the plugins of Plugin resources may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSettings {
    /// The directory of the files that Plugins name; none: no Plugin may name a file.
    pub dir: Option<PathBuf>,
    /// Whether servers may be in the cluster's own network, on this node or in this Pod.
    pub allow_local: bool,
    /// Authorities that are trusted as well as those of the system, as PEM.
    pub certificates_pem: Vec<u8>,
    /// Proxies for `https` and for `http`, and what needs none.
    pub proxies: [Option<String>; 3],
    /// Registries that have what a registry has, by its name, in the order in which they are asked.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Which Plugins are served, as a label selector; none: all.
    pub selector: Option<String>,
}

impl SourceArgs {
    /// None where Plugin resources are not served: there are plugin files, and nothing was said of both.
    pub(super) fn into_settings(self, has_files: bool) -> Result<Option<SourceSettings>, Error> {
        if has_files && !self.plugin_resources {
            let without = self.first_given();
            return without.map_or(Ok(None), |flag| Err(Error::WithoutResources(flag)));
        }
        let Self {
            plugin_resources: _,
            source_dir,
            allow_local_sources,
            source_ca_file,
            source_mirrors,
            plugin_selector,
        } = self;
        let certificates_pem = source_ca_file
            .map(read_authorities)
            .transpose()?
            .unwrap_or_default();
        Ok(Some(SourceSettings {
            dir: source_dir,
            allow_local: allow_local_sources,
            certificates_pem,
            proxies: registry::proxies(),
            mirrors: mirrors(source_mirrors)?,
            selector: plugin_selector.map(checked_selector).transpose()?,
        }))
    }

    /// A flag that is of use with Plugin resources alone.
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.source_dir.is_some(), "--source-dir"),
            (self.allow_local_sources, "--allow-local-sources"),
            (self.source_ca_file.is_some(), "--source-ca-file"),
            (!self.source_mirrors.is_empty(), "--source-mirror"),
            (self.plugin_selector.is_some(), "--plugin-selector"),
        ];
        given
            .iter()
            .find_map(|(is_given, flag)| is_given.then_some(*flag))
    }
}

/// What a host that waits for its cluster would say late, or that the file is empty never.
fn read_authorities(path: PathBuf) -> Result<Vec<u8>, Error> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

    let text = registry::read("the trusted authorities", &path)?;
    if text.windows(BEGIN.len()).any(|part| part == BEGIN) {
        Ok(text)
    } else {
        Err(Error::NoCertificate { path })
    }
}

/// The mirrors of each registry, in their order.
fn mirrors(given: Vec<String>) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let mut mirrors = BTreeMap::<String, Vec<String>>::new();
    for text in given.into_iter().filter(|text| !text.is_empty()) {
        match text.trim().split_once('=') {
            Some((registry, mirror)) if is_host(registry) && !mirror.is_empty() => {
                let known = mirrors.entry(registry.to_owned()).or_default();
                known.push(mirror.to_owned());
            }
            _ => return Err(Error::SourceMirror(text)),
        }
    }
    Ok(mirrors)
}

/// Whether a text is a host alone, as references begin with one.
fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
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
