//! Reads the kubeconfig as `kubectl` does, and configures clients.

use std::{env, io, path::PathBuf, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use innkeeper_command::{Exit, Failure, OrFail as _};
use kube::config::{
    AuthInfo, Cluster, Context, ExecConfig, KubeConfigOptions, Kubeconfig, KubeconfigError,
};
use serde_json::json;
use tokio::task::spawn_blocking;

use super::{ChangingToken, ClientConfig, Proxy, exec};
use crate::args::ConnectionArgs;

const REMEDY: &str = "repair it, or give another by --kubeconfig or KUBECONFIG";

const NO_CLUSTER: &str = "found no cluster: give --kubeconfig FILE, set KUBECONFIG, or run in a Pod with a service account";

/// The only `auth-provider` without a command.
const PROVIDER: &str = "oidc";

/// A kubeconfig and where it comes from.
struct FoundKubeconfig {
    from: String,
    kubeconfig: Kubeconfig,
}

/// The parts of a kubeconfig that a context selects.
struct Selected<'a> {
    context: &'a str,
    cluster: &'a Cluster,
    /// The user's name.
    user: Option<&'a str>,
    credentials: Option<&'a AuthInfo>,
}

/// Returns the client configuration for the API server.
///
/// Uses the first existing source: the flag, `$KUBECONFIG`, `~/.kube/config`, the Pod's service account.
/// Fails if this source is invalid, or if none exists.
pub async fn client_config(connection: &ConnectionArgs) -> Result<ClientConfig, Failure> {
    let Some(source) = find(connection)? else {
        let config = kube::Config::incluster().or_fail(Exit::Usage, no_cluster())?;
        return without_kubeconfig(config);
    };
    let FoundKubeconfig { from, kubeconfig } = source;
    let selected = select(&kubeconfig, connection.context.as_deref(), &from)?;
    let unusable = || format!("failed to use the kubeconfig {from}: {REMEDY}");
    let proxy = proxy(&selected, &from)?;
    let authority = authority_file(selected.cluster);
    let user = selected.user.unwrap_or_default().to_owned();
    // Like `kubectl`, never sends credentials in clear text.
    let is_secure = is_secure(selected.cluster);
    if is_secure {
        check_user(&selected, &from)?;
    }
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        ..KubeConfigOptions::default()
    };
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .or_fail(Exit::Usage, unusable())?;
    // kube also takes it from HTTPS_PROXY, but the environment's proxies apply only to sources.
    config.proxy_url = None;
    // Reloads a replaced file without a restart, as in a Pod.
    config.root_cert_file = authority;
    let credentials = if is_secure {
        let place = format!("the user \"{user}\" of the kubeconfig {from}");
        credentials(&mut config, &place).await?
    } else {
        config.auth_info = AuthInfo::default();
        None
    };
    Ok(ClientConfig {
        config,
        credentials,
        proxy,
    })
}

fn no_cluster() -> String {
    let files: Vec<String> = named_files()
        .unwrap_or_default()
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    if files.is_empty() {
        return NO_CLUSTER.to_owned();
    }
    format!(
        "found no cluster: KUBECONFIG names only files that do not exist, {}; correct it, or give --kubeconfig FILE",
        files.join(" and ")
    )
}

/// Returns a Pod's configuration.
fn without_kubeconfig(mut config: kube::Config) -> Result<ClientConfig, Failure> {
    let credentials = config
        .auth_info
        .token_file
        .take()
        .map(|file| ChangingToken::from_file(PathBuf::from(file)))
        .transpose()
        .or_fail(
            Exit::Usage,
            "failed to use the Pod's service account: mount its token",
        )?;
    Ok(ClientConfig {
        config,
        credentials: credentials.map(Arc::new),
        proxy: None,
    })
}

/// Returns the kubeconfig; none if no file was named, and the default one does not exist.
fn find(connection: &ConnectionArgs) -> Result<Option<FoundKubeconfig>, Failure> {
    let (from, read) = match (&connection.kubeconfig, named_files()) {
        (Some(path), _) => (
            format!("{} (--kubeconfig)", path.display()),
            Kubeconfig::read_from(path).map(Some),
        ),
        (None, Some(files)) => ("that KUBECONFIG names".to_owned(), merged(&files)),
        (None, None) => {
            let read = match Kubeconfig::read() {
                // There is no home directory, for example in a container.
                Err(KubeconfigError::FindPath) => Ok(None),
                Err(error) if is_missing(&error) => Ok(None),
                read => read.map(Some),
            };
            ("~/.kube/config".to_owned(), read)
        }
    };
    match read {
        Ok(Some(kubeconfig)) => Ok(Some(FoundKubeconfig { from, kubeconfig })),
        // With --context, the user means a kubeconfig, not the Pod's account.
        Ok(None) if connection.context.is_none() => Ok(None),
        Ok(None) => {
            let message = format!("failed to read the kubeconfig {from}: there is no such file");
            Err(Failure::new(Exit::Usage, message))
        }
        // The parser's message is omitted: it quotes the text, which has credentials.
        Err(KubeconfigError::Parse(source)) => {
            let at = source.location().map_or_else(
                || "some place".to_owned(),
                |at| format!("line {}, column {}", at.line(), at.column()),
            );
            let message = format!("failed to parse the kubeconfig {from} at {at}: {REMEDY}");
            Err(Failure::new(Exit::Usage, message))
        }
        Err(source) => {
            let unusable = format!("failed to use the kubeconfig {from}: {REMEDY}");
            Err(source).or_fail(Exit::Usage, unusable)
        }
    }
}

/// Returns the files in the variable; none if it is unset or empty.
#[expect(clippy::disallowed_methods, reason = "the variable belongs to kubectl")]
fn named_files() -> Option<Vec<PathBuf>> {
    let names = env::var_os("KUBECONFIG").filter(|names| !names.is_empty())?;
    let files = env::split_paths(&names).filter(|path| !path.as_os_str().is_empty());
    Some(files.collect())
}

/// Merges files; the first to set a value wins. Skips missing files; none if all are missing.
fn merged(files: &[PathBuf]) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let mut merged: Option<Kubeconfig> = None;
    for file in files {
        let mut next = match Kubeconfig::read_from(file) {
            Err(error) if is_missing(&error) => continue,
            read => read?,
        };
        // `merge` lets the first value win, even an empty one.
        next.current_context = next.current_context.filter(|name| !name.is_empty());
        merged = Some(match merged {
            Some(before) => before.merge(next)?,
            None => next,
        });
    }
    Ok(merged)
}

fn is_missing(error: &KubeconfigError) -> bool {
    matches!(error, KubeconfigError::ReadConfig(source, _) if source.kind() == io::ErrorKind::NotFound)
}

/// Returns the parts of the requested or current context.
fn select<'a>(
    kubeconfig: &'a Kubeconfig,
    context: Option<&'a str>,
    from: &str,
) -> Result<Selected<'a>, Failure> {
    let current = kubeconfig.current_context.as_deref();
    let requested = context.or_else(|| current.filter(|name| !name.is_empty()));
    let Some(named) = kubeconfig
        .contexts
        .iter()
        .find(|context| requested == Some(context.name.as_str()))
    else {
        return Err(no_context(kubeconfig, requested, from));
    };
    let context = &*named.name;
    let parts = named.context.as_ref();
    let missing = |what: &str, name: &str| {
        let message = format!(
            "the context \"{context}\" of the kubeconfig {from} names the {what} \"{name}\", which is not in it: add it, or give another --context"
        );
        Failure::new(Exit::Usage, message)
    };
    let cluster_name = parts.map_or("", |parts| &*parts.cluster);
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|cluster| cluster.name == cluster_name)
        .and_then(|cluster| cluster.cluster.as_ref())
        .ok_or_else(|| missing("cluster", cluster_name))?;
    let user = parts
        .and_then(|Context { user, .. }| user.as_deref())
        .filter(|name| !name.is_empty());
    let named_user = kubeconfig
        .auth_infos
        .iter()
        .find(|info| Some(&*info.name) == user);
    if let Some(name) = user
        && named_user.is_none()
        // Over http no credentials are sent, so a missing user does not matter.
        && is_secure(cluster)
    {
        return Err(missing("user", name));
    }
    Ok(Selected {
        context,
        cluster,
        user,
        credentials: named_user.and_then(|user| user.auth_info.as_ref()),
    })
}

fn no_context(kubeconfig: &Kubeconfig, requested: Option<&str>, from: &str) -> Failure {
    let lacking = requested.map_or_else(
        || "no current context".to_owned(),
        |name| format!("no context \"{name}\""),
    );
    let names: Vec<&str> = kubeconfig
        .contexts
        .iter()
        .map(|context| context.name.as_str())
        .collect();
    let remedy = if names.is_empty() {
        "and another --kubeconfig, because it has no contexts".to_owned()
    } else {
        names.join(" or --context ")
    };
    let message = format!("the kubeconfig {from} has {lacking}: give --context {remedy}");
    Failure::new(Exit::Usage, message)
}

/// Checks that the user has credentials. Without any, `kubectl` would prompt for a password.
fn check_user(selected: &Selected<'_>, from: &str) -> Result<(), Failure> {
    let Selected { context, user, .. } = selected;
    let Some(user) = user else {
        let message = format!(
            "the context \"{context}\" of the kubeconfig {from} names no user: add one, or give another --context"
        );
        return Err(Failure::new(Exit::Usage, message));
    };
    let has = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let has_credentials = selected.credentials.is_some_and(|info| {
        has(&info.username)
            || has(&info.token_file)
            || has(&info.client_certificate)
            || has(&info.client_certificate_data)
            || info.token.is_some()
            || info.exec.is_some()
            || info.auth_provider.is_some()
    });
    if has_credentials {
        return Ok(());
    }
    let message = format!(
        "the user \"{user}\" of the kubeconfig {from} has no credentials: add them, for example a token"
    );
    Err(Failure::new(Exit::Usage, message))
}

fn is_secure(cluster: &Cluster) -> bool {
    cluster
        .server
        .as_deref()
        .unwrap_or_default()
        // RFC 3986: schemes are case-insensitive.
        .to_ascii_lowercase()
        .starts_with("https://")
}

/// Returns the API server's authority file; none if the kubeconfig contains the authority.
fn authority_file(cluster: &Cluster) -> Option<PathBuf> {
    let file = cluster
        .certificate_authority
        .as_ref()
        .filter(|_| cluster.certificate_authority_data.is_none())?;
    Some(PathBuf::from(file))
}

fn proxy(selected: &Selected<'_>, from: &str) -> Result<Option<Proxy>, Failure> {
    selected
        .cluster
        .proxy_url
        .as_deref()
        .filter(|text| !text.is_empty())
        .map(Proxy::parse)
        .transpose()
        .or_fail(
            Exit::Usage,
            format!(
                "failed to use the proxy-url of the context \"{}\" of the kubeconfig {from}",
                selected.context
            ),
        )
}

/// Moves changing credentials out of a configuration.
async fn credentials(
    config: &mut kube::Config,
    place: &str,
) -> Result<Option<Arc<ChangingToken>>, Failure> {
    let info = &mut config.auth_info;
    let unusable = || format!("failed to use {place}");
    if let Some(provider) = info
        .auth_provider
        .as_ref()
        .filter(|provider| provider.name != PROVIDER)
    {
        let message = format!(
            "failed to use {place}: it has the auth-provider \"{}\", which kubectl no longer knows either: use exec",
            provider.name
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    let has_other = info.auth_provider.is_some() || info.username.is_some();
    if let Some(file) = info.token_file.take().filter(|file| !file.is_empty()) {
        // The file wins; a token beside it is the fallback.
        let has_token = info.token.is_some();
        return match ChangingToken::from_file(PathBuf::from(file)) {
            Ok(credentials) => {
                info.token = None;
                Ok(Some(Arc::new(credentials)))
            }
            Err(_) if has_token => Ok(None),
            Err(error) => Err(error).or_fail(Exit::Usage, unusable()),
        };
    }
    let Some(command) = info.exec.take() else {
        return Ok(None);
    };
    // As in client-go, static credentials win over the command.
    if has_other || info.token.is_some() {
        return Ok(None);
    }
    run_command(config, command)
        .await
        .or_fail(Exit::Usage, unusable())
}

/// Runs a user's command for the first time, and adds the certificate that it prints.
async fn run_command(
    config: &mut kube::Config,
    command: ExecConfig,
) -> Result<Option<Arc<ChangingToken>>, super::credentials::Error> {
    let exec = command.clone();
    let printed = spawn_blocking(move || exec::run_command(&exec))
        .await
        .map_err(|_| super::credentials::Error::Aborted)??;
    if !printed.client_certificate_data.is_empty() {
        let fields = json!({
            "client-certificate-data": STANDARD.encode(&printed.client_certificate_data),
            "client-key-data": STANDARD.encode(&printed.client_key_data),
        });
        // Never fails: both are texts.
        let certificate: AuthInfo = serde_json::from_value(fields).unwrap_or_default();
        config.auth_info = AuthInfo {
            client_certificate_data: certificate.client_certificate_data,
            client_key_data: certificate.client_key_data,
            ..std::mem::take(&mut config.auth_info)
        };
    }
    if printed.token.is_empty() {
        return Ok(None);
    }
    let credentials = ChangingToken::from_exec(command, &printed)?;
    Ok(Some(Arc::new(credentials)))
}
