//! Helm, and the chart of the host.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::{
    manifest::{parse, root},
    process::path_from_env,
};

/// The name of the release, and so of the host and its account.
pub const RELEASE: &str = "innkeeper";
/// The namespace of the release.
pub const NAMESPACE: &str = "innkeeper-system";
/// The arguments for the repository of the image, which has no default; no test pulls from it.
pub const IMAGE: [&str; 2] = ["--set", "image.repository=registry.invalid/innkeeper"];

/// Runs helm in the root of the checkout; returns its output.
pub fn run(arguments: &[&str]) -> Result<String> {
    let home = tempfile::tempdir()?;
    let output = Command::new(path_from_env("INNKEEPER_HELM")?)
        .args(arguments)
        .current_dir(root())
        // Helm must neither read nor write the files of the user.
        .env("HOME", home.path())
        .output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm {arguments:?}: {stderr}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Renders the chart with further arguments, such as `--set replicas=1`.
pub fn template(arguments: &[&str]) -> Result<String> {
    let fixed = [
        "template",
        RELEASE,
        "deploy/chart",
        "--namespace",
        NAMESPACE,
    ];
    run(&[&fixed[..], &IMAGE, arguments].concat())
}

/// The objects of the rendered chart.
pub fn objects(arguments: &[&str]) -> Result<Vec<Value>> {
    parse(&template(arguments)?)
}
