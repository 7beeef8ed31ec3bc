//! Checks that CEL cannot express.

use innkeeper_sdk::{labels::check_annotations, quantity::check_resources};

use crate::api::MemcachedSpec;

/// Checks the spec; the error names the field, the problem and the remedy.
pub(crate) fn spec(spec: &MemcachedSpec) -> Result<(), String> {
    if let Some(service) = &spec.service {
        check_annotations("spec.service.annotations", &service.annotations)?;
    }
    spec.resources
        .as_ref()
        .map_or(Ok(()), |given| check_resources("spec.resources", given))
}
