//! Parent kinds that the cluster stopped serving, and definitions that someone else changed. The host reinstalls them
//! if the Plugin allows it; otherwise a Plugin condition names the missing kinds.

use innkeeper_cluster::Cluster;
use innkeeper_model::{Gvk, Manifest, PluginReason, Retry};

use crate::{
    crds,
    resource::{Crds, Declared},
    stage::{Stage, StageFailure},
    state::PluginState,
};

/// The active revision's parent kinds that the cluster no longer serves.
#[derive(Default)]
pub(crate) struct MissingParents {
    pub(crate) kinds: Vec<Gvk>,
    /// True if the host may read definitions, and so install them.
    pub(crate) may_install: bool,
    /// True if a definition has changed since the last activation.
    pub(crate) is_redefined: bool,
}

impl MissingParents {
    /// Returns the active revision's missing kinds, if there is one.
    pub(crate) fn new(state: &PluginState, cluster: &Cluster) -> Self {
        let active = state.active.as_ref();
        let kinds = active
            .map(|active| active.served.reconcilers.iter())
            .into_iter()
            .flatten()
            .map(|reconciler| reconciler.parent().clone())
            .filter(|kind| cluster.served(kind).is_none())
            .collect();
        Self {
            kinds,
            may_install: cluster.reads_definitions(),
            is_redefined: active.is_some() && state.definitions.is_check_due(cluster),
        }
    }

    /// Returns the active revision's failure; none if the cluster serves all kinds.
    pub(crate) fn failure(&self) -> Option<StageFailure> {
        if self.kinds.is_empty() {
            return None;
        }
        let kinds: Vec<_> = self.kinds.iter().map(ToString::to_string).collect();
        let message = format!(
            "the cluster no longer serves {}: install the CustomResourceDefinition again, or grant it to the plugin with spec.crds Install",
            kinds.join(", ")
        );
        Some(Stage::Serving.failure(PluginReason::ParentNotServed, message, Retry::OnChange))
    }

    /// Returns true if the host must install definitions under the declared terms, because one is missing or changed.
    pub(crate) fn must_install(&self, declared: &Declared, manifest: &Manifest) -> bool {
        let is_installed =
            |kind: &Gvk| crds::installs(&declared.terms, manifest, &kind.group_kind());
        // With Ignore, an activation would only wait until another client has restored the definition.
        let must_check = self.is_redefined && declared.terms.crds == Crds::Install;
        self.may_install && (must_check || self.kinds.iter().any(is_installed))
    }
}
