//! The command `manifests`.

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use innkeeper_command::{
    Definitions, Exit, Failure, HOST_NAMESPACE, Namespaces, PluginObject, PluginValue, examples,
    exit_codes, namespaces, plugin_object, values::dns_label,
};
use innkeeper_model::syntax::is_dns_label;

use super::{Inspected, LoadArgs};

/// Flags of `manifests`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper manifests plugin.wasm", "innkeeper manifests oci://registry.example/plugins/memcached:1.4.0 --namespaces team-a,team-b", "innkeeper manifests plugin.wasm --print-grants"), exit_codes!("a plugin failed to describe itself")))]
pub struct ManifestsArgs {
    /// Plugins: .wasm files, which the image must have in /plugins, or artifacts in registries.
    #[arg(
        value_name = "FILE|oci://REFERENCE",
        required = true,
        num_args = 1..,
        value_parser = PathBufValueParser::new().map(Inspected::from)
    )]
    pub plugins: Vec<Inspected>,
    /// Grants (`spec.grants`) as YAML or JSON; once per plugin [default: those of --print-grants].
    #[arg(long = "grants", value_name = "PLUGIN=FILE", value_parser = plugin_object)]
    pub grants: Vec<PluginObject>,
    /// Name of the host and its account: the chart's release.
    #[arg(long, value_name = "NAME", default_value = "innkeeper", value_parser = dns_label)]
    pub name: String,
    /// The host's namespace.
    #[arg(long, value_name = "NAME", default_value = HOST_NAMESPACE, value_parser = dns_label)]
    pub namespace: String,
    /// Print Roles only in these namespaces, and a ClusterRole for cluster-scoped objects, like the host's
    /// --namespaces.
    #[arg(long, value_name = "NAME,...", value_parser = namespaces)]
    pub namespaces: Option<Namespaces>,
    /// Let the host install the plugins' CustomResourceDefinitions, or print them, like the host's --crds.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t)]
    pub crds: Definitions,
    /// Write this plugin's children as this account, which is printed with its roles and set in the Plugin; once per
    /// plugin.
    #[arg(long = "account", value_name = "PLUGIN=NAMESPACE/NAME", value_parser = plugin_account)]
    pub accounts: Vec<PluginValue<PluginAccount>>,
    /// Print only one plugin's grants, for --grants of `run` and `dev`.
    ///
    /// Without --grants, these are the plugin's requests, except privileged kinds, parents of built-in kinds and Secret
    /// values, with Pods at podSecurity: restricted.
    #[arg(long)]
    pub print_grants: bool,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
}

impl ManifestsArgs {
    /// Checks the flags together.
    pub fn check(&self) -> Result<(), Failure> {
        if self.print_grants && self.plugins.len() > 1 {
            let message = "--print-grants prints the file of one plugin: give one plugin";
            return Err(Failure::new(Exit::Usage, message));
        }
        PluginValue::check_unique("--grants", &self.grants)?;
        PluginValue::check_unique("--account", &self.accounts)
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

fn plugin_account(text: &str) -> Result<PluginValue<PluginAccount>, String> {
    const FORM: &str = "PLUGIN=NAMESPACE/NAME with three DNS labels";

    let account = PluginValue::parse(text, FORM, |account| match account.split_once('/') {
        Some((namespace, name)) if is_dns_label(namespace) && is_dns_label(name) => {
            Ok(PluginAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err(format!("write it as {FORM}")),
    })?;
    if is_dns_label(&account.plugin) {
        Ok(account)
    } else {
        Err(format!("write it as {FORM}"))
    }
}
