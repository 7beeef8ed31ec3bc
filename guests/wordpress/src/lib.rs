//! The reconciler for `example.com/v1` `Wordpress`: a WordPress site and, unless the database is external, its MySQL
//! database.
//!
//! The database starts first; the site follows once the database has been ready. Data and passwords outlive the
//! parent by default, so no finalizer is needed.

mod api;
mod children;
mod config;
mod observe;
mod record;
mod report;
mod scripts;
mod site;
mod validate;

#[cfg(test)]
mod tests;

use innkeeper_sdk::prelude::*;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service},
    networking::v1::Ingress,
    policy::v1::PodDisruptionBudget,
};

use crate::{
    api::Wordpress, children::Templates, config::Config, observe::Observation, site::Site,
};

/// Selects this plugin's Pods, the only ones it reads.
const PODS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=wordpress";

child_kinds! {
    /// The child kinds. ConfigMaps are for `phpConfig` and `database.managed.config`, Ingresses for routes, and
    /// disruption budgets for `podDisruptionBudget`.
    pub(crate) Kinds: Secret, PersistentVolumeClaim, Service, StatefulSet, Deployment, ConfigMap [optional],
        Ingress [optional], PodDisruptionBudget [optional]
}

/// The reconciler for `Wordpress`.
#[derive(Debug)]
pub(crate) struct Sites;

impl Reconciler for Sites {
    type Parent = Wordpress;
    type Children = Kinds;
    type Config = Config;

    fn describe() -> Manifest {
        Manifest::new("wordpress", env!("CARGO_PKG_VERSION"))
            .parent_with::<Wordpress>(definition)
            // Existence, keys and changes suffice; the plugin never needs the values.
            .read::<Secret>(Access::Hash, ReadScope::ParentNamespace)
            .read::<ConfigMap>(Access::Hash, ReadScope::ParentNamespace)
            // For access modes and owners of existing claims.
            .read::<PersistentVolumeClaim>(Access::Full, ReadScope::ParentNamespace)
            // The status says why Pods do not become ready.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(PODS)
    }

    fn reconcile(parent: &Wordpress, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let request = cx.request();
        let site = Site::new(request, &parent.spec, cx.config());
        let observation = Observation::read(request, cx.host(), &site)?;
        let templates = Templates::new(&site, &observation);
        let hashes = templates.hashes();
        let valid = validate::site(request, &site, &observation);
        let stated = (valid.is_ok() && !observation.is_held(&site))
            .then(|| children::children(request, &site, &observation, templates, &hashes));
        let unapplied = stated
            .as_deref()
            .and_then(|stated| children::unapplied(request, stated));
        let report = report::report(request, &site, &observation, &hashes, unapplied);
        let answer = match (valid, stated) {
            (Err(problem), _) => Err(Fault::invalid(problem).with_report(report)),
            (Ok(()), Some(children)) => Ok(Desired { children, report }.into()),
            (Ok(()), None) => Ok(Answer::keep(report)),
        };
        // Otherwise a user who sets Retain and then deletes the parent would lose the data because of another invalid
        // field.
        request.apply_despite_invalid(answer, |_, child| children::with_policy(&site, child))
    }
}

/// The parent's CRD, without fields that have no effect.
fn definition(crd: Crd) -> Crd {
    // An existing data directory may lack the site's schema and user, which the image only creates at a database's
    // first start.
    crd.with_condition_columns()
        .remove("spec.database.managed.storage", "existingClaim")
        // The Pods have no resourceClaims for this field to reference.
        .remove("spec.resources", "claims")
        .remove("spec.database.managed.resources", "claims")
        .set(
            "spec.database.managed.storage.dataSource.name",
            "minLength",
            1,
        )
        .set(
            "spec.code.persistentVolumeClaim.dataSource.name",
            "minLength",
            1,
        )
        .truncate_descriptions_below(7)
}

innkeeper_sdk::export!(Sites);
