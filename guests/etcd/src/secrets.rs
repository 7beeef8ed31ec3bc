//! The names of certificate Secrets.

use crate::api::Tls;

/// A cluster's Secrets: those that the user references, or those that cert-manager writes.
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
        let or_issued = |name_in_spec: &Option<String>, plane| {
            name_in_spec.clone().unwrap_or_else(|| issued(name, plane))
        };
        let peer = tls.and_then(|tls| tls.peer.as_ref()).map(|peer| {
            let certificate = or_issued(&peer.secret_name, "peer");
            PeerSecrets {
                authority: peer
                    .trusted_ca
                    .clone()
                    .unwrap_or_else(|| certificate.clone()),
                certificate,
            }
        });
        let client = tls.and_then(|tls| tls.client.as_ref()).map(|client_tls| {
            let issued = client_tls
                .cert_manager
                .as_ref()
                .and_then(|cert_manager| cert_manager.client_issuer_ref.as_ref())
                .map(|_| issued(name, "client"));
            ClientSecrets {
                server: or_issued(&client_tls.server, "server"),
                trusted_ca: client_tls.trusted_ca.clone().or_else(|| issued.clone()),
                client: client_tls.client.clone().or(issued),
            }
        });
        Self { peer, client }
    }
}

/// The name that a cert-manager Certificate and the Secret share.
pub(crate) fn issued(cluster: &str, plane: &str) -> String {
    format!("{cluster}-{plane}-tls")
}
