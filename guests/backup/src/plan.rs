//! The desired state for one parent; `prepare` makes it.

use std::collections::BTreeMap;

use innkeeper_sdk::{hash::sha256_hex, prelude::*};
use k8s_openapi::ByteString;

use crate::{
    api::{Parent, StateMode, Volume},
    config::Config,
    names::{self, default_local_claim},
    render::{LocalStorage, Origin, Rendered},
    schedule::Effective,
};

/// Key of gobackup's configuration in the child Secret.
pub(crate) const CONFIG_FILE: &str = "gobackup.yml";

/// The desired state for one parent.
pub(crate) struct Plan<'a> {
    pub(crate) request: &'a Request,
    pub(crate) parent: &'a Parent,
    pub(crate) config: &'a Config,
    pub(crate) schedule: Option<Effective>,
    pub(crate) rendered: Rendered,
}

impl Plan<'_> {
    /// Returns a component's labels.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        names::labels(self.request, self.parent.kind, component)
    }

    /// Returns the child Secret's name.
    pub(crate) fn secret_name(&self) -> String {
        names::secret_name(self.request, self.parent.kind)
    }

    /// Returns the configuration's SHA-256.
    pub(crate) fn config_hash(&self) -> String {
        sha256_hex(&self.rendered.text)
    }

    /// Returns the state claim's name, if the parent needs one.
    pub(crate) fn state_claim(&self) -> Option<String> {
        let state = self.parent.spec.state.clone().unwrap_or_default();
        let is_needed = match state.mode {
            StateMode::Auto => !self.rendered.forgetful.is_empty(),
            StateMode::Volume => true,
            StateMode::Ephemeral => false,
        };
        is_needed.then(|| {
            state
                .claim_name
                .unwrap_or_else(|| self.default_state_claim())
        })
    }

    /// Returns the name of the state claim that the plugin creates.
    pub(crate) fn default_state_claim(&self) -> String {
        format!("{}-gobackup-state", self.request.name())
    }

    /// Returns local storages whose path is in no volume of the parent.
    pub(crate) fn claimed_locals(&self) -> impl Iterator<Item = &LocalStorage> {
        let volumes = &self.parent.spec.volumes;
        self.rendered
            .local
            .iter()
            .filter(move |local| !volumes.iter().any(|volume| volume.holds(&local.path)))
    }

    /// Returns the parent's writable volumes with a local storage.
    pub(crate) fn stored_volumes(&self) -> impl Iterator<Item = &Volume> {
        self.parent
            .spec
            .volumes
            .iter()
            .filter(|volume| !volume.read_only)
            .filter(|volume| {
                self.rendered
                    .local
                    .iter()
                    .any(|local| volume.holds(&local.path))
            })
    }

    /// Returns clear-text credentials as data for the plugin's Secret.
    pub(crate) fn clear_credentials(&self) -> impl Iterator<Item = (String, ByteString)> {
        self.rendered
            .credentials
            .iter()
            .filter_map(|credential| match &credential.origin {
                Origin::Clear(value) => {
                    let value = ByteString(value.clone().into_bytes());
                    Some((credential.name.clone(), value))
                }
                Origin::Secret(_) => None,
            })
    }

    /// Returns the name of the claim for local storages, if they need one.
    pub(crate) fn local_claim(&self) -> Option<String> {
        self.claimed_locals().next()?;
        let name = self
            .parent
            .spec
            .local_volume
            .as_ref()
            .and_then(|volume| volume.claim_name.clone());
        Some(name.unwrap_or_else(|| default_local_claim(self.request.name())))
    }
}
