//! The part of a spec outside the revision, which binds every revision at once.

use innkeeper_model::{Limits, Manifest};
use innkeeper_policy::{Assessment, Grants, Selection, Shortfall};

use super::options::{Crds, RolloutMode};

/// However large a percentage of the children is, so many may be deleted.
const PRUNES_MIN: usize = 10;

/// The terms under which a plugin is served, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charter {
    /// The grants.
    pub grants: Grants,
    /// The limits.
    pub limits: Limits,
    /// The selected parents.
    pub parents: Selection,
    /// The field manager of its children.
    pub field_manager: String,
    /// As whom its children are written; none: as the host.
    pub service_account: Option<ServiceAccount>,
    /// The policy for its CustomResourceDefinitions.
    pub crds: Crds,
    /// True if its passes are stopped.
    pub suspend: bool,
}

impl Charter {
    /// Compares the requests of the plugin with its grants; definitions that are not to be installed count as
    /// granted.
    pub fn assess(&self, manifest: &Manifest) -> Assessment {
        let mut assessment = self.grants.assess(manifest);
        if self.crds == Crds::Ignore {
            let wanted = |shortfall: &Shortfall| !matches!(shortfall, Shortfall::Crd(_));
            assessment.reduced.retain(wanted);
        }
        assessment
    }
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceAccount {
    /// The user that it is for the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// The replacement of the active revision by a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// The mode.
    pub mode: RolloutMode,
    /// True if too many faults of its first passes end it.
    pub auto_rollback: bool,
    /// The limit of deletes.
    pub prunes: PruneBudget,
    /// The revision, by its [name](super::revision_name), that may serve although it waits.
    pub approved: Option<String>,
}

/// The number of children that a new revision may delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneBudget {
    /// An absolute number.
    Count(usize),
    /// So much of each hundred, and 10 in any case.
    Percent(usize),
}

impl PruneBudget {
    /// The most deletes that are allowed to a plugin with so many children.
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
