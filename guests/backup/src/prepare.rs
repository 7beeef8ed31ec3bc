//! Plans a parent: all referenced objects exist and are valid; less serious problems are warnings.

use innkeeper_sdk::prelude::*;

use crate::{
    api::{Parent, StateMode},
    children,
    config::Config,
    names::lower,
    plan::Plan,
    pod, references, render, schedule,
    status::Warning,
    stop::Stop,
    tenants, validate,
};

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
    // The parent's own settings first: an error in them is invalid input, and one in the model only blocks the parent.
    tenants::check_settings(&parent.spec.settings, limits)?;
    let schedule = parent
        .schedule
        .as_ref()
        .map(|schedule| schedule::effective(request, host, schedule))
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
    let problems = children::claim_problems(&plan)
        .into_iter()
        .map(|problem| Warning::new("ClaimUnchanged", problem));
    plan.rendered.warnings.extend(problems);
    Ok(plan)
}

fn warn_about_groups(plan: &mut Plan<'_>) {
    let claims: Vec<&str> = pod::changed_claims(plan).collect();
    if claims.is_empty() {
        return;
    }
    let message = format!(
        "volumes: the kubelet gives the files of {} to the run's group; set readOnly to true unless \
         the run writes to them",
        claims.join(", ")
    );
    let warning = Warning::new("VolumeGroupChanged", message);
    plan.rendered.warnings.push(warning);
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
