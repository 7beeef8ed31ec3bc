//! Describes in plain words what grants allow, for the administrator who decides about them.

use std::collections::BTreeSet;

use innkeeper_model::{Access, GroupKind, Manifest, ReadScope, Scope, kind_of_crd};

use super::{
    Grants, PodSecurity, is_built_in, is_privileged, makes_pods, privilege::is_interfering,
};

/// Kinds that redirect or block network traffic.
const TRAFFIC_KINDS: [(&str, &str); 5] = [
    ("", "Endpoints"),
    ("", "Service"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "NetworkPolicy"),
];

/// Kinds that scale workloads, even those that others own.
const SCALING_KINDS: [(&str, &str); 1] = [("autoscaling", "HorizontalPodAutoscaler")];

/// Kinds that claim node devices for Pods.
const DEVICE_KINDS: [(&str, &str); 2] = [
    ("resource.k8s.io", "ResourceClaim"),
    ("resource.k8s.io", "ResourceClaimTemplate"),
];

/// Kinds that claim volumes.
const STORAGE_KINDS: [(&str, &str); 1] = [("", "PersistentVolumeClaim")];

/// Kinds from which Pods and other controllers read settings.
const DATA_KINDS: [(&str, &str); 2] = [("", "ConfigMap"), ("", "Secret")];

/// Kinds that can block others.
const BLOCKING_KINDS: [(&str, &str); 4] = [
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("coordination.k8s.io", "Lease"),
    ("policy", "PodDisruptionBudget"),
];

/// Powers that children of ordinary kinds have only if their grant has `privileged: true`.
const CONFIRMED_POWERS: [(&str, &str, &str); 6] = [
    (
        "",
        "Secret",
        "can get the token of every service account in its children's namespaces",
    ),
    (
        "",
        "Service",
        "can take the traffic for any foreign address, and point names in its namespaces to servers elsewhere",
    ),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        "can scale workloads of others",
    ),
    (
        "networking.k8s.io",
        "Ingress",
        "can configure ingress controllers that serve others, and take the requests for all hosts",
    ),
    (
        "networking.k8s.io",
        "NetworkPolicy",
        "can control the traffic of all Pods in its children's namespaces",
    ),
    (
        "policy",
        "PodDisruptionBudget",
        "can control the eviction of all Pods in its children's namespaces",
    ),
];

/// Selects kinds.
type KindFilter = fn(&GroupKind) -> bool;

/// Powers by child kind, each with the words before the kinds.
const OBJECT_POWERS: [(KindFilter, &str); 8] = [
    (
        // Those that only interfere in a namespace have the next two sentences.
        |kind| is_privileged(kind) && !is_interfering(kind),
        "can change the cluster, its settings or its permissions, through ",
    ),
    (
        |kind| is_among(kind, &TRAFFIC_KINDS),
        "can redirect or block network traffic, through ",
    ),
    (
        |kind| is_among(kind, &BLOCKING_KINDS),
        "can block the work of others, through ",
    ),
    (
        |kind| is_among(kind, &SCALING_KINDS),
        "can start and stop Pods of every workload in its children's namespaces, through ",
    ),
    (
        |kind| is_among(kind, &STORAGE_KINDS),
        "can claim storage, including existing volumes and snapshots, through ",
    ),
    (
        |kind| is_among(kind, &DEVICE_KINDS),
        "can claim node devices, through ",
    ),
    (
        |kind| is_among(kind, &DATA_KINDS),
        "can create settings and credentials that Pods and other controllers read, through ",
    ),
    (
        |kind| !is_built_in(kind),
        "can create custom objects, whose effect depends on their controllers: ",
    ),
];

impl Grants {
    /// Returns one sentence without a subject for each power that the grants give to this plugin: "can run Pods ...".
    ///
    /// Kinds that the plugin does not declare give it no power.
    pub fn powers(&self, manifest: &Manifest) -> Vec<String> {
        let children: BTreeSet<GroupKind> = manifest
            .children
            .iter()
            .map(|child| child.kind.group_kind())
            .filter(|kind| self.allows_child(kind))
            .collect();
        let mut powers = Vec::new();
        self.pods(&children, &mut powers);
        self.objects(&children, &mut powers);
        self.definitions(manifest, &mut powers);
        let nested = |kind: &GroupKind| manifest.reconciles(kind) && self.allows_nesting(kind);
        if let Some(kinds) = list(&children, &nested) {
            powers.push(format!(
                "can create its own parents, which it then serves like those of users: {kinds}"
            ));
        }
        self.reads(manifest, &mut powers);
        self.places(manifest, &mut powers);
        powers
    }

    /// Adds what children other than Pods can do. The last sentence has all kinds that no table names.
    fn objects(&self, children: &BTreeSet<GroupKind>, powers: &mut Vec<String>) {
        for (group, kind, power) in CONFIRMED_POWERS {
            let kind = GroupKind::new(group, kind);
            if children.contains(&kind) && self.confirms(&kind) {
                powers.push(power.to_owned());
            }
        }
        let mut named: BTreeSet<GroupKind> = children
            .iter()
            .filter(|kind| makes_pods(kind))
            .cloned()
            .collect();
        for (is_included, power) in OBJECT_POWERS {
            if let Some(kinds) = list(children, &is_included) {
                powers.push(format!("{power}{kinds}"));
            }
            named.extend(children.iter().filter(|kind| is_included(kind)).cloned());
        }
        if let Some(kinds) = list(children, &|kind| !named.contains(kind)) {
            powers.push(format!("can create, change and delete objects of {kinds}"));
        }
    }

    /// Adds the powers over whole kinds.
    fn definitions(&self, manifest: &Manifest, powers: &mut Vec<String>) {
        let defined: BTreeSet<GroupKind> = manifest.crds.iter().filter_map(kind_of_crd).collect();
        if let Some(kinds) = list(&defined, &|kind| self.allows_crd(kind)) {
            powers.push(format!(
                "can define and change kinds for the whole cluster: {kinds}"
            ));
        }
        let parents = manifest.parent_kinds();
        let is_granted_built_in = |kind: &GroupKind| is_built_in(kind) && self.allows_parent(kind);
        if let Some(kinds) = list(&parents, &is_granted_built_in) {
            powers.push(format!(
                "reads all objects of {kinds}, and can change their status and block their deletion"
            ));
        }
    }

    fn pods(&self, children: &BTreeSet<GroupKind>, powers: &mut Vec<String>) {
        let Some(kinds) = list(children, &makes_pods) else {
            return;
        };
        let accounts = if self.service_accounts.is_empty() {
            "the namespace's service account default".to_owned()
        } else {
            let names = join(&self.service_accounts);
            format!("the namespace's service accounts default, {names}")
        };
        let level = self.pod_security.as_str();
        powers.push(format!(
            "can run Pods with any image as {accounts}, at podSecurity: {level}, through {kinds}"
        ));
        powers.push("can read every Secret and ConfigMap in its children's namespaces, by mounting them in Pods".to_owned());
        if self.pod_security == PodSecurity::Privileged {
            powers.push("can take over every node that runs its Pods, and so every service account with Pods there".to_owned());
        }
    }

    fn reads(&self, manifest: &Manifest, powers: &mut Vec<String>) {
        for read in self.reads_for(manifest) {
            let kind = read.kind.group_kind();
            let part = match (read.access, kind.is_secret()) {
                (Access::Full, true) => "the values of all objects of",
                (Access::Full, false) => "all objects of",
                (Access::Metadata, _) => "the metadata of all objects of",
                // A keyed hash shows no value.
                (Access::Hash, _) => continue,
            };
            let place = match &read.scope {
                ReadScope::Cluster => "in the whole cluster".to_owned(),
                ReadScope::ParentNamespace => "in its parents' namespaces".to_owned(),
                ReadScope::Namespaces(names) => format!("in the namespaces {}", join(names)),
            };
            let labels = match &read.label_selector {
                selector if selector.selects_all() => String::new(),
                selector => format!(" with the labels {selector}"),
            };
            powers.push(format!("can read {part} {kind}{labels} {place}"));
        }
    }

    fn places(&self, manifest: &Manifest, powers: &mut Vec<String>) {
        let is_cluster_scoped = |scope| scope == Scope::Cluster;
        let mut parents = manifest.parents.iter().map(|parent| parent.scope);
        if self.beyond_parent_namespace && parents.any(is_cluster_scoped) {
            powers.push(
                "can create its children in every namespace but kube-* and the host's".to_owned(),
            );
        }
        if !self.system_namespaces.is_empty() {
            let names = join(&self.system_namespaces);
            powers.push(format!("works in the system namespaces {names}"));
        }
    }
}

fn is_among(kind: &GroupKind, kinds: &[(&str, &str)]) -> bool {
    kinds.contains(&(&*kind.group, &*kind.kind))
}

fn join(names: &BTreeSet<impl AsRef<str>>) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    names.join(", ")
}

/// Returns the included kinds with commas between them; none if there are none.
fn list(kinds: &BTreeSet<GroupKind>, is_included: &dyn Fn(&GroupKind) -> bool) -> Option<String> {
    let names: Vec<String> = kinds
        .iter()
        .filter(|kind| is_included(kind))
        .map(ToString::to_string)
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}
