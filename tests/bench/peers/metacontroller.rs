//! Metacontroller as a peer: its program, and a webhook in a process of its own.
//!
//! `tests/bench/run` builds it from the checkout that `INNKEEPER_METACONTROLLER` names, because its Go module has no path
//! that a proxy of modules serves. Without a checkout, the other peers run alone.

use std::{ffi::OsStr, fs, net::TcpListener, sync::OnceLock};

use anyhow::{Context as _, Result};
use innkeeper_tests::{
    ControlPlane, eventually, manifest,
    process::{Running, bound_with_log, path_from_env, spawn_bound},
};
use serde_json::json;
use tempfile::TempDir;

use crate::contender::CONCURRENCY;

/// The variable with the checkout, which has the definitions.
const CHECKOUT: &str = "INNKEEPER_METACONTROLLER";
/// The variable with the program.
const PROGRAM: &str = "INNKEEPER_BENCH_METACONTROLLER";

/// How the user agent begins.
pub(crate) const AGENT: &str = "metacontroller/";

/// Returns true if there is a program to measure.
pub(crate) fn is_present() -> bool {
    path_from_env(PROGRAM).is_ok()
}

/// The webhook's address, the same for all its starts: the API server keeps it.
fn address() -> Result<String> {
    static ADDRESS: OnceLock<String> = OnceLock::new();

    if let Some(address) = ADDRESS.get() {
        return Ok(address.clone());
    }
    // Free again once the listener is dropped.
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    Ok(ADDRESS.get_or_init(|| free).clone())
}

/// Installs the definitions, and a CompositeController for each API group of parents.
pub(crate) fn prepare(plane: &ControlPlane, groups: &[String]) -> Result<()> {
    let definitions =
        path_from_env(CHECKOUT)?.join("manifests/production/metacontroller-crds-v1.yaml");
    let text = fs::read_to_string(&definitions)
        .with_context(|| format!("failed to read {}", definitions.display()))?;
    let user = plane.user();
    for object in manifest::parse(&text)? {
        user.apply(&object)?;
    }
    let address = address()?;
    let hook = |name: &str| json!({"webhook": {"url": format!("http://{address}/{name}")}});
    let child = |version: &str, resource: &str| {
        json!({
            "apiVersion": version, "resource": resource,
            "updateStrategy": {"method": "InPlace"},
        })
    };
    for (number, group) in groups.iter().enumerate() {
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1",
            "kind": "CompositeController",
            "metadata": {"name": format!("memcached-{number}")},
            "spec": {
                "generateSelector": true,
                "parentResource": {"apiVersion": format!("{group}/v1"), "resource": "memcacheds"},
                "childResources": [child("apps/v1", "deployments"), child("v1", "services")],
                "hooks": {"sync": hook("sync"), "customize": hook("customize")},
            },
        });
        eventually("CompositeControllers are served", || {
            user.apply(&controller)
        });
    }
    Ok(())
}

/// Starts the webhook and the program; the webhook, which prints the counts, is the last.
pub(crate) fn start(plane: &ControlPlane, directory: &TempDir) -> Result<Vec<Running>> {
    let hook = path_from_env("INNKEEPER_BENCH_CONTROLLER_RUNTIME")?;
    let mut hook = bound_with_log(&hook, &directory.path().join("log"))?;
    hook.args(["--hook", &address()?]);
    let hook = spawn_bound(hook)?;
    let program = path_from_env(PROGRAM)?;
    let mut command = bound_with_log(&program, &directory.path().join("metacontroller.log"))?;
    command.env("KUBECONFIG", plane.kubeconfig()).args([
        // Its own limit of 5 requests per second would be all that is measured.
        OsStr::new("--client-go-qps=10000"),
        OsStr::new("--client-go-burst=10000"),
        OsStr::new("--metrics-address=0"),
        OsStr::new("--health-probe-bind-address=0"),
        OsStr::new(&format!("--workers={CONCURRENCY}")),
    ]);
    Ok(vec![spawn_bound(command)?, hook])
}
