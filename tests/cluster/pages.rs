//! All command blocks in the documentation succeed as printed, on a cluster whose host serves Plugin
//! resources.
//!
//! `tutorial` covers the tutorial's blocks.
//! Each untested block has a mark with the reason.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use innkeeper_tests::{
    ControlPlane, Host, HostOptions, manifest::root, pages::Page, process::path_from_env,
};

use crate::tutorial;

/// This page installs the plugin and the parent for the other pages.
const FIRST: &str = "deploy/README.md";

/// The programs that the pages use, and the environment variables with their paths.
pub(crate) const PROGRAMS: [(&str, &str); 3] = [
    ("innkeeper", "INNKEEPER_BIN"),
    ("kubectl", "INNKEEPER_CONTROLPLANE"),
    ("helm", "INNKEEPER_HELM"),
];

/// Runs commands in the checkout's root directory, and redirects their output files from `target` to
/// `directory`.
fn run(commands: &str, directory: &Path, kubeconfig: &Path) -> Output {
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let commands = commands
        .replace("target/guests", &guests.to_string_lossy())
        .replace("target/release/innkeeper", "innkeeper")
        .replace(" target/", &format!(" {}/", directory.display()))
        .replace("=target/", &format!("={}/", directory.display()));
    let programs = directory.join("bin");
    let commands = format!("export PATH=\"{}:$PATH\"\n{commands}", programs.display());
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", &commands])
        .current_dir(root())
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap()
}

#[test]
fn every_command_block_of_every_page_succeeds() {
    let control_plane = ControlPlane::start().unwrap();
    let kubeconfig = control_plane.kubeconfig();
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("bin");
    fs::create_dir(&programs).unwrap();
    for (name, variable) in PROGRAMS {
        symlink(path_from_env(variable).unwrap(), programs.join(name)).unwrap();
    }
    let installed = run(
        "kubectl apply --server-side --filename deploy/crds",
        directory.path(),
        &kubeconfig,
    );
    assert!(installed.status.success(), "{installed:?}");
    let source = path_from_env("INNKEEPER_GUESTS").unwrap();
    let _host = Host::start(
        &kubeconfig,
        &HostOptions {
            arguments: vec![
                "--plugin-resources".to_owned(),
                "--leader-elect".to_owned(),
                "--source-dir".to_owned(),
                source.to_string_lossy().into_owned(),
            ],
            ..HostOptions::default()
        },
    )
    .unwrap();
    let mut pages: Vec<Page> = Page::all()
        .unwrap()
        .into_iter()
        .filter(|page| page.path != tutorial::PAGE)
        .collect();
    pages.sort_by_key(|page| page.path != FIRST);
    let mut failed = Vec::new();
    let mut count = 0;
    for page in pages {
        let blocks: Vec<_> = page
            .blocks()
            .into_iter()
            .filter(|block| block.not_run.is_none())
            .collect();
        count += blocks.len();
        let commands: String = blocks.into_iter().map(|block| block.commands).collect();
        if commands.is_empty() {
            continue;
        }
        let output = run(&commands, directory.path(), &kubeconfig);
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            failed.push(format!("{}: {error}", page.path));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(count > 30, "the pages have only {count} blocks");
}
