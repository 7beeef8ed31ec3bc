//! The part of a spec outside the revision, which binds every revision at once.

use std::sync::Arc;

use innkeeper_model::{Limits, Requests};
use innkeeper_policy::{Assessment, Grants, Selection, Shortfall};
use innkeeper_reconcile::Revision;
use innkeeper_sandbox::Plugin;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{
    access::ServiceAccountRef,
    options::{Crds, RolloutSpec},
};

/// Number of deletes that a percentage always allows: it rounds down to zero for few children, and then no revision
/// could remove a single child.
const PRUNES_MIN: usize = 10;

/// The terms under which a plugin is served, with all defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The grants.
    pub grants: Grants,
    /// The limits.
    pub limits: Limits,
    /// The selected parents.
    pub parents: Selection,
    /// The field manager for the children.
    pub field_manager: String,
    /// The account that writes the children; none: the host's own.
    pub service_account: Option<ServiceAccountRef>,
    /// The policy for CustomResourceDefinitions.
    pub crds: Crds,
    /// True if passes are stopped.
    pub suspend: bool,
}

impl Terms {
    /// Compares the plugin's requests with its grants. Definitions that the host does not install need no grant.
    pub fn assess(&self, requests: impl Into<Requests>) -> Assessment {
        let mut assessment = self.grants.assess(requests);
        if self.crds == Crds::Ignore {
            let is_reported = |shortfall: &Shortfall| !matches!(shortfall, Shortfall::Crd(_));
            // No definition is a required grant, so `missing` has none.
            assessment.reduced.retain(is_reported);
        }
        assessment
    }

    /// Returns a revision under these terms.
    pub fn serving(&self, plugin: Arc<Plugin>) -> Revision {
        let limits = self.limits.clone();
        let grants = self.grants.clone();
        let account = self.service_account.as_ref();
        Revision::new(plugin, Arc::new(grants), Arc::new(limits))
            .applying_as(&self.field_manager)
            .selecting(self.parents.clone())
            .acting_as(account.map(ServiceAccountRef::user))
    }
}

impl ServiceAccountRef {
    /// Returns the account's user name at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl RolloutSpec {
    /// Returns how many deletes are allowed for a plugin with this many children.
    ///
    /// An invalid text allows none.
    pub fn prunes_max(&self, children: usize) -> usize {
        match &self.max_prunes {
            IntOrString::Int(count) => usize::try_from(*count).unwrap_or(0),
            IntOrString::String(text) => {
                let percent: Option<usize> =
                    text.strip_suffix('%').and_then(|text| text.parse().ok());
                let allowed = |percent| (children.saturating_mul(percent) / 100).max(PRUNES_MIN);
                percent.map_or(0, allowed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_allows_ten_and_a_number_what_it_says() {
        let check = |max_prunes, children, expected| {
            let rollout = RolloutSpec {
                max_prunes,
                ..RolloutSpec::default()
            };
            assert_eq!(rollout.prunes_max(children), expected, "{rollout:?}");
        };
        let percent = |text: &str| IntOrString::String(text.to_owned());
        check(percent("20%"), 0, 10);
        check(percent("20%"), 50, 10);
        check(percent("20%"), 1000, 200);
        check(IntOrString::Int(0), 1000, 0);
        check(percent("100%"), usize::MAX, usize::MAX / 100);
        check(percent("many"), 1000, 0);
    }
}
