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

/// The rows of the versions: part, version and remark.
fn versions() -> [(&'static str, String, &'static str); 10] {
    let workspace = read("Cargo.toml");
    let crate_version = |name: &str| {
        let line = value_after(&workspace, &format!("{name} ="));
        let version = line.trim_start_matches("{ version = \"");
        version.split('"').next().unwrap_or_default().to_owned()
    };
    let chart = manifest::load("deploy/chart/Chart.yaml")
        .expect("there is a chart")
        .remove(0);
    let control_plane = read("tests/controlplane/go.mod");
    let contract = value_after(&read("wit/plugin.wit"), "package")
        .trim_end_matches(';')
        .to_owned();
    let kubernetes = chart["kubeVersion"].as_str().unwrap_or_default().to_owned();
    let oldest = read("tests/kubernetes/v130/go.mod");
    let [tested, oldest] =
        [&control_plane, &oldest].map(|module| value_after(module, "k8s.io/kubernetes").to_owned());
    [
        (
            "Host, image and command line",
            env!("CARGO_PKG_VERSION").to_owned(),
            "Every crate of the repository has this version.",
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
        ("Kubernetes", kubernetes, "Required by the chart."),
        (
            "Kubernetes in the tests",
            tested,
            "The control plane that the suites run against.",
        ),
        (
            "Oldest Kubernetes in the tests",
            oldest,
            "`tests/full` installs the chart, the four plugins and an example of each there.",
        ),
        (
            "`k8s-openapi` and `kube` in the SDK",
            format!(
                "{} and {}",
                crate_version("k8s-openapi"),
                crate_version("kube")
            ),
            "The types that plugins use.",
        ),
        (
            "Rust",
            value_after(&workspace, "rust-version").to_owned(),
            "Needed to build the host and plugins.",
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
    let rows = versions();
    let rows = rows.map(|(part, version, remark)| [part.to_owned(), version, remark.to_owned()]);
    let body = format!(
        "{}\nThere is no release yet: the definition of Plugins and the contract may change until the first one.\nA released version of the contract never changes; the host has one adapter for each.",
        table(["part", "version", "remark"], rows)
    );
    let opening =
        "This page is for those who plan an upgrade: it lists the versions that work together.";
    check("compatibility.md", "Compatibility", opening, &body);
}
