//! The label sets, one type for each.

use prometheus_client::encoding::EncodeLabelSet;

/// The labels of a controller, as in controller-runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ControllerLabels {
    pub(super) controller: String,
}

/// The labels of a controller's passes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ControllerResultLabels {
    pub(super) controller: String,
    pub(super) result: &'static str,
}

/// The labels of a queue, as in client-go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct QueueLabels {
    pub(super) name: String,
}

/// The labels of requests to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) code: String,
    pub(super) method: String,
}

/// The labels of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LeaseLabels {
    pub(super) name: String,
}

/// The labels of a limit of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginLimitLabels {
    pub(super) plugin: String,
    pub(super) limit: &'static str,
}

/// The labels of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginLabels {
    pub(super) plugin: String,
}

/// The labels of a plugin's faults.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginReasonLabels {
    pub(super) plugin: String,
    pub(super) reason: String,
}

/// The labels of a Plugin resource's conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginConditionLabels {
    pub(super) plugin: String,
    pub(super) condition: String,
}

/// The labels of a plugin's writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginVerbLabels {
    pub(super) plugin: String,
    pub(super) verb: String,
}

/// The labels of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WatchLabels {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    /// Not named `namespace`: Prometheus sets that label to the namespace in which the host runs.
    pub(super) in_namespace: String,
    pub(super) selector: String,
}
