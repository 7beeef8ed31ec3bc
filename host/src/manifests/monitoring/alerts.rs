//! The alert rules: when, how urgent, and what to do.

use serde_json::{Value, json};

/// One rule.
struct Alert {
    name: &'static str,
    /// When.
    expression: &'static str,
    /// For how long it has to be so.
    lasting: &'static str,
    urgency: Urgency,
    /// In a sentence.
    summary: &'static str,
    /// What it means, where to look and what to do.
    runbook: &'static str,
}

#[derive(Clone, Copy)]
enum Urgency {
    /// Somebody has to look now.
    Critical,
    /// Somebody has to look today.
    Warning,
}

/// All rules, in Prometheus' form.
pub(super) fn rules() -> Vec<Value> {
    let rules = HOST.iter().chain(&PLUGINS).chain(&CLUSTER);
    rules.map(Alert::rule).collect()
}

impl Alert {
    fn rule(&self) -> Value {
        let Self {
            name,
            expression,
            lasting,
            urgency,
            summary,
            runbook,
        } = self;
        let severity = match urgency {
            Urgency::Critical => "critical",
            Urgency::Warning => "warning",
        };
        json!({
            "alert": name,
            "expr": expression,
            "for": lasting,
            "labels": {"severity": severity},
            "annotations": {"summary": summary, "runbook": runbook},
        })
    }
}

/// The host itself.
const HOST: [Alert; 4] = [
    Alert {
        name: "InnkeeperAbsent",
        expression: "absent(innkeeper_watch_synced)",
        lasting: "5m",
        urgency: Urgency::Critical,
        summary: "No innkeeper host exposes metrics.",
        runbook: "Nothing is reconciled: changes of parents wait, children stay as they are, and parents with a finalizer cannot go. \
            Look whether the Pods run (kubectl get pods -l app.kubernetes.io/name=innkeeper) and at the last lines of their logs. \
            If they run and are ready, nobody collects their metrics: look at the Service innkeeper-metrics and the ServiceMonitor.",
    },
    Alert {
        name: "InnkeeperNobodyWrites",
        expression: "max by (name) (leader_election_master_status{job=\"innkeeper-metrics\"}) < 1",
        lasting: "2m",
        urgency: Urgency::Critical,
        summary: "No innkeeper host holds the lease {{ $labels.name }}.",
        runbook: "The hosts run and none of them may write. \
            Look at the lease innkeeper in the namespace of the hosts (kubectl get lease innkeeper -o yaml): a holder that is none of the Pods is a host elsewhere, or one that was killed less than 15 s ago. \
            The hosts' logs say why the lease cannot be had; mostly the right to update it is missing, or the API server does not answer.",
    },
    Alert {
        name: "InnkeeperPassHangs",
        expression: "max by (name) (workqueue_longest_running_processor_seconds{job=\"innkeeper-metrics\"}) > 120",
        lasting: "1m",
        urgency: Urgency::Critical,
        summary: "A pass of {{ $labels.name }} has been running for more than two minutes.",
        runbook: "A guest is cut off at its deadline, so that the pass waits for the API server: each of its writes has a deadline of its own. \
            Look at rest_client_requests_total for errors and at the API server's own latency. \
            When the host stands still as a whole, /livez says which loop, and the kubelet starts it again.",
    },
    Alert {
        name: "InnkeeperQueueWaits",
        expression: "histogram_quantile(0.99, sum by (le, name) (rate(workqueue_queue_duration_seconds_bucket{job=\"innkeeper-metrics\"}[5m]))) > 30",
        lasting: "15m",
        urgency: Urgency::Warning,
        summary: "Parents of {{ $labels.name }} wait for more than 30 s until their pass begins.",
        runbook: "More passes are due than can run. \
            Compare controller_runtime_active_workers with controller_runtime_max_concurrent_reconciles: at the limit, raise limits.concurrency of the plugin or --workers of the host, or give the Pod more CPU. \
            Below the limit, passes are slow: look at innkeeper_plugin_call_cpu_seconds and controller_runtime_reconcile_time_seconds.",
    },
];

/// What plugins do.
const PLUGINS: [Alert; 7] = [
    Alert {
        name: "InnkeeperPluginNotServing",
        expression: "max by (plugin) (innkeeper_plugin_condition{condition=\"Serving\"}) < 1",
        lasting: "5m",
        urgency: Urgency::Critical,
        summary: "The Plugin {{ $labels.plugin }} does not serve.",
        runbook: "Its parents are not reconciled. \
            Its conditions say which step fails and why (kubectl get plugin {{ $labels.plugin }} -o yaml, or innkeeper status): the source cannot be reached, digest or signature are wrong, grants are missing, or another plugin has its kind of parents.",
    },
    Alert {
        name: "InnkeeperPluginDegraded",
        expression: "max by (plugin) (innkeeper_plugin_condition{condition=\"Degraded\"}) > 0",
        lasting: "15m",
        urgency: Urgency::Warning,
        summary: "The Plugin {{ $labels.plugin }} does not serve what it declares.",
        runbook: "What served before goes on, or nothing does. \
            The condition Degraded names the step that failed and what to do; the other conditions say how far it came.",
    },
    Alert {
        name: "InnkeeperPluginFileLeftOut",
        expression: "max(innkeeper_plugins_left_out) > 0",
        lasting: "5m",
        urgency: Urgency::Critical,
        summary: "{{ $value }} plugins that were given as files do not serve.",
        runbook: "The log has one line for each that says \"plugin is not served\", with the file and the reason: the file is no plugin, its grants do not suffice, its kind of parents is another plugin's, or its CustomResourceDefinition cannot be installed. \
            What may pass by itself is tried again.",
    },
    Alert {
        name: "InnkeeperPluginFaults",
        expression: "sum by (plugin, reason) (increase(innkeeper_plugin_faults_total{reason!~\"Retrying|Invalid\"}[15m])) > 5",
        lasting: "5m",
        urgency: Urgency::Warning,
        summary: "The plugin {{ $labels.plugin }} fails with {{ $labels.reason }}.",
        runbook: "The guest broke down, broke a limit, or gave an answer that breaks a rule; children of these parents stay as they are and the rest of the host is not touched. \
            innkeeper status names the parents and what happened; innkeeper render with one of them repeats it without a cluster. \
            A limit that is too small is raised in spec.limits; a revision that is wrong is taken back by its digest.",
    },
    Alert {
        name: "InnkeeperPassesFail",
        expression: "sum by (controller) (rate(controller_runtime_reconcile_errors_total{job=\"innkeeper-metrics\"}[10m])) / sum by (controller) (rate(controller_runtime_reconcile_total{job=\"innkeeper-metrics\"}[10m])) > 0.5",
        lasting: "15m",
        urgency: Urgency::Warning,
        summary: "More than half of the passes of {{ $labels.controller }} fail.",
        runbook: "The parents say why in their condition Synced (innkeeper status lists them). \
            ApplyFailed and ChildRejected come from the API server: a quota, an admission webhook, a missing right; ChildNotOwned means that an object of that name belongs to somebody else.",
    },
    Alert {
        name: "InnkeeperPassesWait",
        expression: "max by (plugin) (innkeeper_plugin_waiting) > 0",
        lasting: "10m",
        urgency: Urgency::Warning,
        summary: "Passes of the plugin {{ $labels.plugin }} wait for kinds that cannot be read.",
        runbook: "A kind that every pass needs is not in the cache. \
            /readyz and the condition Synced=Unknown/WaitingForCache of the parents name the kind and why: mostly the host may not list or watch it (innkeeper manifests prints the roles that it needs), or its CustomResourceDefinition is not there.",
    },
    Alert {
        name: "InnkeeperSlowToWrite",
        expression: "histogram_quantile(0.99, sum by (le, plugin) (rate(innkeeper_plugin_event_to_write_seconds_bucket[10m]))) > 30",
        lasting: "15m",
        urgency: Urgency::Warning,
        summary: "The plugin {{ $labels.plugin }} writes more than 30 s after a change was seen.",
        runbook: "One of the three parts of this time is long: waiting in the queue (workqueue_queue_duration_seconds), the guest (innkeeper_plugin_call_cpu_seconds), or the API server. \
            The dashboard shows them beside each other.",
    },
];

/// What the host has to do with the API server.
const CLUSTER: [Alert; 3] = [
    Alert {
        name: "InnkeeperWatchStale",
        expression: "max by (group, kind, selector) (innkeeper_watch_stale_seconds) > 300",
        lasting: "5m",
        urgency: Urgency::Critical,
        summary: "The watch of {{ $labels.kind }} has shown nothing for more than five minutes.",
        runbook: "The API server sends a sign of life about once a minute and ends every watch within three minutes, so that this is no quiet cluster: what the host sees is old. \
            innkeeper_watch_synced and /debug/state say what the watch waits for; look at the API server and at what is between it and the host.",
    },
    Alert {
        name: "InnkeeperWatchBeginsAnew",
        expression: "max by (group, kind, selector) (increase(innkeeper_watch_lists[1h])) > 20",
        lasting: "15m",
        urgency: Urgency::Warning,
        summary: "The watch of {{ $labels.kind }} begins anew again and again.",
        runbook: "Every new list reads all objects of the kind. \
            The API server forgets what the watch needs faster than it is read (its watch cache is too small, or etcd is compacted often), or something ends the connections. The host's log names the reason of each.",
    },
    Alert {
        name: "InnkeeperRequestsFail",
        expression: "sum by (method) (rate(rest_client_requests_total{job=\"innkeeper-metrics\", code=~\"5..|429|<error>\"}[5m])) / sum by (method) (rate(rest_client_requests_total{job=\"innkeeper-metrics\"}[5m])) > 0.1",
        lasting: "10m",
        urgency: Urgency::Warning,
        summary: "More than a tenth of the {{ $labels.method }} requests to the API server fail.",
        runbook: "429: priority and fairness holds the host back; look at the flow schema of its account. \
            5xx: the API server or a webhook does not work. <error>: the connection fails before there is an answer. \
            Nothing is lost: what failed is tried again with growing pauses.",
    },
];
