//! Alert rules and dashboard against a real host (O2): every metric and label that they ask for is in what it exposes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use innkeeper_tests::{Host, eventually, manifest, process::path_from_env, user::Kind};
use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    admin::{address, scrape},
    stage::Stage,
    suite::Target,
};

/// What Prometheus adds to every sample of a target.
const OF_THE_TARGET: [&str; 4] = ["namespace", "pod", "instance", "job"];

/// Metrics with the labels of their samples.
type Exposed = BTreeMap<String, BTreeSet<String>>;

fn exposed(text: &str) -> Exposed {
    let label = Regex::new(r#"([a-zA-Z_]\w*)=""#).unwrap();
    let mut found = Exposed::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
        let labels = label.captures_iter(rest).map(|found| found[1].to_owned());
        found.entry(name.to_owned()).or_default().extend(labels);
    }
    found
}

/// What an expression asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Metrics with the labels by which their samples are chosen.
    metrics: BTreeMap<String, BTreeSet<String>>,
    /// Labels by which results are grouped.
    grouped: BTreeSet<String>,
}

/// Reads an expression, as far as these are written: selectors, functions, `by` and arithmetic.
fn asked(expression: &str) -> Asked {
    let token =
        Regex::new(r#"(?x) "(?:\\.|[^"])*" | \[[^\]]*\] | [a-zA-Z_:][\w:]* | [0-9.]+ | \S"#);
    let tokens: Vec<&str> = token
        .unwrap()
        .find_iter(expression)
        .map(|found| found.as_str())
        .collect();
    let is_name = |token: &str| token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let mut asked = Asked::default();
    let mut at = 0;
    while at < tokens.len() {
        let (token, next) = (tokens[at], tokens.get(at + 1).copied());
        at += 1;
        if token == "by" {
            let end = at + tokens[at..].iter().position(|token| *token == ")").unwrap();
            let labels = tokens[at..end].iter().filter(|token| is_name(token));
            asked
                .grouped
                .extend(labels.map(|label| (*label).to_owned()));
            at = end + 1;
        } else if is_name(token) && !matches!(next, Some("(" | "by")) {
            let labels = asked.metrics.entry(token.to_owned()).or_default();
            if next == Some("{") {
                let end = at + tokens[at..].iter().position(|token| *token == "}").unwrap();
                let chosen = tokens[at..end].iter().filter(|token| is_name(token));
                labels.extend(chosen.map(|label| (*label).to_owned()));
                at = end + 1;
            }
        }
    }
    asked
}

/// What an expression asks for and nobody exposes.
fn unknown(expression: &str, exposed: &Exposed) -> Vec<String> {
    let Asked { metrics, grouped } = asked(expression);
    let mut unknown = Vec::new();
    for (metric, chosen) in metrics {
        let Some(labels) = exposed.get(&metric) else {
            unknown.push(metric);
            continue;
        };
        let missing = chosen
            .union(&grouped)
            .filter(|label| !labels.contains(*label) && !OF_THE_TARGET.contains(&label.as_str()));
        unknown.extend(missing.map(|label| format!("{metric}{{{label}}}")));
    }
    unknown
}

/// The rules of `deploy/alerts.yaml`.
fn rules() -> Vec<Value> {
    let objects = manifest::load("deploy/alerts.yaml").unwrap();
    let groups = objects[0]["spec"]["groups"].as_array().unwrap().clone();
    let rules = groups
        .iter()
        .map(|group| group["rules"].as_array().unwrap());
    rules.flatten().cloned().collect()
}

fn dashboard() -> Value {
    let objects = manifest::load("deploy/dashboard.yaml").unwrap();
    let text = objects[0]["data"]["innkeeper.json"].as_str().unwrap();
    serde_json::from_str(text).unwrap()
}

/// The expressions of a dashboard with its variables filled in.
fn dashboard_expressions() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let expressions = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap().replace("$plugin", ".*"));
    expressions.collect()
}

/// A host with a Plugin resource, which does everything that is counted.
struct Site {
    stage: Stage,
    namespace: String,
    _sources: TempDir,
}

const PLUGIN: &str = "unruly";
const CRD: &str = "unrulies.test.innkeeper.dev";
const CHILD: Target<'static> = ("v1", "ConfigMap", "good-first");

impl Site {
    fn start() -> (Self, Host) {
        let mut stage = Stage::api_only(Vec::new());
        let sources = tempfile::tempdir().unwrap();
        let guest = path_from_env("INNKEEPER_TEST_GUESTS")
            .unwrap()
            .join("unruly.wasm");
        fs::copy(guest, sources.path().join("plugin.wasm")).unwrap();
        let arguments = [
            "--source-dir",
            sources.path().to_str().unwrap(),
            "--admin-address",
            "127.0.0.1:0",
            "--leader-elect",
            "--lease-identity",
            "a",
        ];
        stage.options.arguments = arguments.map(str::to_owned).to_vec();
        for object in manifest::load("deploy/crds/plugins.innkeeper.dev.yaml").unwrap() {
            stage.plane.user().apply(&object).unwrap();
        }
        let namespace = stage.namespace("monitoring");
        let host = stage.host();
        let site = Self {
            stage,
            namespace,
            _sources: sources,
        };
        (site, host)
    }

    fn plugin(&self, limits: &Value) {
        let unruly = json!([{"group": "test.innkeeper.dev", "kind": "Unruly"}]);
        let plugin = json!({
            "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": PLUGIN},
            "spec": {
                "source": {"file": {"path": "plugin.wasm"}},
                "grants": {"parents": unruly, "crds": unruly, "children": [{"kind": "ConfigMap"}]},
                "limits": limits,
            },
        });
        self.stage.plane.user().apply(&plugin).unwrap();
    }

    fn parent(&self, name: &str, behaviour: &str) {
        let parent = json!({
            "apiVersion": "test.innkeeper.dev/v1", "kind": "Unruly", "metadata": {"name": name},
            "spec": {"behaviour": behaviour},
        });
        self.stage.apply(&self.namespace, &parent);
    }

    /// Lets the host do once what each metric counts.
    fn exercise(&self, host: &Host) {
        self.plugin(&json!({}));
        self.stage.wait_served(host, &[CRD]);
        for behaviour in ["good", "trap", "flood"] {
            self.parent(behaviour, behaviour);
        }
        eventually("a child is made", || {
            self.stage
                .find(&self.namespace, CHILD)
                .ok_or_else(|| host.log().unwrap())
        });
        self.plugin(&json!({"children": 100}));
    }

    /// Says of a child what the plugin says of it, or nothing: an event that changes no input of a pass.
    fn agree(&self, agrees: bool) {
        let (api_version, kind, name) = CHILD;
        let same = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "data": if agrees { json!({"name": "first"}) } else { json!({}) },
        });
        self.stage.plane.user().apply(&same).unwrap();
    }
}

#[test]
fn o2_alerts_and_dashboard_ask_for_what_a_host_exposes() {
    let (site, host) = Site::start();
    site.exercise(&host);
    let address = address(&host);
    let rules = rules();
    let of_rules = rules
        .iter()
        .map(|rule| rule["expr"].as_str().unwrap().to_owned());
    let of_dashboard = dashboard_expressions();
    assert!(rules.len() > 10 && of_dashboard.len() > 15);
    let expressions: Vec<String> = of_rules.chain(of_dashboard).collect();
    let mut agrees = false;
    let exposed = eventually("the host exposes what is asked for", || {
        agrees = !agrees;
        site.agree(agrees);
        let exposed = exposed(&scrape(&address));
        let missing = |expression: &String| {
            let unknown = unknown(expression, &exposed);
            (!unknown.is_empty()).then(|| format!("{unknown:?} of {expression}"))
        };
        let missing: Vec<String> = expressions.iter().filter_map(missing).collect();
        if missing.is_empty() {
            Ok(exposed)
        } else {
            Err(missing.join("\n"))
        }
    });
    // What the variable of the dashboard is made of.
    let query = dashboard()["templating"]["list"][1]["query"]["query"].clone();
    let arguments = query
        .as_str()
        .unwrap()
        .strip_prefix("label_values(")
        .unwrap();
    let (metric, label) = arguments.trim_end_matches(')').split_once(", ").unwrap();
    assert!(exposed[metric].contains(label), "{query}");
    assert_conditions(&site, &host, &address);
    Stage::stop(host);
}

/// The alerts on a Plugin's conditions fire for one that cannot serve, and end with it.
#[track_caller]
fn assert_conditions(site: &Site, host: &Host, address: &str) {
    let line = |plugin: &str, condition: &str, value: u8| {
        format!(
            "innkeeper_plugin_condition{{plugin=\"{plugin}\",condition=\"{condition}\"}} {value}"
        )
    };
    let wait = |what: &str, holds: &dyn Fn(&str) -> bool| {
        eventually(what, || {
            let text = scrape(address);
            if holds(&text) {
                Ok(())
            } else {
                Err(format!("{text}\n{}", host.log().unwrap()))
            }
        });
    };
    wait("the plugin serves", &|text| {
        text.contains(&line(PLUGIN, "Serving", 1))
    });
    let broken = json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": "broken"},
        "spec": {"source": {"file": {"path": "none.wasm"}}},
    });
    site.stage.plane.user().apply(&broken).unwrap();
    wait("a plugin does not serve", &|text| {
        text.contains(&line("broken", "Serving", 0))
            && text.contains(&line("broken", "Degraded", 1))
    });
    let kind = Kind::cluster("innkeeper.dev/v1alpha1", "Plugin");
    site.stage.plane.user().delete(kind, "broken").unwrap();
    wait("a plugin that is gone is not counted", &|text| {
        !text.contains("\"broken\"")
    });
}

#[test]
fn alerts_say_what_to_do_and_name_only_labels_that_they_have() {
    let named = Regex::new(r"\$labels\.(\w+)").unwrap();
    let mut seen = BTreeSet::new();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(seen.insert(name.to_owned()), "{name} twice");
        let annotations = &rule["annotations"];
        assert!(
            annotations["runbook"].as_str().unwrap().len() > 100,
            "{name}"
        );
        let text = annotations.to_string();
        let grouped = asked(rule["expr"].as_str().unwrap()).grouped;
        for label in named.captures_iter(&text) {
            assert!(grouped.contains(&label[1]), "{name} names {}", &label[1]);
        }
    }
}

#[test]
fn what_an_expression_asks_for_is_found() {
    let exposed = exposed(
        "# HELP a_total x\na_total{plugin=\"x\",reason=\"y\"} 1\nc_bucket{le=\"0.1\",name=\"n\"} 1\nd 2\n",
    );
    for (expression, missing) in [
        (
            "sum by (plugin, reason) (increase(a_total{reason!~\"by|no\"}[15m])) > 5",
            &[][..],
        ),
        (
            "histogram_quantile(0.99, sum by (le) (rate(c_bucket{name=~\"$x\"}[5m]))) > d",
            &[],
        ),
        (
            "sum by (verb) (a_total) / max(d)",
            &["a_total{verb}", "d{verb}"],
        ),
        ("absent(e_total)", &["e_total"]),
        ("rate(a_total{code=~\"5..\"}[5m])", &["a_total{code}"]),
    ] {
        assert_eq!(unknown(expression, &exposed), missing, "{expression}");
    }
}
