//! The labels, one type for each set.

use prometheus_client::encoding::EncodeLabelSet;

/// Of a controller, as controller-runtime has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Controller {
    pub(super) controller: String,
}

/// Of a controller's passes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ControllerResult {
    pub(super) controller: String,
    pub(super) result: &'static str,
}

/// Of a queue, as client-go has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Name {
    pub(super) name: String,
}

/// Of requests to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Code {
    pub(super) code: String,
    pub(super) method: String,
}

/// Of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Lease {
    pub(super) name: String,
}

/// Of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Plugin {
    pub(super) plugin: String,
}

/// Of a plugin's faults.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginReason {
    pub(super) plugin: String,
    pub(super) reason: String,
}

/// Of a Plugin resource's conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginCondition {
    pub(super) plugin: String,
    pub(super) condition: String,
}

/// Of a plugin's writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginVerb {
    pub(super) plugin: String,
    pub(super) verb: String,
}

/// Of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Watch {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    /// Not `namespace`, which is where the host itself runs for whoever collects.
    pub(super) in_namespace: String,
    pub(super) selector: String,
}
