//! Blocks of the API: certificates.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Certificates from Secrets of the namespace, such as those of cert-manager.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tls {
    /// Certificates that the members verify of each other. Default: certificates that no member verifies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<PeerTls>,
    /// Certificates between clients and members. Default: clients connect in clear text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<ClientTls>,
    /// Effect of a changed ca.crt that members trust; etcd reads it at its start only, and renewed certificates by
    /// itself. Reload: none, until the members start again; Restart: the members restart one by one.
    #[serde(default)]
    pub(crate) on_change: OnChange,
}

/// Effect of a changed authority.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnChange {
    /// None, until the members start again.
    #[default]
    Reload,
    /// The members restart one by one.
    Restart,
}

/// Certificates that the members verify of each other.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerTls {
    /// Secret with tls.crt and tls.key, and ca.crt unless trustedCASecretName is given; the certificate is one for
    /// servers and clients.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) secret_name: String,
    /// Secret whose ca.crt has issued the certificates of peers. Default: that of secretName.
    #[serde(
        default,
        rename = "trustedCASecretName",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) trusted_ca: Option<String>,
}

impl PeerTls {
    /// The Secret with the authority of the peers.
    pub(crate) fn authority(&self) -> &str {
        self.trusted_ca.as_ref().unwrap_or(&self.secret_name)
    }
}

/// Certificates between clients and members.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("has(self.trustedCASecretName) == has(self.clientSecretName)")
        .message("trustedCASecretName and clientSecretName need each other: Jobs are clients, too")
)]
pub(crate) struct ClientTls {
    /// Secret with tls.crt, tls.key and ca.crt of the members; the certificate is one for servers and clients.
    #[serde(rename = "serverSecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) server: String,
    /// Secret whose ca.crt has issued the certificates of clients. Default: clients need no certificate.
    #[serde(
        default,
        rename = "trustedCASecretName",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) trusted_ca: Option<String>,
    /// Secret with tls.crt and tls.key that the Jobs of the plugin present.
    #[serde(
        default,
        rename = "clientSecretName",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) client: Option<String>,
}
