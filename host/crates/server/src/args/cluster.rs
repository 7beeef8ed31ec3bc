//! The connection to the API server.

use std::{fs, path::PathBuf};

use innkeeper_command::{Exit, Failure, HOST_NAMESPACE, OrFail as _, values::dns_label};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// The file with the namespace of a Pod.
pub(super) const POD_NAMESPACE_FILE: &str =
    "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The remedy for an unusable kubeconfig.
const REMEDY: &str = "repair it, or give another by --kubeconfig or KUBECONFIG";

/// The failure if there is no kubeconfig, and the host does not run in a cluster.
const NO_CLUSTER: &str = "found no cluster: give --kubeconfig FILE, set KUBECONFIG, or run in a Pod with a service account";

/// Flags that select an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectionArgs {
    /// Use the cluster of this kubeconfig [default: $KUBECONFIG, then ~/.kube/config, then the Pod's service account].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Flags that select a cluster and the host's place in it.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// The API server.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Namespace of the hash key and the inventory; created if missing [default: the Pod's own, or innkeeper-system
    /// outside of a cluster].
    #[arg(
        long,
        value_name = "NAME",
        env = "INNKEEPER_HOST_NAMESPACE",
        default_value_t = usual_namespace(),
        hide_default_value = true,
        value_parser = dns_label
    )]
    pub host_namespace: String,
    /// Namespace of the host's Pod and of its service account, if another than that of --host-namespace; plugins serve
    /// neither without a grant [default: that of the service account file].
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", value_parser = dns_label)]
    pub pod_namespace: Option<String>,
}

impl ClusterArgs {
    /// Returns the namespaces of the host: that of its objects first, then those of its Pod, each once.
    pub fn host_namespaces(&self) -> Vec<String> {
        let own = [self.pod_namespace.clone(), account_namespace()];
        let mut all = vec![self.host_namespace.clone()];
        for namespace in own.into_iter().flatten() {
            if !all.contains(&namespace) {
                all.push(namespace);
            }
        }
        all
    }
}

/// Returns the namespace of the service account that a Pod of the host has; none outside of a cluster.
fn account_namespace() -> Option<String> {
    let own = fs::read_to_string(POD_NAMESPACE_FILE).ok()?;
    Some(own.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}

/// Returns the namespace of the host: the Pod's own, or the usual one outside of a cluster.
pub fn usual_namespace() -> String {
    account_namespace().unwrap_or_else(|| HOST_NAMESPACE.to_owned())
}

/// Returns the cluster of the requested context, or without a request of the current one.
/// Fails if the kubeconfig does not have that context.
fn cluster_of<'a>(
    found: &'a Kubeconfig,
    context: Option<&str>,
    from: &str,
) -> Result<Option<&'a kube::config::Cluster>, Failure> {
    let current = found.current_context.as_deref();
    let asked = context.or_else(|| current.filter(|name| !name.is_empty()));
    let mut contexts = found.contexts.iter();
    let Some(context) = contexts.find(|it| asked == Some(it.name.as_str())) else {
        let lacking = asked.map_or_else(
            || "no current context".to_owned(),
            |asked| format!("no context \"{asked}\""),
        );
        let known: Vec<&str> = found.contexts.iter().map(|it| it.name.as_str()).collect();
        let remedy = if known.is_empty() {
            "and another --kubeconfig, because it has no contexts".to_owned()
        } else {
            known.join(" or --context ")
        };
        let message = format!("the kubeconfig {from} has {lacking}: give --context {remedy}");
        return Err(Failure::new(Exit::Usage, message));
    };
    let name = context.context.as_ref().map(|context| &context.cluster);
    let mut clusters = found.clusters.iter();
    let named = clusters.find(|it| Some(&it.name) == name);
    Ok(named.and_then(|it| it.cluster.as_ref()))
}

/// Returns the file with the authority of the API server; none if the kubeconfig contains the authority itself.
fn authority_file(cluster: &kube::config::Cluster) -> Option<PathBuf> {
    let file = cluster
        .certificate_authority
        .as_ref()
        .filter(|_| cluster.certificate_authority_data.is_none())?;
    Some(PathBuf::from(file))
}

/// Returns the client configuration of the API server.
///
/// The first existing source counts: the flag, `$KUBECONFIG`, `~/.kube/config`, the Pod's service account.
/// Fails if that source is invalid, or if none exists.
pub async fn client_config(connection: &ConnectionArgs) -> Result<kube::Config, Failure> {
    let ConnectionArgs {
        kubeconfig,
        context,
    } = connection;
    let (from, read) = match kubeconfig {
        Some(path) => (
            format!("{} (--kubeconfig)", path.display()),
            Kubeconfig::read_from(path),
        ),
        None => match Kubeconfig::from_env() {
            Ok(Some(found)) => ("that KUBECONFIG names".to_owned(), Ok(found)),
            Err(source) => ("that KUBECONFIG names".to_owned(), Err(source)),
            Ok(None) => ("~/.kube/config".to_owned(), Kubeconfig::read()),
        },
    };
    let cluster = match &read {
        Ok(found) => cluster_of(found, context.as_deref(), &from)?,
        Err(_) => None,
    };
    let through_proxy = cluster.is_some_and(|cluster| cluster.proxy_url.is_some());
    let authority = cluster.and_then(authority_file);
    let options = KubeConfigOptions {
        context: context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = match read {
        Ok(found) => kube::Config::from_custom_kubeconfig(found, &options).await,
        // Only ~/.kube/config may be missing: a file that the user named must exist.
        Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath)
            if kubeconfig.is_none() && from.starts_with('~') && context.is_none() =>
        {
            return kube::Config::incluster().or_fail(Exit::Usage, NO_CLUSTER);
        }
        // The parser's message is omitted: it quotes the text, which has credentials.
        Err(KubeconfigError::Parse(source)) => {
            let at = source.location().map_or_else(
                || "some place".to_owned(),
                |at| format!("line {}, column {}", at.line(), at.column()),
            );
            let message = format!("failed to parse the kubeconfig {from} at {at}: {REMEDY}");
            return Err(Failure::new(Exit::Usage, message));
        }
        Err(source) => Err(source),
    };
    let unusable = format!("failed to use the kubeconfig {from}: {REMEDY}");
    let mut config = config.or_fail(Exit::Usage, unusable)?;
    // The client applies HTTPS_PROXY as well, and compares NO_PROXY with the proxy instead of the API server. These
    // variables are for sources only; the kubeconfig has its own field for a proxy.
    if !through_proxy {
        config.proxy_url = None;
    }
    // As in a Pod: a replaced file is read again without a restart.
    config.root_cert_file = authority;
    Ok(config)
}
