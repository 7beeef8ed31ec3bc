//! Spec checks that CEL rules cannot express.

use innkeeper_kit::{
    labels::check_annotations,
    prelude::*,
    quantity::check_resources,
    tenants::{check_image, check_listed, check_pod_secrets, check_pull_secrets, check_reference},
};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::{
    api::{ExistingClaims, Medium},
    certificates::Certificate,
    cluster::Cluster,
    flags,
    members::MEMORY_BYTES_BESIDE_DATA,
    observe::Observation,
    tls, upgrade,
    version::{Version, check_upgrade},
};

/// The smallest size that keeps a quorum without one member.
const VOLATILE_SIZE_MIN: i32 = 3;

/// Checks the spec. Errors name the field, the problem and the remedy.
pub(crate) fn spec(
    request: &Request,
    cluster: &Cluster<'_>,
    observation: &Observation,
) -> Result<(), String> {
    let limits = &cluster.config.tenants;
    if let Some(image) = &cluster.spec.image {
        check_image("spec.image", image, &limits.images)?;
    }
    flags::check(&cluster.spec.options, &limits.options)?;
    let secrets = &observation.pull_secrets;
    let running = observation.running.as_ref();
    check_pull_secrets(request, limits.references, secrets, running)?;
    certificates(request, cluster, observation)?;
    issued(request, cluster, observation)?;
    claims(request, cluster, observation)?;
    storage_size(cluster)?;
    if let Some(resources) = &cluster.spec.resources {
        check_resources("spec.resources", resources)?;
    }
    if let Some(template) = &cluster.spec.pod_template {
        template.check("spec.podTemplate", &limits.pod_template())?;
    }
    services(cluster)?;
    if let Some(inspection) = &cluster.spec.inspection {
        Cron::parse(&inspection.schedule)
            .map_err(|problem| format!("spec.inspection.schedule: {problem}"))?;
    }
    certificate_keys(cluster, observation)?;
    medium(cluster)?;
    flags::together::check(cluster.spec)?;
    version(cluster, observation)
}

/// Checks that the certificate Secrets exist and that the parent may use them.
fn certificates(
    request: &Request,
    cluster: &Cluster<'_>,
    observation: &Observation,
) -> Result<(), String> {
    // A running cluster continues without Secrets that the Pods already reference, and Jobs wait for theirs.
    let may_miss = |name: &str| {
        observation.running.as_ref().is_some_and(|running| {
            running.names_secret(name) || tls::is_of_jobs_only(cluster, name)
        })
    };
    let scope = cluster.config.tenants.references;
    let certificates = &observation.certificates;
    check_pod_secrets("spec.tls", request, scope, certificates, may_miss)
}

/// Checks the certificate Secrets' keys before the first start, and that the plugin may see their changes.
fn certificate_keys(cluster: &Cluster<'_>, observation: &Observation) -> Result<(), String> {
    let certificates = &observation.certificates;
    let mut hidden = observation
        .secrets()
        .filter(|secret| tls::is_hidden(secret));
    if let Some(secret) = hidden.next() {
        if tls::restarts(cluster) {
            return Err(format!(
                "spec.tls.onChange: the plugin cannot see the keys in Secret {}: grant it reads of Secrets with access hash, \
                 or set onChange to Reload",
                secret.name()
            ));
        }
        return Ok(());
    }
    // A running cluster's Pods already have their files.
    let mut missing = certificates.missing_keys();
    match missing.next().filter(|_| observation.running.is_none()) {
        Some((name, key)) => Err(format!("spec.tls: Secret {name} lacks the key {key}")),
        None => Ok(()),
    }
}

/// Checks the issuers, and that cert-manager's Secrets do not belong to another parent.
fn issued(
    request: &Request,
    cluster: &Cluster<'_>,
    observation: &Observation,
) -> Result<(), String> {
    let limits = &cluster.config.tenants;
    for Certificate { path, issuer, .. } in Certificate::all(cluster) {
        if !issuer.is_of_namespace() {
            let list = "tenants.clusterIssuers";
            check_listed(path, list, [&issuer.name], &limits.cluster_issuers)?;
        }
    }
    // A missing Secret is no problem of the spec, because the Certificate is a child.
    for secret in observation.issued.objects() {
        check_reference(request, limits.references, "Secret", &secret.metadata)
            .map_err(|problem| format!("spec.tls: {problem}"))?;
    }
    Ok(())
}

/// Checks the Service options: load balancers and node ports reach beyond the cluster, and cloud controllers act on
/// annotations.
fn services(cluster: &Cluster<'_>) -> Result<(), String> {
    let spec = cluster.spec;
    let limits = &cluster.config.tenants;
    for (field, given) in [
        ("headlessService", &spec.headless_service.annotations),
        ("clientService", &spec.client_service.annotations),
    ] {
        let path = format!("spec.{field}.annotations");
        check_annotations(&path, given)?;
        let list = "tenants.serviceAnnotations";
        check_listed(&path, list, given.keys(), &limits.service_annotations)?;
    }
    let named = |type_: &ServiceType| type_.as_str().to_owned();
    let listed: Vec<String> = limits.service_types.iter().map(named).collect();
    let stated = spec
        .client_service
        .type_
        .as_ref()
        .filter(|type_| **type_ != ServiceType::ClusterIp);
    check_listed(
        "spec.clientService.type",
        "tenants.serviceTypes",
        &stated.map(named),
        &listed,
    )
}

/// Checks the volume size, also against the quota: the API server would reject that CEL rule as too expensive.
fn storage_size(cluster: &Cluster<'_>) -> Result<(), String> {
    let size = &cluster.spec.storage.size.0;
    let Some(amount) = Amount::parse(size) else {
        return Err(format!("spec.storage.size: \"{size}\" is not a quantity"));
    };
    let quota = cluster
        .spec
        .quota_backend_bytes
        .and_then(|bytes| Amount::parse(&bytes.to_string()));
    if quota.is_some_and(|quota| quota > amount) {
        return Err(format!(
            "spec.quotaBackendBytes: it is larger than storage.size, {size}, so the disk would be full before etcd rejects \
             writes: lower it, or enlarge storage.size"
        ));
    }
    Ok(())
}

/// Checks that a cluster survives a lost member: on a volatile medium, each Pod deletion, node drain and rollout
/// loses a member's data.
fn medium(cluster: &Cluster<'_>) -> Result<(), String> {
    let spec = cluster.spec;
    let medium = spec.storage.medium;
    if cluster.is_persistent() {
        return Ok(());
    }
    if spec.size < VOLATILE_SIZE_MIN {
        return Err(format!(
            "spec.size: {} members cannot replace one that lost its data, and with storage.medium {medium:?} each deletion \
             of a Pod does that: set size to {VOLATILE_SIZE_MIN} or more, or storage.medium to Persistent",
            spec.size
        ));
    }
    let bytes = |size: &Quantity| Amount::from_quantity(size).and_then(Amount::floor);
    let limit = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.limits.as_ref())
        .and_then(|limits| limits.get("memory"))
        .and_then(bytes);
    if medium == Medium::Memory
        && let (Some(limit), Some(size)) = (limit, bytes(&spec.storage.size))
        && limit < size.saturating_add(MEMORY_BYTES_BESIDE_DATA)
    {
        return Err(format!(
            "spec.resources.limits.memory: it includes the data with storage.medium Memory, so it must be at least 128Mi \
             larger than storage.size, {}",
            spec.storage.size.0
        ));
    }
    Ok(())
}

/// Checks the version against the image's tag, the running version and the flags.
fn version(cluster: &Cluster<'_>, observation: &Observation) -> Result<(), String> {
    let stated = cluster.spec.version.as_deref().and_then(Version::parse);
    let tagged = cluster.spec.image.as_deref().and_then(Version::from_image);
    if let (Some(stated), Some(tagged)) = (stated, tagged)
        && stated != tagged
    {
        return Err(format!(
            "spec.version: {stated} is not the version in the tag of spec.image, {tagged}: remove version, or correct one \
             of them"
        ));
    }
    let Some(target) = cluster.target else {
        return Ok(());
    };
    flags::check_version(&cluster.spec.options, target)?;
    let Some(current) = observation.current_version() else {
        return Ok(());
    };
    check_upgrade(cluster.version_field(), current, target)?;
    if upgrade::needs_snapshots(current, target) && observation.running.is_none() {
        return Err(format!(
            "{}: before an upgrade to {target}, each member writes a snapshot with version {current}, but the StatefulSet is \
             gone: go back to {current} until the cluster is Ready",
            cluster.version_field()
        ));
    }
    Ok(())
}

/// Checks that the parent may use the claims that the members use or would adopt.
///
/// The StatefulSet mounts each claim with the right name, so the check covers all members, even after the first
/// start.
fn claims(
    request: &Request,
    cluster: &Cluster<'_>,
    observation: &Observation,
) -> Result<(), String> {
    let adopts = cluster.spec.storage.existing_claims == ExistingClaims::Adopt;
    let members = observation.record.as_ref().map(|record| &record.members);
    let is_used = |ordinal: &i32| match members {
        Some(members) => members.contains(ordinal),
        // Without adoption, the first start waits until none of these claims is left.
        None => adopts,
    };
    observation
        .claims
        .iter()
        .filter(|(ordinal, _)| is_used(ordinal))
        .map(|(_, claim)| &claim.metadata)
        .try_for_each(|metadata| {
            check_reference(
                request,
                cluster.config.tenants.references,
                "claim",
                metadata,
            )
        })
}
