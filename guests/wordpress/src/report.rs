//! Builds status, conditions and events from the observed state.
//!
//! Conditions report the cluster's current state, not writes that the host has sent.

mod conditions;
mod events;
mod unapplied;

use std::time::Duration;

use innkeeper_kit::prelude::*;

use crate::{
    api::{DatabaseStatus, WordpressStatus},
    children::Hashes,
    observe::Observation,
    site::Site,
};

use self::unapplied::Unapplied;

/// Delay before the next pass while the site waits for the database, or a claim has not grown yet.
const RECHECK: Duration = Duration::from_secs(5);

/// The report, the same for an answer and for `invalid`.
pub(crate) fn report(
    request: &Request,
    site: &Site<'_>,
    observation: &Observation,
    hashes: &Hashes,
    unapplied: Option<String>,
) -> Report {
    let unapplied = unapplied.map(|child| Unapplied::new(request, child));
    let conditions = conditions::conditions(site, observation, hashes, unapplied.as_ref());
    let events = events::events(request, site, observation, &conditions);
    let pods = observation.pods();
    let mode = match site.managed {
        Some(_) => "Managed",
        None => "External",
    };
    let status = WordpressStatus {
        replicas: pods.replicas,
        ready_replicas: pods.ready_replicas,
        selector: labels::selector_text(&site.labels("web")),
        url: site.home_url(),
        image: observation.web_image().map(ToOwned::to_owned),
        database: DatabaseStatus {
            mode: mode.to_owned(),
            host: site.database_host(),
            secret_name: site.credentials.secret.clone(),
        },
        retained: observation.retained.clone(),
        observed_generation: request.generation(),
    };
    let report = Report::new()
        .status(&status)
        .conditions(conditions)
        .events(events);
    let is_growing = observation.small_claim(site).is_some() && !observation.is_restated;
    if observation.is_waiting(site) || is_growing {
        report.requeue(RECHECK)
    } else {
        // The host watches all inputs, so no further pass is needed.
        report
    }
}
