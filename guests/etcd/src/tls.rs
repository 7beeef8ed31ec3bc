//! Certificates for members and Jobs: flags, variables and mounts.
//!
//! A Pod only gets the keys it needs: no Job has the members' private key.

use std::collections::BTreeSet;

use innkeeper_kit::{pod, references::References, workload::Workload};
use innkeeper_sdk::hash::{Hashed, hash_lines};
use k8s_openapi::api::core::v1::{EnvVar, Volume, VolumeMount};

use crate::{
    api::OnChange,
    certificates::Certificate,
    cluster::Cluster,
    secrets::{ClientSecrets, PeerSecrets},
};

/// The annotation on the members' Pods: a hash of the trusted authorities, if a changed authority restarts them.
pub(crate) const AUTHORITY_HASH: &str = "etcd.ydzs.io/secret-hash";

const CERTIFICATE: [&str; 2] = ["tls.crt", "tls.key"];
const AUTHORITY: [&str; 1] = ["ca.crt"];

/// Files from a Secret at a path.
struct Files<'a> {
    volume: &'static str,
    path: &'static str,
    secret: &'a str,
    keys: &'static [&'static str],
}

impl Files<'_> {
    fn mounted(&self) -> (Volume, VolumeMount) {
        let mount = VolumeMount {
            read_only: Some(true),
            ..pod::mount(self.volume, self.path)
        };
        let volume = pod::from_secret(self.volume, self.secret, self.keys);
        (volume, mount)
    }
}

fn mounted<const N: usize>(files: [Option<Files<'_>>; N]) -> (Vec<Volume>, Vec<VolumeMount>) {
    files.iter().flatten().map(Files::mounted).unzip()
}

fn peer<'a>(cluster: &'a Cluster<'_>) -> Option<&'a PeerSecrets> {
    cluster.secrets.peer.as_ref()
}

fn client<'a>(cluster: &'a Cluster<'_>) -> Option<&'a ClientSecrets> {
    cluster.secrets.client.as_ref()
}

/// The Secrets that members and Jobs mount, with the keys they must have: those that the user references, and those
/// that cert-manager writes.
pub(crate) fn references(cluster: &Cluster<'_>) -> (References, References) {
    let peer = peer(cluster);
    let client = client(cluster);
    let all = [
        peer.map(|peer| (&peer.certificate, &CERTIFICATE[..])),
        peer.map(|peer| (&peer.authority, &AUTHORITY[..])),
        client.map(|client| (&client.server, &CERTIFICATE[..])),
        client.map(|client| (&client.server, &AUTHORITY[..])),
        client.and_then(|client| Some((client.trusted_ca.as_ref()?, &AUTHORITY[..]))),
        client.and_then(|client| Some((client.client.as_ref()?, &CERTIFICATE[..]))),
    ];
    let issued: BTreeSet<String> = Certificate::all(cluster)
        .map(|certificate| certificate.name)
        .collect();
    let references = |is_issued: bool| {
        all.iter()
            .flatten()
            .filter(|(name, _)| issued.contains(*name) == is_issued)
            .fold(References::new(), |all, (name, keys)| {
                all.secret(name, keys.iter().copied())
            })
    };
    (references(false), references(true))
}

/// True if Jobs mount this Secret and members do not.
pub(crate) fn is_of_jobs_only(cluster: &Cluster<'_>, name: &str) -> bool {
    let peer = peer(cluster);
    let client = client(cluster);
    let peer_files = peer.is_some_and(|peer| peer.certificate == name || peer.authority == name);
    let is_client = client
        .is_some_and(|client| client.server == name || client.trusted_ca.as_deref() == Some(name));
    let is_job = client.and_then(|client| client.client.as_deref()) == Some(name);
    is_job && !peer_files && !is_client
}

/// The Secrets that Jobs mount.
pub(crate) fn secrets_of_jobs<'a>(cluster: &'a Cluster<'_>) -> impl Iterator<Item = &'a str> {
    let client = client(cluster);
    client
        .map(|client| &*client.server)
        .into_iter()
        .chain(client.and_then(|client| client.client.as_deref()))
}

/// The Secrets whose authorities the members trust.
fn authorities<'a>(cluster: &'a Cluster<'_>) -> BTreeSet<&'a str> {
    let client = client(cluster).and_then(|client| client.trusted_ca.as_deref());
    peer(cluster)
        .map(|peer| &*peer.authority)
        .into_iter()
        .chain(client)
        .collect()
}

/// True if a changed authority restarts the members.
pub(crate) fn restarts(cluster: &Cluster<'_>) -> bool {
    cluster
        .spec
        .tls
        .as_ref()
        .is_some_and(|tls| tls.on_change == OnChange::Restart)
}

/// True if the plugin sees no keys in a Secret because it is only granted metadata.
pub(crate) fn is_hidden(secret: &Hashed) -> bool {
    secret.type_.is_none() && secret.data.is_empty()
}

/// The value of the Pods' annotation that changes with the trusted authorities. While an authority is missing, the
/// observed value stays: new Pods could not start.
pub(crate) fn authority_hash<'a>(
    cluster: &Cluster<'_>,
    secrets: impl Iterator<Item = &'a Hashed>,
    running: Option<&Workload>,
) -> Option<String> {
    if !restarts(cluster) {
        return None;
    }
    let names = authorities(cluster);
    let bundles =
        secrets.filter(|secret| names.contains(secret.name()) && secret.has(AUTHORITY[0]));
    let lines: Vec<String> = bundles
        .flat_map(|secret| secret.hash_lines_for(&AUTHORITY))
        .collect();
    if lines.len() < names.len() {
        return running.and_then(|running| running.annotation(AUTHORITY_HASH).map(str::to_owned));
    }
    (!lines.is_empty()).then(|| hash_lines(lines))
}

/// etcd's flags, in a fixed order.
pub(crate) fn flags(cluster: &Cluster<'_>) -> Vec<String> {
    let peer: &[&str] = match peer(cluster) {
        // Encrypts without a certificate, but authenticates nobody.
        None => &["--peer-auto-tls"],
        Some(_) => &[
            "--peer-trusted-ca-file=/etc/etcd/pki/peer/ca/ca.crt",
            "--peer-cert-file=/etc/etcd/pki/peer/cert/tls.crt",
            "--peer-key-file=/etc/etcd/pki/peer/cert/tls.key",
            "--peer-client-cert-auth",
        ],
    };
    let client = client(cluster);
    let server: &[&str] = match client {
        None => &[],
        Some(_) => &[
            "--cert-file=/etc/etcd/pki/server/cert/tls.crt",
            "--key-file=/etc/etcd/pki/server/cert/tls.key",
        ],
    };
    let trusted: &[&str] = match client.and_then(|client| client.trusted_ca.as_ref()) {
        None => &[],
        Some(_) => &[
            "--trusted-ca-file=/etc/etcd/pki/client/ca/ca.crt",
            "--client-cert-auth",
        ],
    };
    [peer, server, trusted]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// A member's volumes and mounts.
pub(crate) fn for_member(cluster: &Cluster<'_>) -> (Vec<Volume>, Vec<VolumeMount>) {
    let peer = peer(cluster);
    let client = client(cluster);
    let peer_files = |volume, path, keys, secret: fn(&PeerSecrets) -> &str| {
        peer.map(|peer| Files {
            volume,
            path,
            secret: secret(peer),
            keys,
        })
    };
    mounted([
        peer_files(
            "peer-certificate",
            "/etc/etcd/pki/peer/cert",
            &CERTIFICATE[..],
            |secrets| &secrets.certificate,
        ),
        peer_files(
            "peer-trusted-ca-certificate",
            "/etc/etcd/pki/peer/ca",
            &AUTHORITY[..],
            |secrets| &secrets.authority,
        ),
        client.map(|client| Files {
            volume: "server-certificate",
            path: "/etc/etcd/pki/server/cert",
            secret: &client.server,
            keys: &CERTIFICATE,
        }),
        client.and_then(|client| {
            Some(Files {
                volume: "client-trusted-ca-certificate",
                path: "/etc/etcd/pki/client/ca",
                secret: client.trusted_ca.as_ref()?,
                keys: &AUTHORITY,
            })
        }),
    ])
}

/// A Job's volumes and mounts.
pub(crate) fn for_job(cluster: &Cluster<'_>) -> (Vec<Volume>, Vec<VolumeMount>) {
    let client = client(cluster);
    mounted([
        client.map(|client| Files {
            volume: "server-ca-certificate",
            path: "/etc/etcd/pki/server/ca",
            secret: &client.server,
            keys: &AUTHORITY,
        }),
        client.and_then(|client| {
            Some(Files {
                volume: "client-certificate",
                path: "/etc/etcd/pki/client/cert",
                secret: client.client.as_ref()?,
                keys: &CERTIFICATE,
            })
        }),
    ])
}

/// etcdctl's variables.
pub(crate) fn variables(cluster: &Cluster<'_>) -> Vec<EnvVar> {
    let client = client(cluster);
    let authority = client.map(|_| ("ETCDCTL_CACERT", "/etc/etcd/pki/server/ca/ca.crt"));
    let own = client.and_then(|client| client.client.as_ref()).map(|_| {
        [
            ("ETCDCTL_CERT", "/etc/etcd/pki/client/cert/tls.crt"),
            ("ETCDCTL_KEY", "/etc/etcd/pki/client/cert/tls.key"),
        ]
    });
    authority
        .into_iter()
        .chain(own.into_iter().flatten())
        .map(|(name, path)| pod::variable(name, path))
        .collect()
}
