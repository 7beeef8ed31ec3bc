//! The observed state: workloads, Secrets, claims.

mod pods;

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_kit::{prelude::*, references::secret, workload::WorkloadStatus};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{PersistentVolumeClaim, Secret},
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};

pub(crate) use self::pods::{Failure, Pods};
use crate::{api::WordpressStatus, record::Record, site::Site};

/// The annotation on a claim: the size in the spec when the claim was last applied.
pub(crate) const DECLARED_SIZE: &str = "example.com/declared-size";

/// Time for a controller to create a workload's first Pod: a hundred times what it needs.
const CREATION_MS: u64 = 10_000;

/// The observed state that a pass uses besides the parent.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the cluster"
)]
pub(crate) struct Observation {
    /// The site's Deployment.
    pub(crate) web: Option<Workload>,
    /// A managed database's StatefulSet.
    pub(crate) database: Option<Workload>,
    /// Pods of the site and the database; empty for a workload that is ready.
    pub(crate) web_pods: Pods,
    pub(crate) database_pods: Pods,
    /// True if the database has no Pod although the StatefulSet has existed for a while.
    pub(crate) lacks_database_pod: bool,
    /// The Secret with the passwords in use.
    pub(crate) credentials: Option<Hashed>,
    /// True if a Secret with the generated Secret's name exists, even one that a user created.
    pub(crate) has_generated_secret: bool,
    /// True if that Secret was not created for this parent: it outlived an earlier one, or a user created it.
    pub(crate) reuses_generated_secret: bool,
    /// The Secret with the keys and salts.
    pub(crate) salts: Option<Hashed>,
    /// The parent's own claims by name.
    pub(crate) claims: BTreeMap<String, ObservedClaim>,
    /// What the database's claim records about its data.
    pub(crate) record: Record,
    /// True if the stored status belongs to the current spec: an earlier pass has applied all of it.
    pub(crate) is_restated: bool,
    /// The existing claim that the spec references.
    pub(crate) existing_claim: Option<ObservedClaim>,
    /// The data sources for claims that do not exist yet, by claim name.
    pub(crate) sources: BTreeMap<String, Option<ObservedClaim>>,
    /// The Secrets and ConfigMaps in `env` and `envFrom`.
    pub(crate) references: Found,
    /// The Secret in `tlsSecretRef`. No Pod mounts it, so changes do not restart the site.
    pub(crate) tls: Found,
    /// The pull secrets; their changes restart nothing.
    pub(crate) pull_secrets: Found,
    /// Kinds and names of the children that outlive the parent, sorted.
    pub(crate) retained: Vec<String>,
    /// Kinds and names of the claims and generated Secrets that are deleted with the parent, sorted.
    pub(crate) owned_data: Vec<String>,
}

impl Observation {
    pub(crate) fn read(request: &Request, host: &dyn Host, site: &Site<'_>) -> Result<Self, Fault> {
        let generated = secret(request, host, &site.mysql_name())?;
        let has_generated_secret = generated.is_some();
        let credentials = if site.credentials.is_generated {
            generated
        } else {
            secret(request, host, &site.credentials.secret)?
        };
        let claims = request
            .children
            .of_kind::<PersistentVolumeClaim>()
            .map(|child| Ok((child.name().to_owned(), ObservedClaim::new(child)?)))
            .collect::<Result<BTreeMap<_, _>, Fault>>()?;
        let database = Workload::find::<StatefulSet>(&request.children, &site.mysql_name())?;
        let web = Workload::find::<Deployment>(&request.children, site.name)?;
        // A ready workload needs no explanation, so most passes read no Pods.
        let pods_of = |workload: Option<&Workload>, component| match workload {
            Some(workload) if workload.status.ready_replicas < workload.replicas() => {
                Pods::read(request, host, site, component)
            }
            _ => Ok(Pods::default()),
        };
        let stored = request.stored_status::<WordpressStatus>();
        let existing_claim = match &site.code.existing_claim {
            Some(name) => claim::find(request, host, name)?,
            None => None,
        };
        Ok(Self {
            web_pods: pods_of(web.as_ref(), "web")?,
            database_pods: pods_of(database.as_ref(), "database")?,
            web,
            lacks_database_pod: database
                .as_ref()
                .is_some_and(|database| lacks_pod(request, host, site, database)),
            record: Record::observed(claims.get(&site.mysql_name()), database.as_ref()),
            database,
            is_restated: stored
                .is_some_and(|status| status.observed_generation == request.generation()),
            credentials,
            has_generated_secret,
            reuses_generated_secret: has_generated_secret
                && request
                    .children
                    .find::<Secret>(&site.mysql_name())
                    .is_none_or(|child| !is_made_for_parent(request, child)),
            salts: secret(request, host, &site.salts_name())?,
            owned_data: owned_data(request, site, existing_claim.as_ref()),
            existing_claim,
            sources: missing_sources(request, host, site, &claims)?,
            references: References::new()
                .environment(&site.spec.env, &site.spec.env_from)
                .read(request, host)?,
            pull_secrets: References::new()
                .pull_secrets(&site.spec.image_pull_secrets)
                .read(request, host)?,
            tls: site
                .spec
                .tls_secret_ref
                .iter()
                .fold(References::new(), |tls, name| tls.secret(name, []))
                .read(request, host)?,
            retained: retained(request),
            claims,
        })
    }

    /// A claim that requests less than the spec declares: the name, the request, and the declared size.
    pub(crate) fn small_claim<'a>(
        &'a self,
        site: &'a Site<'_>,
    ) -> Option<(String, &'a Quantity, &'a Quantity)> {
        let database = site
            .managed
            .iter()
            .map(|managed| (site.mysql_name(), &managed.storage));
        let code =
            (site.code.existing_claim.is_none()).then(|| (site.own_code_claim(), &site.code));
        database.chain(code).find_map(|(name, declared)| {
            let observed = self.claims.get(&name)?.request()?;
            let is_small = Amount::from_quantity(observed) < Amount::from_quantity(&declared.size);
            is_small.then_some((name, observed, &declared.size))
        })
    }

    /// The site's Pod counts; 0 before the Deployment is created.
    pub(crate) fn pods(&self) -> WorkloadStatus {
        self.web
            .as_ref()
            .map(|web| web.status.clone())
            .unwrap_or_default()
    }

    /// True if the managed database is ready.
    pub(crate) fn is_database_ready(&self) -> bool {
        self.database
            .as_ref()
            .is_some_and(|database| database.is_settled() && database.status.ready_replicas > 0)
    }

    /// True if the site has never started because the database has never been ready.
    pub(crate) fn is_waiting(&self, site: &Site<'_>) -> bool {
        site.managed.is_some() && self.web.is_none() && !self.is_database_ready()
    }

    /// The Secrets that the site's Pods wait for, by name; see [`Found::awaited_secrets`]. The one in `tlsSecretRef`
    /// is not among them: the certificate is often issued for the Ingress.
    pub(crate) fn awaited_secrets<'a>(&'a self, site: &'a Site<'_>) -> BTreeSet<&'a str> {
        let scope = site.config.tenants.references;
        self.references
            .awaited_secrets(scope)
            .chain(self.awaited_by_database(site))
            .collect()
    }

    /// The Secrets that a managed database's Pods wait for; the site's Pods wait for them too.
    fn awaited_by_database<'a>(&'a self, site: &'a Site<'_>) -> impl Iterator<Item = &'a str> {
        let scope = site.config.tenants.references;
        let is_supplied = self.credentials.is_none() && !site.credentials.is_generated;
        let credentials = is_supplied.then_some(&*site.credentials.secret);
        self.pull_secrets.awaited_secrets(scope).chain(credentials)
    }

    /// The claims that the spec references and that do not exist.
    pub(crate) fn missing_claims<'a>(
        &'a self,
        site: &'a Site<'_>,
    ) -> impl Iterator<Item = &'a str> {
        let existing = site.code.existing_claim.as_deref();
        let sources = self.sources.iter().filter(|(_, found)| found.is_none());
        existing
            .filter(|_| self.existing_claim.is_none())
            .into_iter()
            .chain(sources.map(|(name, _)| name.as_str()))
    }

    /// True if Pods or a claim would be created or changed to wait for an object that a later parent could create:
    /// they would pick it up before a pass could reject it.
    ///
    /// Pods whose template already references the object would do so anyway. The same holds for a database whose
    /// passwords are no longer referenced, see [`Self::is_held_for_passwords`].
    pub(crate) fn is_held(&self, site: &Site<'_>) -> bool {
        if self.is_held_for_passwords(site) {
            return true;
        }
        if site.config.tenants.references != ReferenceScope::Shared {
            return false;
        }
        let is_new = |workload: Option<&Workload>, name: &str| {
            workload.is_none_or(|workload| !workload.names_secret(name))
        };
        let web = self.web.as_ref();
        let database = self.database.as_ref();
        let mut for_site = self.awaited_secrets(site).into_iter();
        let mut for_database = self.awaited_by_database(site);
        let existing = site
            .code
            .existing_claim
            .as_deref()
            .filter(|_| self.existing_claim.is_none());
        for_site.any(|name| is_new(web, name))
            || site.managed.is_some() && for_database.any(|name| is_new(database, name))
            || existing.is_some_and(|name| web.is_none_or(|web| !web.names_claim(name)))
            || self.sources.values().any(Option::is_none)
    }

    /// True if data exists whose generated passwords are gone.
    ///
    /// New random passwords would not open the data, so the plugin does not generate the Secret again.
    pub(crate) fn has_lost_credentials(&self, site: &Site<'_>) -> bool {
        let has_data = self.database.is_some() || self.claims.contains_key(&site.mysql_name());
        site.credentials.is_generated && !self.has_generated_secret && has_data
    }

    /// True if a database runs with passwords from a Secret that the spec no longer references, and no generated one
    /// exists: new database and site Pods could not start.
    pub(crate) fn is_held_for_passwords(&self, site: &Site<'_>) -> bool {
        let is_new = |workload: &Workload| !workload.names_secret(&site.mysql_name());
        self.has_lost_credentials(site) && self.database.as_ref().is_some_and(is_new)
    }

    /// The image of the observed site Pods.
    pub(crate) fn web_image(&self) -> Option<&str> {
        self.web.as_ref()?.image("wordpress")
    }

    /// An annotation of the observed site Pods.
    pub(crate) fn web_annotation(&self, key: &str) -> Option<&str> {
        self.web.as_ref()?.annotation(key)
    }
}

/// The data sources for claims that do not exist yet.
fn missing_sources(
    request: &Request,
    host: &dyn Host,
    site: &Site<'_>,
    claims: &BTreeMap<String, ObservedClaim>,
) -> Result<BTreeMap<String, Option<ObservedClaim>>, Fault> {
    let mut sources = BTreeMap::new();
    for (claim, source) in site.sources() {
        if !claims.contains_key(&claim) {
            sources.insert(source.to_owned(), claim::find(request, host, source)?);
        }
    }
    Ok(sources)
}

/// True if a StatefulSet has no Pod although the controller has had time to create it. The controller reports the
/// cause only in events.
fn lacks_pod(request: &Request, host: &dyn Host, site: &Site<'_>, database: &Workload) -> bool {
    if !database.is_settled() || database.status.replicas > 0 {
        return false;
    }
    let created = request
        .children
        .find::<StatefulSet>(&site.mysql_name())
        .and_then(|child| {
            let created = child.field("/metadata/creationTimestamp")?.clone();
            serde_json::from_value::<Time>(created).ok()
        });
    created.is_none_or(|time| {
        let created_ms = u64::try_from(time.0.as_millisecond()).unwrap_or_default();
        host.now_ms() >= created_ms.saturating_add(CREATION_MS)
    })
}

/// Kinds and names of the children that outlive the parent, sorted.
fn retained(request: &Request) -> Vec<String> {
    let mut retained: Vec<String> = request
        .children
        .iter()
        .filter(|child| child.retained)
        .map(kind_and_name)
        .collect();
    retained.sort_unstable();
    retained
}

/// True for a child that is deleted with the parent, and for one that is not older than the parent.
pub(crate) fn is_made_for_parent(request: &Request, child: &Observed) -> bool {
    // Timestamps in one format from one clock, so text order is time order.
    let parent = request.parent_value()["metadata"]["creationTimestamp"].as_str();
    let created = || child.field("/metadata/creationTimestamp")?.as_str();
    !child.retained || parent.is_some() && created() >= parent
}

fn kind_and_name(child: &Observed) -> String {
    format!("{}/{}", child.kind(), child.name())
}

/// The claims and generated Secrets that the garbage collector deletes with the parent.
fn owned_data(
    request: &Request,
    site: &Site<'_>,
    existing_claim: Option<&ObservedClaim>,
) -> Vec<String> {
    let mut owned: Vec<String> = request
        .children
        .iter()
        .filter(|child| !child.retained)
        .filter(|child| child.is::<PersistentVolumeClaim>() || child.is::<Secret>())
        .map(kind_and_name)
        .collect();
    if existing_claim.is_some_and(|claim| claim.is_owned_by(site.uid)) {
        owned.push(format!("PersistentVolumeClaim/{}", site.code_claim()));
    }
    owned.sort_unstable();
    owned.dedup();
    owned
}
