//! Helm and the host's chart.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::{
    manifest::{parse, root},
    process::path_from_env,
};

/// The release name, which is also the name of the host and the account.
pub const RELEASE: &str = "innkeeper";
/// The release namespace.
pub const NAMESPACE: &str = "innkeeper-system";
/// The arguments for the image repository, which has no default; no test pulls from it.
pub const IMAGE: [&str; 2] = ["--set", "image.repository=registry.invalid/innkeeper"];

/// Runs helm in the checkout root; returns its output.
pub fn run(arguments: &[&str]) -> Result<String> {
    let home = tempfile::tempdir()?;
    let output = Command::new(path_from_env("INNKEEPER_HELM")?)
        .args(arguments)
        .current_dir(root())
        // Helm must neither read nor write the user's files.
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

/// The objects in the rendered chart.
pub fn objects(arguments: &[&str]) -> Result<Vec<Value>> {
    parse(&template(arguments)?)
}
