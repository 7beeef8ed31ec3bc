//! The desired state for one parent, made when all objects that it refers to exist and are valid.

use std::collections::BTreeMap;

use innkeeper_sdk::{hash::sha256_hex, labels, prelude::*};

use crate::{
    api::{Kind, Parent, StateMode},
    config::Config,
    references,
    render::{self, LocalStorage, Rendered},
    schedule::{self, Effective},
    status::Warning,
    stop::Stop,
    tenants, validate,
};

/// The key of the configuration in the child Secret.
pub(crate) const CONFIG_FILE: &str = "gobackup.yml";

/// The label that distinguishes the children of a `Backup` and a `CronBackup` of the same name.
const PARENT_KIND: &str = "gobackup.io/parent-kind";

/// The labels of one component of a parent's children.
pub(crate) fn labels(request: &Request, kind: Kind, component: &str) -> BTreeMap<String, String> {
    let mut labels = labels::base_labels("gobackup", request.name(), component);
    let kind = match kind {
        Kind::Backup => "backup",
        Kind::CronBackup => "cronbackup",
    };
    labels.insert(PARENT_KIND.to_owned(), kind.to_owned());
    labels
}

/// The desired state for one parent.
pub(crate) struct Plan<'a> {
    pub(crate) request: &'a Request,
    pub(crate) parent: &'a Parent,
    pub(crate) config: &'a Config,
    pub(crate) schedule: Option<Effective>,
    pub(crate) rendered: Rendered,
}

impl<'a> Plan<'a> {
    /// Reads all objects that the parent refers to, checks them and renders the configuration.
    pub(crate) fn make(
        request: &'a Request,
        host: &dyn Host,
        parent: &'a Parent,
        config: &'a Config,
    ) -> Result<Self, Stop> {
        validate::parent(parent)?;
        tenants::check_parent(parent, &config.tenants)?;
        let schedule = parent
            .schedule
            .as_ref()
            .map(|given| schedule::effective(request, given))
            .transpose()?;
        let mut related = references::read(request, host, parent)?;
        let mut settings = parent.spec.settings.or(&related.model);
        validate::merged(parent, &settings)?;
        let limits = &config.tenants;
        let warning = tenants::remove_scripts(&mut settings, &mut related.databases, limits);
        let mut rendered = render::render(request.name(), parent, &settings, &related)?;
        rendered.warnings.extend(warning);
        tenants::check_references(request, host, parent, &rendered, limits)?;
        let mut plan = Self {
            request,
            parent,
            config,
            schedule,
            rendered,
        };
        tenants::check_local(plan.claimed_locals(), limits)?;
        plan.warn_about_retention();
        Ok(plan)
    }

    /// The labels of a component.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        labels(self.request, self.parent.kind, component)
    }

    /// The name of the child Secret.
    pub(crate) fn secret_name(&self) -> String {
        match self.parent.kind {
            Kind::Backup => format!("{}-gobackup", self.request.name()),
            Kind::CronBackup => format!("{}-cron-gobackup", self.request.name()),
        }
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

    /// The name of the claim for storages of type local, if they need one.
    pub(crate) fn local_claim(&self) -> Option<String> {
        self.claimed_locals().next()?;
        let given = self.parent.spec.local_volume.as_ref();
        let name = given.and_then(|given| given.claim_name.clone());
        Some(name.unwrap_or_else(|| self.local_claim_made()))
    }

    /// The name of the claim for storages of type local that the plugin creates.
    pub(crate) fn local_claim_made(&self) -> String {
        format!("{}-gobackup-local", self.request.name())
    }

    fn warn_about_retention(&mut self) {
        let mode = self.parent.spec.state.as_ref().map(|state| state.mode);
        if mode != Some(StateMode::Ephemeral) || self.rendered.forgetful.is_empty() {
            return;
        }
        let message = format!(
            "keep has no effect for {}: state.mode is Ephemeral, and gobackup cannot read its state \
             back from the storage; set state.mode to Auto",
            self.rendered.forgetful.join(", ")
        );
        let warning = Warning::new("RetentionNotKept", message);
        self.rendered.warnings.push(warning);
    }
}
