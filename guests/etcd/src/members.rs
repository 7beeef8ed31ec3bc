//! The members' StatefulSet and Pods.
//!
//! The etcd image has no shell; the kubelet expands `$(POD_NAME)` in the arguments.

use std::cell::OnceCell;

use innkeeper_kit::prelude::*;
use k8s_openapi::{
    api::{
        apps::v1::{
            RollingUpdateStatefulSetStrategy, StatefulSet,
            StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
            StatefulSetUpdateStrategy,
        },
        core::v1::{
            Affinity, ConfigMapEnvSource, Container, EmptyDirVolumeSource, EnvFromSource,
            ExecAction, HTTPGetAction, PersistentVolumeClaim, PodAffinityTerm, PodAntiAffinity,
            PodSecurityContext, PodSpec, PodTemplateSpec, Probe, TCPSocketAction, Volume,
            WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{
    admission,
    api::{AntiAffinity, Keeping, Medium},
    arguments,
    cluster::{Cluster, FORMED, MEMBERS_LABEL, RESTART_TRIGGER},
    container::{self, USER, container_security},
    observe::{MemberPod, MemberSet, Observation, requested},
    record::Record,
    rollout::{self, RollingPod},
    tls::{self, AUTHORITY_HASH},
    version::Version,
};

/// Memory that a member needs besides the data, in bytes.
pub(crate) const MEMORY_BYTES_BESIDE_DATA: i128 = 128 << 20;

/// A member's minimum default memory request, in bytes.
const MEMORY_BYTES_MIN: i128 = 256 << 20;

/// The startup probe's script. The newest snapshot, the last one by name, must be newer than this start of the member
/// (busybox is copied at the start) or contain the cluster version 3.6.
///
/// etcd writes a snapshot at the second entry after the last one. So a restarted member may write none, but then its
/// last snapshot already has the cluster's version.
const HAS_SNAPSHOT: &str = r#"cd /var/run/etcd/default.etcd/member/snap/
for newest in *.snap; do :; done
[ -e "$newest" ]
[ ! "$newest" -ot /tools/busybox ] || /tools/busybox grep -q '"3\.6\.' "$newest""#;

/// The members' Pod template and the hash, built once in a pass and only if needed.
pub(crate) struct Template<'a> {
    pub(crate) cluster: &'a Cluster<'a>,
    pub(crate) observation: &'a Observation,
    built: OnceCell<(PodTemplateSpec, TemplateHash)>,
}

impl<'a> Template<'a> {
    pub(crate) const fn new(cluster: &'a Cluster<'a>, observation: &'a Observation) -> Self {
        Self {
            cluster,
            observation,
            built: OnceCell::new(),
        }
    }

    fn built(&self) -> &(PodTemplateSpec, TemplateHash) {
        self.built.get_or_init(|| {
            let template = template(self.cluster, self.observation);
            let hash = TemplateHash::new(&template);
            (template, hash)
        })
    }

    fn hash(&self) -> &TemplateHash {
        &self.built().1
    }

    /// True if all Pods have the template.
    pub(crate) fn is_rolled_out(&self) -> bool {
        self.observation
            .running
            .as_ref()
            .is_some_and(|running| running.is_rolled_out(self.hash()))
    }

    /// True if the StatefulSet has the template.
    pub(crate) fn is_written(&self) -> bool {
        self.observation
            .stateful_set
            .as_ref()
            .is_some_and(|observed| self.hash().is_on(&observed.metadata))
    }
}

/// The StatefulSet with a number of replicas.
pub(crate) fn stateful_set(template: &Template<'_>, record: &Record, replicas: i32) -> StatefulSet {
    let cluster = template.cluster;
    let observation = template.observation;
    let storage = &cluster.spec.storage;
    let observed = observation.stateful_set.as_ref();
    // Before the formation, the StatefulSet may be recreated.
    let when_deleted = if record.formed {
        storage.when_deleted
    } else {
        Keeping::Retain
    };
    let member_labels = labels::with_version(&cluster.labels("member"), &cluster.image);
    let (pod_template, hash) = template.built();
    let partition = partition(template, record);
    let mut metadata = metadata(cluster.name, &member_labels);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(MEMBERS_LABEL.to_owned(), record.members.len().to_string());
    if record.formed {
        annotations.insert(FORMED.to_owned(), "true".to_owned());
    }
    StatefulSet {
        metadata: hash.mark(metadata),
        spec: Some(StatefulSetSpec {
            replicas: Some(replicas),
            service_name: Some(cluster.name.to_owned()),
            selector: labels::label_selector(&cluster.selector()),
            // With `OrderedReady`, three members could never start: the first is not ready without a second.
            pod_management_policy: Some("Parallel".to_owned()),
            revision_history_limit: Some(5),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateStatefulSetStrategy {
                    partition: Some(partition.min(replicas)),
                    ..Default::default()
                }),
            }),
            persistent_volume_claim_retention_policy: Some(
                StatefulSetPersistentVolumeClaimRetentionPolicy {
                    when_deleted: Some(when_deleted.as_str().to_owned()),
                    // During a pause, only the claims are left of the cluster.
                    when_scaled: Some(Keeping::Retain.as_str().to_owned()),
                },
            ),
            volume_claim_templates: cluster
                .is_persistent()
                .then(|| vec![claim_template(cluster, observed)]),
            template: pod_template.clone(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The lowest ordinal whose Pod may be replaced by one with the new template.
fn partition(template: &Template<'_>, record: &Record) -> i32 {
    let observation = template.observation;
    if observation.stateful_set.is_none() || template.cluster.allows_unsafe_rollout {
        return 0;
    }
    let is_written = template.is_written();
    let is_stale = observation.running.as_ref().is_none_or(Workload::is_stale);
    if is_written && is_stale {
        // The Pods' revision is not known yet.
        return observed_partition(observation);
    }
    let rolling = |(ordinal, pod): (&i32, &MemberPod)| {
        let pod = RollingPod {
            is_ready: pod.is_ready,
            is_updated: is_written && is_updated(observation, pod),
        };
        (*ordinal, pod)
    };
    rollout::partition(
        &record.members,
        &observation.pods.iter().map(rolling).collect(),
    )
}

/// True if a Pod has the observed StatefulSet's template.
pub(crate) fn is_updated(observation: &Observation, pod: &MemberPod) -> bool {
    let revision = observation
        .stateful_set
        .as_ref()
        .and_then(|set| set.status.update_revision.as_ref());
    revision.is_some() && pod.revision.as_ref() == revision
}

/// The lowest ordinal whose Pod the StatefulSet replaces.
pub(crate) fn observed_partition(observation: &Observation) -> i32 {
    observation
        .stateful_set
        .as_ref()
        .and_then(|set| set.spec.update_strategy.rolling_update.as_ref())
        .and_then(|rolling_update| rolling_update.partition)
        .unwrap_or(0)
}

/// True if a StatefulSet's claims outlive it.
pub(crate) fn keeps_claims(observed: &MemberSet) -> bool {
    let policy = &observed.spec.persistent_volume_claim_retention_policy;
    policy
        .as_ref()
        .and_then(|policy| policy.when_deleted.as_deref())
        .is_none_or(|when| when == Keeping::Retain.as_str())
}

/// The claim template. It is immutable, so it repeats the observed size.
fn claim_template(cluster: &Cluster<'_>, observed: Option<&MemberSet>) -> PersistentVolumeClaim {
    let storage = &cluster.spec.storage;
    let size = observed
        .and_then(|set| set.spec.volume_claim_templates.first())
        .and_then(requested)
        .unwrap_or(&storage.size)
        .clone();
    let declared = DeclaredClaim {
        size,
        storage_class_name: storage.storage_class_name.clone(),
        access_modes: storage.access_modes(),
    };
    declared.object(metadata("data", &cluster.labels("data")), None)
}

fn template(cluster: &Cluster<'_>, observation: &Observation) -> PodTemplateSpec {
    let labels = labels::with_version(&cluster.labels("member"), &cluster.image);
    let template = cluster.spec.pod_template.as_ref();
    let trigger = cluster.restart_trigger.map(str::to_owned);
    let running = observation.running.as_ref();
    let authority = tls::authority_hash(cluster, observation.secrets(), running);
    PodTemplateSpec {
        metadata: Some(pod::metadata(
            template.and_then(|template| template.metadata.as_ref()),
            labels,
            [(RESTART_TRIGGER, trigger), (AUTHORITY_HASH, authority)],
        )),
        spec: Some(place(template, pod_spec(cluster, observation))),
    }
}

fn pod_spec(cluster: &Cluster<'_>, observation: &Observation) -> PodSpec {
    let storage = &cluster.spec.storage;
    let data = (!cluster.is_persistent()).then(|| Volume {
        name: "data".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: (storage.medium == Medium::Memory).then(|| "Memory".to_owned()),
            size_limit: Some(storage.size.clone()),
        }),
        ..Default::default()
    });
    let state = pod::from_config_map("state", cluster.record());
    let is_preparing = cluster.preparing.is_some();
    let tools = is_preparing.then(|| pod::empty_dir("tools"));
    let copying = is_preparing.then(|| container::tools(cluster));
    let (certificates, _) = tls::for_member(cluster);
    let volumes = data.into_iter().chain([state]).chain(tools);
    let init = [admission::container(cluster)].into_iter().chain(copying);
    PodSpec {
        termination_grace_period_seconds: Some(30),
        affinity: affinity(cluster),
        security_context: Some(PodSecurityContext {
            // Otherwise the kubelet would change the group of all files at each start.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            ..pod::security(Some(USER))
        }),
        init_containers: Some(init.collect()),
        containers: vec![etcd(cluster, observation)],
        volumes: Some(volumes.chain(certificates).collect()),
        ..pod::restricted(None, &cluster.spec.image_pull_secrets)
    }
}

fn affinity(cluster: &Cluster<'_>) -> Option<Affinity> {
    let term = PodAffinityTerm {
        topology_key: "kubernetes.io/hostname".to_owned(),
        label_selector: Some(labels::label_selector(&cluster.selector())),
        ..Default::default()
    };
    let anti_affinity = match cluster.spec.anti_affinity {
        AntiAffinity::None => return None,
        AntiAffinity::Soft => PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                WeightedPodAffinityTerm {
                    weight: 100,
                    pod_affinity_term: term,
                },
            ]),
            ..Default::default()
        },
        AntiAffinity::Hard => PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![term]),
            ..Default::default()
        },
    };
    Some(Affinity {
        pod_anti_affinity: Some(anti_affinity),
        ..Default::default()
    })
}

/// A member's default memory request. With the medium Memory, it includes the data.
fn memory_request(cluster: &Cluster<'_>) -> String {
    let bytes = Amount::from_quantity(&cluster.spec.storage.size)
        .and_then(Amount::floor)
        .filter(|_| cluster.spec.storage.medium == Medium::Memory)
        .map_or(0, |bytes| bytes.saturating_add(MEMORY_BYTES_BESIDE_DATA))
        .max(MEMORY_BYTES_MIN);
    match (bytes / (1 << 20), bytes % (1 << 20)) {
        (mebibytes, 0) => format!("{mebibytes}Mi"),
        _ => bytes.to_string(),
    }
}

fn etcd(cluster: &Cluster<'_>, observation: &Observation) -> Container {
    let (mut startup, liveness, readiness) = probes(cluster.version());
    let mut mounts = vec![pod::mount("data", "/var/run/etcd")];
    if cluster.preparing.is_some() {
        mounts.push(pod::mount("tools", "/tools"));
        startup = Probe {
            http_get: None,
            exec: Some(ExecAction {
                command: Some(container::shell(HAS_SNAPSHOT)),
            }),
            ..startup
        };
    }
    mounts.extend(tls::for_member(cluster).1);
    Container {
        name: "etcd".to_owned(),
        image: Some(cluster.image.clone()),
        image_pull_policy: Some(cluster.spec.image_pull_policy.into()),
        command: Some(vec!["etcd".to_owned()]),
        args: Some(arguments::all(cluster, observation)),
        ports: Some(vec![
            pod::container_port("peer", 2380),
            pod::container_port("client", 2379),
            pod::container_port("metrics", 2381),
        ]),
        env: Some(vec![
            pod::field_variable("POD_NAME", "metadata.name"),
            pod::field_variable("POD_NAMESPACE", "metadata.namespace"),
        ]),
        env_from: Some(vec![EnvFromSource {
            config_map_ref: Some(ConfigMapEnvSource {
                name: cluster.record(),
                ..Default::default()
            }),
            ..Default::default()
        }]),
        resources: Some(pod::resources(
            cluster.spec.resources.as_ref(),
            "100m",
            &memory_request(cluster),
        )),
        startup_probe: Some(startup),
        liveness_probe: Some(liveness),
        readiness_probe: Some(readiness),
        security_context: Some(container_security()),
        // A condition reports why a member exits.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        ..Default::default()
    }
}

/// The startup, liveness and readiness probes.
///
/// Liveness must not depend on the quorum: otherwise the kubelet would restart healthy members after the quorum is
/// lost.
fn probes(version: Option<Version>) -> (Probe, Probe, Probe) {
    let http = |path: &str| Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(2381),
            ..Default::default()
        }),
        ..Default::default()
    };
    let tcp = Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(2380),
            ..Default::default()
        }),
        ..Default::default()
    };
    // Unknown versions are treated as new ones.
    let (live, ready) = match version {
        // A full database takes no writes, but clients that free space must still reach the members.
        Some(version) if !version.has_health_endpoints() => (tcp, http("/health?exclude=NOSPACE")),
        _ => (http("/livez"), http("/readyz")),
    };
    let startup = Probe {
        period_seconds: Some(5),
        failure_threshold: Some(60),
        ..live.clone()
    };
    let steady = |probe: Probe| Probe {
        period_seconds: Some(5),
        timeout_seconds: Some(5),
        failure_threshold: Some(3),
        ..probe
    };
    (startup, steady(live), steady(ready))
}
