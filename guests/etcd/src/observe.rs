//! The observed state: the record, the StatefulSet, claims, Pods and Jobs.

pub(crate) mod alarms;
mod growth;
mod pods;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use innkeeper_kit::{partial, prelude::*, rollout::TEMPLATE_HASH};
use k8s_openapi::api::{
    apps::v1::{
        StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetUpdateStrategy,
    },
    core::v1::PersistentVolumeClaim,
    storage::v1::StorageClass,
};
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};

use self::{alarms::Alarms, pods::MemberPods};
use crate::{
    api::{EtcdClusterStatus, ExistingClaims},
    children,
    cluster::{CLUSTER_UID_LABEL, Cluster, FORMED, MEMBERS_LABEL, MEMBERS_MAX},
    jobs::{self, ClusterJobs},
    record::Record,
    tls,
    version::Version,
};

pub(crate) use self::{
    growth::Growth,
    pods::{LeavingPod, MemberPod, Obstacle},
};

/// The members' observed StatefulSet, without the Pod template.
pub(crate) type MemberSet = Partial<StatefulSet, MemberSetSpec, MemberSetStatus>;

/// A [`MemberSet`]'s annotations that a pass uses.
const MEMBER_SET_MARKS: [&str; 3] = [FORMED, MEMBERS_LABEL, TEMPLATE_HASH];

/// A [`MemberSet`]'s other parts that a pass uses.
const MEMBER_SET_PARTS: [&str; 6] = [
    "/metadata/creationTimestamp",
    "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted",
    "/spec/replicas",
    "/spec/updateStrategy/rollingUpdate/partition",
    "/spec/volumeClaimTemplates/0/spec/resources/requests/storage",
    "/status/updateRevision",
];

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MemberSetSpec {
    replicas: Option<i32>,
    pub(crate) update_strategy: StatefulSetUpdateStrategy,
    pub(crate) persistent_volume_claim_retention_policy:
        Option<StatefulSetPersistentVolumeClaimRetentionPolicy>,
    pub(crate) volume_claim_templates: Vec<PersistentVolumeClaim>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MemberSetStatus {
    pub(crate) update_revision: Option<String>,
}

/// One cluster's observed state.
pub(crate) struct Observation {
    pub(crate) record: Option<Record>,
    pub(crate) stateful_set: Option<MemberSet>,
    /// The StatefulSet is being deleted: it can neither be changed nor recreated yet.
    pub(crate) is_leaving: bool,
    /// The claims of this cluster's members by ordinal.
    pub(crate) claims: BTreeMap<i32, Claim>,
    /// The members' Pods by ordinal.
    pub(crate) pods: BTreeMap<i32, MemberPod>,
    /// The members' Pods that are being deleted, by ordinal.
    pub(crate) leaving: BTreeMap<i32, LeavingPod>,
    /// The stored status, the StatefulSet or a claim says that the cluster is formed.
    pub(crate) was_formed: bool,
    /// The number of members according to all sources; `None` without any.
    pub(crate) members: Option<i32>,
    /// The version in the stored status.
    pub(crate) last_version: Option<Version>,
    /// The warning codes in the stored status.
    pub(crate) warned: BTreeSet<String>,
    /// The stored `Available` condition's reason; empty if there is none.
    pub(crate) was_available: String,
    /// The claims' StorageClass allows them to grow.
    pub(crate) can_grow: bool,
    /// The pull secrets.
    pub(crate) pull_secrets: Found,
    /// The certificate Secrets that the user references.
    pub(crate) certificates: Found,
    /// The certificate Secrets that cert-manager writes.
    pub(crate) issued: Found,
    /// The Services that do not exist or belong to another owner.
    pub(crate) missing_services: Vec<String>,
    /// The StatefulSet with the names in the Pod template.
    pub(crate) running: Option<Workload>,
    /// The Jobs that talk to etcd.
    pub(crate) jobs: ClusterJobs,
    /// etcd's alarms.
    pub(crate) alarms: Alarms,
}

/// A member's claim.
pub(crate) struct Claim {
    /// The claim, if it is a child that the plugin manages.
    pub(crate) child: Option<PersistentVolumeClaim>,
    /// The claim was created for this parent, not for an earlier one with the same name.
    pub(crate) is_ours: bool,
    /// The claim is being deleted.
    pub(crate) is_leaving: bool,
    /// The volume is gone.
    pub(crate) is_lost: bool,
    /// What prevents the volume from growing.
    pub(crate) growth: Option<Growth>,
    /// The volume's size, once it is bound.
    pub(crate) capacity: Option<Quantity>,
    pub(crate) metadata: ObjectMeta,
}

impl Observation {
    pub(crate) fn read(
        request: &Request,
        host: &dyn Host,
        cluster: &Cluster<'_>,
    ) -> Result<Self, Fault> {
        let children = &request.children;
        let stateful_set: Option<MemberSet> =
            partial::find(children, cluster.name, &MEMBER_SET_MARKS, &MEMBER_SET_PARTS)?;
        let is_leaving = children
            .find::<StatefulSet>(cluster.name)
            .is_some_and(Observed::is_deleting);
        let claims = if cluster.is_persistent() {
            claims(request, host, cluster)?
        } else {
            BTreeMap::new()
        };
        let status = request.stored_status::<EtcdClusterStatus>();
        let set = stateful_set.as_ref().map(|observed| &observed.metadata);
        let mut marked = claims
            .values()
            .filter(|claim| claim.is_ours)
            .map(|claim| &claim.metadata)
            .chain(set);
        let status = status.unwrap_or_default();
        let was_formed = status.cluster_formed
            || marked.any(|metadata| {
                metadata
                    .annotations
                    .as_ref()
                    .is_some_and(|annotations| annotations.contains_key(FORMED))
            });
        let last_version = status.current_version.as_deref().and_then(Version::parse);
        let warned = status
            .warnings
            .into_iter()
            .map(|warning| warning.code)
            .collect();
        let mut record = Record::find(cluster, children)?;
        // An unformed cluster's status describes an earlier plan.
        let listed = status.cluster_formed.then_some(status.members.len());
        let members = members(cluster, record.as_ref(), set, &claims, listed);
        // A record that a user has edited must neither start a second cluster nor change the number of members.
        if let Some(record) = &mut record {
            record.formed |= was_formed;
            if let Some(members) = members {
                record.members = (0..members).collect();
            }
        }
        let available = request.stored_condition("Available");
        let (certificates, issued) = tls::references(cluster);
        let MemberPods { pods, leaving } = pods::read(host, cluster)?;
        Ok(Self {
            record,
            was_available: available
                .map(|condition| condition.reason)
                .unwrap_or_default(),
            stateful_set,
            is_leaving,
            can_grow: can_grow(host, cluster, &claims)?,
            claims,
            pods,
            leaving,
            was_formed,
            members,
            last_version,
            warned,
            pull_secrets: References::new()
                .pull_secrets(&cluster.spec.image_pull_secrets)
                .read(request, host)?,
            certificates: certificates.read(request, host)?,
            issued: issued.read(request, host)?,
            missing_services: children::missing_services(request, cluster),
            running: Workload::find::<StatefulSet>(children, cluster.name)?,
            jobs: jobs::read(request, host, cluster)?,
            alarms: Alarms::read(host, cluster)?,
        })
    }

    /// The certificate Secrets that exist.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Hashed> {
        self.certificates.objects().chain(self.issued.objects())
    }

    /// True if a Secret that Jobs mount is missing. No Job starts then: it would pick up a Secret from any later
    /// creator before a pass could reject it.
    pub(crate) fn holds_jobs(&self, cluster: &Cluster<'_>) -> bool {
        let exists = |name: &str| self.secrets().any(|secret| secret.name() == name);
        tls::secrets_of_jobs(cluster).any(|name| !exists(name))
    }

    /// True if cert-manager has not written all Secrets and keys yet.
    pub(crate) fn waits_for_certificates(&self) -> bool {
        let has_keys = self.issued.missing_keys().next().is_none();
        // Hidden Secrets do not show their keys.
        let is_known = !self.issued.objects().any(tls::is_hidden);
        !self.issued.is_complete() || is_known && !has_keys
    }

    /// The StatefulSet's `spec.replicas`; 0 without a StatefulSet.
    pub(crate) fn replicas(&self) -> i32 {
        self.stateful_set
            .as_ref()
            .map_or(0, |set| set.spec.replicas.unwrap_or(1))
    }

    /// The ordinals of ready members.
    pub(crate) fn ready(&self) -> BTreeSet<i32> {
        self.pods
            .iter()
            .filter(|(_, pod)| pod.is_ready)
            .map(|(ordinal, _)| *ordinal)
            .collect()
    }

    /// The data's version: the recorded one, with which all members were last ready; otherwise the lowest among ready
    /// Pods, otherwise the one in the stored status. `None` before the cluster is formed: images of Pods that never
    /// ran prove nothing.
    pub(crate) fn current_version(&self) -> Option<Version> {
        let record = self.record.as_ref();
        if !record.map_or(self.was_formed, |record| record.formed) {
            return None;
        }
        let ready = self.pods.values().filter(|pod| pod.is_ready);
        let running = || ready.map(|pod| pod.version).collect::<Option<Vec<_>>>();
        record
            .and_then(|record| record.version)
            // etcd's cluster version is the lowest of the members' versions.
            .or_else(|| running()?.into_iter().min())
            .or(self.last_version)
    }

    /// The members' claims by ordinal. Other claims are left from a larger cluster.
    ///
    /// Without a record, the members are the StatefulSet's replicas or those that the first start creates.
    pub(crate) fn claims_of_members(
        &self,
        cluster: &Cluster<'_>,
    ) -> impl Iterator<Item = (i32, &Claim)> {
        let members = self.record.as_ref().map(|record| &record.members);
        let without_record = self.replicas().max(cluster.spec.size);
        self.claims
            .iter()
            .filter(move |(ordinal, _)| {
                members.map_or(**ordinal < without_record, |members| {
                    members.contains(*ordinal)
                })
            })
            .map(|(ordinal, claim)| (*ordinal, claim))
    }

    /// The size of the smallest member volume; `None` if no claim is bound.
    pub(crate) fn smallest_volume(&self, cluster: &Cluster<'_>) -> Option<Quantity> {
        self.claims_of_members(cluster)
            .filter_map(|(_, claim)| claim.capacity.as_ref())
            .min_by(|a, b| {
                Amount::from_quantity(a)
                    .partial_cmp(&Amount::from_quantity(b))
                    .unwrap_or(Ordering::Equal)
            })
            .cloned()
    }
}

fn claims(
    request: &Request,
    host: &dyn Host,
    cluster: &Cluster<'_>,
) -> Result<BTreeMap<i32, Claim>, Fault> {
    let mut claims = BTreeMap::new();
    for ordinal in 0..MEMBERS_MAX {
        let name = cluster.claim(ordinal);
        let child: Option<PersistentVolumeClaim> = request.children.get(&name)?;
        let existing = match &child {
            Some(child) => Some(child.clone()),
            // A claim from an earlier parent or a user is no child.
            None => host.get::<PersistentVolumeClaim>(cluster.namespace, &name)?,
        };
        let Some(claim) = existing else { continue };
        let uid = claim
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(CLUSTER_UID_LABEL));
        claims.insert(
            ordinal,
            Claim {
                child,
                is_ours: uid.is_some_and(|uid| uid == cluster.uid),
                is_leaving: claim.metadata.deletion_timestamp.is_some(),
                is_lost: claim
                    .status
                    .as_ref()
                    .is_some_and(|status| status.phase.as_deref() == Some("Lost")),
                growth: claim.status.as_ref().and_then(Growth::read),
                capacity: claim
                    .status
                    .and_then(|status| status.capacity?.remove("storage")),
                metadata: claim.metadata,
            },
        );
    }
    Ok(claims)
}

/// The number of members that most sources agree on, and the highest such number in a tie. The sources are the
/// record, the StatefulSet, each claim and the stored status, and a user may delete or edit any of them.
fn members(
    cluster: &Cluster<'_>,
    record: Option<&Record>,
    stateful_set: Option<&ObjectMeta>,
    claims: &BTreeMap<i32, Claim>,
    listed: Option<usize>,
) -> Option<i32> {
    let adopts = cluster.spec.storage.existing_claims == ExistingClaims::Adopt;
    let labels = claims
        .values()
        // Another parent's claims count the members of another cluster, unless that one is adopted.
        .filter(|claim| claim.is_ours || adopts)
        .filter_map(|claim| claim.metadata.labels.as_ref());
    let annotations = stateful_set.and_then(|metadata| metadata.annotations.as_ref());
    let numbers = labels
        .chain(annotations)
        .filter_map(|map| map.get(MEMBERS_LABEL))
        .filter_map(|text| text.parse().ok());
    let counts = [record.map(|record| record.members.len()), listed]
        .into_iter()
        .flatten()
        .filter_map(|count| i32::try_from(count).ok());
    let mut votes: BTreeMap<i32, usize> = BTreeMap::new();
    for number in numbers.chain(counts) {
        if (1..=MEMBERS_MAX).contains(&number) {
            *votes.entry(number).or_default() += 1;
        }
    }
    votes
        .into_iter()
        .max_by_key(|(number, votes)| (*votes, *number))
        .map(|(number, _)| number)
}

/// The size that a claim requests.
pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim
        .spec
        .as_ref()?
        .resources
        .as_ref()?
        .requests
        .as_ref()?
        .get("storage")
}

/// True if the claims' StorageClass is known and allows them to grow.
fn can_grow(
    host: &dyn Host,
    cluster: &Cluster<'_>,
    claims: &BTreeMap<i32, Claim>,
) -> Result<bool, Fault> {
    let stated = cluster.spec.storage.storage_class_name.clone();
    let observed = claims.values().find_map(|claim| {
        claim
            .child
            .as_ref()?
            .spec
            .as_ref()?
            .storage_class_name
            .clone()
    });
    let Some(name) = observed.or(stated) else {
        return Ok(false);
    };
    let class = host.get_cluster::<StorageClass>(&name)?;
    Ok(class
        .and_then(|class| class.allow_volume_expansion)
        .unwrap_or(false))
}
