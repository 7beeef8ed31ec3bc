//! The children: database, site, Service and Ingress.
//!
//! The plugin owns the fields it sets; other field managers own the rest. Each answer contains all observed claims
//! and generated Secrets, needed or not, so data and passwords are never pruned.

mod claims;
mod database;
mod environment;
mod pod;
mod secrets;
mod serving;
mod web;

use std::{collections::BTreeSet, mem};

use innkeeper_kit::{prelude::*, rollout::TEMPLATE_HASH};
use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};

pub(crate) use self::{
    pod::{has_changed_credentials, takes_new_credentials},
    secrets::SALT_KEYS,
};
use crate::{observe::Observation, site::Site};

/// A pass's Pod templates, built and hashed once: both take much of a pass's time.
pub(crate) struct Templates {
    web: PodTemplateSpec,
    database: Option<PodTemplateSpec>,
}

/// The Pod templates' hashes.
pub(crate) struct Hashes {
    /// The site's.
    pub(crate) web: TemplateHash,
    /// The managed database's.
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
    // The site's children depend on `db`: they are not created until the database has been ready once. Omitting them
    // instead would delete them at the next database restart.
    children.push(secrets::salts(site, observation).after(["db"]));
    children.extend(claims::code(site, observation).map(|claim| claim.after(["db"])));
    let web = (templates.web, &hashes.web);
    children.extend(web::children(site, observation, web));
    children.extend(serving::children(request, site));
    let unneeded = claims::unneeded(site, observation, &children);
    children.extend(unneeded);
    after_what_is_there(children)
}

/// The keys of children that are marked with a hash of everything they set.
///
/// Only the hash tells that the cluster rejects them or an edit to them. Workloads carry their template's hash, and a
/// workload waits for the Secrets, claims and ConfigMaps it references.
const MARKED: [&str; 4] = ["db-service", "web-service", "ingress", "pdb"];

/// Marks an object with the hash of everything it sets.
fn marked<T: Serialize + kube::Resource>(mut object: T) -> T {
    let hash = TemplateHash::new(&object);
    let metadata: ObjectMeta = mem::take(object.meta_mut());
    *object.meta_mut() = hash.mark(metadata);
    object
}

/// The first child, as kind and name, whose desired state is not in the cluster yet.
pub(crate) fn unapplied(request: &Request, stated: &[Child]) -> Option<String> {
    let child = stated
        .iter()
        .filter(|child| MARKED.contains(&&*child.key) && child.apply != ApplyPolicy::Hold)
        .find(|child| {
            let observed = request.children.iter().find(|observed| {
                observed.kind() == child.kind() && observed.name() == child.name()
            });
            let mark = &child.object["metadata"]["annotations"][TEMPLATE_HASH];
            observed.is_none_or(|observed| observed.annotation(TEMPLATE_HASH) != mark.as_str())
        })?;
    Some(child.kind_and_name())
}

/// Applies the spec's removal policy to a child with data; `None` if the child has it.
pub(crate) fn with_policy(site: &Site<'_>, child: &Child) -> Option<Child> {
    let is_data = matches!(child.kind(), "PersistentVolumeClaim" | "Secret");
    let is_changed = is_data && child.removal != site.policy();
    is_changed.then(|| child.clone().removal(site.policy()))
}

/// Removes dependencies on children that are not in the answer, such as `db` for a site with an external database.
fn after_what_is_there(mut children: Vec<Child>) -> Vec<Child> {
    let keys: BTreeSet<String> = children.iter().map(|child| child.key.clone()).collect();
    for child in &mut children {
        child.after.retain(|key| keys.contains(key));
    }
    children
}
