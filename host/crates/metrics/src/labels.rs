//! The label sets, one type for each.

use prometheus_client::encoding::EncodeLabelSet;

/// The labels of a controller, as in controller-runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Controller {
    pub(super) controller: String,
}

/// The labels of a controller's passes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ControllerResult {
    pub(super) controller: String,
    pub(super) result: &'static str,
}

/// The labels of a queue, as in client-go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Name {
    pub(super) name: String,
}

/// The labels of requests to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Code {
    pub(super) code: String,
    pub(super) method: String,
}

/// The labels of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Lease {
    pub(super) name: String,
}

/// The labels of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Plugin {
    pub(super) plugin: String,
}

/// The labels of a plugin's faults.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginReason {
    pub(super) plugin: String,
    pub(super) reason: String,
}

/// The labels of a Plugin resource's conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginCondition {
    pub(super) plugin: String,
    pub(super) condition: String,
}

/// The labels of a plugin's writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginVerb {
    pub(super) plugin: String,
    pub(super) verb: String,
}

/// The labels of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Watch {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    /// Not named `namespace`: Prometheus sets that label to the namespace in which the host runs.
    pub(super) in_namespace: String,
    pub(super) selector: String,
}
