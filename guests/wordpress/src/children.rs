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

use std::{collections::BTreeSet, mem};

use innkeeper_kit::rollout::{TEMPLATE_HASH, TemplateHash};
use innkeeper_sdk::{child::ApplyPolicy, prelude::*};
use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Serialize;

pub(crate) use self::{
    pod::{has_changed_credentials, takes_new_credentials},
    secrets::SALT_KEYS,
};
use crate::{observe::Observation, site::Site};

/// The Pod templates of a pass, made and hashed once: both take much of its time.
pub(crate) struct Templates {
    web: PodTemplateSpec,
    database: Option<PodTemplateSpec>,
}

/// The hashes of the Pod templates.
pub(crate) struct Hashes {
    /// Of the site.
    pub(crate) web: TemplateHash,
    /// Of the managed database.
    pub(crate) database: Option<TemplateHash>,
}

impl Templates {
    pub(crate) fn new(site: &Site<'_>, observation: &Observation) -> Self {
        let managed = site.managed.as_ref();
        Self {
            web: web::template(site, observation),
            database: managed.map(|managed| database::template(site, managed)),
        }
    }

    pub(crate) fn hashes(&self) -> Hashes {
        Hashes {
            web: TemplateHash::new(&self.web),
            database: self.database.as_ref().map(TemplateHash::new),
        }
    }
}

/// All children: first the database, then the site.
pub(crate) fn children(
    request: &Request,
    site: &Site<'_>,
    observation: &Observation,
    templates: Templates,
    hashes: &Hashes,
) -> Vec<Child> {
    let mut children: Vec<Child> = Vec::new();
    children.extend(secrets::database(site, observation));
    children.extend(claims::database(site, observation));
    let database = templates.database.zip(hashes.database.as_ref());
    children.extend(database::children(site, observation, database));
    // The site's children name `db`: until the database has been ready once, they are not created.
    // Leaving them out of the answer instead would delete them at the next database restart.
    children.push(secrets::salts(site, observation).after(["db"]));
    children.extend(claims::code(site, observation).map(|claim| claim.after(["db"])));
    let web = (templates.web, &hashes.web);
    children.extend(web::children(site, observation, web));
    children.extend(serving::children(request, site));
    let unneeded = claims::unneeded(site, observation, &children);
    children.extend(unneeded);
    after_what_is_there(children)
}

/// The keys of the children that are marked with a hash of all that they state.
///
/// Nothing else tells that the cluster refuses them or an edit of them. Workloads have the mark of their template, and a
/// workload waits for the Secrets, claims and ConfigMaps that it names.
const MARKED: [&str; 4] = ["db-service", "web-service", "ingress", "pdb"];

/// Marks an object with the hash of all that it states.
fn marked<T: Serialize + kube::Resource>(mut object: T) -> T {
    let hash = TemplateHash::new(&object);
    let metadata: ObjectMeta = mem::take(object.meta_mut());
    *object.meta_mut() = hash.mark(metadata);
    object
}

/// The first child, as kind and name, that the cluster does not have as it is stated.
pub(crate) fn unapplied(request: &Request, stated: &[Child]) -> Option<String> {
    let mark = |object: &serde_json::Value| {
        let mark = &object["metadata"]["annotations"][TEMPLATE_HASH];
        mark.as_str().map(ToOwned::to_owned)
    };
    let mut marked = stated
        .iter()
        .filter(|child| MARKED.contains(&&*child.key) && child.apply != ApplyPolicy::Hold);
    let child = marked.find(|child| {
        let observed = request
            .children
            .iter()
            .find(|observed| observed.kind() == child.kind() && observed.name() == child.name());
        observed.is_none_or(|observed| mark(observed.object()) != mark(&child.object))
    })?;
    Some(child.kind_and_name())
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
