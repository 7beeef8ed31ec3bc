//! Checks that CEL cannot express, and those that memcached needs to start: the installed CRD may be an older one
//! without their rules.

use innkeeper_kit::{
    labels::check_annotations,
    quantity::{Amount, check_resources},
    tenants::{check_image, check_listed},
};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::{
    api::{CONNECTIONS, ITEM_SIZE, MEMORY_LIMIT, MemcachedSpec},
    config::Tenants,
    options,
};

/// Checks the spec. Errors name the field, the problem and the remedy.
///
/// Pull secrets are not checked: checking their owners would let the host read every Secret, far more than a tenant
/// gains from one of them. A Pod whose pull secret is missing starts without it.
pub(crate) fn spec(spec: &MemcachedSpec, limits: &Tenants) -> Result<(), String> {
    if let Some(image) = &spec.image {
        check_image("spec.image", image, &limits.images)?;
    }
    sizes(spec)?;
    options::check(&spec.memcached.extra_args, &limits.extra_args)?;
    if let Some(service) = &spec.service {
        let path = "spec.service.annotations";
        check_annotations(path, &service.annotations)?;
        let list = "tenants.serviceAnnotations";
        let keys = service.annotations.keys();
        check_listed(path, list, keys, &limits.service_annotations)?;
    }
    spec.resources.as_ref().map_or(Ok(()), |resources| {
        check_resources("spec.resources", resources)
    })
}

/// Repeats the CRD's rules for sizes with which memcached exits or runs out of memory.
fn sizes(spec: &MemcachedSpec) -> Result<(), String> {
    let options = &spec.memcached;
    let size = options.max_item_size.as_str();
    let kibibytes = match size.strip_suffix('m') {
        Some(mebibytes) => mebibytes.parse().map(|size: i64| size * 1024),
        None => size.trim_end_matches('k').parse(),
    };
    let memory = i64::from(options.max_memory_mb);
    let kibibytes_max = (memory * 512).min(1 << 20);
    if !kibibytes
        .is_ok_and(|kibibytes| kibibytes > 0 && kibibytes % 512 == 0 && kibibytes <= kibibytes_max)
    {
        return Err(format!("spec.memcached: {ITEM_SIZE}"));
    }
    if options.max_connections < 6 * options.threads + 16 {
        return Err(format!("spec.memcached: {CONNECTIONS}"));
    }
    let limits = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.limits.as_ref());
    let limit = limits
        .and_then(|limits| limits.get("memory"))
        .and_then(Amount::from_quantity);
    let limit_bytes_min = (memory * 11_534_336 + 9) / 10 + (32 << 20);
    let limit_min = Amount::from_quantity(&Quantity(limit_bytes_min.to_string()));
    if limit.is_some() && limit < limit_min {
        return Err(format!("spec: {MEMORY_LIMIT}"));
    }
    Ok(())
}
