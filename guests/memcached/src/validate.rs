//! Checks that CEL cannot express.

use innkeeper_sdk::{labels::check_annotations, quantity::check_resources, tenants::check_image};

use crate::{api::MemcachedSpec, config::Config};

/// Checks the spec; the error names the field, the problem and the remedy.
pub(crate) fn spec(spec: &MemcachedSpec, config: &Config) -> Result<(), String> {
    if let Some(image) = &spec.image {
        check_image("spec.image", image, &config.tenants.images)?;
    }
    if let Some(service) = &spec.service {
        check_annotations("spec.service.annotations", &service.annotations)?;
    }
    spec.resources
        .as_ref()
        .map_or(Ok(()), |given| check_resources("spec.resources", given))
}
