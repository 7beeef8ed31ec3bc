//! Checks of the spec that CEL rules cannot express.

use innkeeper_sdk::{
    quantity::{Amount, check_resources},
    tenants::check_image,
};

use crate::{cluster::Cluster, observe::Observation, version::check_upgrade};

/// Checks the spec. The error names the field, the problem and the remedy.
pub(crate) fn spec(cluster: &Cluster<'_>, observation: &Observation) -> Result<(), String> {
    if let Some(image) = &cluster.spec.image {
        check_image("spec.image", image, &cluster.config.tenants.images)?;
    }
    let size = &cluster.spec.storage.size.0;
    if Amount::parse(size).is_none() {
        return Err(format!("spec.storage.size: \"{size}\" is not a quantity"));
    }
    if let Some(resources) = &cluster.spec.resources {
        check_resources("spec.resources", resources)?;
    }
    match (observation.current_version(), cluster.version()) {
        (Some(current), Some(target)) => check_upgrade(current, target),
        _ => Ok(()),
    }
}
