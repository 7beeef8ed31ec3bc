//! The flags that select an API server, and the host's namespaces.

use std::{fs, path::PathBuf};

use innkeeper_command::{HOST_NAMESPACE, values::dns_label};

/// The file with a Pod's namespace.
pub(super) const POD_NAMESPACE_FILE: &str =
    "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Flags that select an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectionArgs {
    /// Use the cluster of this kubeconfig [default: $KUBECONFIG, then ~/.kube/config, then the Pod's service account].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig context [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Flags that select a cluster and the host's namespaces.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// The API server.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Namespace for the hash key and the inventory; created if missing [default: the Pod's, or innkeeper-system outside
    /// a cluster].
    #[arg(
        long,
        value_name = "NAME",
        env = "INNKEEPER_HOST_NAMESPACE",
        default_value_t = default_namespace(),
        hide_default_value = true,
        value_parser = dns_label
    )]
    pub host_namespace: String,
    /// Namespace of the host's Pod, if not --host-namespace; plugins need a grant to serve either [default: the service
    /// account's].
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", value_parser = dns_label)]
    pub pod_namespace: Option<String>,
}

impl ClusterArgs {
    /// Returns the host's namespaces without duplicates: `--host-namespace` first, then the Pod's.
    pub fn host_namespaces(&self) -> Vec<String> {
        let pod = [self.pod_namespace.clone(), account_namespace()];
        let mut all = vec![self.host_namespace.clone()];
        for namespace in pod.into_iter().flatten() {
            if !all.contains(&namespace) {
                all.push(namespace);
            }
        }
        all
    }
}

/// Returns the service account's namespace; none outside a cluster.
fn account_namespace() -> Option<String> {
    let text = fs::read_to_string(POD_NAMESPACE_FILE).ok()?;
    Some(text.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}

/// Returns the host's default namespace: the Pod's, or `innkeeper-system` outside a cluster.
pub fn default_namespace() -> String {
    account_namespace().unwrap_or_else(|| HOST_NAMESPACE.to_owned())
}
