//! The reconciler of `example.com/v1` `Wordpress`: a WordPress site and, unless the database is
//! external, its MySQL database.
//!
//! The database starts first, and the site follows when the database has been ready once.
//! Data and passwords outlive the parent unless it says otherwise, so no finalizer is needed.

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

/// The labels of this plugin's own Pods; it reads no others.
const PODS: &str = "app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=wordpress";

/// The plugin.
#[derive(Debug)]
pub struct Plugin;

impl Reconciler for Plugin {
    fn describe() -> Manifest {
        Manifest::new("wordpress", env!("CARGO_PKG_VERSION"))
            .parent_with::<Wordpress>(definition)
            .child::<Secret>()
            .child::<PersistentVolumeClaim>()
            .child::<Service>()
            .child::<StatefulSet>()
            .child::<Deployment>()
            // With phpConfig and database.managed.config, with routes, with podDisruptionBudget.
            .child::<ConfigMap>()
            .optional()
            .child::<Ingress>()
            .optional()
            .child::<PodDisruptionBudget>()
            .optional()
            // Existence, keys and changes of Secrets and ConfigMaps suffice; values are not needed.
            .read::<Secret>(Access::Hash, ReadScope::ParentNamespace)
            .read::<ConfigMap>(Access::Hash, ReadScope::ParentNamespace)
            // The access modes and owners of existing claims.
            .read::<PersistentVolumeClaim>(Access::Full, ReadScope::ParentNamespace)
            // Why Pods do not become ready is in their status.
            .read::<Pod>(Access::Full, ReadScope::ParentNamespace)
            .label_selector(PODS)
            .config_schema::<Config>()
    }

    fn reconcile(request: &Request, host: &dyn Host) -> Result<Outcome, Fault> {
        let parent: Wordpress = request.parent()?;
        let config: Config = request.config()?;
        let site = Site::new(request, &parent.spec, &config);
        let observation = Observation::read(request, host, &site)?;
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
            (Ok(()), Some(children)) => Ok(Outcome::desired(children, report)),
            (Ok(()), None) => Ok(Outcome::keep(report)),
        };
        // Else a user who keeps the data, then deletes the parent, would lose it by another wrong field.
        request.apply_despite_invalid(answer, |_, child| children::with_policy(&site, child))
    }
}

/// The definition of the parent, without fields that have no effect.
fn definition(crd: Crd) -> Crd {
    // An existing data directory may lack the site's schema and user, and the image creates them only at
    // the first start of a database.
    crd.remove("spec.database.managed.storage", "existingClaim")
        // The Pods have no resourceClaims that the field could name.
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

innkeeper_sdk::export!(Plugin);
