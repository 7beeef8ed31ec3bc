//! The alerts and the dashboard query only metrics that hosts expose.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    process::Stdio,
};

use innkeeper_tests::{
    HostOptions,
    admin::{self, address},
    eventually, manifest,
    process::{bound, is_full, path_from_env, spawn_bound},
};
use regex::Regex;
use serde_json::{Value, json};

use crate::{
    admin::scrape,
    moody::{MoodyFixture, good},
    stage::Stage,
};

/// The labels that Prometheus adds to each target.
const COLLECTED: [&str; 2] = ["instance", "job"];

/// The scraped metrics and their labels.
type Exposed = BTreeMap<String, BTreeSet<String>>;

fn expose(exposed: &mut Exposed, metrics: &str) {
    let sample = Regex::new(r"(?m)^([a-z_]+)(?:\{(.*)\})? \S+$").unwrap();
    let label = Regex::new(r#"([a-z_]+)=""#).unwrap();
    for sample in sample.captures_iter(metrics) {
        let labels = exposed.entry(sample[1].to_owned()).or_default();
        let text = sample.get(2).map_or("", |labels| labels.as_str());
        labels.extend(label.captures_iter(text).map(|label| label[1].to_owned()));
    }
}

/// Collects the queries from a dashboard or from alert rules.
fn collect_queries(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), member) {
                    ("expr", Value::String(query)) => queries.push(query.clone()),
                    (_, member) => collect_queries(member, queries),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_queries(item, queries);
            }
        }
        _ => {}
    }
}

/// The names in a query: the metrics with the labels that select them, and the labels that group
/// the results.
struct Query {
    metrics: Vec<(String, Vec<String>)>,
    grouped_by: Vec<String>,
}

impl Query {
    fn parse(query: &str) -> Self {
        let without_strings = Regex::new(r#""[^"]*""#).unwrap().replace_all(query, "\"\"");
        let group = Regex::new(r"\b(?:by|on) \(([^)]*)\)").unwrap();
        let grouped_by = group.captures_iter(&without_strings).flat_map(|group| {
            let labels: Vec<String> = group[1].split(", ").map(str::to_owned).collect();
            labels
        });
        let grouped_by = grouped_by.collect();
        let without_groups = group.replace_all(&without_strings, "");
        let without_ranges = Regex::new(r"\[[^\]]*\]")
            .unwrap()
            .replace_all(&without_groups, "");
        let without_ranges = Regex::new(r"\b(?:and|or|unless)\b")
            .unwrap()
            .replace_all(&without_ranges, "");
        // A name with an opening parenthesis is a function.
        let metric = Regex::new(r"\b([a-z][a-z0-9_]*)(\{[^}]*\}|\s*\()?").unwrap();
        let label = Regex::new(r"([a-z_]+)[=!]").unwrap();
        let metrics = metric.captures_iter(&without_ranges).filter_map(|metric| {
            let rest = metric.get(2).map_or("", |rest| rest.as_str());
            let labels = label.captures_iter(rest).map(|label| label[1].to_owned());
            (!rest.ends_with('(')).then(|| (metric[1].to_owned(), labels.collect()))
        });
        Self {
            metrics: metrics.collect(),
            grouped_by,
        }
    }

    /// The metrics and labels that no host exposes.
    fn missing(&self, exposed: &Exposed) -> Vec<String> {
        let mut missing = Vec::new();
        let mut exposed_labels = BTreeSet::new();
        for (metric, labels) in &self.metrics {
            let Some(has) = exposed.get(metric) else {
                missing.push(metric.clone());
                continue;
            };
            exposed_labels.extend(has);
            let is_there =
                |label: &&String| has.contains(*label) || COLLECTED.contains(&label.as_str());
            let lacks = labels.iter().filter(|label| !is_there(label));
            missing.extend(lacks.map(|label| format!("{metric}{{{label}}}")));
        }
        let lacks = self.grouped_by.iter().filter(|label| {
            !exposed_labels.contains(label) && !COLLECTED.contains(&label.as_str())
        });
        missing.extend(lacks.map(|label| format!("by ({label})")));
        missing
    }
}

#[test]
fn a_query_is_parsed_into_metrics_and_labels() {
    let query = r#"sum by (a, le) (rate(x_total{b=~"y{z}", c!="d"}[5m])) / max(up) > 0.5"#;
    let Query {
        metrics,
        grouped_by,
    } = Query::parse(query);
    let owned = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let expected = [
        ("x_total".to_owned(), owned(&["b", "c"])),
        ("up".to_owned(), Vec::new()),
    ];
    assert_eq!(metrics, expected);
    assert_eq!(grouped_by, ["a", "le"]);
    let mut exposed = Exposed::new();
    expose(&mut exposed, "# TYPE up gauge\nup 1\n");
    expose(&mut exposed, "x_total{b=\"1\",le=\"+Inf\"} 2\n");
    assert_eq!(
        Query::parse(query).missing(&exposed),
        ["x_total{c}", "by (a)"]
    );
    assert_eq!(Query::parse("down").missing(&exposed), ["down"]);
    let query = Query::parse("max by (b) (x_total) > 0 unless on (d) up");
    assert_eq!(query.missing(&exposed), ["by (d)"]);
}

/// The metrics that kube-state-metrics exposes for a guest's parents.
fn parent_metrics(guest: &str) -> Exposed {
    let path = format!("guests/{guest}/monitoring/kube-state-metrics.yaml");
    let mut exposed = Exposed::new();
    for resource in manifest::load(&path).unwrap()[0]["spec"]["resources"]
        .as_array()
        .unwrap()
    {
        let prefix = resource["metricNamePrefix"].as_str().unwrap();
        for metric in resource["metrics"].as_array().unwrap() {
            let name = format!("{prefix}_{}", metric["name"].as_str().unwrap());
            let parts = [
                &resource["commonLabels"],
                &resource["labelsFromPath"],
                &metric["each"]["gauge"]["labelsFromPath"],
            ];
            let labels = parts
                .into_iter()
                .filter_map(Value::as_object)
                .flatten()
                .map(|(label, _)| label.clone());
            exposed.entry(name).or_default().extend(labels);
        }
    }
    exposed
}

/// Checks that a guest's alerts query only these metrics.
#[track_caller]
fn check_alerts(guest: &str, number: usize, exposed: &Exposed) {
    let mut queries = Vec::new();
    for alert in &manifest::load(&format!("guests/{guest}/monitoring/alerts.yaml")).unwrap() {
        collect_queries(alert, &mut queries);
    }
    assert_eq!(queries.len(), number);
    for query in queries {
        let missing = Query::parse(&query).missing(exposed);
        assert!(missing.is_empty(), "{query}: {missing:?} of\n{exposed:#?}");
    }
}

#[test]
fn alerts_of_backup_query_only_the_metrics_of_its_parents() {
    check_alerts("backup", 6, &parent_metrics("backup"));
}

/// Starts an etcd member and collects its metrics.
fn etcd_metrics(version: &str) -> Exposed {
    let program = path_from_env("INNKEEPER_ETCD").unwrap().join(version);
    let directory = tempfile::tempdir().unwrap();
    let mut command = bound(&program);
    let [metrics, clients, peers] = free_ports().map(|port| format!("http://127.0.0.1:{port}"));
    command
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .args(["--listen-metrics-urls", &metrics])
        .args(["--listen-client-urls", &clients])
        .args(["--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let member = spawn_bound(command).unwrap();
    let address = metrics.trim_start_matches("http://");
    let scraped = eventually("the member has a leader", || {
        let metrics = admin::scrape(address).map_err(|error| format!("{error:#}"))?;
        if metrics.contains("\netcd_server_has_leader 1\n") {
            return Ok(metrics);
        }
        Err(metrics)
    });
    drop(member);
    let mut exposed = Exposed::new();
    expose(&mut exposed, &scraped);
    exposed
}

/// Three ports that no process listens on.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

#[test]
fn alerts_of_etcd_query_only_the_metrics_of_members_and_parents() {
    let parents = [parent_metrics("etcd"), parent_metrics("backup")];
    let versions: &[&str] = if is_full() {
        &["etcd-3.5", "etcd-3.6", "etcd-3.7"]
    } else {
        &["etcd-3.6"]
    };
    for version in versions {
        let mut exposed = etcd_metrics(version);
        // The ServiceMonitor adds these.
        let added = ["namespace", "pod", "etcd_ydzs_io_cluster"];
        for labels in exposed.values_mut() {
            labels.extend(added.map(str::to_owned));
        }
        for metrics in &parents {
            exposed.extend(metrics.clone());
        }
        check_alerts("etcd", 6, &exposed);
    }
}

/// Collects the metrics from a host that serves Plugin resources.
fn expose_plugin_host(exposed: &mut Exposed) {
    let mut fixture = MoodyFixture::new(1);
    fixture
        .site
        .stage
        .options
        .arguments
        .extend(admin::ARGUMENTS.map(str::to_owned));
    let host = fixture.start();
    // Some metrics exist only after a swap.
    fixture.apply(&good("two"));
    fixture.wait_text(&host, "two");
    fixture.check_reconciles(&host, "later");
    expose(exposed, &scrape(&address(&host)));
}

/// Collects the metrics from a host with misbehaving guests and leader election.
fn expose_misbehaving_guests(exposed: &mut Exposed) {
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let mut plugins = HostOptions::with_guests(&["wordpress"]).unwrap().plugins;
    plugins.push(guests.join("unruly.wasm"));
    let mut stage = Stage::api_only(plugins);
    let arguments = ["--admin-address", "127.0.0.1:0", "--shards", "2"];
    stage.options.arguments.extend(arguments.map(str::to_owned));
    let host = stage.host_serving(&["unrulies.test.innkeeper.dev"]);
    let namespace = stage.namespace("monitoring");
    for behaviour in ["flood", "trap"] {
        let parent = json!({
            "apiVersion": "test.innkeeper.dev/v1", "kind": "Unruly", "metadata": {"name": behaviour},
            "spec": {"behaviour": behaviour},
        });
        stage.apply_new(&namespace, &parent);
    }
    // No controller makes this parent's database ready, so the guest requests pass after pass with
    // unchanged inputs.
    stage.apply_example(&namespace, "examples/wordpress/01-article.yaml");
    let address = address(&host);
    eventually("passes are skipped and lines are dropped", || {
        let metrics = scrape(&address);
        let has = |name: &str| metrics.contains(&format!("innkeeper_plugin_{name}_total{{"));
        if ["passes_skipped", "log_lines_dropped", "faults"]
            .into_iter()
            .all(has)
        {
            expose(exposed, &metrics);
            return Ok(());
        }
        Err(metrics)
    });
}

#[test]
fn alerts_and_dashboard_query_only_exposed_metrics() {
    let mut exposed = Exposed::new();
    expose_plugin_host(&mut exposed);
    expose_misbehaving_guests(&mut exposed);

    let alerts = manifest::load("deploy/chart/files/alerts.yaml").unwrap();
    let mut queries = Vec::new();
    for alert in &alerts {
        collect_queries(alert, &mut queries);
    }
    let rules = queries.len();
    for dashboard in manifest::load("deploy/chart/files/dashboard.yaml").unwrap() {
        for text in dashboard["data"].as_object().unwrap().values() {
            let document: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
            collect_queries(&document, &mut queries);
        }
    }
    assert!(rules >= 10 && queries.len() >= rules + 10, "{queries:#?}");
    let service = manifest::load("deploy/install.yaml")
        .unwrap()
        .into_iter()
        .find(|object| object["kind"] == "Service")
        .unwrap();
    let job = format!("job={}", service["metadata"]["name"]);
    for query in queries {
        // Other controllers expose metrics with the same names, so the query must select this job.
        for (metric, labels) in &Query::parse(&query).metrics {
            let is_own = metric.starts_with("innkeeper_");
            assert!(
                is_own || labels.iter().any(|label| label == "job"),
                "{query}"
            );
        }
        assert_eq!(
            query.matches("job=").count(),
            query.matches(&job).count(),
            "{query}"
        );
        let missing = Query::parse(&query).missing(&exposed);
        assert!(missing.is_empty(), "{query}: {missing:?} of\n{exposed:#?}");
    }
}
