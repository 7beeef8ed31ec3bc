//! The command `manifests`.

use std::{collections::BTreeMap, path::PathBuf};

use clap::builder::NonEmptyStringValueParser;
use innkeeper_model::is_dns_label;
use serde_json::{Map, Value};

use super::{
    Definitions, Error, ScopeSettings,
    plugins::{PluginFileKind, by_plugin, name_and_file},
    scope::ScopeArgs,
    sources::checked_selector,
    streams::exit_codes,
};

/// Flags of `manifests`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("a plugin failed to describe itself"))]
pub(super) struct ManifestsArgs {
    /// Give the host what the plugins in these .wasm files need; the image has to hold them in /plugins
    #[arg(long = "plugin", value_name = "FILE", required = true, num_args = 1..)]
    plugins: Vec<PathBuf>,
    /// Let the plugin of this name do what this file says and nothing else, as for `run`; once per plugin
    #[arg(long = "grants", value_name = "PLUGIN=FILE", value_parser = name_and_file)]
    grants: Vec<(String, PathBuf)>,
    /// Call the host, its account, its roles and its lease so: hosts that work side by side differ in it
    #[arg(long, value_name = "NAME", default_value = "innkeeper")]
    name: String,
    /// Put the host into this namespace
    #[arg(long, value_name = "NAME", default_value = "innkeeper-system")]
    namespace: String,
    /// Give the host rights in these namespaces only, for `run --namespaces`, and in the whole cluster for nothing but what
    /// is in no namespace
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    namespaces: Option<Vec<String>>,
    /// Whether the host may install the CustomResourceDefinitions that plugins bring, or runs with `--crds ignore`
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    crds: Definitions,
    /// Let the host run from Plugin resources instead of files in its image; --plugin says which plugins these may name
    #[arg(long)]
    plugin_resources: bool,
    /// Write the children of the plugin of this name as this account, which is made with the rights for it, in the place of
    /// the host's own; for spec.grants.serviceAccountRef, once per plugin
    #[arg(long = "account", value_name = "PLUGIN=NAMESPACE/NAME", value_parser = plugin_and_account, requires = "plugin_resources")]
    accounts: Vec<(String, Account)>,
    /// Let it serve the Plugins that this label selector chooses, for `run --plugin-selector`
    #[arg(long, value_name = "SELECTOR", requires = "plugin_resources")]
    plugin_selector: Option<String>,
    /// Let the sources of Plugins name this Secret of the host's namespace; once per Secret
    #[arg(
        long = "source-secret",
        value_name = "NAME",
        requires = "plugin_resources"
    )]
    source_secrets: Vec<String>,
    /// Let the sources of Plugins name this ConfigMap of the host's namespace; once per ConfigMap
    #[arg(
        long = "source-config-map",
        value_name = "NAME",
        requires = "plugin_resources"
    )]
    source_config_maps: Vec<String>,
    /// Run this image
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new(), default_value = concat!("innkeeper:", env!("CARGO_PKG_VERSION")))]
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
    /// What the host is called.
    pub name: String,
    /// The namespace of the host.
    pub namespace: String,
    /// How much of the cluster the host sees.
    pub scope: ScopeSettings,
    /// What it needs to run from Plugin resources; none: its plugins are in the image.
    pub resources: Option<ResourceRoles>,
    /// The image of the host.
    pub image: String,
    /// The directory that files are written into; none: one stream to the standard output.
    pub out: Option<PathBuf>,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

fn plugin_and_account(text: &str) -> Result<(String, Account), String> {
    let wrong = || format!("\"{text}\" is not PLUGIN=NAMESPACE/NAME with three DNS labels");
    let (plugin, account) = text.split_once('=').ok_or_else(wrong)?;
    let (namespace, name) = account.split_once('/').ok_or_else(wrong)?;
    if ![plugin, namespace, name].into_iter().all(is_dns_label) {
        return Err(wrong());
    }
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Ok((plugin.to_owned(), Account { namespace, name }))
}

/// What a host needs to run from Plugin resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRoles {
    /// Which Plugins it serves, as a label selector; none: all.
    pub selector: Option<String>,
    /// As whom the children of plugins are written, by the plugin's name; the others' are written as the host.
    pub accounts: BTreeMap<String, Account>,
    /// The Secrets that sources name.
    pub secrets: Vec<String>,
    /// The ConfigMaps that sources name.
    pub config_maps: Vec<String>,
}

impl ManifestsArgs {
    pub(super) fn into_settings(self) -> Result<ManifestsSettings, Error> {
        let Self {
            plugins,
            grants,
            name,
            namespace,
            namespaces,
            crds,
            plugin_resources,
            accounts,
            plugin_selector,
            source_secrets,
            source_config_maps,
            image,
            out,
        } = self;
        let selector = plugin_selector.map(checked_selector).transpose()?;
        Ok(ManifestsSettings {
            scope: ScopeArgs { namespaces, crds }.into_settings()?,
            resources: plugin_resources.then_some(ResourceRoles {
                selector,
                accounts: accounts.into_iter().collect(),
                secrets: source_secrets,
                config_maps: source_config_maps,
            }),
            grants: by_plugin(PluginFileKind::Grants, grants)?,
            plugins,
            name,
            namespace,
            image,
            out,
        })
    }
}
