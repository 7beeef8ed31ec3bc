//! What CEL does not check.

use innkeeper_sdk::{labels::check_annotations, quantity::check_resources};

use crate::api::MemcachedSpec;

/// Says what is wrong with the spec, where, and what to do.
pub(crate) fn spec(spec: &MemcachedSpec) -> Result<(), String> {
    if let Some(service) = &spec.service {
        check_annotations("spec.service.annotations", &service.annotations)?;
    }
    spec.resources
        .as_ref()
        .map_or(Ok(()), |given| check_resources("spec.resources", given))
}
