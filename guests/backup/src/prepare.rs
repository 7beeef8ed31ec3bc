//! The plan of a parent: made when all objects that it refers to exist and are valid, with warnings about the others.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_sdk::{labels, prelude::*};
use serde::Deserialize;

use crate::{
    api::{Parent, StateMode},
    children,
    config::Config,
    names::{PARENT_KIND, lower},
    plan::{PLACES, Plan},
    pod, references, render, schedule,
    status::Warning,
    stop::Stop,
    tenants, validate,
};

/// The number of other parents that a warning names.
const OTHERS_NAMED_MAX: usize = 3;

/// Reads all objects that the parent refers to, checks them and renders the configuration.
pub(crate) fn plan<'a>(
    request: &'a Request,
    host: &dyn Host,
    parent: &'a Parent,
    config: &'a Config,
) -> Result<Plan<'a>, Stop> {
    validate::parent(parent)?;
    let limits = &config.tenants;
    tenants::check_parent(parent, limits)?;
    tenants::check_settings(&parent.spec.settings, limits).map_err(Stop::Invalid)?;
    let schedule = parent
        .schedule
        .as_ref()
        .map(|given| schedule::effective(request, host, given))
        .transpose()?;
    let path = config.path_of(request.namespace(), lower(parent.kind), request.name());
    let mut related = references::read(request, host, parent, &path)?;
    let mut settings = parent.spec.settings.or(&related.model);
    validate::merged(parent, &settings)?;
    tenants::check_settings(&settings, limits).map_err(|problem| {
        let name = parent.model().unwrap_or_default();
        Stop::invalid_reference(format!("BackupModel {name}: {problem}"))
    })?;
    tenants::check_arguments(&related.databases, parent, limits)?;
    let warning = tenants::remove_scripts(&mut settings, &mut related.databases, limits);
    let mut rendered = render::render(request.name(), parent, &settings, &related)?;
    rendered.warnings.extend(warning);
    tenants::check_references(request, host, parent, &rendered, None, limits)?;
    let mut plan = Plan {
        request,
        parent,
        config,
        schedule,
        rendered,
    };
    validate::locals(plan.claimed_locals())?;
    tenants::check_local(plan.claimed_locals(), limits)?;
    tenants::check_made(request, host, children::claim_names(&plan), limits)?;
    warn_about_retention(&mut plan);
    warn_about_groups(&mut plan);
    let problems = children::claim_problems(&plan).into_iter();
    let problems = problems.map(|it| Warning::new("ClaimUnchanged", it));
    plan.rendered.warnings.extend(problems);
    warn_about_sharing(&mut plan, host)?;
    Ok(plan)
}

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

fn warn_about_groups(plan: &mut Plan<'_>) {
    let claims: Vec<&str> = pod::changed_claims(plan).collect();
    if claims.is_empty() {
        return;
    }
    let message = format!(
        "volumes: the kubelet gives the files of {} to the group of the run; set readOnly to true unless \
         the run writes to them",
        claims.join(", ")
    );
    let warning = Warning::new("VolumeGroupChanged", message);
    plan.rendered.warnings.push(warning);
}

/// Warns about storages to which other parents of the namespace write.
///
/// The Secret of each parent names the places to which it writes.
fn warn_about_sharing(plan: &mut Plan<'_>, host: &dyn Host) -> Result<(), Stop> {
    if plan.rendered.places.is_empty() {
        return Ok(());
    }
    let own = plan.labels("config");
    let mut selected = own.clone();
    selected.remove(labels::INSTANCE);
    selected.remove(PARENT_KIND);
    let selector = labels::selector_text(&selected);
    let namespace = Some(plan.request.namespace());
    let secrets: Vec<Labelled> = host.list_as("v1", "Secret", namespace, &selector)?;
    let mut sharing: BTreeMap<(&str, bool), BTreeSet<String>> = BTreeMap::new();
    for Labelled { metadata } in &secrets {
        let Some((other, has_own_name)) = other(metadata, &own) else {
            continue;
        };
        let theirs = metadata.annotations.get(PLACES);
        let theirs: BTreeSet<&str> = theirs.into_iter().flat_map(|it| it.split(' ')).collect();
        let places = plan.rendered.places.iter();
        for place in places.filter(|it| theirs.contains(it.digest.as_str())) {
            let shared = sharing.entry((&place.storage, has_own_name)).or_default();
            shared.insert(other.clone());
        }
    }
    let warnings: Vec<Warning> = sharing
        .into_iter()
        .map(|((storage, has_own_name), others)| shared(storage, has_own_name, &others))
        .collect();
    plan.rendered.warnings.extend(warnings);
    Ok(())
}

fn warn_about_retention(plan: &mut Plan<'_>) {
    let mode = plan.parent.spec.state.as_ref().map(|state| state.mode);
    if mode != Some(StateMode::Ephemeral) || plan.rendered.forgetful.is_empty() {
        return;
    }
    let message = format!(
        "{}: keep has no effect: state.mode is Ephemeral, and gobackup cannot read its state \
         back from the storage; set state.mode to Auto",
        plan.rendered.forgetful.join(", ")
    );
    let warning = Warning::new("RetentionNotKept", message);
    plan.rendered.warnings.push(warning);
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
    let message = format!(
        "{storage}: {names} {write} to the same place, and {effect}; set another path in storageRefs of each"
    );
    Warning::new("SharedStorage", message)
}
