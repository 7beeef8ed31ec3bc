//! The desired state for one parent; `prepare` makes it.

use std::collections::BTreeMap;

use innkeeper_sdk::{hash::sha256_hex, prelude::*};
use k8s_openapi::ByteString;

use crate::{
    api::{Parent, StateMode, Volume},
    config::Config,
    names::{self, local_claim_made},
    render::{LocalStorage, Origin, Rendered},
    schedule::Effective,
};

/// The key of the configuration in the child Secret.
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
    /// The labels of a component.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        names::labels(self.request, self.parent.kind, component)
    }

    /// The name of the child Secret.
    pub(crate) fn secret_name(&self) -> String {
        names::secret_name(self.request, self.parent.kind)
    }

    /// SHA-256 of the configuration.
    pub(crate) fn config_hash(&self) -> String {
        sha256_hex(&self.rendered.text)
    }

    /// The name of the claim for the state, if it needs one.
    pub(crate) fn state_claim(&self) -> Option<String> {
        let state = self.parent.spec.state.clone().unwrap_or_default();
        let is_needed = match state.mode {
            StateMode::Auto => !self.rendered.forgetful.is_empty(),
            StateMode::Volume => true,
            StateMode::Ephemeral => false,
        };
        is_needed.then(|| state.claim_name.unwrap_or_else(|| self.state_claim_made()))
    }

    /// The name of the claim for the state that the plugin creates.
    pub(crate) fn state_claim_made(&self) -> String {
        format!("{}-gobackup-state", self.request.name())
    }

    /// Storages of type local whose path is in no volume of the parent.
    pub(crate) fn claimed_locals(&self) -> impl Iterator<Item = &LocalStorage> {
        let volumes = &self.parent.spec.volumes;
        let locals = self.rendered.local.iter();
        locals.filter(move |local| !volumes.iter().any(|volume| volume.holds(&local.path)))
    }

    /// Writable volumes of the parent to which a storage of type local writes.
    pub(crate) fn stored_volumes(&self) -> impl Iterator<Item = &Volume> {
        let volumes = self.parent.spec.volumes.iter().filter(|it| !it.read_only);
        volumes.filter(|volume| self.rendered.local.iter().any(|it| volume.holds(&it.path)))
    }

    /// The credentials that are written in clear text, as data of the Secret of the plugin.
    pub(crate) fn clear_credentials(&self) -> impl Iterator<Item = (String, ByteString)> {
        let credentials = self.rendered.credentials.iter();
        credentials.filter_map(|it| match &it.origin {
            Origin::Clear(value) => {
                let value = ByteString(value.clone().into_bytes());
                Some((it.name.clone(), value))
            }
            Origin::Secret(_) => None,
        })
    }

    /// The name of the claim for storages of type local, if they need one.
    pub(crate) fn local_claim(&self) -> Option<String> {
        self.claimed_locals().next()?;
        let given = self.parent.spec.local_volume.as_ref();
        let name = given.and_then(|given| given.claim_name.clone());
        Some(name.unwrap_or_else(|| local_claim_made(self.request.name())))
    }
}
