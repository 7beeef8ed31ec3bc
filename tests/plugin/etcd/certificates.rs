//! Members, clients and Jobs with certificates in Secrets like cert-manager's.

use std::{collections::BTreeMap, fs};

use innkeeper_tests::{pem::pem, process::is_full};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::{Value, json};

use super::{V36, check_first, check_members, formed_with, spec, uids, world::World};

/// A certificate issuer.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn certificate(&self) -> String {
        pem("CERTIFICATE", self.0.der())
    }

    /// A Secret's data: a new certificate for these names, and `ca.crt`.
    fn secret(&self, names: &[&str], trusted: &str) -> BTreeMap<String, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let files = [
            ("tls.crt", pem("CERTIFICATE", certificate.der())),
            ("tls.key", pem("PRIVATE KEY", &key.serialize_der())),
            ("ca.crt", trusted.to_owned()),
        ];
        files.map(|(key, value)| (key.to_owned(), value)).into()
    }
}

impl World {
    /// Writes all certificate Secrets from an authority, each with `trusted` as `ca.crt`.
    fn issue(&mut self, authority: &Authority, trusted: &str) {
        // All connections come from localhost here.
        let member = ["*.demo.default.svc", "demo-client.default.svc", "localhost"];
        for (name, names) in [
            ("peers", &member[..]),
            ("server", &member),
            ("clients", &["clients"]),
            ("operator", &["operator"]),
            ("client", &["client"]),
        ] {
            let data = authority.secret(names, trusted);
            self.secrets.insert(name.to_owned(), data);
        }
    }

    /// The Secrets as the plugin may read them.
    pub(super) fn secrets(&self) -> impl Iterator<Item = Value> {
        self.secrets.keys().map(|name| {
            let metadata = json!({ "name": name, "namespace": "default", "uid": name });
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })
        })
    }

    /// A client's flags. Without a Secret, it only has the members' authority to verify them.
    pub(super) fn presented(&self, secret: &str) -> Vec<String> {
        let directory = self.directory.path().join("client");
        fs::create_dir_all(&directory).unwrap();
        let file = |flag: &str, data: &BTreeMap<String, String>, key: &str| {
            let path = directory.join(key);
            fs::write(&path, &data[key]).unwrap();
            format!("--{flag}={}", path.display())
        };
        let server = self.secrets.get("server");
        let own = self.secrets.get(secret);
        let authority = server.map(|data| file("cacert", data, "ca.crt"));
        let own = own.map(|data| [file("cert", data, "tls.crt"), file("key", data, "tls.key")]);
        authority
            .into_iter()
            .chain(own.into_iter().flatten())
            .collect()
    }
}

/// A cluster with certificates from these Secrets, whose clients need one.
fn secured(size: usize, authority: &Authority) -> World {
    let mut spec = spec(size, V36);
    spec["tls"] = json!({
        "peer": { "secretName": "peers" },
        "client": {
            "serverSecretName": "server", "trustedCASecretName": "clients", "clientSecretName": "operator",
        },
    });
    let mut world = World::new(spec);
    world.issue(authority, &authority.certificate());
    formed_with(world, size)
}

#[test]
fn members_clients_and_jobs_verify_each_other() {
    if !is_full() {
        return;
    }
    for size in [1, 3, 5] {
        let authority = Authority::new();
        let stranger = Authority::new();
        let mut world = secured(size, &authority);
        check_first(&world, size);
        // No certificate, and one from another authority.
        world.secrets.remove("client");
        let get = ["get", "first"];
        world.etcdctl(&get).unwrap_err();
        let own = stranger.secret(&["stranger"], &authority.certificate());
        world.secrets.insert("client".to_owned(), own);
        world.etcdctl(&get).unwrap_err();
        world.issue(&authority, &authority.certificate());
        world.etcdctl(&get).unwrap();
        if size == 1 {
            continue;
        }
        world.lose_disk(1);
        world.until_ready();
        check_members(&world, size);
        check_first(&world, size);
        assert_eq!(world.operations.len(), 3, "{:?}", world.operations);
    }
}

#[test]
fn certificates_and_their_authority_are_renewed() {
    if !is_full() {
        return;
    }
    let old = Authority::new();
    let new = Authority::new();
    let mut world = secured(3, &old);
    let restart = |world: &mut World, value: &str| {
        let before: Vec<Value> = uids(world).into_iter().cloned().collect();
        let annotations = json!({ "etcd.ydzs.io/restart-trigger": value });
        world.parent["metadata"]["annotations"] = annotations;
        world.until("the members have started again", |world| {
            let is_ready = world.condition("Ready").0 == "True";
            is_ready && uids(world).iter().all(|uid| !before.contains(uid))
        });
        check_first(world, 3);
    };
    let both = format!("{}{}", old.certificate(), new.certificate());
    world.issue(&old, &both);
    restart(&mut world, "both");
    // Certificates need no restart.
    let before: Vec<Value> = uids(&world).into_iter().cloned().collect();
    world.issue(&new, &both);
    for _ in 0..10 {
        world.step();
        check_first(&world, 3);
    }
    assert_eq!(uids(&world), before.iter().collect::<Vec<_>>());
    world.issue(&new, &new.certificate());
    restart(&mut world, "new");
    check_members(&world, 3);
    let own = old.secret(&["late"], &new.certificate());
    world.secrets.insert("client".to_owned(), own);
    world.etcdctl(&["get", "first"]).unwrap_err();
}
