//! Certificates of members and Jobs: flags, variables and mounts.
//!
//! A Pod gets only the keys that it needs: the private key of the members is in no Job.

use innkeeper_sdk::pod;
use k8s_openapi::api::core::v1::{EnvVar, Volume, VolumeMount};

use crate::{
    api::{ClientTls, PeerTls},
    cluster::Cluster,
};

const CERTIFICATE: [&str; 2] = ["tls.crt", "tls.key"];
const AUTHORITY: [&str; 1] = ["ca.crt"];

/// Files of a Secret at a path.
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

fn peer<'a>(cluster: &Cluster<'a>) -> Option<&'a PeerTls> {
    cluster.spec.tls.as_ref()?.peer.as_ref()
}

fn client<'a>(cluster: &Cluster<'a>) -> Option<&'a ClientTls> {
    cluster.spec.tls.as_ref()?.client.as_ref()
}

/// The scheme of the addresses for clients.
pub(crate) fn scheme(cluster: &Cluster<'_>) -> &'static str {
    client(cluster).map_or("http", |_| "https")
}

/// The Secrets that members and Jobs mount.
pub(crate) fn secrets<'a>(cluster: &Cluster<'a>) -> impl Iterator<Item = &'a str> {
    let client = client(cluster);
    let names = [
        peer(cluster).map(|it| &it.secret_name),
        client.map(|it| &it.server),
        client.and_then(|it| it.trusted_ca.as_ref()),
        client.and_then(|it| it.client.as_ref()),
    ];
    names.into_iter().flatten().map(|it| &**it)
}

/// The flags of etcd, in a fixed order.
pub(crate) fn flags(cluster: &Cluster<'_>) -> Vec<String> {
    let peer: &[&str] = match peer(cluster) {
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
    let trusted: &[&str] = match client.and_then(|it| it.trusted_ca.as_ref()) {
        None => &[],
        Some(_) => &[
            "--trusted-ca-file=/etc/etcd/pki/client/ca/ca.crt",
            "--client-cert-auth",
        ],
    };
    let flags = [peer, server, trusted].concat();
    flags.into_iter().map(str::to_owned).collect()
}

/// The volumes of a member and their mounts.
pub(crate) fn of_member(cluster: &Cluster<'_>) -> (Vec<Volume>, Vec<VolumeMount>) {
    let (peer, client) = (peer(cluster), client(cluster));
    let of_peer = |volume, path, keys| {
        peer.map(|it| Files {
            volume,
            path,
            secret: &it.secret_name,
            keys,
        })
    };
    mounted([
        of_peer(
            "peer-certificate",
            "/etc/etcd/pki/peer/cert",
            &CERTIFICATE[..],
        ),
        of_peer(
            "peer-trusted-ca-certificate",
            "/etc/etcd/pki/peer/ca",
            &AUTHORITY[..],
        ),
        client.map(|it| Files {
            volume: "server-certificate",
            path: "/etc/etcd/pki/server/cert",
            secret: &it.server,
            keys: &CERTIFICATE,
        }),
        client.and_then(|it| {
            Some(Files {
                volume: "client-trusted-ca-certificate",
                path: "/etc/etcd/pki/client/ca",
                secret: it.trusted_ca.as_ref()?,
                keys: &AUTHORITY,
            })
        }),
    ])
}

/// The volumes of a Job and their mounts.
pub(crate) fn of_job(cluster: &Cluster<'_>) -> (Vec<Volume>, Vec<VolumeMount>) {
    let client = client(cluster);
    mounted([
        client.map(|it| Files {
            volume: "server-ca-certificate",
            path: "/etc/etcd/pki/server/ca",
            secret: &it.server,
            keys: &AUTHORITY,
        }),
        client.and_then(|it| {
            Some(Files {
                volume: "client-certificate",
                path: "/etc/etcd/pki/client/cert",
                secret: it.client.as_ref()?,
                keys: &CERTIFICATE,
            })
        }),
    ])
}

/// The variables of etcdctl.
pub(crate) fn variables(cluster: &Cluster<'_>) -> Vec<EnvVar> {
    let client = client(cluster);
    let authority = client.map(|_| ("ETCDCTL_CACERT", "/etc/etcd/pki/server/ca/ca.crt"));
    let presented = client.and_then(|it| it.client.as_ref());
    let own = presented.map(|_| {
        [
            ("ETCDCTL_CERT", "/etc/etcd/pki/client/cert/tls.crt"),
            ("ETCDCTL_KEY", "/etc/etcd/pki/client/cert/tls.key"),
        ]
    });
    let all = authority.into_iter().chain(own.into_iter().flatten());
    all.map(|(name, path)| pod::variable(name, path)).collect()
}
