//! Kinds of parents that the cluster serves no longer, because a user has deleted their definition: it is installed again
//! if the Plugin has the host install it, and otherwise a condition of the Plugin names them.

use innkeeper_cluster::Cluster;
use innkeeper_model::{Gvk, Manifest, Retry};

use super::active::ActiveRevision;
use crate::{
    crds,
    lifecycle::{Stage, StageFailure},
    resource::Declared,
};

/// The reason while the cluster does not serve a kind of parents.
pub(super) const PARENT_NOT_SERVED: &str = "ParentNotServed";

/// The kinds of parents of the active revision that the cluster no longer serves.
#[derive(Default)]
pub(super) struct MissingParents {
    pub(super) kinds: Vec<Gvk>,
    /// True if the host may read definitions, and so install them.
    pub(super) may_install: bool,
}

impl MissingParents {
    /// Returns those of the active revision, if there is one.
    pub(super) fn of(active: Option<&ActiveRevision>, cluster: &Cluster) -> Self {
        let reconcilers = active.map(|active| active.served.reconcilers.iter());
        let kinds = reconcilers
            .into_iter()
            .flatten()
            .map(|reconciler| reconciler.parent().clone());
        Self {
            kinds: kinds
                .filter(|kind| cluster.served(kind).is_none())
                .collect(),
            may_install: cluster.reads_definitions(),
        }
    }

    /// Returns the failure of the active revision; none if the cluster serves all kinds.
    pub(super) fn failure(&self) -> Option<StageFailure> {
        if self.kinds.is_empty() {
            return None;
        }
        let kinds: Vec<_> = self.kinds.iter().map(ToString::to_string).collect();
        let message = format!(
            "the cluster no longer serves {}: install the CustomResourceDefinition again, or grant it to the plugin with spec.crds Install",
            kinds.join(", ")
        );
        let (stage, retry) = (Stage::Serving, Retry::OnChange);
        Some(StageFailure::new(stage, PARENT_NOT_SERVED, message, retry))
    }

    /// Returns true if the host is to install the definition of one of the kinds under the declared terms.
    pub(super) fn are_installed(&self, declared: &Declared, manifest: &Manifest) -> bool {
        let mut kinds = self.kinds.iter();
        self.may_install
            && kinds.any(|kind| crds::installs(&declared.terms, manifest, &kind.group_kind()))
    }
}
