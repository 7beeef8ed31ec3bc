//! The names of the Secrets with certificates.

use crate::api::Tls;

/// The Secrets of a cluster: those that the user names, or those that cert-manager writes.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    pub(crate) peer: Option<PeerSecrets>,
    pub(crate) client: Option<ClientSecrets>,
}

#[derive(Clone)]
pub(crate) struct PeerSecrets {
    pub(crate) certificate: String,
    pub(crate) authority: String,
}

#[derive(Clone)]
pub(crate) struct ClientSecrets {
    pub(crate) server: String,
    pub(crate) trusted_ca: Option<String>,
    pub(crate) client: Option<String>,
}

impl Secrets {
    pub(crate) fn new(name: &str, tls: Option<&Tls>) -> Self {
        let or_issued =
            |given: &Option<String>, plane| given.clone().unwrap_or_else(|| issued(name, plane));
        let peer = tls.and_then(|it| it.peer.as_ref()).map(|it| {
            let certificate = or_issued(&it.secret_name, "peer");
            PeerSecrets {
                authority: it.trusted_ca.clone().unwrap_or_else(|| certificate.clone()),
                certificate,
            }
        });
        let client = tls.and_then(|it| it.client.as_ref()).map(|it| {
            let source = it.cert_manager.as_ref();
            let source = source.and_then(|it| it.client_issuer_ref.as_ref());
            let issued = source.map(|_| issued(name, "client"));
            ClientSecrets {
                server: or_issued(&it.server, "server"),
                trusted_ca: it.trusted_ca.clone().or_else(|| issued.clone()),
                client: it.client.clone().or(issued),
            }
        });
        Self { peer, client }
    }
}

/// The name of a Certificate of cert-manager, and of the Secret that it writes.
pub(crate) fn issued(cluster: &str, plane: &str) -> String {
    format!("{cluster}-{plane}-tls")
}
