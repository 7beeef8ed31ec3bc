//! API blocks for certificates.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Certificates from Secrets in the namespace, written by users or cert-manager.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tls {
    /// Certificates that members verify when they connect to each other. Default: certificates that no member
    /// verifies.
    pub(crate) peer: Option<PeerTls>,
    /// Certificates between clients and members. Default: clients connect in clear text.
    pub(crate) client: Option<ClientTls>,
    /// Reaction to a changed trusted ca.crt: etcd reads it only at its start, unlike renewed certificates.
    /// Reload: nothing until the members start again; Restart: the members restart one by one.
    #[serde(default)]
    pub(crate) on_change: OnChange,
}

/// Reaction to a changed trusted authority.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnChange {
    /// Nothing until the members start again.
    #[default]
    Reload,
    /// The members restart one by one.
    Restart,
}

/// Certificates that members verify when they connect to each other.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("has(self.secretName) != has(self.certManager)")
        .message("set exactly one of secretName and certManager"),
    validation = Rule::new("has(self.certManager) == has(oldSelf.certManager)").message(
        "certManager cannot be added or removed, because members with certificates from two authorities reject each other: \
         create another EtcdCluster"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerTls {
    /// Secret with tls.crt and tls.key, and with ca.crt unless trustedCASecretName is set; the certificate must allow
    /// server and client use.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) secret_name: Option<String>,
    /// Secret whose ca.crt verifies peer certificates. Default: the one in secretName.
    #[serde(rename = "trustedCASecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) trusted_ca: Option<String>,
    /// cert-manager certificate, instead of secretName.
    pub(crate) cert_manager: Option<PeerCertificates>,
}

/// Certificates between clients and members.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("has(self.serverSecretName) != has(self.certManager)")
        .message("set exactly one of serverSecretName and certManager"),
    validation = Rule::new("has(self.trustedCASecretName) == has(self.clientSecretName)")
        .message("trustedCASecretName and clientSecretName need each other: Jobs are clients, too"),
    validation = Rule::new("!has(self.certManager) || !has(self.trustedCASecretName)")
        .message("trustedCASecretName excludes certManager: set certManager.clientIssuerRef"),
    validation = Rule::new("has(self.certManager) == has(oldSelf.certManager)").message(
        "certManager cannot be added or removed, because clients trust the current authority: create another EtcdCluster"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientTls {
    /// Secret with the members' tls.crt, tls.key and ca.crt; the certificate must allow server and client use.
    #[serde(rename = "serverSecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) server: Option<String>,
    /// Secret whose ca.crt verifies client certificates. Default: clients need no certificate.
    #[serde(rename = "trustedCASecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) trusted_ca: Option<String>,
    /// Secret with the tls.crt and tls.key that the plugin's Jobs present.
    #[serde(rename = "clientSecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) client: Option<String>,
    /// cert-manager certificates, instead of the Secrets.
    pub(crate) cert_manager: Option<ClientCertificates>,
}

/// cert-manager certificate for the members as peers.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("self.issuerRef == oldSelf.issuerRef").message(
        "issuerRef is immutable, because members with certificates from two authorities reject each other: create another \
         EtcdCluster"
    ),
    validation = Rule::new(
        "!has(self.duration) || !has(self.renewBefore) || duration(self.renewBefore) < duration(self.duration)"
    )
    .message("renewBefore must be shorter than duration")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerCertificates {
    /// Certificate issuer; its authority should only serve this cluster. Immutable.
    pub(crate) issuer_ref: IssuerRef,
    /// Certificate lifetime, such as 2160h. Default: cert-manager's.
    #[schemars(regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub(crate) duration: Option<String>,
    /// Time before expiry at which cert-manager renews it, such as 720h. Default: cert-manager's.
    #[schemars(regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub(crate) renew_before: Option<String>,
}

/// cert-manager certificates for the members as servers, and for the Jobs as clients.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        "self.issuerRef == oldSelf.issuerRef && has(self.clientIssuerRef) == has(oldSelf.clientIssuerRef) \
         && (!has(self.clientIssuerRef) || self.clientIssuerRef == oldSelf.clientIssuerRef)"
    )
    .message(
        "issuerRef and clientIssuerRef are immutable, because members and clients trust the current authorities: create \
         another EtcdCluster"
    ),
    validation = Rule::new(
        "!has(self.duration) || !has(self.renewBefore) || duration(self.renewBefore) < duration(self.duration)"
    )
    .message("renewBefore must be shorter than duration")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientCertificates {
    /// Issuer of the members' server certificate. Immutable.
    pub(crate) issuer_ref: IssuerRef,
    /// Issuer whose certificates clients must present; it also issues the Jobs' certificate. Default: clients need no
    /// certificate. Immutable.
    pub(crate) client_issuer_ref: Option<IssuerRef>,
    /// Certificate lifetime, such as 2160h. Default: cert-manager's.
    #[schemars(regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub(crate) duration: Option<String>,
    /// Time before expiry at which cert-manager renews them, such as 720h. Default: cert-manager's.
    #[schemars(regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub(crate) renew_before: Option<String>,
}

/// A cert-manager issuer.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub(crate) struct IssuerRef {
    /// Issuer name.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// Issuer kind. The plugin's configuration must list the names of issuers that are no Issuer.
    #[serde(default = "issuer")]
    #[schemars(length(min = 1, max = 63))]
    pub(crate) kind: String,
    /// Issuer API group. The plugin's configuration must list the names of issuers outside cert-manager.io.
    #[serde(default = "cert_manager")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) group: String,
}

fn issuer() -> String {
    "Issuer".to_owned()
}

fn cert_manager() -> String {
    "cert-manager.io".to_owned()
}

impl IssuerRef {
    /// True for an issuer in the parent's namespace.
    pub(crate) fn is_of_namespace(&self) -> bool {
        self.kind == issuer() && self.group == cert_manager()
    }
}
