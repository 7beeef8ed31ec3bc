//! The workload for which `deploy/program` optimises the shipped program: hosts that serve the four plugins on a real
//! control plane. The first one creates all children; the second one starts with nothing to do. Both follow edits.
//!
//! It resembles what users do and is not a benchmark: no figure in this repository is measured with it.

use std::{env, fs, path::Path};

use anyhow::{Context as _, Result, anyhow, ensure};
use innkeeper_tests::{
    ControlPlane, Host, HostOptions, eventually,
    manifest::{at, is_ready},
    user::Kind,
};
use serde_json::json;

const GUESTS: [&str; 4] = ["memcached", "wordpress", "etcd", "backup"];
/// The parents in the examples.
const PARENTS: [(&str, &str); 4] = [
    ("cache.example.com/v1", "Memcached"),
    ("example.com/v1", "Wordpress"),
    ("etcd.ydzs.io/v1alpha1", "EtcdCluster"),
    ("gobackup.io/v1", "Backup"),
];
/// Each has one parent per plugin. With this many, the passes outweigh the host start, which takes a tenth of a second.
const NAMESPACES: usize = 25;
/// Edits to each parent per host.
const EDITS: usize = 4;

/// Profile counters are written when a program exits, and only if this variable is set.
const COUNTS: &str = "LLVM_PROFILE_FILE";

fn main() -> Result<()> {
    let counts = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"))
        .context("no directory for the counts: deploy/program names it")?;
    let plane = ControlPlane::start()?;
    let cache = tempfile::tempdir()?;
    let file = Path::new(&counts).join("%p.profraw").display().to_string();
    let options = HostOptions {
        cache: Some(cache.path().to_owned()),
        environment: vec![(COUNTS.to_owned(), file)],
        ..HostOptions::with_guests(&GUESTS)?
    };

    let mut host = Host::start(&plane.kubeconfig(), &options)?;
    for (api_version, kind) in PARENTS {
        let kind = Kind::cluster(api_version, kind);
        eventually("parents are served", || plane.user().list(kind, ""));
    }
    for _ in 0..NAMESPACES {
        apply_parents(&plane)?;
    }
    follow_edits(&plane, 0)?;
    ensure!(host.stop()?.success(), "{}", host.log()?);

    let mut host = Host::start(&plane.kubeconfig(), &options)?;
    follow_edits(&plane, EDITS)?;
    ensure!(host.stop()?.success(), "{}", host.log()?);

    let files = fs::read_dir(&counts).map_or(0, Iterator::count);
    ensure!(
        files == 2,
        "{files} hosts wrote counts into {counts}, not 2: the program has no counters"
    );
    Ok(())
}

/// Applies each plugin's example in a separate namespace.
fn apply_parents(plane: &ControlPlane) -> Result<()> {
    let namespace = plane.namespace("training")?;
    for guest in GUESTS {
        plane.apply_example(&namespace, &format!("examples/{guest}/01-article.yaml"))?;
    }
    Ok(())
}

/// Edits all parents, and waits after each edit until they are ready and match it.
fn follow_edits(plane: &ControlPlane, first: usize) -> Result<()> {
    let user = plane.user();
    for edit in first..first + EDITS {
        for (api_version, kind) in PARENTS {
            let find = Kind::cluster(api_version, kind);
            let parents = eventually("all parents are ready", || {
                let parents = user.list(find, "")?;
                match parents.iter().find(|parent| !is_ready(parent)) {
                    Some(parent) => Err(anyhow!("{parent}")),
                    None => Ok(parents),
                }
            });
            ensure!(parents.len() == NAMESPACES, "a parent of {kind} is missing");
            for parent in parents {
                let text = |pointer| at(&parent, pointer).as_str().unwrap_or_default().to_owned();
                let namespace = text("/metadata/namespace");
                let name = text("/metadata/name");
                let mut patch =
                    json!({"metadata": {"annotations": {"example.com/edit": edit.to_string()}}});
                if kind == "Memcached" {
                    patch["spec"] = json!({"size": 1 + edit % 3});
                }
                user.merge(Kind::new(api_version, kind, &namespace), &name, &patch)?;
            }
        }
    }
    Ok(())
}
