//! Compares a plugin's requests with the grants.

use std::fmt;

use innkeeper_model::{Access, GroupKind, ReadKind, Requests};

use super::{
    Grants,
    privilege::{is_privileged, is_privileged_to_read},
};

/// The requests that the grants do not cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// Shortfalls that keep the plugin from serving.
    pub missing: Vec<Shortfall>,
    /// Shortfalls that only reduce the plugin's features.
    pub reduced: Vec<Shortfall>,
}

impl Assessment {
    /// Returns true if the plugin can serve.
    pub fn serves(&self) -> bool {
        self.missing.is_empty()
    }
}

/// One request that is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortfall {
    /// A parent kind. It keeps the plugin from serving if none is granted.
    Parent(GroupKind),
    /// A CustomResourceDefinition for a kind that is not a parent kind.
    Crd(GroupKind),
    /// A child kind.
    Child(GroupKind),
    /// A child kind that the plugin also serves, without a granted depth: every such child is refused.
    Depth(GroupKind),
    /// A read that is not granted at all, or not in the requested form or scope.
    Read {
        /// The requested read.
        requested: ReadKind,
        /// The fullest access that any grant has for this kind, in any scope; `None` if no grant covers the kind.
        granted: Option<Access>,
    },
}

impl Grants {
    /// Compares the grants with a plugin's requests.
    pub fn assess(&self, requests: impl Into<Requests>) -> Assessment {
        let Requests {
            parents,
            crds,
            children,
            reads,
        } = requests.into();
        let mut assessment = Assessment::default();
        let (allowed, denied): (Vec<&GroupKind>, Vec<&GroupKind>) =
            parents.iter().partition(|kind| self.allows_parent(kind));
        let denied = denied.into_iter().cloned().map(Shortfall::Parent);
        // A parent kind that a later plugin version adds does not stop the passes for the others.
        if allowed.is_empty() {
            assessment.missing.extend(denied);
        } else {
            assessment.reduced.extend(denied);
        }
        for kind in crds {
            // A granted parent includes the definition.
            if !parents.contains(&kind) && !self.allows_crd(&kind) {
                assessment.reduced.push(Shortfall::Crd(kind));
            }
        }
        for (kind, required) in children {
            match (self.allows_child(&kind), required) {
                (true, _) if parents.contains(&kind) && !self.allows_nesting(&kind) => {
                    assessment.reduced.push(Shortfall::Depth(kind));
                }
                (true, _) => {}
                (false, true) => assessment.missing.push(Shortfall::Child(kind)),
                (false, false) => assessment.reduced.push(Shortfall::Child(kind)),
            }
        }
        for requested in reads {
            let kind = requested.kind.group_kind();
            if self.reads_of(&kind).any(|read| read.satisfies(&requested)) {
                continue;
            }
            assessment.reduced.push(Shortfall::Read {
                granted: self.reads_of(&kind).map(|read| read.access).min(),
                requested,
            });
        }
        assessment
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marked = |is_marked| {
            if is_marked {
                " (a privileged kind)"
            } else {
                ""
            }
        };
        let note = |kind| marked(is_privileged(kind));
        match self {
            Self::Parent(kind) if kind.is_secret() => {
                write!(f, "parents of {kind} (never granted)")
            }
            Self::Parent(kind) => write!(f, "parents of {kind}{}", note(kind)),
            Self::Crd(kind) => write!(f, "the CustomResourceDefinition of {kind}{}", note(kind)),
            Self::Child(kind) => write!(f, "children of {kind}{}", note(kind)),
            Self::Depth(kind) => write!(
                f,
                "children of {kind}, its own parents (no depth is granted)"
            ),
            Self::Read { requested, granted } => {
                let kind = requested.kind.group_kind();
                write!(f, "{} reads of {kind}", requested.access)?;
                match granted {
                    None => f.write_str(marked(is_privileged_to_read(&kind))),
                    Some(granted) => write!(f, " as asked for (granted: {granted})"),
                }
            }
        }
    }
}
