//! Credentials that expire, and connections that are untrusted or cannot be established, while a
//! host runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    ControlPlane, Host, HostOptions, eventually, eventually_for,
    process::{is_full, path_from_env},
};
use serde_json::{Value, json};

use crate::{
    plugins::replace_file,
    stage::{Stage, is_applied, wait_logged, wait_logged_for},
    tunnel::{self, Passage, Tunnel},
};

const API: &str = "cache.example.com/v1";
const CRD: &str = "memcacheds.cache.example.com";

/// Time limit after a file changes: the client reads tokens and certificates once a minute, and
/// ended watches back off.
const ROTATED: Duration = Duration::from_secs(150);

/// Creates an account that may do everything.
fn make_account(stage: &Stage, name: &str) {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": name, "namespace": "default" },
    });
    stage.plane.user().apply(&account).unwrap();
    let subject = json!({ "kind": "ServiceAccount", "name": name, "namespace": "default" });
    stage.allow_all(name, &subject);
}

/// Writes a new token for an account to a file.
fn write_token(plane: &ControlPlane, name: &str, file: &Path) {
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .args(["kubectl", "--kubeconfig"])
        .arg(plane.kubeconfig())
        .args(["create", "token", name, "--namespace", "default"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    replace_file(file, output.stdout.trim_ascii());
}

/// Writes a kubeconfig into a control plane's directory.
fn write_kubeconfig(stage: &Stage, kubeconfig: &Value) -> PathBuf {
    let path = stage.plane.directory().join("kubeconfig-test");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

fn stage() -> Stage {
    Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins)
}

/// Starts a host that serves Memcacheds and has applied one.
fn serving(stage: &Stage, kubeconfig: &Path, namespace: &str) -> Host {
    let host = Host::start(kubeconfig, &stage.options).unwrap();
    stage.wait_served(&host, &[CRD]);
    apply_cache(stage, namespace, "before");
    stage.wait(&host, namespace, (API, "Memcached", "before"), is_applied);
    host
}

/// Waits until a host has applied a Memcached.
#[track_caller]
fn wait_applied(stage: &Stage, host: &Host, namespace: &str, name: &str) {
    eventually_for(ROTATED, "the host applies the parent", || {
        match stage.find(namespace, (API, "Memcached", name)) {
            Some(parent) if is_applied(&parent) => Ok(()),
            other => Err(format!("{other:?}\n{}", host.log().unwrap())),
        }
    });
}

fn apply_cache(stage: &Stage, namespace: &str, name: &str) {
    let parent = json!({
        "apiVersion": API, "kind": "Memcached", "metadata": { "name": name }, "spec": { "size": 1 },
    });
    stage.apply(namespace, &parent);
}

/// A host follows a rotated token without a restart. Only in `tests/full`, because the host's
/// client rereads the file only after a minute.
#[test]
fn an_ended_token_is_replaced_by_the_one_in_the_file() {
    if !is_full() {
        return;
    }
    let stage = stage();
    let file = stage.plane.directory().join("token");
    make_account(&stage, "first");
    write_token(&stage.plane, "first", &file);
    let mut kubeconfig = tunnel::kubeconfig(&stage.plane).unwrap();
    kubeconfig["users"] = json!([{ "name": "account", "user": { "tokenFile": file } }]);
    kubeconfig["contexts"][0]["context"]["user"] = json!("account");
    let path = write_kubeconfig(&stage, &kubeconfig);
    let namespace = stage.namespace("token");
    let host = serving(&stage, &path, &namespace);

    // Deleting the account ends the first token.
    make_account(&stage, "second");
    write_token(&stage.plane, "second", &file);
    stage.delete("default", ("v1", "ServiceAccount", "first"));
    let second = "system:serviceaccount:default:second";
    let mut size = 1;
    // The API server accepts a deleted account's token for some more seconds.
    eventually_for(ROTATED, "the host writes with the second token", || {
        size = 3 - size;
        let spec = json!({ "spec": { "size": size } });
        stage.merge(&namespace, (API, "Memcached", "before"), &spec);
        let writes = stage.writes_since(0);
        if writes.iter().any(|write| write.user == second) {
            Ok(())
        } else {
            Err(host.log().unwrap())
        }
    });
    wait_applied(&stage, &host, &namespace, "before");
}

/// A host survives refused connections and a peer without TLS, and repeats no write afterwards.
#[test]
fn connections_that_fail_below_http_are_established_again() {
    let stage = stage();
    let tunnel = Tunnel::to(&stage.plane).unwrap();
    let kubeconfig = tunnel.kubeconfig(&stage.plane).unwrap();
    let namespace = stage.namespace("tunnel");
    let mut host = serving(&stage, &write_kubeconfig(&stage, &kubeconfig), &namespace);
    let mark = stage.mark();
    for (passage, name) in [(Passage::Closed, "closed"), (Passage::Plain, "plain")] {
        tunnel.set_passage(passage);
        let before = tunnel.refused();
        apply_cache(&stage, &namespace, name);
        eventually("the host retries", || {
            let tried = tunnel.refused() - before;
            if tried >= 4 { Ok(()) } else { Err(tried) }
        });
        if passage == Passage::Plain {
            // The error that a TLS client reports for a plaintext peer. A busy host may not have
            // received the answer yet.
            eventually("the host logs the error", || {
                let log = host.log().unwrap();
                if log.contains("InvalidContentType") {
                    Ok(())
                } else {
                    Err(log)
                }
            });
        }
        tunnel.set_passage(Passage::Open);
        wait_applied(&stage, &host, &namespace, name);
    }
    assert!(host.process().try_wait().unwrap().is_none());
    // Each child is created once, and the already applied parent gets no new child.
    let mut creations: Vec<String> = stage
        .writes_since(mark)
        .iter()
        .filter(|write| write.is_by_host() && !write.resource.starts_with("events"))
        .filter(|write| write.code == 201)
        .map(|write| format!("{} {}", write.resource, write.name))
        .collect();
    creations.sort();
    assert_eq!(
        creations,
        [
            "deployments.apps closed",
            "deployments.apps plain",
            "services closed",
            "services plain"
        ]
    );
    Stage::stop(host);
}

#[test]
fn a_host_waits_for_a_server_name_that_does_not_resolve() {
    // The `.invalid` top-level domain is reserved and never resolves.
    const NOWHERE: &str = "https://innkeeper.invalid:6443";

    let stage = stage();
    let mut kubeconfig = tunnel::kubeconfig(&stage.plane).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(NOWHERE);
    let path = write_kubeconfig(&stage, &kubeconfig);
    let mut host = Host::start(&path, &stage.options).unwrap();
    eventually("the host logs the address that it waits for", || {
        let log = host.log().unwrap();
        let says = |text: &str| log.contains(text);
        if says(NOWHERE) && says("waiting for the API server") && says("dns error") {
            Ok(())
        } else {
            Err(log)
        }
    });
    assert!(host.process().try_wait().unwrap().is_none());
    let stop_start = Instant::now();
    Stage::stop(host);
    assert!(stop_start.elapsed() < Duration::from_secs(5));
}

/// A host follows a replaced certificate authority without a restart. Only in `tests/full`, because
/// the host's client rereads the file only after a minute.
#[test]
fn a_replaced_certificate_authority_is_read_from_the_file() {
    if !is_full() {
        return;
    }
    let stage = stage();
    let pki = stage.plane.directory().join("pki");
    let [right, wrong] =
        ["ca.crt", "front-proxy-ca.crt"].map(|name| fs::read(pki.join(name)).unwrap());
    let file = stage.plane.directory().join("authority");
    replace_file(&file, &wrong);
    let mut kubeconfig = tunnel::kubeconfig(&stage.plane).unwrap();
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster["certificate-authority-data"].take();
    cluster["certificate-authority"] = json!(file);
    let path = write_kubeconfig(&stage, &kubeconfig);
    // The host starts with the wrong authority: with a server that it once trusted, it could resume
    // the session without checking the certificate.
    let mut host = Host::start(&path, &stage.options).unwrap();
    wait_logged(
        &host,
        "the host rejects the server's certificate",
        "UnknownIssuer",
    );
    replace_file(&file, &right);
    wait_logged_for(
        ROTATED,
        &host,
        "the host serves the plugin",
        "serving plugin",
    );
    let namespace = stage.namespace("authority");
    stage.wait_served(&host, &[CRD]);
    apply_cache(&stage, &namespace, "after");
    wait_applied(&stage, &host, &namespace, "after");
    assert!(host.process().try_wait().unwrap().is_none());
    Stage::stop(host);
}
