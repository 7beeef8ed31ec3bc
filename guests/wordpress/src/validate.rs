//! Checks that CEL cannot express: quantities, and conflicts with observed objects.

use innkeeper_sdk::{
    claim::ObservedClaim,
    labels,
    pod::ServiceType,
    prelude::*,
    quantity::check_resources,
    references::Found,
    tenants::{ReferenceScope, check_image, check_listed, check_reference, check_secrets},
};

use crate::{
    api::{Route, ServiceOptions},
    observe::Observation,
    scripts,
    site::Site,
};

/// The field of the claim of the site's files.
const CODE: &str = "spec.code.persistentVolumeClaim";

/// Checks the spec; the error names the field, the problem and the remedy.
pub(crate) fn site(
    request: &Request,
    site: &Site<'_>,
    observation: &Observation,
) -> Result<(), String> {
    metadata(site)?;
    tenants(request, site, observation)?;
    scripts::check(site)?;
    main_route(site)?;
    if let Some(given) = &site.spec.resources {
        check_resources("spec.resources", given)?;
    }
    if let Some(managed) = &site.managed {
        if let Some(given) = &managed.resources {
            check_resources("spec.database.managed.resources", given)?;
        }
        let name = site.mysql_name();
        let observed = observation.claims.get(&name);
        let claim = managed.storage.declared();
        claim.check("spec.database.managed.storage", &name, observed)?;
        database_image(site, observation)?;
    }
    match (&site.code.existing_claim, &observation.existing_claim) {
        (Some(name), Some(existing)) => shared(site, name, existing),
        // A missing claim is a condition, because the user may create it later.
        (Some(_), None) => Ok(()),
        (None, _) => {
            let name = site.own_code_claim();
            let observed = observation.claims.get(&name);
            site.code.declared().check(CODE, &name, observed)
        }
    }
}

/// Checks labels and annotations that are copied to children, and the type of the Service.
fn metadata(site: &Site<'_>) -> Result<(), String> {
    let limits = &site.config.tenants;
    if let Some(given) = &site.spec.pod_metadata {
        given.check("spec.podMetadata", &limits.pod_metadata)?;
    }
    if let Some(given) = &site.spec.service {
        service(given, site)?;
    }
    if let Some(given) = &site.spec.ingress {
        let path = "spec.ingress.annotations";
        labels::check_annotations(path, &given.annotations)?;
        let (list, keys) = ("tenants.ingressAnnotations", given.annotations.keys());
        check_listed(path, list, keys, &limits.ingress_annotations)?;
    }
    Ok(())
}

/// Checks the options of the Service: load balancers and chosen ports of nodes reach beyond the cluster,
/// and controllers of clouds obey annotations. The type that an absent one stands for is free.
fn service(given: &ServiceOptions, site: &Site<'_>) -> Result<(), String> {
    let limits = &site.config.tenants;
    let path = "spec.service.annotations";
    labels::check_annotations(path, &given.annotations)?;
    let (list, keys) = ("tenants.serviceAnnotations", given.annotations.keys());
    check_listed(path, list, keys, &limits.service_annotations)?;
    let named = |type_: &ServiceType| type_.as_str().to_owned();
    let listed: Vec<String> = limits.service_types.iter().map(named).collect();
    let type_ = site.service_type();
    let is_default = type_ == site.default_service_type() && given.node_port.is_none();
    let is_free = type_ == ServiceType::ClusterIp || is_default;
    let stated = (!is_free).then(|| named(&type_));
    check_listed(
        "spec.service.type",
        "tenants.serviceTypes",
        &stated,
        &listed,
    )
}

/// Checks all that the parent names against the limits for those who create parents.
fn tenants(request: &Request, site: &Site<'_>, observation: &Observation) -> Result<(), String> {
    let limits = &site.config.tenants;
    if let Some(image) = &site.spec.image {
        check_image("spec.image", image, &limits.images)?;
    }
    let managed = site.managed.as_ref();
    if let Some(image) = managed.and_then(|it| it.image.as_ref()) {
        check_image("spec.database.managed.image", image, &limits.images)?;
    }
    if let Some(kind) = site.foreign_source()
        && limits.references == ReferenceScope::Shared
    {
        return Err(format!(
            "dataSource: the owner of a {kind} is not known; name a PersistentVolumeClaim, or set \
             tenants.references of the plugin's configuration to namespace"
        ));
    }
    let secrets = observation.credentials.iter().chain(&observation.salts);
    let named = [
        &observation.references,
        &observation.pull_secrets,
        &observation.tls,
    ];
    let secrets = secrets.chain(named.into_iter().flat_map(Found::objects));
    check_secrets(request, limits.references, secrets)?;
    let claims = observation
        .existing_claim
        .iter()
        .chain(observation.sources.values().flatten());
    claims
        .map(|claim| &claim.metadata)
        .try_for_each(|it| check_reference(request, limits.references, "claim", it))
}

/// Checks the path of the main address: the images named `wordpress` serve the root of a domain, and all
/// links of a site below a path would lead nowhere. The user answers for an image of the spec.
fn main_route(site: &Site<'_>) -> Result<(), String> {
    let path = site.spec.routes.first().map_or("", Route::trimmed_path);
    let image = site.image;
    if path.is_empty() || site.spec.image.is_some() || product_of(image) != "wordpress" {
        return Ok(());
    }
    Err(format!(
        "spec.routes[0].path: the image {image} serves the root of a domain and not {path}: remove the \
         path, or give spec.image an image that serves it"
    ))
}

/// Checks that several replicas can share an existing claim.
fn shared(site: &Site<'_>, name: &str, existing: &ObservedClaim) -> Result<(), String> {
    let modes = &existing.spec.access_modes;
    if site.replicas() > 1 && !modes.iter().any(|mode| mode == "ReadWriteMany") {
        return Err(format!(
            "{CODE}.existingClaim: claim {name} has no access mode ReadWriteMany"
        ));
    }
    Ok(())
}

/// Checks that the image is not older than the running one of the same product: an older database cannot
/// read the data directory of a newer one.
fn database_image(site: &Site<'_>, observation: &Observation) -> Result<(), String> {
    let running = observation.database.as_ref();
    let Some(running) = running.and_then(|it| it.image("mysql")) else {
        return Ok(());
    };
    let wanted = site.database_image();
    if product_of(wanted) != product_of(running) {
        return Ok(());
    }
    let numbers = (numbers_of(wanted), numbers_of(running));
    if numbers
        .0
        .iter()
        .zip(&numbers.1)
        .find(|(new, old)| new != old)
        .is_some_and(|(new, old)| new < old)
    {
        return Err(format!(
            "spec.database.managed.image: {wanted} is older than the running {running}, a data \
             directory cannot be downgraded"
        ));
    }
    Ok(())
}

/// The last part of an image's repository.
fn product_of(image: &str) -> &str {
    let (repository, _) = image.split_once('@').unwrap_or((image, ""));
    let name = repository.rsplit('/').next().unwrap_or_default();
    name.split(':').next().unwrap_or_default()
}

/// The numbers at the start of an image's tag; none if it starts with another character.
fn numbers_of(image: &str) -> Vec<u64> {
    let tag = labels::version_of(image).unwrap_or_default();
    let end = tag.find(|it: char| !it.is_ascii_digit() && it != '.');
    let numbers = tag[..end.unwrap_or(tag.len())].split('.');
    numbers.map_while(|number| number.parse().ok()).collect()
}
