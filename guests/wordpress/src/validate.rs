//! Checks that CEL cannot express: quantities, and conflicts with observed objects.

use innkeeper_kit::{
    prelude::*,
    quantity::check_resources,
    tenants::{check_image, check_listed, check_reference, check_secrets},
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::{
    api::{Claim, Route, ServiceOptions},
    observe::{DECLARED_SIZE, Observation, is_made_for_parent},
    scripts,
    site::{self, Site, product_of},
};

/// The claim field for the site's files.
const CODE: &str = "spec.code.persistentVolumeClaim";

/// Checks the spec. Errors name the field, the problem and the remedy.
pub(crate) fn site(
    request: &Request,
    site: &Site<'_>,
    observation: &Observation,
) -> Result<(), String> {
    metadata(site)?;
    tenants(request, site, observation)?;
    scripts::check(site)?;
    routes(site)?;
    external_host(site)?;
    if let Some(resources) = &site.spec.resources {
        check_resources("spec.resources", resources)?;
    }
    if let Some(managed) = &site.managed {
        if let Some(resources) = &managed.resources {
            check_resources("spec.database.managed.resources", resources)?;
        }
        let name = site.mysql_name();
        let observed = observation.claims.get(&name);
        managed
            .storage
            .declared()
            .check("spec.database.managed.storage", &name, observed)?;
        cannot_shrink(
            "spec.database.managed.storage",
            &name,
            &managed.storage,
            request,
            observation,
        )?;
        observation.record.check(site, managed)?;
    }
    match (&site.code.existing_claim, &observation.existing_claim) {
        (Some(name), Some(existing)) => shared(site, name, existing),
        // A missing claim is reported as a condition: the user may create it later.
        (Some(_), None) => Ok(()),
        (None, _) => {
            let name = site.own_code_claim();
            let observed = observation.claims.get(&name);
            site.code.declared().check(CODE, &name, observed)?;
            cannot_shrink(CODE, &name, &site.code, request, observation)
        }
    }
}

/// Checks labels and annotations that are copied to children, and the Service type.
fn metadata(site: &Site<'_>) -> Result<(), String> {
    let limits = &site.config.tenants;
    if let Some(metadata) = &site.spec.pod_metadata {
        metadata.check("spec.podMetadata", &limits.pod_metadata)?;
    }
    if let Some(options) = &site.spec.service {
        service(options, site)?;
    }
    if let Some(options) = &site.spec.ingress {
        let path = "spec.ingress.annotations";
        labels::check_annotations(path, &options.annotations)?;
        let list = "tenants.ingressAnnotations";
        let keys = options.annotations.keys();
        check_listed(path, list, keys, &limits.ingress_annotations)?;
    }
    Ok(())
}

/// Checks the Service options: load balancers and fixed node ports reach beyond the cluster, and cloud controllers
/// act on annotations. The default type is always allowed.
fn service(options: &ServiceOptions, site: &Site<'_>) -> Result<(), String> {
    let limits = &site.config.tenants;
    let path = "spec.service.annotations";
    labels::check_annotations(path, &options.annotations)?;
    let list = "tenants.serviceAnnotations";
    let keys = options.annotations.keys();
    check_listed(path, list, keys, &limits.service_annotations)?;
    let named = |type_: &ServiceType| type_.as_str().to_owned();
    let listed: Vec<String> = limits.service_types.iter().map(named).collect();
    let type_ = site.service_type();
    let is_default = type_ == site.default_service_type() && options.node_port.is_none();
    let is_free = type_ == ServiceType::ClusterIp || is_default;
    let stated = (!is_free).then(|| named(&type_));
    check_listed(
        "spec.service.type",
        "tenants.serviceTypes",
        &stated,
        &listed,
    )
}

/// Checks all references in the spec against the restrictions on parents.
fn tenants(request: &Request, site: &Site<'_>, observation: &Observation) -> Result<(), String> {
    let limits = &site.config.tenants;
    if let Some(image) = &site.spec.image {
        check_image("spec.image", image, &limits.images)?;
    }
    let managed = site.managed.as_ref();
    if let Some(image) = managed.and_then(|managed| managed.image.as_ref()) {
        check_image("spec.database.managed.image", image, &limits.images)?;
    }
    if let Some(kind) = site.foreign_source()
        && limits.references == ReferenceScope::Shared
    {
        return Err(format!(
            "dataSource: the owner of a {kind} is unknown; use a PersistentVolumeClaim, or set \
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
    observation
        .existing_claim
        .iter()
        .chain(observation.sources.values().flatten())
        .map(ObservedClaim::metadata)
        .try_for_each(|metadata| check_reference(request, limits.references, "claim", metadata))
}

/// Checks the route paths: the official images serve the domain's root, and all links of a site below a path would be
/// dead. For other images, the user is responsible.
fn routes(site: &Site<'_>) -> Result<(), String> {
    let image = site.image;
    let is_own = site.spec.image.is_some() && !site::is_official(image);
    if is_own || product_of(image) != "wordpress" {
        return Ok(());
    }
    let paths = site.spec.routes.iter().map(Route::trimmed_path);
    match paths.enumerate().find(|(_, path)| !path.is_empty()) {
        None => Ok(()),
        Some((index, path)) => Err(format!(
            "spec.routes[{index}].path: the image {image} serves the root of a domain and not {path}: remove \
             the path, or give spec.image an image that serves it"
        )),
    }
}

/// Checks an external database's address: WordPress takes a text with a colon for host and port.
fn external_host(site: &Site<'_>) -> Result<(), String> {
    let Some(external) = site.spec.external() else {
        return Ok(());
    };
    // PHP's client uses a socket for this name, whatever the port.
    if external.host.eq_ignore_ascii_case("localhost") {
        return Err(
            "spec.database.external.host: localhost stands for a socket, which the Pods of the site lack: write \
             127.0.0.1 for a database in the Pod"
                .to_owned(),
        );
    }
    external.is_host_valid().then_some(()).ok_or_else(|| {
        format!(
            "spec.database.external.host: {} is neither a DNS name nor an IP address: write an IPv6 address in \
             brackets, as in [2001:db8::5], and give the port in external.port",
            external.host
        )
    })
}

/// Checks that a claim is at least as large as this parent has declared it before. A claim that a user has
/// grown beyond that, and one of a former parent, stays as large as it is.
fn cannot_shrink(
    path: &str,
    name: &str,
    claim: &Claim,
    request: &Request,
    observation: &Observation,
) -> Result<(), String> {
    let observed = observation.claims.get(name);
    let before = observed
        .and_then(|observed| observed.annotation(DECLARED_SIZE))
        .filter(|before| Amount::from_quantity(&claim.size) < Amount::parse(before));
    // A size that an earlier parent declared does not bind this one.
    let is_own = || {
        let child = request.children.find::<PersistentVolumeClaim>(name);
        child.is_some_and(|child| is_made_for_parent(request, child))
    };
    match before {
        Some(before) if is_own() => Err(format!(
            "{path}.size: a claim cannot shrink: claim {name} has been grown to {before}, so state at least that"
        )),
        _ => Ok(()),
    }
}

/// Checks that the site can write to an existing claim, and several replicas can share it.
fn shared(site: &Site<'_>, name: &str, existing: &ObservedClaim) -> Result<(), String> {
    if site.managed.is_some() && name == site.mysql_name() {
        return Err(format!(
            "{CODE}.existingClaim: claim {name} is that of the site's database: name another"
        ));
    }
    let modes = existing.access_modes();
    if !modes.is_empty() && modes.iter().all(|mode| mode == "ReadOnlyMany") {
        return Err(format!(
            "{CODE}.existingClaim: claim {name} can only be read, and the site writes to it: name another"
        ));
    }
    if site.replicas() > 1 && !modes.iter().any(|mode| mode == "ReadWriteMany") {
        return Err(format!(
            "{CODE}.existingClaim: claim {name} has no access mode ReadWriteMany"
        ));
    }
    Ok(())
}
