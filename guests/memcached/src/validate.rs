//! Checks that CEL cannot express.

use innkeeper_sdk::{
    labels::check_annotations,
    prelude::*,
    quantity::check_resources,
    references::Found,
    tenants::{check_image, check_listed, check_pull_secrets},
    workload::Workload,
};

use crate::{api::MemcachedSpec, config::Tenants};

/// Checks the spec; the error names the field, the problem and the remedy.
pub(crate) fn spec(
    request: &Request,
    spec: &MemcachedSpec,
    limits: &Tenants,
    pull_secrets: &Found,
    running: Option<&Workload>,
) -> Result<(), String> {
    if let Some(image) = &spec.image {
        check_image("spec.image", image, &limits.images)?;
    }
    check_pull_secrets(request, limits.references, pull_secrets, running)?;
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
