//! The meaning of grants in plain words, for the administrator who decides about them.

use std::collections::BTreeSet;

use innkeeper_model::{Access, GroupKind, Manifest, ReadScope, Scope};

use super::{Grants, PodSecurity, is_built_in, is_privileged, is_secret, makes_pods};

/// Kinds that redirect or block network traffic.
const TRAFFIC_KINDS: [(&str, &str); 5] = [
    ("", "Endpoints"),
    ("", "Service"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "NetworkPolicy"),
];

/// Kinds that stop the work of others.
const BLOCKING_KINDS: [(&str, &str); 4] = [
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("coordination.k8s.io", "Lease"),
    ("policy", "PodDisruptionBudget"),
];

impl Grants {
    /// Returns one sentence for each power that the grants give to this plugin, without a subject: "can run Pods ...".
    ///
    /// Kinds that the plugin does not declare give it no power.
    pub fn powers(&self, manifest: &Manifest) -> Vec<String> {
        let declared = manifest.children.iter().map(|one| one.kind.group_kind());
        let children: BTreeSet<GroupKind> =
            declared.filter(|kind| self.allows_child(kind)).collect();
        let mut powers = Vec::new();
        self.pods(&children, &mut powers);
        let of = |chosen: &dyn Fn(&GroupKind) -> bool| list(&children, chosen);
        if let Some(kinds) = of(&is_privileged) {
            powers.push(format!(
                "can change the cluster itself, its settings or the permissions in it, through {kinds}"
            ));
        }
        if self
            .children
            .iter()
            .any(|(kind, grant)| is_secret(kind) && grant.privileged && children.contains(kind))
        {
            powers.push(
                "can get the token of every service account in the namespaces of its children"
                    .to_owned(),
            );
        }
        if let Some(kinds) = of(&|kind| is_among(kind, &TRAFFIC_KINDS)) {
            powers.push(format!(
                "can redirect or block network traffic, through {kinds}"
            ));
        }
        if let Some(kinds) = of(&|kind| is_among(kind, &BLOCKING_KINDS)) {
            powers.push(format!("can hold up the work of others, through {kinds}"));
        }
        if let Some(kinds) = of(&|kind| !is_built_in(kind)) {
            powers.push(format!(
                "can make custom objects, whose effect depends on their controllers: {kinds}"
            ));
        }
        if let Some(kinds) = of(&|kind| manifest.reconciles(kind) && self.allows_nesting(kind)) {
            powers.push(format!(
                "can make parents of its own, which it then serves like those of users: {kinds}"
            ));
        }
        self.reads(manifest, &mut powers);
        self.places(manifest, &mut powers);
        powers
    }

    fn pods(&self, children: &BTreeSet<GroupKind>, powers: &mut Vec<String>) {
        let Some(kinds) = list(children, &makes_pods) else {
            return;
        };
        let accounts = if self.service_accounts.is_empty() {
            "the service account default of the namespace".to_owned()
        } else {
            let names: Vec<&str> = self.service_accounts.iter().map(String::as_str).collect();
            format!(
                "the service accounts default, {} of the namespace",
                names.join(", ")
            )
        };
        let level = self.pod_security.as_str();
        powers.push(format!(
            "can run Pods of any image as {accounts}, at podSecurity: {level}, through {kinds}"
        ));
        powers.push("can read every Secret and ConfigMap of the namespaces of its children, by mounting them in Pods".to_owned());
        if self.pod_security == PodSecurity::Privileged {
            powers.push("can take over every node that runs its Pods, and so every service account with Pods there".to_owned());
        }
    }

    fn reads(&self, manifest: &Manifest, powers: &mut Vec<String>) {
        for read in self.reads_for(manifest) {
            let kind = read.kind.group_kind();
            let part = match (read.access, is_secret(&kind)) {
                (Access::Full, true) => "the values of all objects of",
                (Access::Full, false) => "all objects of",
                (Access::Metadata, _) => "the metadata of all objects of",
                // A keyed hash gives no value.
                (Access::Hash, _) => continue,
            };
            let place = match &read.scope {
                ReadScope::Cluster => "in the whole cluster".to_owned(),
                ReadScope::ParentNamespace => "in the namespaces of its parents".to_owned(),
                ReadScope::Namespaces(names) => {
                    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                    format!("in the namespaces {}", names.join(", "))
                }
            };
            let labels = match &read.label_selector {
                all if all.selects_all() => String::new(),
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
                "can make its children in every namespace but kube-* and that of the host"
                    .to_owned(),
            );
        }
        if !self.system_namespaces.is_empty() {
            let names: Vec<&str> = self.system_namespaces.iter().map(String::as_str).collect();
            powers.push(format!(
                "works in the system namespaces {}",
                names.join(", ")
            ));
        }
    }
}

fn is_among(kind: &GroupKind, kinds: &[(&str, &str)]) -> bool {
    kinds.contains(&(&*kind.group, &*kind.kind))
}

/// Returns the chosen kinds with commas between them; none if there are none.
fn list(kinds: &BTreeSet<GroupKind>, chosen: &dyn Fn(&GroupKind) -> bool) -> Option<String> {
    let chosen: Vec<String> = kinds
        .iter()
        .filter(|kind| chosen(kind))
        .map(ToString::to_string)
        .collect();
    (!chosen.is_empty()).then(|| chosen.join(", "))
}
