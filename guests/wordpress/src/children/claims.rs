//! Claims: those in use follow the spec, the others stay as they are.

use std::collections::BTreeMap;

use innkeeper_kit::claim;
use innkeeper_sdk::{hash, json, prelude::*};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    Kinds,
    api::Claim,
    observe::{DECLARED_SIZE, Observation},
    site::Site,
};

/// A managed database's claim.
pub(super) fn database(site: &Site<'_>, observation: &Observation) -> Option<Child> {
    let managed = site.managed.as_ref()?;
    let annotations = observation.record.annotations(site, managed);
    let metadata = metadata(site.mysql_name(), &site.labels("database"));
    let object = object(metadata, annotations, &managed.storage, observation);
    let child = Child::untyped("db-claim", &object).removal(site.policy());
    Some(child.after(["db-secret"]))
}

/// The claim with the site's files, unless the user references an existing one.
pub(super) fn code(site: &Site<'_>, observation: &Observation) -> Option<Child> {
    if site.code.existing_claim.is_some() {
        return None;
    }
    let metadata = metadata(site.own_code_claim(), &site.labels("web"));
    let object = object(metadata, BTreeMap::new(), &site.code, observation);
    Some(Child::untyped("code-claim", &object).removal(site.policy()))
}

/// The observed claims without a child of their name.
pub(super) fn unneeded(site: &Site<'_>, observation: &Observation, stated: &[Child]) -> Vec<Child> {
    let is_stated = |name: &str| {
        stated
            .iter()
            .filter(|child| child.kind() == "PersistentVolumeClaim")
            .any(|child| child.name() == name)
    };
    observation
        .claims
        .keys()
        .filter(|name| !is_stated(name))
        .map(|name| {
            let key = if *name == site.mysql_name() {
                "db-claim".to_owned()
            } else if *name == site.own_code_claim() {
                "code-claim".to_owned()
            } else {
                format!("claim-{}", hash::short_hash(name))
            };
            claim::existing::<Kinds>(key, name).removal(site.policy())
        })
        .collect()
}

fn object(
    mut metadata: ObjectMeta,
    mut annotations: BTreeMap<String, String>,
    spec: &Claim,
    observation: &Observation,
) -> Value {
    annotations.insert(DECLARED_SIZE.to_owned(), spec.size.0.clone());
    metadata.annotations = Some(annotations);
    let name = metadata.name.as_deref().unwrap_or_default();
    let observed = observation.claims.get(name);
    let mut object = serde_json::json!(spec.declared().object(metadata, observed));
    if let Some(source) = &spec.data_source {
        object["spec"]["dataSource"] = json::sanitized_value(source);
    }
    object
}
