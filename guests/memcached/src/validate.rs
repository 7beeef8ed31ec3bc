//! Checks that CEL cannot express.

use innkeeper_sdk::{
    labels::check_annotations,
    quantity::check_resources,
    tenants::{check_image, check_listed},
};

use crate::{api::MemcachedSpec, config::Tenants, options};

/// Checks the spec; the error names the field, the problem and the remedy.
///
/// Not the Secrets for pulling images: a check of their owners would need a right of the host to read all Secrets, which
/// is far more than a tenant gets from one of them. A Pod that names a missing one starts without it.
pub(crate) fn spec(spec: &MemcachedSpec, limits: &Tenants) -> Result<(), String> {
    if let Some(image) = &spec.image {
        check_image("spec.image", image, &limits.images)?;
    }
    options::check(&spec.memcached.extra_args, &limits.extra_args)?;
    if let Some(service) = &spec.service {
        let path = "spec.service.annotations";
        check_annotations(path, &service.annotations)?;
        let (list, given) = ("tenants.serviceAnnotations", service.annotations.keys());
        check_listed(path, list, given, &limits.service_annotations)?;
    }
    spec.resources
        .as_ref()
        .map_or(Ok(()), |given| check_resources("spec.resources", given))
}
