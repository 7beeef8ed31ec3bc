//! `spec.grants`: the grants of a plugin.

use innkeeper_model::GroupKind;
use innkeeper_policy::{
    BUILT_IN_GROUPS, DEPTH_MAX, INTERFERING_KINDS, PRIVILEGED_CORE_KINDS, PRIVILEGED_GROUPS,
    SETTING_GROUPS, SETTING_KINDS,
};
use kube::{
    KubeSchema,
    core::{ListMerge, Rule},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{GROUP, KIND, NAME, NAMESPACE};

/// What a plugin may do; everything else is denied.
///
/// Privileged kinds give power over the cluster. They are all kinds in the groups admissionregistration.k8s.io,
/// apiextensions.k8s.io, apiregistration.k8s.io, certificates.k8s.io, innkeeper.dev and rbac.authorization.k8s.io, and
/// Namespace, Node, PersistentVolume and ServiceAccount. Except for reads, also kinds with cluster-wide settings (the
/// groups flowcontrol.apiserver.k8s.io, internal.apiserver.k8s.io, node.k8s.io, storage.k8s.io and
/// storagemigration.k8s.io, and DeviceClass, DeviceTaintRule, IngressClass, IPAddress, PriorityClass, ResourceSlice and
/// ServiceCIDR), and kinds that affect other users in a namespace (Endpoints, EndpointSlice, Lease, LimitRange and
/// ResourceQuota).
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GrantsSpec {
    /// Parent kinds it may serve and whose CustomResourceDefinitions it may install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = by_kind())]
    pub parents: Vec<ParentAccess>,
    /// Other kinds whose CustomResourceDefinitions it may install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = by_kind())]
    pub crds: Vec<CrdAccess>,
    /// Child kinds it may create.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = by_kind())]
    pub children: Vec<ChildAccess>,
    /// Kinds it may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub reads: Vec<ReadAccess>,
    /// The Pod Security Standards level that Pods and Pod templates must meet.
    ///
    /// Custom kinds that create Pods are not checked.
    #[serde(default)]
    pub pod_security: PodSecurityLevel,
    /// Service accounts that Pods may use, besides `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = NAME.rule_for_all())]
    pub service_accounts: Vec<String>,
    /// System namespaces (kube-* and the host's) in which it may serve parents and create children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[x_kube(validation = NAMESPACE.rule_for_all())]
    pub system_namespaces: Vec<String>,
    /// Write children as this account instead of the host's.
    ///
    /// The account's annotation innkeeper.dev/plugins must list this Plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_ref: Option<ServiceAccountRef>,
}

/// Returns the strategy that merges entries by kind, so there is at most one for each.
fn by_kind() -> ListMerge {
    ListMerge::Map(vec!["group".to_owned(), "kind".to_owned()])
}

/// Defines access to one kind: the kind and further fields, with the flag for a privileged kind.
macro_rules! access {
    ($(#[$meta:meta])* $name:ident { $($fields:tt)* }) => {
        #[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
        #[serde(rename_all = "camelCase")]
        $(#[$meta])*
        pub struct $name {
            /// The API group; empty for the core group.
            #[serde(default)]
            #[schemars(length(max = 253))]
            #[x_kube(validation = GROUP.rule())]
            pub group: String,
            /// The kind in CamelCase.
            #[schemars(length(max = 63))]
            #[x_kube(validation = KIND.rule())]
            pub kind: String,
            $($fields)*
        }

        impl $name {
            /// Returns the kind.
            pub(super) fn group_kind(&self) -> GroupKind {
                GroupKind::new(&*self.group, &*self.kind)
            }
        }
    };
}

access! {
    /// A parent kind.
    #[x_kube(
        validation = privileged(),
        validation = Rule::new("self.group != '' || self.kind != 'Secret'")
            .message("a Secret is never a parent"),
        validation = built_in()
    )]
    ParentAccess {
        /// Must be true for a built-in Kubernetes kind.
        #[serde(default)]
        pub builtin: bool,
        /// Must be true for a privileged kind.
        #[serde(default)]
        pub privileged: bool,
    }
}

access! {
    /// A kind whose CustomResourceDefinition may be installed.
    #[x_kube(
        validation = privileged(),
        validation = Rule::new(format!("!({})", is_built_in()))
            .message("kinds of Kubernetes itself have no CustomResourceDefinition")
    )]
    CrdAccess {
        /// Must be true for a privileged kind.
        #[serde(default)]
        pub privileged: bool,
    }
}

access! {
    /// A child kind.
    #[x_kube(validation = privileged())]
    ChildAccess {
        /// Let parents with the annotation innkeeper.dev/adopt adopt objects without an owner.
        #[serde(default)]
        pub adopt: bool,
        /// For the plugin's own parent kinds: how many generations of such children may exist below a user's object. 0 allows
        /// none.
        #[serde(default)]
        #[schemars(range(min = 0, max = DEPTH_MAX))]
        pub depth: i32,
        /// Must be true for a privileged kind, and for children whose content affects others: Secrets with service account or
        /// bootstrap tokens, Services with externalIPs, loadBalancerIP or externalName, Ingresses with snippets or without a
        /// host, NetworkPolicies and PodDisruptionBudgets whose selector requires no label, and HorizontalPodAutoscalers for
        /// other workloads.
        #[serde(default)]
        pub privileged: bool,
    }
}

access! {
    /// A readable kind.
    #[x_kube(
        validation = privileged_to_read(),
        validation = Rule::new(
            "(self.scope == 'Namespaces') == (has(self.namespaces) && self.namespaces.size() > 0)"
        )
        .message("namespaces must name at least one namespace for scope: Namespaces, and be absent for any other scope"),
        validation = Rule::new("self.access != 'hash' || (self.group == '' && self.kind in ['Secret', 'ConfigMap'])")
            .message("access: hash is for Secrets and ConfigMaps; write full or metadata")
    )]
    ReadAccess {
        /// How much of each object the plugin sees.
        pub access: ReadForm,
        /// From which namespaces it may read.
        #[serde(default)]
        pub scope: ReadPlace,
        /// The namespaces for scope: Namespaces.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
        #[x_kube(validation = NAMESPACE.rule_for_all())]
        pub namespaces: Vec<String>,
        /// Only objects with these labels, as for kubectl: `app=web,tier in (a,b)`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(length(min = 1, max = 1024))]
        pub label_selector: Option<String>,
        /// Must be true for a privileged kind.
        #[serde(default)]
        pub privileged: bool,
    }
}

/// A Pod Security Standards level.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurityLevel {
    /// Hardened Pods only.
    #[default]
    Restricted,
    /// Pods without known privilege escalations.
    Baseline,
    /// All Pods, including those that can take over a node.
    Privileged,
}

/// How much of an object the plugin sees.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ReadForm {
    /// The whole object.
    Full,
    /// apiVersion, kind and metadata.
    Metadata,
    /// Secrets and ConfigMaps: metadata, type, and a keyed hash instead of each value.
    Hash,
}

/// From which namespaces objects are read.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadPlace {
    /// The parent's namespace.
    #[default]
    ParentNamespace,
    /// The listed namespaces.
    Namespaces,
    /// The whole cluster; needed for cluster-scoped kinds.
    Cluster,
}

/// A service account in any namespace.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAccountRef {
    /// The account's namespace.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = NAMESPACE.rule())]
    pub namespace: String,
    /// The account's name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule())]
    pub name: String,
}

fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Returns the rule that a privileged kind must be marked, except for reads.
fn privileged() -> Rule {
    let groups = [PRIVILEGED_GROUPS.as_slice(), &SETTING_GROUPS].concat();
    let core = PRIVILEGED_CORE_KINDS.map(|kind| ("", kind));
    marked(
        &groups,
        &[core.as_slice(), &SETTING_KINDS, &INTERFERING_KINDS].concat(),
    )
}

/// Returns the rule that a kind that is privileged to read must be marked.
fn privileged_to_read() -> Rule {
    let core = PRIVILEGED_CORE_KINDS.map(|kind| ("", kind));
    marked(&PRIVILEGED_GROUPS, &core)
}

fn marked(groups: &[&str], kinds: &[(&str, &str)]) -> Rule {
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(group, kind)| format!("{group}/{kind}"))
        .collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    Rule::new(format!(
        "self.privileged || !(self.group in {} || self.group + '/' + self.kind in {})",
        list(groups),
        list(&kinds)
    ))
    .message("this kind gives power over the cluster or over others: write privileged: true if that is meant")
}

/// Returns a CEL expression that is true for a built-in Kubernetes kind.
fn is_built_in() -> String {
    // The API server accepts CustomResourceDefinitions only in groups with a dot.
    format!(
        "!self.group.contains('.') || self.group in {}",
        list(&BUILT_IN_GROUPS)
    )
}

/// Returns the rule that a built-in parent must be marked.
fn built_in() -> Rule {
    Rule::new(format!("self.builtin || !({})", is_built_in())).message(
        "this kind is part of Kubernetes: write builtin: true if its objects are to be parents",
    )
}
