//! The warnings in the status.

use innkeeper_kit::quantity::Amount;

use super::{
    View,
    messages::{NEAR_DISK, UNSAFE_ROLLOUT},
};
use crate::{
    api::Warning,
    arguments,
    observe::{Claim, Growth, requested},
    step::Stage,
};

/// The warning code that each cluster with the default size has.
const QUOTA_NEAR_DISK: &str = "QuotaNearDisk";

/// The warning code that each volume has for a while after it has grown.
const FILE_SYSTEM_PENDING: &str = "FileSystemResizePending";

/// The warning codes without events.
pub(super) const QUIET: [&str; 2] = [QUOTA_NEAR_DISK, FILE_SYSTEM_PENDING];

fn warning(code: &str, message: impl Into<String>) -> Warning {
    Warning {
        code: code.to_owned(),
        message: message.into(),
    }
}

impl View<'_> {
    /// All warnings, sorted by code.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let mut warnings = self.warnings_of_storage();
        let size = self.cluster.spec.size;
        if size > 0 && size % 2 == 0 {
            let message = format!(
                "{size} members tolerate no more failures than {}: set an odd size",
                size - 1
            );
            warnings.push(warning("EvenSize", message));
        }
        if self.step.stage != Stage::Certificates
            && let Some((code, problem)) = self.certificates()
        {
            warnings.push(warning(code, problem));
        }
        if let Some(problem) = self.lost_services() {
            warnings.push(warning("ServiceNotOwned", problem));
        }
        if self.cluster.allows_unsafe_rollout {
            warnings.push(warning("UnsafeRolloutAllowed", UNSAFE_ROLLOUT));
        }
        if self.cluster.version().is_none() {
            let message = format!(
                "the tag of the image {} has no version: set spec.version",
                self.cluster.image
            );
            warnings.push(warning("VersionUnknown", message));
        }
        warnings.sort();
        warnings
    }

    fn warnings_of_storage(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let names = |is_one: &dyn Fn(&Claim) -> bool| {
            let named: Vec<String> = self
                .observation
                .claims_of_members(self.cluster)
                .filter(|(_, claim)| is_one(claim))
                .map(|entry| self.cluster.claim(entry.0))
                .collect();
            (!named.is_empty()).then(|| named.join(", "))
        };
        let unmanaged = names(&|claim| claim.child.is_none() && !claim.is_leaving);
        if let Some(names) = unmanaged.filter(|_| self.step.has_claims) {
            let message =
                format!("{names}: in use but not managed: storage.size does not apply to it");
            warnings.push(warning("ClaimNotManaged", message));
        }
        if arguments::is_quota_near_disk(self.cluster, self.observation) {
            warnings.push(warning(QUOTA_NEAR_DISK, NEAR_DISK));
        }
        let size = Amount::from_quantity(&self.cluster.spec.storage.size);
        let requested = |claim: &Claim| {
            claim
                .child
                .as_ref()
                .and_then(requested)
                .map(Amount::from_quantity)
        };
        let small = names(&|claim| requested(claim).is_some_and(|has| has < size));
        if !self.observation.can_grow && small.is_some() {
            let message = "the claims keep their size: their StorageClass does not allow expansion";
            warnings.push(warning("StorageNotExpandable", message));
        }
        if let Some(names) = names(&|claim| claim.growth == Some(Growth::FileSystemPending)) {
            let message = format!(
                "PersistentVolumeClaim {names}: the volume has grown, but its file system has not; if that lasts for minutes, it \
                 grows when the Pod starts again: change the annotation etcd.ydzs.io/restart-trigger of the EtcdCluster to \
                 restart the members one by one"
            );
            warnings.push(warning(FILE_SYSTEM_PENDING, message));
        }
        let failed =
            self.observation
                .claims_of_members(self.cluster)
                .filter_map(|(ordinal, claim)| match &claim.growth {
                    Some(Growth::Failed(words)) => {
                        Some(format!("{}: {words}", self.cluster.claim(ordinal)))
                    }
                    _ => None,
                });
        let failed: Vec<String> = failed.collect();
        if !failed.is_empty() {
            let message = format!(
                "the storage does not let volumes grow, PersistentVolumeClaim {}; free storage for the new size; Kubernetes retries, and until then the database quota follows the current size",
                failed.join("; ")
            );
            warnings.push(warning("VolumeResizeFailed", message));
        }
        warnings
    }
}
