//! The part of a spec outside the revision, which binds every revision at once.

use innkeeper_model::{Limits, Manifest};
use innkeeper_policy::{Assessment, Grants, Selection, Shortfall};

use super::{
    access::ServiceAccountRef,
    options::{Crds, RolloutMode},
};

/// The number of deletes that a percentage always allows. Chosen, not measured: a percentage of few children rounds
/// down to zero, and then no revision could remove a single child.
const PRUNES_MIN: usize = 10;

/// The terms under which a plugin is served, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The grants.
    pub grants: Grants,
    /// The limits.
    pub limits: Limits,
    /// The selected parents.
    pub parents: Selection,
    /// The field manager of its children.
    pub field_manager: String,
    /// The account that writes the children; none: the host's own.
    pub service_account: Option<ServiceAccountRef>,
    /// The policy for its CustomResourceDefinitions.
    pub crds: Crds,
    /// True if its passes are stopped.
    pub suspend: bool,
}

impl Terms {
    /// Compares the requests of the plugin with its grants. Definitions that the host does not install need no grant.
    pub fn assess(&self, manifest: &Manifest) -> Assessment {
        let mut assessment = self.grants.assess(manifest);
        if self.crds == Crds::Ignore {
            let wanted = |shortfall: &Shortfall| !matches!(shortfall, Shortfall::Crd(_));
            assessment.reduced.retain(wanted);
        }
        assessment
    }
}

impl ServiceAccountRef {
    /// Returns its user name at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// The replacement of the active revision by a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// The mode.
    pub mode: RolloutMode,
    /// True if a revision is rolled back when too many of its first passes fault.
    pub auto_rollback: bool,
    /// The limit of deletes without approval.
    pub prunes: PruneBudget,
    /// The approved revision, by its [name](super::revision_name).
    pub approved: Option<String>,
}

/// The number of children that a new revision may delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneBudget {
    /// An absolute number.
    Count(usize),
    /// A percentage of all children, but at least 10.
    Percent(usize),
}

impl PruneBudget {
    /// Returns the number of deletes that are allowed for a plugin with this number of children.
    pub fn max(self, children: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (children.saturating_mul(percent) / 100).max(PRUNES_MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_allows_ten_and_a_number_what_it_says() {
        assert_eq!(PruneBudget::Percent(20).max(0), 10);
        assert_eq!(PruneBudget::Percent(20).max(50), 10);
        assert_eq!(PruneBudget::Percent(20).max(1000), 200);
        assert_eq!(PruneBudget::Count(0).max(1000), 0);
        assert_eq!(PruneBudget::Percent(100).max(usize::MAX), usize::MAX / 100);
    }
}
