//! Kinds of parents that the cluster serves no longer, because a user has deleted their definition: it is installed again
//! if the Plugin has the host install it, and otherwise a condition of the Plugin names them.

use innkeeper_model::{Gvk, Retry};

use super::{Manager, PluginState};
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

impl Manager {
    /// Notes the kinds of parents of the active revision that the cluster no longer serves.
    pub(super) fn look_for_parents(&self, state: &mut PluginState) {
        let is_missing = |kind: &Gvk| self.cluster().served(kind).is_none();
        let kinds = state.active.as_ref().map(|active| {
            let reconcilers = active.served.reconcilers.iter();
            let kinds = reconcilers.map(|it| it.parent().clone());
            kinds.filter(is_missing).collect()
        });
        state.missing = MissingParents {
            kinds: kinds.unwrap_or_default(),
            may_install: self.cluster().reads_definitions(),
        };
    }
}

impl PluginState {
    /// Returns the failure of an active revision whose kinds of parents the cluster no longer serves.
    pub(super) fn lacks_parents(&self) -> Option<StageFailure> {
        let kinds = &self.missing.kinds;
        if kinds.is_empty() {
            return None;
        }
        let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
        let message = format!(
            "the cluster no longer serves {}: install the CustomResourceDefinition again, or grant it to the plugin with spec.crds Install",
            kinds.join(", ")
        );
        let (stage, retry) = (Stage::Serving, Retry::OnChange);
        Some(StageFailure::new(stage, PARENT_NOT_SERVED, message, retry))
    }

    /// Returns true if the host is to install the definition of a missing kind under the declared terms.
    pub(super) fn installs_missing(&self, declared: &Declared) -> bool {
        let Some(active) = self.active.as_ref().filter(|_| self.missing.may_install) else {
            return false;
        };
        let manifest = active.plugin.manifest();
        let mut kinds = self.missing.kinds.iter();
        kinds.any(|kind| crds::installs(&declared.terms, manifest, &kind.group_kind()))
    }
}
