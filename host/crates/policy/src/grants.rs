//! The permissions that an administrator gives to a plugin.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::{
    Access, Expression, GroupKind, Manifest, ReadKind, ReadScope, Scope, Selector,
};

use super::privilege::{is_built_in, is_privileged, is_secret};

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
}

impl Grants {
    /// Returns the grants of a plugin that is given as a file: everything it requests, except privileged kinds, parents
    /// and definitions of kinds that are part of Kubernetes, and full access to Secrets.
    pub fn for_file(manifest: &Manifest) -> Self {
        let ordinary = |kind: &GroupKind| !is_privileged(kind);
        let custom = |kind: &GroupKind| ordinary(kind) && !is_built_in(kind);
        let parents = manifest.parents.iter().map(|one| one.kind.group_kind());
        let children = manifest.children.iter().map(|one| one.kind.group_kind());
        let crds = manifest.crds.iter().filter_map(crd_kind);
        let reads = manifest.reads.iter().map(|asked| {
            let kind = asked.kind.group_kind();
            let access = if is_secret(&kind) {
                asked.access.max(Access::Hash)
            } else {
                asked.access
            };
            ReadGrant {
                kind,
                access,
                scope: asked.scope.clone(),
                label_selector: asked.label_selector.clone(),
                privileged: false,
            }
        });
        Self {
            parents: parents.filter(custom).map(plain).collect(),
            crds: crds.filter(custom).map(plain).collect(),
            children: children.filter(ordinary).map(plain).collect(),
            reads: reads.filter(|read| ordinary(&read.kind)).collect(),
        }
    }

    /// Returns true if a parent of this kind is allowed; a Secret never is.
    pub fn allows_parent(&self, kind: &GroupKind) -> bool {
        self.parents.get(kind).is_some_and(|grant| {
            !is_secret(kind)
                && suffices(kind, grant.privileged)
                && (grant.built_in || !is_built_in(kind))
        })
    }

    /// Returns true if a child of this kind is allowed.
    pub fn allows_child(&self, kind: &GroupKind) -> bool {
        let grant = self.children.get(kind);
        grant.is_some_and(|grant| suffices(kind, grant.privileged))
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
            .filter(move |read| read.kind == *kind && suffices(kind, read.privileged))
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

/// Returns a grant of the kind without any further field set.
fn plain<T: Default>(kind: GroupKind) -> (GroupKind, T) {
    (kind, T::default())
}

/// Returns the kind that a CustomResourceDefinition defines.
pub(super) fn crd_kind(crd: &serde_json::Map<String, serde_json::Value>) -> Option<GroupKind> {
    let spec = crd.get("spec")?;
    let group = spec.get("group")?.as_str()?;
    let kind = spec.get("names")?.get("kind")?.as_str()?;
    Some(GroupKind::new(group, kind))
}
