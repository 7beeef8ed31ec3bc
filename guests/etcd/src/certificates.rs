//! cert-manager certificates; members and Jobs mount the Secrets that it writes for them.

use innkeeper_sdk::prelude::*;
use serde_json::{Map, Value, json};

use crate::{api::IssuerRef, cluster::Cluster, secrets};

/// The plane of the certificate that Jobs present to members.
const CLIENT: &str = "client";

/// A Certificate; the Secret has the same name.
pub(crate) struct Certificate<'a> {
    pub(crate) name: String,
    plane: &'static str,
    pub(crate) issuer: &'a IssuerRef,
    /// The issuer's path in the spec.
    pub(crate) path: &'static str,
    duration: Option<&'a str>,
    renew_before: Option<&'a str>,
}

impl<'a> Certificate<'a> {
    /// The Certificates that a cluster needs.
    pub(crate) fn all(cluster: &Cluster<'a>) -> impl Iterator<Item = Self> {
        let tls = cluster.spec.tls.as_ref();
        let peer = tls.and_then(|tls| tls.peer.as_ref()?.cert_manager.as_ref());
        let client = tls.and_then(|tls| tls.client.as_ref()?.cert_manager.as_ref());
        let certificate = |plane,
                           path,
                           issuer,
                           duration: &'a Option<String>,
                           renew_before: &'a Option<String>| Self {
            name: secrets::issued(cluster.name, plane),
            plane,
            issuer,
            path,
            duration: duration.as_deref(),
            renew_before: renew_before.as_deref(),
        };
        let peer = peer.map(|peer| {
            let path = "spec.tls.peer.certManager.issuerRef";
            certificate(
                "peer",
                path,
                &peer.issuer_ref,
                &peer.duration,
                &peer.renew_before,
            )
        });
        let server = client.map(|client| {
            let path = "spec.tls.client.certManager.issuerRef";
            certificate(
                "server",
                path,
                &client.issuer_ref,
                &client.duration,
                &client.renew_before,
            )
        });
        let client = client.and_then(|client| {
            let path = "spec.tls.client.certManager.clientIssuerRef";
            let issuer = client.client_issuer_ref.as_ref()?;
            Some(certificate(
                CLIENT,
                path,
                issuer,
                &client.duration,
                &client.renew_before,
            ))
        });
        [peer, server, client].into_iter().flatten()
    }

    fn child(&self, cluster: &Cluster<'_>) -> Child {
        let mut spec = if self.plane == CLIENT {
            // etcd takes the common name as the user, and with authentication only root may change members.
            json!({ "commonName": "root", "usages": ["client auth"] })
        } else {
            // etcd also connects to itself, with the server certificate.
            json!({
                "dnsNames": names(cluster),
                "ipAddresses": ["127.0.0.1"],
                "usages": ["server auth", "client auth"],
            })
        };
        spec["secretName"] = json!(self.name);
        spec["issuerRef"] = json!(self.issuer);
        let times = [
            ("duration", self.duration),
            ("renewBefore", self.renew_before),
        ]
        .into_iter()
        .filter_map(|(field, time)| Some((field.to_owned(), json!(time?))));
        if let Some(spec) = spec.as_object_mut() {
            spec.extend(times.collect::<Map<String, Value>>());
        }
        let labels = cluster.labels(self.plane);
        let object = json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": metadata(&*self.name, &labels),
            "spec": spec,
        });
        Child::untyped(format!("cert-{}", self.plane), &object)
    }
}

/// The Certificates. The members' certificates contain Service names, and such a Service may have another owner.
pub(crate) fn children(
    observed: &Children,
    cluster: &Cluster<'_>,
    services: &[Child],
) -> Vec<Child> {
    Certificate::all(cluster)
        .map(|certificate| {
            let child = certificate.child(cluster);
            if certificate.plane == CLIENT {
                child
            } else {
                observed.vouch(child, services)
            }
        })
        .collect()
}

/// The DNS names for members and client Service. etcd resolves a peer's address back to a name in the domain.
fn names(cluster: &Cluster<'_>) -> Vec<String> {
    let domain = &cluster.config.cluster_domain;
    let members = format!("{}.{}.svc", cluster.name, cluster.namespace);
    let service = cluster.client_service();
    let clients = format!("{service}.{}", cluster.namespace);
    vec![
        format!("*.{members}"),
        format!("*.{members}.{domain}"),
        format!("{clients}.svc"),
        format!("{clients}.svc.{domain}"),
        members,
        service,
        clients,
        "localhost".to_owned(),
    ]
}
