//! The permissions that an administrator gives to a plugin.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::{
    Access, Expression, GroupKind, Manifest, ParentKind, ReadKind, ReadScope, Scope, Selector,
    kind_of_crd,
};

use super::{
    PodSecurity,
    privilege::{is_built_in, is_privileged, is_privileged_to_read, is_secret, needs_no_grant},
};

/// The largest depth that a grant may give: each generation may be as large as all children of one parent, 256 by default,
/// for every object of the generation before.
pub const DEPTH_MAX: u32 = 16;

/// A granted kind of parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParentGrant {
    /// The `builtin` field of the grant: confirms that a kind of Kubernetes itself is meant.
    pub built_in: bool,
    /// The `privileged` field of the grant: confirms that a privileged kind is meant.
    pub privileged: bool,
}

/// A granted kind of CustomResourceDefinition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrdGrant {
    /// The `privileged` field of the grant: confirms that a privileged kind is meant.
    pub privileged: bool,
}

/// A granted kind of child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildGrant {
    /// True if an object without an owner may be adopted when its parent asks for it.
    pub adopt: bool,
    /// For a kind of parents of the plugin itself: the number of generations that may follow an object of a user; 0 allows
    /// no such child.
    pub depth: u32,
    /// The `privileged` field of the grant: confirms that a privileged kind is meant.
    pub privileged: bool,
}

/// One granted read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadGrant {
    /// The kind to read.
    pub kind: GroupKind,
    /// The part of each object that the guest sees.
    pub access: Access,
    /// The namespaces in which objects are read.
    pub scope: ReadScope,
    /// Limits the read to objects with these labels; the default selects all.
    pub label_selector: Selector,
    /// The `privileged` field of the grant: confirms that a privileged kind is meant.
    pub privileged: bool,
}

impl ReadGrant {
    pub(super) fn satisfies(&self, asked: &ReadKind) -> bool {
        // `Access` is ordered from most to least.
        self.access <= asked.access
            && (self.scope == ReadScope::Cluster || self.scope == asked.scope)
            && (self.label_selector.selects_all() || self.label_selector == asked.label_selector)
    }

    /// Returns the part of the request that this grant covers.
    fn narrow(&self, asked: &ReadKind) -> ReadKind {
        let scope = match asked.scope {
            ReadScope::ParentNamespace if self.scope == ReadScope::Cluster => &asked.scope,
            _ => &self.scope,
        };
        let selectors = [&self.label_selector, &asked.label_selector];
        let expressions: BTreeSet<Expression> = selectors.into_iter().cloned().flatten().collect();
        ReadKind {
            kind: asked.kind.clone(),
            access: self.access.max(asked.access),
            scope: scope.clone(),
            // All expressions of a selector must hold, so joining two selectors selects the objects that match both.
            label_selector: expressions.into_iter().collect(),
        }
    }
}

/// Everything that a plugin is allowed; the default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Kinds of parents that it may serve.
    pub parents: BTreeMap<GroupKind, ParentGrant>,
    /// Kinds whose CustomResourceDefinitions it may bring, besides those of its parents.
    pub crds: BTreeMap<GroupKind, CrdGrant>,
    /// Kinds of children that it may state.
    pub children: BTreeMap<GroupKind, ChildGrant>,
    /// Reads that it may make.
    pub reads: Vec<ReadGrant>,
    /// The level that Pods and Pod templates of its children must meet.
    pub pod_security: PodSecurity,
    /// The service accounts that Pods of its children may use, besides `default`.
    pub service_accounts: BTreeSet<String>,
    /// The system namespaces in which it may work, see [`is_system_namespace`].
    pub system_namespaces: BTreeSet<String>,
    /// True if its cluster-scoped parents may have children. They can be in every namespace but the system namespaces
    /// that are not granted.
    pub beyond_parent_namespace: bool,
    /// True if parents are only served while their definitions are those that the plugin itself has installed.
    pub own_definitions: bool,
}

/// Returns true for a namespace of Kubernetes itself, `kube-*`, and for those of the host: that with its objects, and that
/// with its Pod and account.
///
/// Objects in it can decide about the whole cluster, so plugins work in it only if a grant names it.
pub fn is_system_namespace(namespace: &str, host: &[impl AsRef<str>]) -> bool {
    namespace.starts_with("kube-") || host.iter().any(|own| own.as_ref() == namespace)
}

impl Grants {
    /// Returns everything that the plugin requests, with the confirmations that privileged and built-in kinds need. Secrets
    /// are never parents, and built-in kinds have no definitions.
    pub fn requested(manifest: &Manifest) -> Self {
        let parents = manifest
            .parents
            .iter()
            .map(|one| one.kind.group_kind())
            .filter(|kind| !is_secret(kind))
            .map(|kind| {
                let grant = ParentGrant {
                    built_in: is_built_in(&kind),
                    privileged: is_privileged(&kind),
                };
                (kind, grant)
            });
        let parents: BTreeMap<_, _> = parents.collect();
        let crds = manifest
            .crds
            .iter()
            .filter_map(kind_of_crd)
            .filter(|kind| !is_built_in(kind) && !parents.contains_key(kind))
            .map(|kind| {
                let privileged = is_privileged(&kind);
                (kind, CrdGrant { privileged })
            });
        let children = manifest
            .children
            .iter()
            .map(|one| one.kind.group_kind())
            .map(|kind| {
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
        let reads = manifest.reads.iter().map(|asked| {
            let kind = asked.kind.group_kind();
            ReadGrant {
                privileged: is_privileged_to_read(&kind),
                kind,
                access: asked.access,
                scope: asked.scope.clone(),
                label_selector: asked.label_selector.clone(),
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

    /// Returns the requests of the plugin without privileged kinds, parents that are part of Kubernetes, the values of
    /// Secrets, and more than one generation of children of its own kinds: the proposal for an administrator who has stated no grants.
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
            if is_secret(&read.kind) {
                read.access = read.access.max(Access::Hash);
            }
        }
        grants
    }

    /// Returns the grants of a plugin that is given as a file without grants: the part of [`Grants::proposed`] with which it
    /// cannot leave the namespaces of its parents, can neither run Pods nor redirect traffic in them, and serves no kinds of
    /// others.
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

    /// Returns true if the plugin may serve parents and make children in a namespace; `host` has those of the host.
    pub fn allows_namespace(&self, namespace: &str, host: &[impl AsRef<str>]) -> bool {
        !is_system_namespace(namespace, host) || self.system_namespaces.contains(namespace)
    }

    /// Returns true if a parent of this kind is allowed; a Secret never is.
    pub fn allows_parent(&self, kind: &GroupKind) -> bool {
        self.parents.get(kind).is_some_and(|grant| {
            !is_secret(kind)
                && suffices(kind, grant.privileged)
                && (grant.built_in || !is_built_in(kind))
        })
    }

    /// Returns the kinds of parents of a plugin that it may serve.
    pub fn parents_of<'a>(
        &'a self,
        manifest: &'a Manifest,
    ) -> impl Iterator<Item = &'a ParentKind> {
        let declared = manifest.parents.iter();
        declared.filter(|parent| self.allows_parent(&parent.kind.group_kind()))
    }

    /// Returns these kinds without their versions.
    pub fn parent_kinds_of(&self, manifest: &Manifest) -> BTreeSet<GroupKind> {
        let parents = self.parents_of(manifest);
        parents.map(|parent| parent.kind.group_kind()).collect()
    }

    /// Returns true if a child of this kind is allowed.
    pub fn allows_child(&self, kind: &GroupKind) -> bool {
        let grant = self.children.get(kind);
        grant.is_some_and(|grant| suffices(kind, grant.privileged))
    }

    /// Returns true if the grant for children of this kind has `privileged: true`, and so confirms effects on others.
    pub(super) fn confirms(&self, kind: &GroupKind) -> bool {
        self.children
            .get(kind)
            .is_some_and(|grant| grant.privileged)
    }

    /// Returns true if objects of this kind of parents may have children of their own kind.
    pub(super) fn allows_nesting(&self, kind: &GroupKind) -> bool {
        self.allows_child(kind) && self.children.get(kind).is_some_and(|grant| grant.depth > 0)
    }

    /// Returns true if an object of this kind may be adopted when its parent asks for it.
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

    /// Returns the access of a guest to observed children of this kind, for parents of the given scope.
    ///
    /// The guest sees Secrets as hashes unless a grant gives full access in every namespace where such children can
    /// be: the parent's own namespace for a namespaced parent, all namespaces for a cluster-scoped parent.
    pub fn child_access(&self, kind: &GroupKind, parent: Scope) -> Access {
        let reaches = |scope: &ReadScope| match scope {
            ReadScope::Cluster => true,
            ReadScope::ParentNamespace => parent == Scope::Namespaced,
            ReadScope::Namespaces(_) => false,
        };
        let full = |read: &ReadGrant| {
            read.access == Access::Full && read.label_selector.selects_all() && reaches(&read.scope)
        };
        if is_secret(kind) && !self.reads_of(kind).any(full) {
            Access::Hash
        } else {
            Access::Full
        }
    }

    /// Returns the granted reads of a kind; privileged kinds need the confirmation in the grant.
    pub fn reads_of<'a>(&'a self, kind: &'a GroupKind) -> impl Iterator<Item = &'a ReadGrant> {
        self.reads
            .iter()
            .filter(move |read| read.kind == *kind)
            .filter(move |read| read.privileged || !is_privileged_to_read(kind))
    }

    /// Returns the requested reads as far as they are granted: per read the lesser access, the narrower scope, and both
    /// label selectors.
    pub fn reads_for(&self, manifest: &Manifest) -> Vec<ReadKind> {
        let mut reads = Vec::new();
        for asked in &manifest.reads {
            let kind = asked.kind.group_kind();
            let granted: Vec<ReadKind> = if self.reads_of(&kind).any(|read| read.satisfies(asked)) {
                vec![asked.clone()]
            } else {
                self.reads_of(&kind)
                    .map(|read| read.narrow(asked))
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

/// Returns true if a grant, with or without `privileged: true`, covers the kind.
fn suffices(kind: &GroupKind, privileged: bool) -> bool {
    privileged || !is_privileged(kind)
}
