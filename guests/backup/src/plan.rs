//! What is wanted for one parent, once everything that it refers to is there and right.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_sdk::{hash::sha256_hex, labels, prelude::*};

use crate::{
    api::{Kind, Parent, StateMode},
    config::Config,
    references,
    render::{self, Blocks, LocalStorage, Origin, Rendered},
    schedule::{self, Effective},
    status::Warning,
    stop::Stop,
    validate,
};

/// The key of the configuration in the child Secret.
pub(crate) const CONFIG_FILE: &str = "gobackup.yml";

/// Tells the two kinds of parents apart where they have one name.
const PARENT_KIND: &str = "gobackup.io/parent-kind";

/// The labels of a parent's children of one component.
pub(crate) fn labels(request: &Request, kind: Kind, component: &str) -> BTreeMap<String, String> {
    let mut labels = labels::base_labels("gobackup", request.name(), component);
    let kind = match kind {
        Kind::Backup => "backup",
        Kind::CronBackup => "cronbackup",
    };
    labels.insert(PARENT_KIND.to_owned(), kind.to_owned());
    labels
}

/// What is wanted.
pub(crate) struct Plan<'a> {
    pub(crate) request: &'a Request,
    pub(crate) parent: &'a Parent,
    pub(crate) config: &'a Config,
    pub(crate) schedule: Option<Effective>,
    pub(crate) rendered: Rendered,
}

impl<'a> Plan<'a> {
    /// Reads everything that the parent refers to.
    pub(crate) fn make(
        request: &'a Request,
        host: &dyn Host,
        parent: &'a Parent,
        config: &'a Config,
    ) -> Result<Self, Stop> {
        validate::parent(parent)?;
        let schedule = parent.schedule.as_ref();
        let schedule = schedule
            .map(|given| schedule::effective(request, given))
            .transpose()?;
        let related = references::read(request, host, parent)?;
        validate::model(parent, &related.model)?;
        let blocks = Blocks::new(parent, &related.model);
        let rendered = render::render(request.name(), parent, &blocks, &related)?;
        secrets_are_there(request, host, &rendered)?;
        let mut plan = Self {
            request,
            parent,
            config,
            schedule,
            rendered,
        };
        plan.warn_of_retention();
        Ok(plan)
    }

    /// The labels of a component.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        labels(self.request, self.parent.kind, component)
    }

    /// The child Secret.
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

    /// The claim of the state, where it needs one.
    pub(crate) fn state_claim(&self) -> Option<String> {
        let state = self.parent.spec.state.clone().unwrap_or_default();
        let is_needed = match state.mode {
            StateMode::Auto => !self.rendered.forgetful.is_empty(),
            StateMode::Volume => true,
            StateMode::Ephemeral => false,
        };
        is_needed.then(|| state.claim_name.unwrap_or_else(|| self.state_claim_made()))
    }

    /// The name of the claim of the state that the plugin makes.
    pub(crate) fn state_claim_made(&self) -> String {
        format!("{}-gobackup-state", self.request.name())
    }

    /// Storages of type local that the parent gives no volume for.
    pub(crate) fn claimed_locals(&self) -> impl Iterator<Item = &LocalStorage> {
        let volumes = &self.parent.spec.volumes;
        let locals = self.rendered.local.iter();
        locals.filter(move |local| !volumes.iter().any(|volume| volume.holds(&local.path)))
    }

    /// The claim of storages of type local, where one is needed.
    pub(crate) fn local_claim(&self) -> Option<String> {
        self.claimed_locals().next()?;
        let given = self.parent.spec.local_volume.as_ref();
        let name = given.and_then(|given| given.claim_name.clone());
        Some(name.unwrap_or_else(|| self.local_claim_made()))
    }

    /// The name of the claim of local storages that the plugin makes.
    pub(crate) fn local_claim_made(&self) -> String {
        format!("{}-gobackup-local", self.request.name())
    }

    fn warn_of_retention(&mut self) {
        let mode = self.parent.spec.state.as_ref().map(|state| state.mode);
        if mode != Some(StateMode::Ephemeral) || self.rendered.forgetful.is_empty() {
            return;
        }
        let message = format!(
            "keep has no effect for {}: state.mode is Ephemeral, and the storage does not give \
             back what gobackup remembers",
            self.rendered.forgetful.join(", ")
        );
        let warning = Warning::new("RetentionNotKept", message);
        self.rendered.warnings.push(warning);
    }
}

/// Only existence is looked at: no value is ever seen here.
fn secrets_are_there(request: &Request, host: &dyn Host, rendered: &Rendered) -> Result<(), Stop> {
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for credential in &rendered.credentials {
        if let Origin::Secret(secret) = &credential.origin {
            wanted.entry(&secret.name).or_default().insert(&secret.key);
        }
    }
    let mut missing = Vec::new();
    let mut incomplete = Vec::new();
    for (name, keys) in wanted {
        let Some(secret) = host.hashed_secret(request.namespace(), name)? else {
            missing.push(name);
            continue;
        };
        let absent = keys.into_iter().filter(|key| !secret.has(key));
        incomplete.extend(absent.map(|key| format!("Secret {name} lacks the key {key}")));
    }
    if !missing.is_empty() {
        return Err(Stop::Blocked {
            reason: "SecretNotFound",
            message: format!("Secret not found: {}", missing.join(", ")),
        });
    }
    if !incomplete.is_empty() {
        return Err(Stop::Blocked {
            reason: "SecretIncomplete",
            message: incomplete.join("; "),
        });
    }
    Ok(())
}
