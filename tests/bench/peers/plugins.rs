//! Ten plugins in one host beside ten kube-rs operators and ten composites of Metacontroller, each with a separate parent
//! kind.
//!
//! Each plugin is the shipped memcached with another API group. Each operator watches only the namespace with its
//! parents, because real operators have distinct labels and see only their own objects.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::{ControlPlane, HostOptions, manifest, process::path_from_env};
use serde::Serialize;
use serde_json::json;

use crate::{
    api::GROUP,
    contender::{Contender, Started, start_host, start_kube_rs},
    converge::settle,
    parents::{self, Batch},
    server::Served,
};

/// Number of plugins, and number of operators.
pub(crate) const PLUGINS: usize = 10;
/// Parents per plugin or operator.
pub(crate) const PARENTS: usize = 100;
pub(crate) const ROUNDS: usize = 3;

/// The measurements for one host with all plugins, or for all operators together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plugins {
    pub(crate) contender: Contender,
    pub(crate) round: usize,
    /// From the first process start until every parent has its final status.
    pub(crate) wall_s: f64,
    /// CPU time of all processes until they send no more requests.
    pub(crate) cpu_s: f64,
    pub(crate) api_server_cpu_s: f64,
    /// The sum over the processes' peak resident memory.
    pub(crate) resident_max_bytes: u64,
    /// Requests, without watches.
    pub(crate) requests: usize,
    /// Watches that were opened.
    pub(crate) watches: usize,
    /// What the API server counted meanwhile.
    pub(crate) served: Served,
}

/// Measures the host, the kube-rs operators or the composites.
pub(crate) fn run(contender: Contender, cache: &Path, round: usize) -> Result<Plugins> {
    let plane = ControlPlane::start_with(&["--api-only", "--audit", "metadata"])?;
    let files = tempfile::tempdir()?;
    let shipped = fs::read(path_from_env("INNKEEPER_GUESTS")?.join("memcached.wasm"))?;
    // Before the parents: the API server is busy for a while after a CRD is created.
    if contender == Contender::Innkeeper {
        install(&plane)?;
    }
    let mut batches = Vec::new();
    for number in 0..PLUGINS {
        let group = group(number);
        let file = files.path().join(file_name(number));
        fs::write(&file, with_group(&shipped, &group)?)?;
        batches.push(parents::make_in(&plane, &[file], &group, PARENTS)?);
    }
    let groups: Vec<String> = (0..PLUGINS).map(group).collect();
    contender.prepare(&plane, &groups)?;
    let mark = plane.audit().mark()?;
    let served = Served::read(&plane)?;
    let start = Instant::now();
    let before = plane.usage("apiserver")?.cpu;
    let mut started = start_all(contender, &plane, cache, files.path(), &batches)?;
    for batch in &batches {
        parents::wait_final(&plane, contender, batch).with_context(|| started[0].log())?;
    }
    let wall = start.elapsed();
    settle(&plane, contender)?;
    let api_server = plane.usage("apiserver")?.cpu.saturating_sub(before);
    let served = Served::read(&plane)?.since(&served);
    let mut cpu_s = 0.0;
    let mut resident_max_bytes = 0;
    for process in &mut started {
        let usage = process.usage()?;
        cpu_s += usage.cpu.as_secs_f64();
        resident_max_bytes += usage.resident_max_bytes;
    }
    for process in started {
        process.stop()?;
    }
    let mut requests = plane.audit().requests_since(mark)?;
    requests.retain(|request| contender.sent(request));
    let watches = requests
        .iter()
        .filter(|request| request.verb == "watch")
        .count();
    Ok(Plugins {
        contender,
        round,
        wall_s: wall.as_secs_f64(),
        cpu_s,
        api_server_cpu_s: api_server.as_secs_f64(),
        resident_max_bytes,
        requests: requests.len() - watches,
        watches,
        served,
    })
}

/// The API group for a plugin's parents, as long as the shipped one.
fn group(number: usize) -> String {
    format!("cach{number}.example.com")
}

fn file_name(number: usize) -> String {
    format!("memcached-{number}.wasm")
}

/// Returns a plugin with another group in place of the shipped one. Both have the same length, so no offset changes.
fn with_group(plugin: &[u8], group: &str) -> Result<Vec<u8>> {
    ensure!(
        group.len() == GROUP.len(),
        "{group} is not as long as {GROUP}"
    );
    let mut bytes = plugin.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..]
        .windows(GROUP.len())
        .position(|name| name == GROUP.as_bytes())
    {
        at += found;
        bytes[at..at + GROUP.len()].copy_from_slice(group.as_bytes());
    }
    ensure!(at > 0, "the plugin has no group {GROUP}");
    Ok(bytes)
}

/// Installs the Plugin CRD, and a Plugin for each file with the example's grants.
fn install(plane: &ControlPlane) -> Result<()> {
    let user = plane.user();
    for object in manifest::load("deploy/crds/plugins.innkeeper.dev.yaml")? {
        user.apply(&object)?;
    }
    let example = manifest::load("examples/plugins/memcached.yaml")?;
    let plugin = example
        .iter()
        .find(|object| object["kind"] == "Plugin")
        .context("the example has no Plugin")?;
    for number in 0..PLUGINS {
        let mut plugin = plugin.clone();
        plugin["metadata"]["name"] = format!("memcached-{number}").into();
        plugin["spec"]["source"] = json!({"file": {"path": file_name(number)}});
        // The existing CRDs do not belong to a Plugin with this name.
        plugin["spec"]["crds"] = "Ignore".into();
        plugin["spec"]["grants"]["parents"][0]["group"] = group(number).into();
        innkeeper_tests::eventually("Plugins are served", || user.apply(&plugin));
    }
    Ok(())
}

fn start_all(
    contender: Contender,
    plane: &ControlPlane,
    cache: &Path,
    files: &Path,
    batches: &[Batch],
) -> Result<Vec<Started>> {
    if contender == Contender::Metacontroller {
        return Ok(vec![contender.start(plane, cache)?]);
    }
    if contender == Contender::Innkeeper {
        let files = files.to_string_lossy().into_owned();
        let options = HostOptions {
            cache: Some(cache.to_owned()),
            arguments: vec!["--source-dir".to_owned(), files],
            ..HostOptions::default()
        };
        return Ok(vec![start_host(plane, &options)?]);
    }
    batches
        .iter()
        .enumerate()
        .map(|(number, batch)| start_kube_rs(plane, &[&group(number), &batch.namespace]))
        .collect()
}
