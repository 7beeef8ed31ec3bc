//! The pages of limits and of versions.

use std::fmt::Write as _;

use clap::Arg;
use innkeeper_tests::manifest;
use serde_json::Value;

use super::{TAKES_ANY_TEXT, cell, check, cli, flag, help, plugin, sentence, table};
use crate::files::read;

/// The flags of `run` that limit the host as a whole.
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
        [format!("`{name}`"), default, sentence(docs)]
    });
    let mut body = format!(
        "## Limits of a plugin\n\nThe fields of `spec.limits`; a plugin file has the defaults. `status.limits` shows the effective values.\nSizes end in Ki, Mi or Gi, durations in ms, s, m or h.\n\n{}\n",
        table(["field", "default", "limits"], rows)
    );
    let cli = cli();
    let run = cli.find_subcommand("run").expect("there is a command run");
    let of_host = |arg: &&Arg| arg.get_long().is_some_and(|long| FLAGS.contains(&long));
    let rows = run
        .get_arguments()
        .filter(of_host)
        .map(|arg| [cell(&flag(arg)), help(arg)]);
    write!(
        body,
        "## Limits of the host\n\nFlags of `innkeeper run`:\n\n{}",
        table(["flag", "limits"], rows)
    )
    .expect(TAKES_ANY_TEXT);
    let opening = "This page is for those who size a host or see a plugin reach a limit: it lists every limit with its default.\nNo plugin runs without limits; [limits](../../../deploy/docs/limits.md) explains how to choose them.";
    check("limits.md", "Limits and defaults", opening, &body);
}

/// Returns the value of a line such as `name = "value"` or `name value`.
fn value_after<'a>(text: &'a str, start: &str) -> &'a str {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(start));
    let line = line.expect("the file has such a line");
    line.trim_matches([' ', '=', '"'])
}

/// One row of a table of versions: part, version and remark.
type Row = (&'static str, String, &'static str);

/// The rules about later versions. They promise nothing before the first release.
const POLICY: &str = "\
## From v1alpha1 to v1beta1

The definition of Plugins has one version, `v1alpha1`; there is no `v1beta1` yet, and no webhook converts between versions.
Until the first release, fields of `v1alpha1` may change or go without a migration.
From the first release on, `v1alpha1` gets new optional fields only. A field that must be renamed, removed or required waits for another version of the definition.

The plan for `v1beta1`, of which nothing is built yet:

1. It begins with the fields of the last `v1alpha1`, so the API server needs no webhook to convert.
2. Both versions are served for at least one minor release, and `v1beta1` becomes the stored one.
3. The changelog of that release has the commands that rewrite stored Plugins. A later release stops serving `v1alpha1`.

## Versions of the contract

A component names the version of the contract that it was built for, and a host accepts the versions that it lists: today one.
It refuses another one with a message that names the versions it accepts.
Until the first release, the contract may change without a new version: build plugins again after an upgrade of the host.
A released version never changes. A new one is added beside it, and the host has one adapter for each, so plugins keep running without a build.
Upgrade the host before plugins that are built for a new version.

## Deprecation

Until the first release, everything may change without a deprecation.
From the first release on, a flag, field, annotation, label, metric, reason, exit code or version of the contract is removed in two steps:

1. The changelog of a release names it as deprecated, with its replacement. Both work.
2. A later minor release removes it, and its changelog names the removal.

A security fix may remove something at once; its changelog states it.
The oldest supported Kubernetes may rise in a minor release.";

/// The versions of one commit, which `tests/full` runs together.
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
            "Every crate of the repository has this version, the SDK as well.",
        ),
        (
            "Chart",
            chart["version"].as_str().unwrap_or_default().to_owned(),
            "The version of the host that it installs.",
        ),
        (
            "Definition of Plugins",
            "`v1alpha1`".to_owned(),
            "Upgraded by the chart; a host refuses to serve Plugins with an older definition than its own.",
        ),
        (
            "Contract with plugins",
            format!("`{contract}`"),
            "A host accepts the components of every version that it lists.",
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
        let line = value_after(&workspace, &format!("{name} ="));
        let version = line.trim_start_matches("{ version = \"");
        version.split('"').next().unwrap_or_default().to_owned()
    };
    let chart = manifest::load("deploy/chart/Chart.yaml")
        .expect("there is a chart")
        .remove(0);
    let types = ["k8s-openapi", "kube"].map(crate_version).join(" and ");
    [
        (
            "Kubernetes",
            chart["kubeVersion"].as_str().unwrap_or_default().to_owned(),
            "Required by the chart. Versions between the two of the tests are not run.",
        ),
        (
            "`k8s-openapi` and `kube` in the SDK",
            types,
            "The types that plugins use.",
        ),
        (
            "Rust",
            value_after(&workspace, "rust-version").to_owned(),
            "Needed to build the host and plugins, or a newer one.",
        ),
        (
            "wasmtime",
            crate_version("wasmtime"),
            "The sandbox; a host compiles its plugins again after a change.",
        ),
    ]
}

#[test]
fn the_page_of_versions_is_up_to_date() {
    let cells = |(part, version, remark): Row| [part.to_owned(), version, remark.to_owned()];
    let head = ["part", "version", "remark"];
    let body = format!(
        "## Versions that were tested together\n\n`tests/full` runs these versions, and no other combination:\n\n{}\n## Versions that are required\n\nThe chart and the build require these; `tests/full` does not run other versions of them:\n\n{}\n{POLICY}",
        table(head, run_together().map(cells)),
        table(head, required().map(cells)),
    );
    let opening = "This page is for those who plan an upgrade: it lists the versions that work together, and the rules for later ones.";
    check("compatibility.md", "Compatibility", opening, &body);
}
