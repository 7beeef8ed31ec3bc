use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::*;

/// A source that always returns the same sample.
struct Fixed {
    unfinished: Vec<(String, Duration, Duration)>,
}

impl SampleSource for Fixed {
    fn sample(&self) -> Sample {
        Sample {
            watches: vec![WatchSample {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: String::new(),
                shards: "0,2".to_owned(),
                selector: "innkeeper.dev/plugin=web".to_owned(),
                synced: true,
                objects: 3,
                // More than 4 GiB, as the cache may hold.
                bytes: 6_000_000_000,
                lists: 1,
                stale: Some(Duration::from_millis(1500)),
            }],
            plugins: vec![PluginSample {
                plugin: "web".to_owned(),
                parents: 12,
                waiting: 1,
                full_namespaces: 3,
                limits: vec![("objectsPerNamespace", 0.85)],
            }],
            unfinished: self.unfinished.clone(),
            left_out: 2,
            process: Some(ProcessSample {
                cpu_seconds: 1.5,
                resident_bytes: 4096.0,
                virtual_bytes: 8192.0,
                open_fds: 7,
                max_fds: Some(1024.0),
                start_seconds: 1_700_000_000.25,
            }),
        }
    }
}

/// Returns true if the text has this line, with any value.
#[track_caller]
fn assert_line(text: &str, line: &str) {
    assert!(
        text.lines().any(|text| text.starts_with(line)),
        "{line} is not in\n{text}"
    );
}

#[test]
fn a_pass_is_counted_under_the_names_of_controller_runtime() {
    let metrics = Metrics::new();
    let controller = metrics.controller("memcached/memcached", 4);
    controller.triggered(3, 2);
    controller
        .begin(Duration::from_millis(3), 1)
        .end(PassResult::Success);
    controller.begin(Duration::ZERO, 0).end(PassResult::Error);
    let text = metrics.encode().unwrap();
    for line in [
        "controller_runtime_reconcile_total{controller=\"memcached/memcached\",result=\"success\"} 1",
        "controller_runtime_reconcile_total{controller=\"memcached/memcached\",result=\"error\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"memcached/memcached\"} 1",
        "controller_runtime_reconcile_time_seconds_count{controller=\"memcached/memcached\"} 2",
        "controller_runtime_active_workers{controller=\"memcached/memcached\"} 0",
        "controller_runtime_max_concurrent_reconciles{controller=\"memcached/memcached\"} 4",
        "workqueue_depth{name=\"memcached/memcached\"} 0",
        "workqueue_adds_total{name=\"memcached/memcached\"} 3",
        "workqueue_retries_total{name=\"memcached/memcached\"} 1",
        "workqueue_queue_duration_seconds_bucket{le=\"0.005\",name=\"memcached/memcached\"} 2",
        "workqueue_work_duration_seconds_count{name=\"memcached/memcached\"} 2",
    ] {
        assert_line(&text, line);
    }
}

#[test]
fn a_pass_counts_as_running_until_it_is_dropped() {
    let metrics = Metrics::new();
    let controller = metrics.controller("web/pond", 1);
    let running = controller.begin(Duration::ZERO, 0);
    assert_line(
        &metrics.encode().unwrap(),
        "controller_runtime_active_workers{controller=\"web/pond\"} 1",
    );
    let (sum, longest) = controller.unfinished();
    assert!(sum >= longest && !longest.is_zero());
    drop(running);
    assert_eq!(controller.unfinished(), (Duration::ZERO, Duration::ZERO));
    let text = metrics.encode().unwrap();
    assert_line(
        &text,
        "controller_runtime_active_workers{controller=\"web/pond\"} 0",
    );
    // An aborted pass has no result.
    assert!(
        !text.contains("controller_runtime_reconcile_total{"),
        "{text}"
    );
}

#[test]
fn the_events_of_a_plugin_are_counted() {
    let metrics = Metrics::new();
    let plugin = metrics.plugin("web");
    plugin.called(Duration::from_micros(80), 2_000_000, false);
    plugin.called(Duration::from_micros(80), 1_000_000, true);
    plugin.slow_call();
    plugin.fault("DeadlineExceeded");
    plugin.skipped();
    plugin.predicted();
    plugin.wrote("update");
    plugin.log_dropped(7);
    plugin.event_dropped();
    plugin.reacted(Duration::from_millis(3));
    plugin.swapped();
    plugin.took_over(Duration::from_millis(30));
    plugin.contested();
    plugin.conditions_refused();
    metrics.request("PATCH", "200");
    metrics.leads("innkeeper", true);
    metrics.shards(4);
    metrics.shard_held(3, true);
    metrics.shard_moved(ShardMove::GivenUp);
    metrics.shard_selector_honoured(true);
    let text = metrics.encode().unwrap();
    for line in [
        "innkeeper_plugin_faults_total{plugin=\"web\",reason=\"DeadlineExceeded\"} 1",
        "innkeeper_plugin_passes_skipped_total{plugin=\"web\"} 1",
        "innkeeper_plugin_predictions_used_total{plugin=\"web\"} 1",
        "innkeeper_plugin_writes_total{plugin=\"web\",verb=\"update\"} 1",
        "innkeeper_plugin_call_cpu_seconds_bucket{le=\"0.0001\",plugin=\"web\"} 2",
        "innkeeper_plugin_call_cpu_seconds_bucket{le=\"30.0\",plugin=\"web\"} 2",
        "innkeeper_plugin_event_to_write_seconds_bucket{le=\"0.0025\",plugin=\"web\"} 0",
        "innkeeper_plugin_event_to_write_seconds_bucket{le=\"0.005\",plugin=\"web\"} 1",
        "innkeeper_plugin_swaps_total{plugin=\"web\"} 1",
        "innkeeper_plugin_swap_seconds_bucket{le=\"0.025\",plugin=\"web\"} 0",
        "innkeeper_plugin_swap_seconds_bucket{le=\"0.05\",plugin=\"web\"} 1",
        "innkeeper_plugin_conflicts_total{plugin=\"web\"} 1",
        "innkeeper_plugin_memory_peak_bytes{plugin=\"web\"} 2000000",
        "innkeeper_plugin_memory_waits_total{plugin=\"web\"} 1",
        "innkeeper_plugin_slow_calls_total{plugin=\"web\"} 1",
        "innkeeper_plugin_log_lines_dropped_total{plugin=\"web\"} 7",
        "innkeeper_plugin_events_dropped_total{plugin=\"web\"} 1",
        "innkeeper_plugin_conditions_refused_total{plugin=\"web\"} 1",
        "rest_client_requests_total{code=\"200\",method=\"PATCH\"} 1",
        "leader_election_master_status{name=\"innkeeper\"} 1",
        "innkeeper_shards 4",
        "innkeeper_shard_held{shard=\"3\"} 1",
        "innkeeper_shard_moves_total{direction=\"given_up\"} 1",
        "innkeeper_shard_selector_honoured 1",
    ] {
        assert_line(&text, line);
    }
}

#[test]
fn conditions_of_a_plugin_are_shown_until_it_is_gone() {
    let metrics = Metrics::new();
    metrics.plugin_conditions("web", [("Serving", true), ("Degraded", false)]);
    metrics.plugin_conditions("other", [("Serving", true)]);
    let line = "innkeeper_plugin_condition{plugin=\"web\",condition=";
    let text = metrics.encode().unwrap();
    assert_line(&text, &format!("{line}\"Serving\"}} 1"));
    assert_line(&text, &format!("{line}\"Degraded\"}} 0"));
    metrics.plugin_gone("web");
    let text = metrics.encode().unwrap();
    assert!(!text.contains(line), "{text}");
    assert!(text.contains("plugin=\"other\""), "{text}");
}

/// Users who may create Plugins, but may not grant, could otherwise make any number of series.
#[test]
fn plugins_without_grants_have_one_series_together() {
    let metrics = Metrics::new();
    let series = || {
        metrics
            .encode()
            .unwrap()
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count()
    };
    let empty = series();
    for number in 0..3000 {
        metrics.plugin_without_grants(&format!("poor-{number}"));
        metrics.plugin_without_grants(&format!("poor-{number}"));
    }
    assert_eq!(series(), empty);
    let count = |expected: usize| {
        let line = format!("innkeeper_plugins_without_grants {expected}");
        assert_line(&metrics.encode().unwrap(), &line);
    };
    count(3000);
    // With grants it has its conditions, and without them it loses these.
    metrics.plugin_conditions("poor-7", [("Serving", true)]);
    count(2999);
    assert_eq!(series(), empty + 1);
    metrics.plugin_without_grants("poor-7");
    assert_eq!(series(), empty);
    metrics.plugin_gone("poor-7");
    metrics.plugin_gone("never-seen");
    count(2999);
}

#[test]
fn what_others_know_is_read_when_somebody_asks() {
    let metrics = Metrics::new();
    metrics.add_source(Arc::new(Fixed {
        unfinished: Vec::new(),
    }));
    let text = metrics.encode().unwrap();
    let watch = "{group=\"apps\",version=\"v1\",kind=\"Deployment\",in_namespace=\"\",selector=\"innkeeper.dev/plugin=web\",shards=\"0,2\"}";
    for (name, value) in [
        ("synced", "1"),
        ("objects", "3"),
        ("bytes", "6000000000"),
        ("lists_total", "1"),
        ("stale_seconds", "1.5"),
    ] {
        assert_line(&text, &format!("innkeeper_watch_{name}{watch} {value}"));
    }
    assert_line(&text, "innkeeper_plugin_parents{plugin=\"web\"} 12");
    assert_line(&text, "innkeeper_plugin_waiting{plugin=\"web\"} 1");
    assert_line(&text, "innkeeper_plugin_full_namespaces{plugin=\"web\"} 3");
    let limit = "{plugin=\"web\",limit=\"objectsPerNamespace\"}";
    assert_line(
        &text,
        &format!("innkeeper_plugin_limit_use_ratio{limit} 0.85"),
    );
    assert_line(&text, "innkeeper_plugins_left_out 2");
    for line in [
        "process_cpu_seconds_total 1.5",
        "process_resident_memory_bytes 4096",
        "process_virtual_memory_bytes 8192",
        "process_open_fds 7",
        "process_max_fds 1024",
        "process_start_time_seconds 1700000000.25",
    ] {
        assert_line(&text, line);
    }
    assert!(!text.contains("unfinished"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

/// A metric of the reference.
struct Reference {
    kind: String,
    labels: BTreeSet<String>,
    help: String,
}

/// All metrics that a host can expose, by the names that a query uses; a histogram without its suffixes.
fn reference() -> BTreeMap<String, Reference> {
    let text = everything();
    let mut metrics = BTreeMap::new();
    let mut current = (String::new(), String::new());
    for line in text.lines() {
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|line| line.split_once(' '))
        {
            metrics.entry(name.to_owned()).or_insert_with(|| Reference {
                kind: String::new(),
                labels: BTreeSet::new(),
                help: help.to_owned(),
            });
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|line| line.split_once(' '))
        {
            current = (name.to_owned(), kind.to_owned());
        } else if let Some(metric) = metrics.get_mut(&current.0) {
            metric.kind.clone_from(&current.1);
            let labels = line
                .split_once('{')
                .and_then(|(_, rest)| rest.rsplit_once('}'))
                .map_or("", |(labels, _)| labels)
                .split(',');
            let names = labels
                .filter_map(|label| label.split_once('='))
                .map(|(name, _)| name.to_owned());
            metric.labels.extend(names.filter(|name| name != "le"));
        }
    }
    let queried = |(name, metric): (String, Reference)| match &*metric.kind {
        "counter" => (format!("{name}_total"), metric),
        _ => (name, metric),
    };
    metrics.into_iter().map(queried).collect()
}

/// Returns the page of the reference.
fn page() -> String {
    let mut page = "<!-- Generated: UPDATE_EXPECT=1 cargo test --release --locked -p innkeeper-metrics --lib. Do not edit. -->\n\n# Metrics\n\n\
        A host with `--admin-address` serves these metrics at `/metrics`; [observability](../../../deploy/docs/observability.md) explains setup and alerts.\n\
        Metrics that also exist in controller-runtime or client-go have the same names.\n\n\
        | metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    let rows = reference().into_iter().map(|(name, metric)| {
        let Reference { kind, labels, help } = metric;
        let labels: Vec<String> = labels.into_iter().collect();
        let labels = if labels.is_empty() {
            "none".to_owned()
        } else {
            labels.join(", ")
        };
        let end = if help.ends_with('.') { "" } else { "." };
        format!("| `{name}` | {kind} | {labels} | {help}{end} |\n")
    });
    page.extend(rows);
    page
}

/// Returns a scrape with a value for every metric.
fn everything() -> String {
    let metrics = Metrics::new();
    let controller = metrics.controller("web", 1);
    controller.triggered(1, 1);
    controller.begin(Duration::ZERO, 0).end(PassResult::Error);
    let plugin = metrics.plugin("web");
    plugin.called(Duration::ZERO, 1, true);
    plugin.slow_call();
    plugin.fault("GuestTrapped");
    plugin.skipped();
    plugin.predicted();
    plugin.wrote("update");
    plugin.log_dropped(1);
    plugin.event_dropped();
    plugin.reacted(Duration::ZERO);
    plugin.swapped();
    plugin.took_over(Duration::ZERO);
    plugin.contested();
    plugin.conditions_refused();
    metrics.request("PATCH", "200");
    metrics.leads("innkeeper", true);
    metrics.shard_held(0, true);
    metrics.shard_moved(ShardMove::Gained);
    metrics.spans(SpanResult::Sent, 1);
    metrics.plugin_conditions("web", [("Serving", true)]);
    // The registry does not encode a family without a value, so a new family must be counted above.
    let families = format!("{:?}", metrics.registry.lock());
    let encoded = metrics.encode().unwrap();
    assert_eq!(
        families.matches("Descriptor {").count(),
        encoded.matches("# TYPE ").count()
    );
    metrics.add_source(Arc::new(Fixed {
        unfinished: vec![("web".to_owned(), Duration::ZERO, Duration::ZERO)],
    }));
    metrics.encode().unwrap()
}

/// The words of a text that look like names of metrics of the host.
fn named(text: &str) -> BTreeSet<&str> {
    const PREFIXES: [&str; 5] = [
        "controller_runtime_",
        "innkeeper_",
        "leader_election_",
        "rest_client_",
        "workqueue_",
    ];
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .map(|word| word.strip_suffix("_bucket").unwrap_or(word))
        .collect()
}

#[test]
fn alerts_and_dashboard_name_registered_metrics_and_the_reference_is_fresh() {
    let registered = reference();
    let registered: BTreeSet<&str> = registered.keys().map(String::as_str).collect();
    for (file, text) in [
        (
            "alerts.yaml",
            include_str!("../../../../deploy/chart/files/alerts.yaml"),
        ),
        (
            "dashboard.yaml",
            include_str!("../../../../deploy/chart/files/dashboard.yaml"),
        ),
    ] {
        let named = named(text);
        assert!(named.len() >= 10, "{file}: {named:?}");
        let missing: Vec<_> = named.difference(&registered).collect();
        assert!(missing.is_empty(), "{file}: {missing:?}");
    }
    expect_test::expect_file!["../../../docs/reference/metrics.md"].assert_eq(&page());
}
