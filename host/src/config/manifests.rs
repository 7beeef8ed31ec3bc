//! The command `manifests`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use innkeeper_model::{Selector, is_dns_label};

use super::{
    Definitions, Exit, HOST_NAMESPACE, Namespaces, PluginObject,
    plugins::{OfPlugin, plugin_object},
    scope::namespaces,
    streams::exit_codes,
    values::{dns_label, selector},
};
use crate::failure::Failure;

/// Flags of `manifests`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("a plugin failed to describe itself"))]
pub struct ManifestsArgs {
    /// Print the needs of the plugins in these .wasm files; the image must contain them in /plugins
    #[arg(long = "plugin", value_name = "FILE", required = true, num_args = 1..)]
    pub plugins: Vec<PathBuf>,
    /// Grant this plugin the rights in this file, as for `run`; once per plugin [default: those of --print-grants]
    #[arg(long = "grants", value_name = "PLUGIN=FILE", value_parser = plugin_object)]
    pub grants: Vec<PluginObject>,
    /// Name of the host, its account, its roles and its lease; hosts that work side by side need different names
    #[arg(long, value_name = "NAME", default_value = "innkeeper", value_parser = dns_label)]
    pub name: String,
    /// Namespace of the host
    #[arg(long, value_name = "NAME", default_value = HOST_NAMESPACE, value_parser = dns_label)]
    pub namespace: String,
    /// Print Roles in these namespaces only, for `run --namespaces`, and a ClusterRole for cluster-scoped objects
    #[arg(long, value_name = "NAME,...", value_parser = namespaces)]
    pub namespaces: Option<Namespaces>,
    /// Let the host install the CustomResourceDefinitions of plugins, or run it with `--crds ignore`
    #[arg(long, value_name = "ACTION", value_enum, default_value_t)]
    pub crds: Definitions,
    /// The Plugin resources.
    #[command(flatten)]
    pub resources: ResourceArgs,
    /// Image of the host
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new(), default_value = concat!("innkeeper:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
    /// Print only the grants of the plugin, for --grants of `run` and `dev`; takes one --plugin
    ///
    /// Without --grants, they are the rights that the plugin asks for, except privileged kinds, parents of built-in kinds and
    /// the values of Secrets, with Pods at podSecurity: restricted.
    #[arg(long, conflicts_with = "out")]
    pub print_grants: bool,
    /// Write files to this directory, created if missing, instead of one stream to standard output
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Flags for a host that runs Plugin resources.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ResourceArgs {
    /// Let the host run Plugin resources instead of files in its image; --plugin lists their plugins
    #[arg(long)]
    pub plugin_resources: bool,
    /// Write the children of this plugin as this account instead of the host's own; the account is printed with its
    /// roles, for spec.grants.serviceAccountRef; once per plugin
    #[arg(long = "account", value_name = "PLUGIN=NAMESPACE/NAME", value_parser = plugin_account, requires = "plugin_resources")]
    pub accounts: Vec<OfPlugin<PluginAccount>>,
    /// Let the host run the Plugins that this label selector selects, for `run --plugin-selector`
    #[arg(long = "plugin-selector", value_name = "SELECTOR", value_parser = selector, requires = "plugin_resources")]
    pub selector: Option<Selector>,
    /// Let the sources of Plugins use this Secret of the host's namespace; once per Secret
    #[arg(
        long = "source-secret",
        value_name = "NAME",
        requires = "plugin_resources"
    )]
    pub secrets: Vec<String>,
    /// Let the sources of Plugins use this ConfigMap of the host's namespace; once per ConfigMap
    #[arg(
        long = "source-config-map",
        value_name = "NAME",
        requires = "plugin_resources"
    )]
    pub config_maps: Vec<String>,
}

impl ManifestsArgs {
    /// Checks the flags together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.print_grants && self.plugins.len() > 1 {
            let message = "--print-grants prints the file of one plugin: give one --plugin";
            return Err(Failure::new(Exit::Usage, message));
        }
        OfPlugin::check_unique("--grants", &self.grants)?;
        OfPlugin::check_unique("--account", &self.resources.accounts)
    }

    /// Returns the flags for Plugin resources; none if the plugins are in the image.
    pub fn resources(&self) -> Option<&ResourceArgs> {
        Some(&self.resources).filter(|resources| resources.plugin_resources)
    }
}

/// The account that writes the children of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginAccount {
    /// The namespace of the account.
    pub namespace: String,
    /// The name of the account.
    pub name: String,
}

fn plugin_account(text: &str) -> Result<OfPlugin<PluginAccount>, String> {
    const FORM: &str = "PLUGIN=NAMESPACE/NAME with three DNS labels";

    let given = OfPlugin::parse(text, FORM, |account| match account.split_once('/') {
        Some((namespace, name)) if is_dns_label(namespace) && is_dns_label(name) => {
            Ok(PluginAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err(format!("write it as {FORM}")),
    })?;
    if is_dns_label(&given.plugin) {
        Ok(given)
    } else {
        Err(format!("write it as {FORM}"))
    }
}
