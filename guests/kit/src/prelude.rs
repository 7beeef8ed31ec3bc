//! The names that most plugins need, with those of the SDK's prelude: `use innkeeper_kit::prelude::*;`.

pub use innkeeper_sdk::prelude::*;

pub use crate::budget::DisruptionBudget;
pub use crate::claim::{AccessMode, DeclaredClaim, ObservedClaim};
pub use crate::cron::Cron;
pub use crate::job::{JobPhase, JobPod, JobRun, ObservedJob};
pub use crate::labels::base_labels;
pub use crate::partial::Partial;
pub use crate::placement::{Placement, PodTemplate, PodTemplateLists, own_namespace, place};
pub use crate::pod::{ImagePullPolicy, PodMetadata, PodMetadataLists, ServiceType};
pub use crate::quantity::Amount;
pub use crate::references::{Found, ReferenceScope, References};
pub use crate::rollout::TemplateHash;
pub use crate::tenants::Claimant;
pub use crate::workload::{Waiting, Workload};
pub use crate::{budget, claim, cron, image, job, labels, objects, pod};
