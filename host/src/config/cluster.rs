//! Which cluster, as whom.

use std::{fs, path::PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::Error;

/// Where a Pod finds its own namespace.
pub(super) const POD_NAMESPACE_FILE: &str =
    "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The host's namespace outside of a cluster.
const HOST_NAMESPACE: &str = "innkeeper-system";

/// Flags by which an API server is found.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ConnectionArgs {
    /// Speak to the cluster of this kubeconfig [default: $KUBECONFIG, then ~/.kube/config, then the Pod's service account].
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Use this context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Flags that name a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// Keep the hash key and the inventory in this namespace, made when it is missing [default: the Pod's own, or
    /// innkeeper-system outside of a cluster].
    #[arg(long, value_name = "NAME", env = "INNKEEPER_HOST_NAMESPACE")]
    host_namespace: Option<String>,
}

/// Which cluster, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The kubeconfig; none: the usual places.
    pub kubeconfig: Option<PathBuf>,
    /// The context; none: the kubeconfig's current one.
    pub context: Option<String>,
}

impl ConnectionArgs {
    pub(super) fn into_settings(self) -> Connection {
        let Self {
            kubeconfig,
            context,
        } = self;
        Connection {
            kubeconfig,
            context,
        }
    }
}

/// Which cluster, as whom, and where the host lives in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The kubeconfig; none: the usual places.
    pub kubeconfig: Option<PathBuf>,
    /// The context; none: the kubeconfig's current one.
    pub context: Option<String>,
    /// The host's namespace.
    pub host_namespace: String,
}

impl ClusterArgs {
    pub(super) fn into_settings(self) -> ClusterSettings {
        let Self {
            connection,
            host_namespace,
        } = self;
        let Connection {
            kubeconfig,
            context,
        } = connection.into_settings();
        let host_namespace = host_namespace.unwrap_or_else(|| {
            fs::read_to_string(POD_NAMESPACE_FILE)
                .map(|text| text.trim().to_owned())
                .ok()
                .filter(|namespace| !namespace.is_empty())
                .unwrap_or_else(|| HOST_NAMESPACE.to_owned())
        });
        ClusterSettings {
            kubeconfig,
            context,
            host_namespace,
        }
    }
}

impl ClusterSettings {
    /// How its API server is found.
    pub fn connection(&self) -> Connection {
        Connection {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }
}

/// Whether the context that is asked for, or else the current one, is there.
fn check_context(found: &Kubeconfig, context: Option<&str>, from: &str) -> Result<(), Error> {
    let current = found.current_context.as_deref();
    let asked = context
        .or_else(|| current.filter(|name| !name.is_empty()))
        .map(str::to_owned);
    let known: Vec<String> = found
        .contexts
        .iter()
        .map(|context| context.name.clone())
        .collect();
    if asked.as_ref().is_some_and(|asked| known.contains(asked)) {
        return Ok(());
    }
    Err(Error::Context {
        from: from.to_owned(),
        asked,
        known,
    })
}

/// What the kubeconfig says of the cluster that is used.
fn cluster_of<'a>(
    found: &'a Kubeconfig,
    context: Option<&str>,
) -> Option<&'a kube::config::Cluster> {
    let context = context.or(found.current_context.as_deref());
    let mut contexts = found.contexts.iter();
    let context = contexts.find(|it| context == Some(it.name.as_str()))?;
    let name = &context.context.as_ref()?.cluster;
    let mut clusters = found.clusters.iter();
    clusters.find(|it| it.name == *name)?.cluster.as_ref()
}

/// The file with the certificates that the API server is trusted by, where it is one.
fn authority_file(cluster: &kube::config::Cluster) -> Option<PathBuf> {
    let file = cluster.certificate_authority.as_ref();
    let file = file.filter(|_| cluster.certificate_authority_data.is_none())?;
    Some(PathBuf::from(file))
}

/// Where the API server is and how to speak to it.
///
/// Looked for in this order: the kubeconfig given, `$KUBECONFIG`, `~/.kube/config`, the Pod's service account.
/// Fails if the first of these that is there cannot be used, or if none is.
pub async fn client_config(connection: &Connection) -> Result<kube::Config, Error> {
    let Connection {
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
    if let Ok(found) = &read {
        check_context(found, context.as_deref(), &from)?;
    }
    let cluster = read
        .as_ref()
        .ok()
        .and_then(|found| cluster_of(found, context.as_deref()));
    let through_proxy = cluster.is_some_and(|cluster| cluster.proxy_url.is_some());
    let authority = cluster.and_then(authority_file);
    let options = KubeConfigOptions {
        context: context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = match read {
        Ok(found) => kube::Config::from_custom_kubeconfig(found, &options).await,
        // Only the usual place may be empty: a file that was named must be there.
        Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath)
            if kubeconfig.is_none() && from.starts_with('~') && context.is_none() =>
        {
            return kube::Config::incluster().map_err(Error::NoCluster);
        }
        Err(KubeconfigError::Parse(source)) => {
            let at = source.location().map_or_else(
                || "some place".to_owned(),
                |at| format!("line {}, column {}", at.line(), at.column()),
            );
            return Err(Error::KubeconfigSyntax { from, at });
        }
        Err(source) => Err(source),
    };
    let mut config = config.map_err(|source| Error::Kubeconfig {
        from,
        source: Box::new(source),
    })?;
    // The client takes HTTPS_PROXY, too, and looks for the proxy in NO_PROXY instead of the API server: these variables
    // are for sources, and the kubeconfig has a field of its own.
    if !through_proxy {
        config.proxy_url = None;
    }
    // As in a Pod: who replaces the file need not start anything again.
    config.root_cert_file = authority;
    Ok(config)
}
