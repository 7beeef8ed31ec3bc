//! The pages about limits and versions.

use std::fmt::Write as _;

use clap::Arg;
use innkeeper_tests::manifest;
use serde_json::Value;

use super::{TAKES_ANY_TEXT, cell, check, cli, flag, help, plugin, sentence, table};
use crate::files::read;

/// The `run` flags that limit the host as a whole.
const FLAGS: [&str; 8] = [
    "cache-size",
    "workers",
    "guest-memory",
    "drain-timeout",
    "resync-period",
    "lease-duration",
    "lease-renew-deadline",
    "lease-retry",
];

/// Returns true if a flag limits the host as a whole.
pub(super) fn is_limit(arg: &Arg) -> bool {
    arg.get_long().is_some_and(|long| FLAGS.contains(&long))
}

#[test]
fn the_page_of_limits_is_up_to_date() {
    let schema = plugin::schema();
    let limits = &schema["properties"]["spec"]["properties"]["limits"];
    let defaults = &limits["default"];
    let fields = limits["properties"]
        .as_object()
        .expect("the spec has limits");
    let rows = fields.iter().map(|(name, field)| {
        let default = field.get("default").or_else(|| defaults.get(name));
        let default = match default {
            Some(Value::String(text)) => format!("`{text}`"),
            Some(other) => format!("`{other}`"),
            None => panic!("spec.limits.{name} has no default"),
        };
        let docs = field["description"].as_str().unwrap_or_default();
        let meaning = sentence(docs) + &plugin::range(field);
        [format!("`{name}`"), default, meaning]
    });
    let mut body = format!(
        "## Limits of a plugin\n\nFields of `spec.limits`; `status.limits` shows the effective values. Plugin files use the defaults.\nSizes end in Ki, Mi or Gi, durations in ms, s, m or h.\n\n{}\n",
        table(["field", "default", "limits"], rows)
    );
    let cli = cli();
    let run = cli.find_subcommand("run").expect("there is a command run");
    let rows = run
        .get_arguments()
        .filter(|arg| is_limit(arg))
        .map(|arg| [cell(&flag(arg)), help(arg)]);
    write!(
        body,
        "## Limits of the host\n\nFlags of `innkeeper run`:\n\n{}",
        table(["flag", "limits"], rows)
    )
    .expect(TAKES_ANY_TEXT);
    let opening = "Every limit with the default. [Limits](../../../deploy/docs/limits.md) explains how to choose them.";
    check("limits.md", "Limits and defaults", opening, &body);
}

/// Returns the value in a line such as `name = "value"` or `name value`.
fn value_after<'a>(text: &'a str, start: &str) -> &'a str {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(start));
    line.expect("the file has such a line")
        .trim_matches([' ', '=', '"'])
}

/// A row in a version table: part, version and remark.
type Row = (&'static str, String, &'static str);

/// The rules about later versions. They promise nothing before the first release.
const POLICY: &str = "\
## From v1alpha1 to v1beta1

The Plugin CRD has one version, `v1alpha1`; there is no `v1beta1` yet, and no conversion webhook.
Before the first release, `v1alpha1` fields may change or disappear without a migration.
After it, `v1alpha1` only gets new optional fields. Renames, removals and new required fields wait for another CRD version.

The plan for `v1beta1`, not started yet:

1. It starts with the same fields as the last `v1alpha1`, so no webhook is needed.
2. Both versions are served for at least one minor release, and `v1beta1` becomes the storage version.
3. That release's changelog has the commands that rewrite stored Plugins. A later release stops serving `v1alpha1`.

## Contract versions

A component names the contract version it was built for. The host accepts the versions that it lists, today one, and rejects others with a message that names the accepted ones.
Before the first release, the contract may change without a new version: rebuild plugins after a host upgrade.
After it, a released version never changes. The host keeps one adapter per version, so plugins keep running without a rebuild.
Upgrade the host before plugins that need a new contract version.

## Deprecation

Before the first release, anything may change without a deprecation.
After it, a flag, field, annotation, label, metric, reason, exit code or contract version is removed in two steps:

1. A release's changelog marks it as deprecated and names the replacement. Both work.
2. A later minor release removes it, and the changelog says so.

A security fix may remove something at once; the changelog says so.
A minor release may raise the oldest supported Kubernetes version.";

/// The versions that `tests/full` runs together, all from one commit.
fn run_together() -> [Row; 6] {
    let chart = manifest::load("deploy/chart/Chart.yaml")
        .expect("there is a chart")
        .remove(0);
    let contract = value_after(&read("wit/plugin.wit"), "package")
        .trim_end_matches(';')
        .to_owned();
    let modules = ["tests/controlplane/go.mod", "tests/kubernetes/v130/go.mod"];
    let [newest, oldest] =
        modules.map(|module| value_after(&read(module), "k8s.io/kubernetes").to_owned());
    [
        (
            "Host, image and command line",
            env!("CARGO_PKG_VERSION").to_owned(),
            "All crates in the repository have this version, including the SDK.",
        ),
        (
            "Chart",
            chart["version"].as_str().unwrap_or_default().to_owned(),
            "Same as the host that it installs.",
        ),
        (
            "Plugin CRD",
            "`v1alpha1`".to_owned(),
            "Upgraded by the chart. A host serves no Plugins while the installed CRD is older than the host.",
        ),
        (
            "Contract with plugins",
            format!("`{contract}`"),
            "A host accepts components for every version that it lists.",
        ),
        (
            "Newest Kubernetes",
            newest,
            "The control plane that the suites run against.",
        ),
        (
            "Oldest Kubernetes",
            oldest,
            "The chart, the four plugins and an example of each are installed there.",
        ),
    ]
}

/// The versions that the chart and the build require.
fn required() -> [Row; 4] {
    let workspace = read("Cargo.toml");
    let crate_version = |name: &str| {
        value_after(&workspace, &format!("{name} ="))
            .trim_start_matches("{ version = \"")
            .split('"')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let chart = manifest::load("deploy/chart/Chart.yaml")
        .expect("there is a chart")
        .remove(0);
    let types = ["k8s-openapi", "kube"].map(crate_version).join(" and ");
    [
        (
            "Kubernetes",
            chart["kubeVersion"].as_str().unwrap_or_default().to_owned(),
            "Required by the chart. Only the oldest and newest version above are tested.",
        ),
        (
            "`k8s-openapi` and `kube` in the SDK",
            types,
            "The types that plugins use.",
        ),
        (
            "Rust",
            value_after(&workspace, "rust-version").to_owned(),
            "Minimum to build the host and plugins.",
        ),
        (
            "wasmtime",
            crate_version("wasmtime"),
            "The sandbox. After a change, the host recompiles plugins.",
        ),
    ]
}

#[test]
fn the_page_of_versions_is_up_to_date() {
    let cells = |(part, version, remark): Row| [part.to_owned(), version, remark.to_owned()];
    let head = ["part", "version", "remark"];
    let body = format!(
        "## Tested versions\n\n`tests/full` runs exactly this combination:\n\n{}\n## Required versions\n\nRequired by the chart and the build. `tests/full` runs no other versions:\n\n{}\n{POLICY}",
        table(head, run_together().map(cells)),
        table(head, required().map(cells)),
    );
    let opening = "Versions that work together, and how they will change.";
    check("compatibility.md", "Compatibility", opening, &body);
}
