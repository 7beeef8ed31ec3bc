//! What of a spec is no part of the revision, so that it binds every revision at once.

use innkeeper_model::{Limits, Manifest};
use innkeeper_policy::{Assessment, Grants, Selection, Shortfall};

use super::options::{Crds, RolloutMode};

/// However large a percentage of the children is, so many may be deleted.
const PRUNES_MIN: usize = 10;

/// The terms under which a plugin is served, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charter {
    /// What it may do.
    pub grants: Grants,
    /// What it may use.
    pub limits: Limits,
    /// Which parents are served.
    pub parents: Selection,
    /// The field manager of its children.
    pub field_manager: String,
    /// As whom its children are written; none: as the host.
    pub service_account: Option<ServiceAccount>,
    /// Whether its CustomResourceDefinitions are installed.
    pub crds: Crds,
    /// Whether its passes are stopped.
    pub suspend: bool,
}

impl Charter {
    /// Compares what the plugin asks for with what it is granted; definitions that are not to be installed count as
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

/// How a new revision replaces the one that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// When it is taken.
    pub mode: RolloutMode,
    /// Whether too many faults of its first passes end it.
    pub auto_rollback: bool,
    /// How much it may delete.
    pub prunes: PruneBudget,
    /// The revision, by its [name](super::revision_name), that may serve although it waits.
    pub approved: Option<String>,
}

/// How many children a new revision may delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneBudget {
    /// So many.
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
