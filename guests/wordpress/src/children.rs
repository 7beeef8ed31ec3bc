//! The children: database, site, Service and Ingress.
//!
//! The plugin owns the fields that it states; other field managers own the rest.
//! Each answer contains all observed claims and generated Secrets, needed or not: data and its
//! passwords are never pruned.

mod claims;
mod database;
mod environment;
mod pod;
mod secrets;
mod serving;
mod web;

use std::collections::BTreeSet;

use innkeeper_sdk::prelude::*;

pub(crate) use self::{
    database::template as database_template,
    pod::{has_changed_credentials, takes_new_credentials},
    secrets::SALT_KEYS,
    web::template as web_template,
};
use crate::{observe::Observation, site::Site};

/// All children: first the database, then the site.
pub(crate) fn children(
    request: &Request,
    site: &Site<'_>,
    observation: &Observation,
) -> Vec<Child> {
    let mut children: Vec<Child> = Vec::new();
    children.extend(secrets::database(site, observation));
    children.extend(claims::database(site, observation));
    children.extend(database::children(site, observation));
    // The site's children name `db`: until the database has been ready once, they are not created.
    // Leaving them out of the answer instead would delete them at the next database restart.
    children.push(secrets::salts(site, observation).after(["db"]));
    children.extend(claims::code(site, observation).map(|claim| claim.after(["db"])));
    children.extend(web::children(site, observation));
    children.extend(serving::children(request, site));
    let unneeded = claims::unneeded(site, observation, &children);
    children.extend(unneeded);
    after_what_is_there(children)
}

/// The removal policy of the spec for a child that holds data; none if the child has it.
pub(crate) fn with_policy(site: &Site<'_>, child: &Child) -> Option<Child> {
    let is_data = matches!(child.kind(), "PersistentVolumeClaim" | "Secret");
    let is_changed = is_data && child.removal != site.policy();
    is_changed.then(|| child.clone().removal(site.policy()))
}

/// Removes dependencies on children that are not in the answer, such as `db` of a site with an
/// external database.
fn after_what_is_there(mut children: Vec<Child>) -> Vec<Child> {
    let keys: BTreeSet<String> = children.iter().map(|child| child.key.clone()).collect();
    for child in &mut children {
        child.after.retain(|key| keys.contains(key));
    }
    children
}
