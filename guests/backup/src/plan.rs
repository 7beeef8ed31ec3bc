//! The desired state for one parent, made when all objects that it refers to exist and are valid.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_sdk::{hash::sha256_hex, labels, prelude::*};
use k8s_openapi::ByteString;
use serde::Deserialize;

use crate::{
    api::{Kind, Parent, StateMode, Volume},
    children,
    config::Config,
    pod, references,
    render::{self, LocalStorage, Origin, Rendered},
    schedule::{self, Effective},
    status::Warning,
    stop::Stop,
    tenants, validate,
};

/// The key of the configuration in the child Secret.
pub(crate) const CONFIG_FILE: &str = "gobackup.yml";

/// The label that distinguishes the children of a `Backup` and a `CronBackup` of the same name.
const PARENT_KIND: &str = "gobackup.io/parent-kind";

/// The annotation of the Secret with the places to which the parent writes.
pub(crate) const PLACES: &str = "gobackup.io/places";

/// The number of other parents that a warning names.
const OTHERS_NAMED_MAX: usize = 3;

/// An object of which only labels and annotations count. All other fields are skipped: a namespace with 500 parents has as
/// many of these objects in each pass.
#[derive(Deserialize)]
struct Labelled {
    metadata: Labels,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labels {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// The labels of one component of a parent's children.
pub(crate) fn labels(request: &Request, kind: Kind, component: &str) -> BTreeMap<String, String> {
    let mut labels = labels::base_labels("gobackup", request.name(), component);
    let kind = match kind {
        Kind::Backup | Kind::Verification => "backup",
        Kind::CronBackup | Kind::CronVerification => "cronbackup",
        Kind::Restore => "restore",
        Kind::Probe => "storage",
    };
    labels.insert(PARENT_KIND.to_owned(), kind.to_owned());
    labels
}

/// The name of a parent with the suffix that children of a kind have.
pub(crate) fn suffixed(request: &Request, kind: Kind) -> String {
    let suffix = match kind {
        Kind::Backup => "",
        Kind::CronBackup => "-cron",
        Kind::Restore => "-restore",
        Kind::Verification => "-verify",
        Kind::CronVerification => "-cron-verify",
        Kind::Probe => "-probe",
    };
    format!("{}{suffix}", request.name())
}

/// The name of the child Secret of a kind.
pub(crate) fn secret_name(request: &Request, kind: Kind) -> String {
    format!("{}-gobackup", suffixed(request, kind))
}

/// The name of the claim for storages of type local that the plugin creates for a parent.
pub(crate) fn local_claim_made(parent: &str) -> String {
    format!("{parent}-gobackup-local")
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
        tenants::check_references(request, host, parent, &rendered, None, limits)?;
        let mut plan = Self {
            request,
            parent,
            config,
            schedule,
            rendered,
        };
        validate::locals(plan.claimed_locals())?;
        tenants::check_local(plan.claimed_locals(), limits)?;
        tenants::check_made(request, host, children::claim_names(&plan), limits)?;
        plan.warn_about_retention();
        plan.warn_about_groups();
        let problems = children::claim_problems(&plan).into_iter();
        let problems = problems.map(|it| Warning::new("ClaimUnchanged", it));
        plan.rendered.warnings.extend(problems);
        plan.warn_about_sharing(host)?;
        Ok(plan)
    }

    /// The labels of a component.
    pub(crate) fn labels(&self, component: &str) -> BTreeMap<String, String> {
        labels(self.request, self.parent.kind, component)
    }

    /// The name of the child Secret.
    pub(crate) fn secret_name(&self) -> String {
        secret_name(self.request, self.parent.kind)
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

    fn warn_about_groups(&mut self) {
        let claims: Vec<&str> = pod::changed_claims(self).collect();
        if claims.is_empty() {
            return;
        }
        let message = format!(
            "volumes: the kubelet gives the files of {} to the group of the run; set readOnly to true unless \
             the run writes to them",
            claims.join(", ")
        );
        let warning = Warning::new("VolumeGroupChanged", message);
        self.rendered.warnings.push(warning);
    }

    /// Warns about storages to which other parents of the namespace write.
    ///
    /// The Secret of each parent names the places to which it writes.
    fn warn_about_sharing(&mut self, host: &dyn Host) -> Result<(), Stop> {
        if self.rendered.places.is_empty() {
            return Ok(());
        }
        let own = self.labels("config");
        let mut selected = own.clone();
        selected.remove(labels::INSTANCE);
        selected.remove(PARENT_KIND);
        let selector = labels::selector_text(&selected);
        let namespace = Some(self.request.namespace());
        let secrets: Vec<Labelled> = host.list_as("v1", "Secret", namespace, &selector)?;
        let mut sharing: BTreeMap<(&str, bool), BTreeSet<String>> = BTreeMap::new();
        for Labelled { metadata } in &secrets {
            let Some((other, has_own_name)) = other(metadata, &own) else {
                continue;
            };
            let theirs = metadata.annotations.get(PLACES);
            let theirs: BTreeSet<&str> = theirs.into_iter().flat_map(|it| it.split(' ')).collect();
            let places = self.rendered.places.iter();
            for place in places.filter(|it| theirs.contains(it.digest.as_str())) {
                let shared = sharing.entry((&place.storage, has_own_name)).or_default();
                shared.insert(other.clone());
            }
        }
        let warnings: Vec<Warning> = sharing
            .into_iter()
            .map(|((storage, has_own_name), others)| shared(storage, has_own_name, &others))
            .collect();
        self.rendered.warnings.extend(warnings);
        Ok(())
    }

    fn warn_about_retention(&mut self) {
        let mode = self.parent.spec.state.as_ref().map(|state| state.mode);
        if mode != Some(StateMode::Ephemeral) || self.rendered.forgetful.is_empty() {
            return;
        }
        let message = format!(
            "{}: keep has no effect: state.mode is Ephemeral, and gobackup cannot read its state \
             back from the storage; set state.mode to Auto",
            self.rendered.forgetful.join(", ")
        );
        let warning = Warning::new("RetentionNotKept", message);
        self.rendered.warnings.push(warning);
    }
}

/// The parent whose configuration a Secret has, and true if it has the own name; none for the own Secret.
fn other(metadata: &Labels, own: &BTreeMap<String, String>) -> Option<(String, bool)> {
    let (name, kind) = (
        metadata.labels.get(labels::INSTANCE)?,
        metadata.labels.get(PARENT_KIND)?,
    );
    let has_own_name = own[labels::INSTANCE] == *name;
    if has_own_name && own[PARENT_KIND] == *kind {
        return None;
    }
    let kind = if kind == "cronbackup" {
        "CronBackup"
    } else {
        "Backup"
    };
    Some((format!("{kind} {name}"), has_own_name))
}

/// The warning about a storage that is the place of other parents, too. It names the first few: with all of them, the
/// statuses of a namespace would grow with the square of its parents.
fn shared(storage: &str, has_own_name: bool, others: &BTreeSet<String>) -> Warning {
    let mut names: Vec<&str> = others
        .iter()
        .take(OTHERS_NAMED_MAX)
        .map(String::as_str)
        .collect();
    if others.len() > OTHERS_NAMED_MAX {
        names.push("others");
    }
    let (write, names) = match names.split_last() {
        Some((last, [])) => ("writes", (*last).to_owned()),
        Some((last, first)) => ("write", format!("{} and {last}", first.join(", "))),
        None => ("write", String::new()),
    };
    let effect = if has_own_name {
        "they have one list of archives, and keep of one deletes archives of the other"
    } else {
        "their archives lie side by side"
    };
    let message =
        format!("{storage}: {names} {write} to the same place, and {effect}; give each a path");
    Warning::new("SharedStorage", message)
}
