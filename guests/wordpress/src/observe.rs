//! What the cluster shows: workloads, Secrets, claims.
//!
//! Objects are read with the few fields that matter; whole Kubernetes types would make the
//! component several times larger.

use std::collections::BTreeMap;

use innkeeper_sdk::prelude::*;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{PersistentVolumeClaim, Secret},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::Resource;
use serde::Deserialize;

use crate::{
    references::{References, secret},
    site::Site,
};

/// Everything that a pass looks at beside the parent.
#[derive(Debug)]
pub(crate) struct Observation {
    /// The Deployment of the site.
    pub(crate) web: Option<Workload>,
    /// The StatefulSet of a managed database.
    pub(crate) database: Option<Workload>,
    /// The Secret with the passwords in use.
    pub(crate) credentials: Option<Hashed>,
    /// Whether there is a Secret under the name of the generated one, whoever made it.
    pub(crate) has_generated_secret: bool,
    /// The Secret with keys and salts.
    pub(crate) salts: Option<Hashed>,
    /// The parent's own claims by name.
    pub(crate) claims: BTreeMap<String, ClaimObject>,
    /// The existing claim that the spec names.
    pub(crate) existing_claim: Option<ClaimObject>,
    /// What the spec names.
    pub(crate) references: References,
    /// Kind and name of the children that survive the parent, sorted.
    pub(crate) retained: Vec<String>,
    /// Kind and name of claims and generated Secrets that go with the parent, sorted.
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
        let mut claims = BTreeMap::new();
        for child in request.children.of_kind::<PersistentVolumeClaim>() {
            claims.insert(child.name().to_owned(), child.parse()?);
        }
        let existing_claim = match &site.code.existing_claim {
            Some(name) => existing_claim(request, host, name)?,
            None => None,
        };
        let retained = request.children.iter().filter(|child| child.retained);
        let mut retained: Vec<String> = retained.map(kind_and_name).collect();
        retained.sort_unstable();
        Ok(Self {
            web: workload::<Deployment>(request, site.name)?,
            database: workload::<StatefulSet>(request, &site.mysql_name())?,
            credentials,
            has_generated_secret,
            salts: secret(request, host, &site.salts_name())?,
            owned_data: owned_data(request, site, existing_claim.as_ref()),
            claims,
            existing_claim,
            references: References::read(request, host, site)?,
            retained,
        })
    }

    /// Whether a managed database answers now.
    pub(crate) fn is_database_ready(&self) -> bool {
        self.database
            .as_ref()
            .is_some_and(|it| it.is_settled() && it.status.ready_replicas > 0)
    }

    /// Whether the site has never been started because its database has never been ready.
    pub(crate) fn is_waiting(&self, site: &Site<'_>) -> bool {
        site.managed.is_some() && self.web.is_none() && !self.is_database_ready()
    }

    /// Whether there is data whose generated passwords are gone.
    ///
    /// New random passwords would not open it, so the Secret is not made anew.
    pub(crate) fn has_lost_credentials(&self, site: &Site<'_>) -> bool {
        let has_data = self.database.is_some() || self.claims.contains_key(&site.mysql_name());
        site.credentials.is_generated && !self.has_generated_secret && has_data
    }

    /// An annotation of the site's pods as it is observed.
    pub(crate) fn web_annotation(&self, key: &str) -> Option<&str> {
        let annotations = &self.web.as_ref()?.spec.template.metadata.annotations;
        annotations.get(key).map(String::as_str)
    }
}

fn kind_and_name(child: &Observed) -> String {
    format!("{}/{}", child.kind(), child.name())
}

/// The claims and generated Secrets that the garbage collector takes with the parent.
fn owned_data(
    request: &Request,
    site: &Site<'_>,
    existing_claim: Option<&ClaimObject>,
) -> Vec<String> {
    let children = request.children.iter().filter(|child| !child.retained);
    let data = children.filter(|it| it.is::<PersistentVolumeClaim>() || it.is::<Secret>());
    let mut owned: Vec<String> = data.map(kind_and_name).collect();
    if let Some(claim) = existing_claim {
        let owners = &claim.metadata.owner_references;
        if owners.iter().any(|owner| owner.uid == site.uid) {
            owned.push(format!("PersistentVolumeClaim/{}", site.code_claim()));
        }
    }
    owned.sort_unstable();
    owned.dedup();
    owned
}

fn existing_claim(
    request: &Request,
    host: &dyn Host,
    name: &str,
) -> Result<Option<ClaimObject>, Fault> {
    // It may be one of the parent's own, named by the user instead of left to the default.
    if let Some(child) = request.children.find::<PersistentVolumeClaim>(name) {
        return Ok(Some(child.parse()?));
    }
    let (api_version, kind) = (
        PersistentVolumeClaim::api_version(&()),
        PersistentVolumeClaim::kind(&()),
    );
    Ok(host.get_as(&api_version, &kind, Some(request.namespace()), name)?)
}

fn workload<T: Resource<DynamicType = ()>>(
    request: &Request,
    name: &str,
) -> Result<Option<Workload>, Fault> {
    let Some(child) = request.children.find::<T>(name) else {
        return Ok(None);
    };
    let mut workload: Workload = child.parse()?;
    workload.is_stale = child.is_stale();
    workload.is_deleting = child.is_deleting();
    Ok(Some(workload))
}

/// A Deployment or StatefulSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Workload {
    /// What is asked for.
    pub(crate) spec: WorkloadSpec,
    /// What there is.
    pub(crate) status: WorkloadStatus,
    /// Whether the status is older than the spec.
    #[serde(skip)]
    pub(crate) is_stale: bool,
    #[serde(skip)]
    is_deleting: bool,
}

impl Workload {
    /// Whether the status speaks of the spec, and the object is there to stay.
    fn is_settled(&self) -> bool {
        !self.is_stale && !self.is_deleting
    }

    /// The image of a container.
    pub(crate) fn image(&self, container: &str) -> Option<&str> {
        let containers = &self.spec.template.spec.containers;
        let found = containers.iter().find(|it| it.name == container)?;
        Some(&found.image)
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WorkloadSpec {
    /// Its pods.
    pub(crate) template: Template,
}

/// The pods of a workload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Template {
    /// Their metadata.
    pub(crate) metadata: TemplateMetadata,
    spec: TemplateSpec,
}

/// The metadata of pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateMetadata {
    /// Their annotations.
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateSpec {
    containers: Vec<ContainerImage>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerImage {
    name: String,
    image: String,
}

/// How many pods there are.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WorkloadStatus {
    /// All of them.
    pub(crate) replicas: i32,
    /// Those that are ready.
    pub(crate) ready_replicas: i32,
    /// Those of the latest template.
    pub(crate) updated_replicas: i32,
}

/// A claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimObject {
    metadata: ClaimMetadata,
    /// What is asked for.
    pub(crate) spec: ClaimSpec,
}

impl ClaimObject {
    /// The storage that is requested.
    pub(crate) fn request(&self) -> Option<&Quantity> {
        self.spec.resources.requests.get("storage")
    }

    /// Whether pods on different nodes may mount it.
    pub(crate) fn is_shared(&self) -> bool {
        let modes = &self.spec.access_modes;
        modes.iter().any(|it| is_shared(it))
    }
}

/// Whether this access mode lets pods on different nodes mount a volume.
pub(crate) fn is_shared(access_mode: &str) -> bool {
    matches!(access_mode, "ReadWriteMany" | "ReadOnlyMany")
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimMetadata {
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    uid: String,
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClaimSpec {
    /// How the volume may be mounted.
    pub(crate) access_modes: Vec<String>,
    /// The storage class.
    pub(crate) storage_class_name: Option<String>,
    resources: ClaimResources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimResources {
    requests: BTreeMap<String, Quantity>,
}
