//! The admin port of a host without a cluster, under clients that use up all of its descriptors.

use std::{fs, net::TcpStream};

use anyhow::{Result, ensure};
use innkeeper_tests::{
    Host, HostOptions,
    admin::{self, address, ask},
    eventually,
};

/// A kubeconfig of a cluster that does not answer.
const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: one
clusters: [{ name: here, cluster: { server: "http://127.0.0.1:1" } }]
contexts: [{ name: one, context: { cluster: here, user: me } }]
users: [{ name: me, user: {} }]
"#;

/// Fewer descriptors than the admin port accepts connections; the host has 15 open.
const DESCRIPTORS: usize = 48;

/// Idle clients keep their connections until the host closes them. A probe must get through at once, and the process
/// must still be the same.
#[test]
fn o1_livez_answers_while_idle_clients_use_up_all_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let options = HostOptions {
        arguments: admin::ARGUMENTS.map(str::to_owned).to_vec(),
        limits: vec![format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}")],
        ..HostOptions::default()
    };
    let mut host = Host::start(&kubeconfig, &options).unwrap();
    let address = &address(&host);
    let connect = |_| TcpStream::connect(address).ok();
    let idle: Vec<TcpStream> = (0..5 * DESCRIPTORS).map_while(connect).collect();
    let is_live = || -> Result<()> {
        let (status, body) = ask(address, "GET", "/livez", "")?;
        ensure!(status == 200, "{status}: {body}");
        Ok(())
    };
    eventually(
        "a probe gets through while the clients are connected",
        is_live,
    );
    assert_eq!(idle.len(), 5 * DESCRIPTORS, "{:?}", host.log());
    drop(idle);
    eventually("a probe gets through after that", is_live);
    assert_eq!(host.stop().unwrap().code(), Some(0), "{:?}", host.log());
}
