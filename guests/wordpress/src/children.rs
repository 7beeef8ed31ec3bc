//! The children: database, site, and how the site is reached.
//!
//! Only fields that are stated are owned; everything else is left to others.
//! A claim or a generated Secret that was observed is in every answer, needed or not: data and the
//! passwords that open it are never pruned.

mod claims;
mod database;
mod environment;
mod pod;
mod secrets;
mod serving;
mod web;

use std::collections::BTreeSet;

use innkeeper_sdk::prelude::*;

pub(crate) use self::{pod::takes_new_credentials, secrets::SALT_KEYS};
use crate::{observe::Observation, site::Site};

/// Every child, in an order that a reader can follow.
pub(crate) fn children(site: &Site<'_>, observation: &Observation) -> Vec<Child> {
    let mut children: Vec<Child> = Vec::new();
    children.extend(secrets::database(site, observation));
    children.extend(claims::database(site, observation));
    children.extend(database::children(site));
    // The site's children name `db`: until the database has been ready once, they are not created.
    // Leaving them out of the answer instead would delete them at the next database restart.
    children.push(secrets::salts(site, observation).after(["db"]));
    children.extend(claims::code(site, observation).map(|claim| claim.after(["db"])));
    children.extend(web::children(site, observation));
    children.extend(serving::children(site));
    let unneeded = claims::unneeded(site, observation, &children);
    children.extend(unneeded);
    after_what_is_there(children)
}

/// Nothing waits for a child that this answer does not hold, such as `db` where the database is
/// external.
fn after_what_is_there(mut children: Vec<Child>) -> Vec<Child> {
    let keys: BTreeSet<String> = children.iter().map(|child| child.key.clone()).collect();
    for child in &mut children {
        child.after.retain(|key| keys.contains(key));
    }
    children
}
