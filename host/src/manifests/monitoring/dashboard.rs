//! The dashboard: what users feel on top, then plugins, passes, and the cluster.

use serde_json::{Value, json};

/// The data source that whoever looks on chooses.
const DATASOURCE: &str = "${datasource}";

/// Width of the grid in Grafana's units, and the height of a panel.
const COLUMNS: usize = 24;
const HEIGHT: usize = 8;

/// One panel.
struct Panel {
    title: &'static str,
    unit: &'static str,
    /// Expressions with the legend of each.
    queries: &'static [(&'static str, &'static str)],
}

/// The document that Grafana reads.
pub(super) fn document() -> Value {
    let mut panels = Vec::new();
    let mut y = 0;
    for (title, row) in ROWS {
        panels.push(json!({
            "type": "row",
            "title": title,
            "collapsed": false,
            "id": panels.len() + 1,
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            "panels": [],
        }));
        y += 1;
        let width = COLUMNS / row.len().max(1);
        for (index, panel) in row.iter().enumerate() {
            let place = json!({"x": index * width, "y": y, "w": width, "h": HEIGHT});
            panels.push(panel.value(panels.len() + 1, &place));
        }
        y += HEIGHT;
    }
    json!({
        "uid": "innkeeper",
        "title": "Innkeeper",
        "tags": ["innkeeper"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {
                "name": "datasource",
                "type": "datasource",
                "query": "prometheus",
                "label": "Data source",
            },
            {
                "name": "plugin",
                "type": "query",
                "label": "Plugin",
                "datasource": {"type": "prometheus", "uid": DATASOURCE},
                "query": {"query": "label_values(innkeeper_plugin_serving, plugin)", "refId": "plugin"},
                "refresh": 2,
                "multi": true,
                "includeAll": true,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            },
        ]},
        "panels": panels,
    })
}

impl Panel {
    fn value(&self, id: usize, place: &Value) -> Value {
        let Self {
            title,
            unit,
            queries,
        } = self;
        let targets: Vec<Value> = queries
            .iter()
            .zip('A'..)
            .map(|((expression, legend), letter)| {
                json!({
                    "refId": letter.to_string(),
                    "expr": expression,
                    "legendFormat": legend,
                    "datasource": {"type": "prometheus", "uid": DATASOURCE},
                })
            })
            .collect();
        json!({
            "id": id,
            "type": "timeseries",
            "title": title,
            "gridPos": place,
            "datasource": {"type": "prometheus", "uid": DATASOURCE},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
            "targets": targets,
        })
    }
}

const ROWS: [(&str, &[Panel]); 4] = [
    ("What users feel", &USERS),
    ("Plugins", &PLUGINS),
    ("Passes", &PASSES),
    ("Cluster", &CLUSTER),
];

const USERS: [Panel; 3] = [
    Panel {
        title: "From a change to the write for it",
        unit: "s",
        queries: &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(innkeeper_plugin_event_to_write_seconds_bucket{plugin=~\"$plugin\"}[$__rate_interval])))",
                "half",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(innkeeper_plugin_event_to_write_seconds_bucket{plugin=~\"$plugin\"}[$__rate_interval])))",
                "99 %",
            ),
        ],
    },
    Panel {
        title: "Faults by reason",
        unit: "ops",
        queries: &[(
            "sum by (plugin, reason) (rate(innkeeper_plugin_faults_total{plugin=~\"$plugin\"}[$__rate_interval]))",
            "{{plugin}} {{reason}}",
        )],
    },
    Panel {
        title: "Who writes",
        unit: "none",
        queries: &[
            (
                "leader_election_master_status{job=\"innkeeper-metrics\"}",
                "{{name}} {{pod}}",
            ),
            ("max(innkeeper_plugins_left_out)", "files that do not serve"),
        ],
    },
];

const PLUGINS: [Panel; 6] = [
    Panel {
        title: "Parents",
        unit: "none",
        queries: &[(
            "max by (plugin) (innkeeper_plugin_parents{plugin=~\"$plugin\"})",
            "{{plugin}}",
        )],
    },
    Panel {
        title: "Writes by verb",
        unit: "ops",
        queries: &[(
            "sum by (plugin, verb) (rate(innkeeper_plugin_writes_total{plugin=~\"$plugin\"}[$__rate_interval]))",
            "{{plugin}} {{verb}}",
        )],
    },
    Panel {
        title: "CPU of a call, 99 %",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (le, plugin) (rate(innkeeper_plugin_call_cpu_seconds_bucket{plugin=~\"$plugin\"}[$__rate_interval])))",
            "{{plugin}}",
        )],
    },
    Panel {
        title: "Most memory of a call",
        unit: "bytes",
        queries: &[(
            "max by (plugin) (innkeeper_plugin_memory_peak_bytes{plugin=~\"$plugin\"})",
            "{{plugin}}",
        )],
    },
    Panel {
        title: "Passes left out, lines dropped, swaps",
        unit: "ops",
        queries: &[
            (
                "sum by (plugin) (rate(innkeeper_plugin_passes_skipped_total{plugin=~\"$plugin\"}[$__rate_interval]))",
                "{{plugin}} unchanged",
            ),
            (
                "sum by (plugin) (rate(innkeeper_plugin_log_lines_dropped_total{plugin=~\"$plugin\"}[$__rate_interval]))",
                "{{plugin}} log lines dropped",
            ),
            (
                "sum by (plugin) (rate(innkeeper_plugin_swaps_total{plugin=~\"$plugin\"}[$__rate_interval]))",
                "{{plugin}} swaps",
            ),
        ],
    },
    Panel {
        title: "From a changed plugin to its first pass, 99 %",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (le, plugin) (rate(innkeeper_plugin_swap_seconds_bucket{plugin=~\"$plugin\"}[$__rate_interval])))",
            "{{plugin}}",
        )],
    },
];

const PASSES: [Panel; 4] = [
    Panel {
        title: "Passes by result",
        unit: "ops",
        queries: &[(
            "sum by (controller, result) (rate(controller_runtime_reconcile_total{job=\"innkeeper-metrics\"}[$__rate_interval]))",
            "{{controller}} {{result}}",
        )],
    },
    Panel {
        title: "Time of a pass, 99 %",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (le, controller) (rate(controller_runtime_reconcile_time_seconds_bucket{job=\"innkeeper-metrics\"}[$__rate_interval])))",
            "{{controller}}",
        )],
    },
    Panel {
        title: "Waiting in the queue, 99 %",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (le, name) (rate(workqueue_queue_duration_seconds_bucket{job=\"innkeeper-metrics\"}[$__rate_interval])))",
            "{{name}}",
        )],
    },
    Panel {
        title: "Parents that wait, passes that run",
        unit: "none",
        queries: &[
            (
                "sum by (name) (workqueue_depth{job=\"innkeeper-metrics\"})",
                "{{name}} wait",
            ),
            (
                "sum by (controller) (controller_runtime_active_workers{job=\"innkeeper-metrics\"})",
                "{{controller}} run",
            ),
        ],
    },
];

const CLUSTER: [Panel; 4] = [
    Panel {
        title: "Requests by method and status",
        unit: "reqps",
        queries: &[(
            "sum by (method, code) (rate(rest_client_requests_total{job=\"innkeeper-metrics\"}[$__rate_interval]))",
            "{{method}} {{code}}",
        )],
    },
    Panel {
        title: "Objects in the cache",
        unit: "none",
        queries: &[(
            "max by (group, kind) (sum by (group, kind, instance) (innkeeper_watch_objects))",
            "{{kind}}.{{group}}",
        )],
    },
    Panel {
        title: "Bytes in the cache",
        unit: "bytes",
        queries: &[(
            "max by (group, kind) (sum by (group, kind, instance) (innkeeper_watch_bytes))",
            "{{kind}}.{{group}}",
        )],
    },
    Panel {
        title: "Since the last sign of life of a watch",
        unit: "s",
        queries: &[(
            "max by (group, kind) (innkeeper_watch_stale_seconds)",
            "{{kind}}.{{group}}",
        )],
    },
];
