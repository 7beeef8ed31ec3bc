//! Blocks of the API: certificates.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Certificates from Secrets of the namespace, which a user or cert-manager writes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tls {
    /// Certificates that the members verify of each other. Default: certificates that no member verifies.
    pub(crate) peer: Option<PeerTls>,
    /// Certificates between clients and members. Default: clients connect in clear text.
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
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("has(self.secretName) != has(self.certManager)")
        .message("set exactly one of secretName and certManager"),
    validation = Rule::new("has(self.certManager) == has(oldSelf.certManager)").message(
        "certManager cannot be added or removed, because members with certificates of two authorities refuse each other: \
         create another EtcdCluster"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerTls {
    /// Secret with tls.crt and tls.key, and ca.crt unless trustedCASecretName is given; the certificate is one for
    /// servers and clients.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) secret_name: Option<String>,
    /// Secret whose ca.crt has issued the certificates of peers. Default: that of the certificate.
    #[serde(rename = "trustedCASecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) trusted_ca: Option<String>,
    /// Certificate of cert-manager, in place of secretName.
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
        "certManager cannot be added or removed, because clients trust the present authority: create another EtcdCluster"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientTls {
    /// Secret with tls.crt, tls.key and ca.crt of the members; the certificate is one for servers and clients.
    #[serde(rename = "serverSecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) server: Option<String>,
    /// Secret whose ca.crt has issued the certificates of clients. Default: clients need no certificate.
    #[serde(rename = "trustedCASecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) trusted_ca: Option<String>,
    /// Secret with tls.crt and tls.key that the Jobs of the plugin present.
    #[serde(rename = "clientSecretName")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) client: Option<String>,
    /// Certificates of cert-manager, in place of the Secrets.
    pub(crate) cert_manager: Option<ClientCertificates>,
}

/// Certificate of cert-manager for the members as peers.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("self.issuerRef == oldSelf.issuerRef").message(
        "issuerRef is immutable, because members with certificates of two authorities refuse each other: create another \
         EtcdCluster"
    ),
    validation = Rule::new(
        "!has(self.duration) || !has(self.renewBefore) || duration(self.renewBefore) < duration(self.duration)"
    )
    .message("renewBefore must be shorter than duration")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerCertificates {
    /// Issuer of the certificate; its authority is to be that of this cluster only. Immutable.
    pub(crate) issuer_ref: IssuerRef,
    /// Lifetime of the certificate, such as 2160h. Default: that of cert-manager.
    #[schemars(regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub(crate) duration: Option<String>,
    /// Time before its end at which cert-manager renews it, such as 720h. Default: that of cert-manager.
    #[schemars(regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub(crate) renew_before: Option<String>,
}

/// Certificates of cert-manager for the members as servers, and for the Jobs as clients.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        "self.issuerRef == oldSelf.issuerRef && has(self.clientIssuerRef) == has(oldSelf.clientIssuerRef) \
         && (!has(self.clientIssuerRef) || self.clientIssuerRef == oldSelf.clientIssuerRef)"
    )
    .message(
        "issuerRef and clientIssuerRef are immutable, because members and clients trust the present authorities: create \
         another EtcdCluster"
    ),
    validation = Rule::new(
        "!has(self.duration) || !has(self.renewBefore) || duration(self.renewBefore) < duration(self.duration)"
    )
    .message("renewBefore must be shorter than duration")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientCertificates {
    /// Issuer of the members' certificate for clients. Immutable.
    pub(crate) issuer_ref: IssuerRef,
    /// Issuer whose certificates clients must present; it issues that of the Jobs. Default: clients need no
    /// certificate. Immutable.
    pub(crate) client_issuer_ref: Option<IssuerRef>,
    /// Lifetime of the certificates, such as 2160h. Default: that of cert-manager.
    #[schemars(regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub(crate) duration: Option<String>,
    /// Time before their end at which cert-manager renews them, such as 720h. Default: that of cert-manager.
    #[schemars(regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub(crate) renew_before: Option<String>,
}

/// An issuer of cert-manager.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub(crate) struct IssuerRef {
    /// Name of the issuer.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// Kind of the issuer. Others than Issuer only if the plugin's configuration lists their names.
    #[serde(default = "issuer")]
    #[schemars(length(min = 1, max = 63))]
    pub(crate) kind: String,
    /// API group of the issuer. Others than cert-manager.io only if the plugin's configuration lists their names.
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
    /// Returns true for an issuer of the namespace of the parent.
    pub(crate) fn is_of_namespace(&self) -> bool {
        self.kind == issuer() && self.group == cert_manager()
    }
}
