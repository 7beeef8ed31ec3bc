//! Events for transitions from the stored conditions; no decision depends on them.

use innkeeper_sdk::prelude::*;

use crate::{children::takes_new_credentials, observe::Observation, site::Site};

/// This pass's events.
pub(super) fn events(
    request: &Request,
    site: &Site<'_>,
    observation: &Observation,
    conditions: &[Condition],
) -> Vec<Event> {
    let mut events: Vec<Event> = conditions
        .iter()
        .filter(|condition| request.is_transition(condition))
        .filter_map(|condition| event(request, condition))
        .collect();
    // Every report has this condition, so a missing one marks the first pass.
    let is_first = request.stored_condition("DatabaseReady").is_none();
    if is_first && site.credentials.is_generated && observation.reuses_generated_secret {
        let message = format!("Secret {} exists and is used", site.mysql_name());
        events.push(match site.spec.root_password() {
            None => Event::normal("CredentialsReused", message),
            // The database does not use the password in the spec.
            Some(_) => Event::warning("CredentialsReused", message),
        });
    }
    if takes_new_credentials(site, observation) {
        events.push(Event::normal(
            "CredentialsRotated",
            "the new password is in use",
        ));
    }
    events
}

/// The event for a changed condition.
fn event(request: &Request, condition: &Condition) -> Option<Event> {
    let Condition {
        type_,
        reason,
        message,
        ..
    } = condition;
    match (type_.as_str(), reason.as_str()) {
        ("Ready", "Ready") | ("DatabaseReady", "DatabaseReady" | "WaitingForDatabase") => {
            Some(Event::normal(reason, message))
        }
        // A rollout is intended and no problem.
        ("Ready", "RollingOut") | ("Degraded", "NotDegraded" | "Degraded") => None,
        ("Ready", _) => request
            .stored_condition("Ready")
            .is_some_and(|condition| condition.is_true())
            .then(|| Event::warning("NotReady", message)),
        ("PlaintextPassword" | "CredentialsChanged", _) => Some(Event::warning(type_, message)),
        ("DataPersistent", "OwnedData") | ("Installed", "OpenInstaller") => {
            Some(Event::warning(reason, message))
        }
        ("Degraded", _) => Some(Event::warning(reason, message)),
        _ => None,
    }
}
