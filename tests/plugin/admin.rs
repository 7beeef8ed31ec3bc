//! The admin port of a host without a cluster, with clients that exhaust descriptors or memory.

use std::{fs, io::Write as _, net::TcpStream};

use anyhow::{Result, ensure};
use innkeeper_tests::{
    Host, HostOptions,
    admin::{self, address, ask},
    eventually,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

/// A kubeconfig for a cluster that does not answer.
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

/// Starts a host with these `prlimit` limits; the directory contains the kubeconfig.
fn start(limits: Vec<String>) -> (TempDir, Host) {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let options = HostOptions {
        arguments: admin::ARGUMENTS.map(str::to_owned).to_vec(),
        cache: Some(directory.path().join("cache")),
        limits,
        ..HostOptions::default()
    };
    let host = Host::start(&kubeconfig, &options).unwrap();
    (directory, host)
}

/// Idle clients keep their connections until the host closes them. A probe must succeed at once, and the process must
/// not restart.
#[test]
fn livez_answers_while_idle_clients_use_up_all_descriptors() {
    let (directory, mut host) = start(vec![format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}")]);
    let address = &address(&host);
    // Before that, the host reads the system's certificates, and exits without a descriptor for them or for the cache.
    eventually("the host has opened the cache", || {
        let is_open = directory.path().join("cache").exists();
        is_open.then_some(()).ok_or("there is no directory")
    });
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

/// Without a limit, a connection costs the host 60 KiB: 240 MB for these.
#[test]
fn thousands_of_clients_do_not_fill_the_memory() {
    const CLIENTS: usize = 4_000;
    /// The host's maximum memory growth since before the first client.
    const GROWTH_MAX: u64 = 32 << 20;

    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, all).unwrap();
    let (_directory, mut host) = start(Vec::new());
    let address = &address(&host);
    assert_eq!(ask(address, "GET", "/livez", "").unwrap().0, 200);
    let before = host.process().usage().unwrap().resident_bytes;
    // An incomplete header, so each connection waits for the rest.
    let header = format!("GET /livez HTTP/1.1\r\nhost: {}", "x".repeat(8 << 10));
    let connect = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // The host closes the oldest connections at once, and may be faster than this.
        drop(stream.write_all(header.as_bytes()));
        stream
    };
    let slow: Vec<TcpStream> = (0..CLIENTS).map(connect).collect();
    assert_eq!(ask(address, "GET", "/livez", "").unwrap().0, 200);
    let most = host.process().usage().unwrap().resident_max_bytes;
    let growth = most.saturating_sub(before);
    println!("{before} bytes before, {most} bytes at most");
    assert!(
        growth < GROWTH_MAX,
        "{growth} bytes for {} clients",
        slow.len()
    );
    drop(slow);
    assert_eq!(host.stop().unwrap().code(), Some(0), "{:?}", host.log());
}
