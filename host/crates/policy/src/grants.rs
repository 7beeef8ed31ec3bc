//! Grants: the permissions that an administrator gives to a plugin.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::{
    Access, Expression, GroupKind, Manifest, ParentKind, ReadKind, ReadScope, Scope, Selector,
    kind_of_crd,
};

use super::{
    PodSecurity,
    privilege::{is_built_in, is_privileged, is_privileged_to_read, needs_no_grant},
};

/// The largest depth that a grant may have: each object in a generation may have as many children as one parent, by
/// default 256.
pub const DEPTH_MAX: u32 = 16;

/// A granted parent kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParentGrant {
    /// Confirms a kind that is part of Kubernetes.
    pub built_in: bool,
    /// Confirms a privileged kind.
    pub privileged: bool,
}

/// A kind whose CustomResourceDefinition is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrdGrant {
    /// Confirms a privileged kind.
    pub privileged: bool,
}

/// A granted child kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildGrant {
    /// True if an object without an owner may be adopted when the parent requests it.
    pub adopt: bool,
    /// The number of generations that may follow a user's object, for a kind that the plugin serves itself; 0 allows no
    /// such child.
    pub depth: u32,
    /// Confirms a privileged kind.
    pub privileged: bool,
}

/// One granted read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadGrant {
    /// The kind to read.
    pub kind: GroupKind,
    /// The form in which the guest sees the objects.
    pub access: Access,
    /// The namespaces to read.
    pub scope: ReadScope,
    /// Limits the read to objects with these labels; the default selects all.
    pub label_selector: Selector,
    /// Confirms a privileged kind.
    pub privileged: bool,
}

impl ReadGrant {
    pub(super) fn satisfies(&self, requested: &ReadKind) -> bool {
        // `Access` is ordered from most to least.
        self.access <= requested.access
            && (self.scope == ReadScope::Cluster || self.scope == requested.scope)
            && (self.label_selector.selects_all()
                || self.label_selector == requested.label_selector)
    }

    /// Returns what this grant covers of a request.
    fn narrow(&self, requested: &ReadKind) -> ReadKind {
        let scope = match requested.scope {
            ReadScope::ParentNamespace if self.scope == ReadScope::Cluster => &requested.scope,
            _ => &self.scope,
        };
        let selectors = [&self.label_selector, &requested.label_selector];
        let expressions: BTreeSet<Expression> = selectors.into_iter().cloned().flatten().collect();
        ReadKind {
            kind: requested.kind.clone(),
            access: self.access.max(requested.access),
            scope: scope.clone(),
            // A selector requires all expressions, so the joined selector selects the objects that match both.
            label_selector: expressions.into_iter().collect(),
        }
    }
}

/// Everything that a plugin is allowed; the default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The parent kinds that it may serve.
    pub parents: BTreeMap<GroupKind, ParentGrant>,
    /// Kinds besides its parents' whose CustomResourceDefinitions it may install.
    pub crds: BTreeMap<GroupKind, CrdGrant>,
    /// The child kinds that it may create.
    pub children: BTreeMap<GroupKind, ChildGrant>,
    /// The reads that it may make.
    pub reads: Vec<ReadGrant>,
    /// The level for Pods and Pod templates among its children.
    pub pod_security: PodSecurity,
    /// The service accounts that its Pods may use besides `default`.
    pub service_accounts: BTreeSet<String>,
    /// The system namespaces in which it may work, see [`is_system_namespace`].
    pub system_namespaces: BTreeSet<String>,
    /// True if cluster-scoped parents may have children, in every namespace but ungranted system namespaces.
    pub beyond_parent_namespace: bool,
    /// True if parents are only served while the plugin's own definitions are installed.
    pub own_definitions: bool,
}

/// Returns true for `kube-*` and for the host's namespaces: those of its objects, and of its Pod and account.
///
/// Objects in a system namespace can affect the whole cluster, so a grant must name it.
pub fn is_system_namespace(namespace: &str, host: &[impl AsRef<str>]) -> bool {
    namespace.starts_with("kube-") || host.iter().any(|own| own.as_ref() == namespace)
}

impl Grants {
    /// Grants everything that the plugin requests, with the confirmations for privileged and built-in kinds. Secrets
    /// are never parents, and built-in kinds have no definitions.
    pub fn requested(manifest: &Manifest) -> Self {
        let parents: BTreeMap<GroupKind, ParentGrant> = manifest
            .parents
            .iter()
            .map(|parent| parent.kind.group_kind())
            .filter(|kind| !kind.is_secret())
            .map(|kind| {
                let grant = ParentGrant {
                    built_in: is_built_in(&kind),
                    privileged: is_privileged(&kind),
                };
                (kind, grant)
            })
            .collect();
        let crds = manifest
            .crds
            .iter()
            .filter_map(kind_of_crd)
            // A granted parent kind includes the definition.
            .filter(|kind| !is_built_in(kind) && !parents.contains_key(kind))
            .map(|kind| {
                let privileged = is_privileged(&kind);
                (kind, CrdGrant { privileged })
            });
        let children = manifest.children.iter().map(|child| {
            let kind = child.kind.group_kind();
            let grant = ChildGrant {
                depth: if manifest.reconciles(&kind) {
                    DEPTH_MAX
                } else {
                    0
                },
                privileged: is_privileged(&kind),
                ..ChildGrant::default()
            };
            (kind, grant)
        });
        let reads = manifest.reads.iter().map(|read| {
            let kind = read.kind.group_kind();
            ReadGrant {
                privileged: is_privileged_to_read(&kind),
                kind,
                access: read.access,
                scope: read.scope.clone(),
                label_selector: read.label_selector.clone(),
            }
        });
        Self {
            crds: crds.collect(),
            children: children.collect(),
            reads: reads.collect(),
            parents,
            beyond_parent_namespace: true,
            ..Self::default()
        }
    }

    /// Proposes grants to an administrator who has set none: all requests except privileged kinds, built-in parents,
    /// Secret values, and more than one generation of the plugin's own parents.
    pub fn proposed(manifest: &Manifest) -> Self {
        let mut grants = Self::requested(manifest);
        let is_ordinary = |grant: &ParentGrant| !grant.built_in && !grant.privileged;
        grants.parents.retain(|_, grant| is_ordinary(grant));
        grants.crds.retain(|_, grant| !grant.privileged);
        grants.children.retain(|_, grant| !grant.privileged);
        grants.reads.retain(|grant| !grant.privileged);
        for child in grants.children.values_mut() {
            child.depth = child.depth.min(1);
        }
        for read in &mut grants.reads {
            if read.kind.is_secret() {
                read.access = read.access.max(Access::Hash);
            }
        }
        grants
    }

    /// Returns the grants for a plugin file without grants: the part of [`Grants::proposed`] that keeps the plugin in
    /// the parents' namespaces, without Pods, redirected traffic or foreign kinds.
    pub fn for_file(manifest: &Manifest) -> Self {
        let mut grants = Self::proposed(manifest);
        let defined: BTreeSet<_> = manifest.crds.iter().filter_map(kind_of_crd).collect();
        grants.parents.retain(|kind, _| defined.contains(kind));
        grants.own_definitions = true;
        grants.children.retain(|kind, _| needs_no_grant(kind));
        for read in &mut grants.reads {
            read.scope = ReadScope::ParentNamespace;
        }
        grants.beyond_parent_namespace = false;
        grants
    }

    /// Returns true if the plugin may serve parents and create children in a namespace; `host` lists the host's
    /// namespaces.
    pub fn allows_namespace(&self, namespace: &str, host: &[impl AsRef<str>]) -> bool {
        !is_system_namespace(namespace, host) || self.system_namespaces.contains(namespace)
    }

    /// Returns true if a parent of this kind is allowed; a Secret never is.
    pub fn allows_parent(&self, kind: &GroupKind) -> bool {
        self.parents.get(kind).is_some_and(|grant| {
            !kind.is_secret()
                && suffices(kind, grant.privileged)
                && (grant.built_in || !is_built_in(kind))
        })
    }

    /// Returns the declared parent kinds that the plugin may serve.
    pub fn parents_of<'a>(
        &'a self,
        manifest: &'a Manifest,
    ) -> impl Iterator<Item = &'a ParentKind> {
        manifest
            .parents
            .iter()
            .filter(|parent| self.allows_parent(&parent.kind.group_kind()))
    }

    /// The same without versions.
    pub fn parent_kinds_of(&self, manifest: &Manifest) -> BTreeSet<GroupKind> {
        self.parents_of(manifest)
            .map(|parent| parent.kind.group_kind())
            .collect()
    }

    /// Returns true if a child of this kind is allowed.
    pub fn allows_child(&self, kind: &GroupKind) -> bool {
        self.children
            .get(kind)
            .is_some_and(|grant| suffices(kind, grant.privileged))
    }

    /// Returns true if the grant for this child kind confirms effects on others with `privileged: true`.
    pub(super) fn confirms(&self, kind: &GroupKind) -> bool {
        self.children
            .get(kind)
            .is_some_and(|grant| grant.privileged)
    }

    /// Returns true if parents of this kind may have children of the same kind.
    pub(super) fn allows_nesting(&self, kind: &GroupKind) -> bool {
        self.allows_child(kind) && self.children.get(kind).is_some_and(|grant| grant.depth > 0)
    }

    /// Returns true if an object of this kind may be adopted when the parent requests it.
    pub fn allows_adoption(&self, kind: &GroupKind) -> bool {
        self.allows_child(kind) && self.children.get(kind).is_some_and(|grant| grant.adopt)
    }

    /// Returns true if the plugin may install a CustomResourceDefinition of this kind.
    ///
    /// Kubernetes' own kinds have no CustomResourceDefinition, so no grant allows one.
    pub fn allows_crd(&self, kind: &GroupKind) -> bool {
        let granted = self
            .crds
            .get(kind)
            .is_some_and(|grant| suffices(kind, grant.privileged));
        !is_built_in(kind) && (granted || self.allows_parent(kind))
    }

    /// Returns how much of observed children a guest sees, by parent scope.
    ///
    /// The guest sees Secrets as hashes unless a grant gives full access wherever such children can be: the parent's
    /// namespace for a namespaced parent, all namespaces for a cluster-scoped parent.
    pub fn child_access(&self, kind: &GroupKind, parent: Scope) -> Access {
        let is_covered = |scope: &ReadScope| match scope {
            ReadScope::Cluster => true,
            ReadScope::ParentNamespace => parent == Scope::Namespaced,
            // The list may lack the namespace of a parent, now or later.
            ReadScope::Namespaces(_) => false,
        };
        let is_full = |read: &ReadGrant| {
            read.access == Access::Full
                // The selector may exclude a child.
                && read.label_selector.selects_all()
                && is_covered(&read.scope)
        };
        if kind.is_secret() && !self.reads_of(kind).any(is_full) {
            Access::Hash
        } else {
            Access::Full
        }
    }

    /// Returns the read grants for a kind; a privileged kind needs the confirmation.
    pub fn reads_of<'a>(&'a self, kind: &'a GroupKind) -> impl Iterator<Item = &'a ReadGrant> {
        self.reads
            .iter()
            .filter(move |read| read.kind == *kind)
            .filter(move |read| read.privileged || !is_privileged_to_read(kind))
    }

    /// Narrows the requested reads to the grants: the lesser access, the narrower scope and both label selectors.
    pub fn reads_for(&self, manifest: &Manifest) -> Vec<ReadKind> {
        let mut reads = Vec::new();
        for requested in &manifest.reads {
            let kind = requested.kind.group_kind();
            let is_satisfied = |read: &ReadGrant| read.satisfies(requested);
            let granted: Vec<ReadKind> = if self.reads_of(&kind).any(is_satisfied) {
                vec![requested.clone()]
            } else {
                self.reads_of(&kind)
                    .map(|read| read.narrow(requested))
                    .collect()
            };
            for read in granted {
                if !reads.contains(&read) {
                    reads.push(read);
                }
            }
        }
        reads
    }
}

/// Returns true if a grant with or without `privileged: true` covers the kind.
fn suffices(kind: &GroupKind, privileged: bool) -> bool {
    privileged || !is_privileged(kind)
}
