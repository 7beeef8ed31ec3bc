//! The names that nearly every reconciler needs: `use innkeeper_sdk::prelude::*;`.

pub use crate::answer::{Answer, Desired, Event, EventType, Report};
pub use crate::child::{
    ALPHANUMERIC, ApplyPolicy, Child, Generated, Readiness, RemovalPolicy, metadata,
};
pub use crate::children::{Children, Observed};
pub use crate::condition::{Condition, ConditionStatus, Conditions, StoredCondition};
pub use crate::context::Context;
pub use crate::crd::Crd;
pub use crate::fault::{Fault, FaultKind};
pub use crate::hash::Hashed;
pub use crate::host::{Host, ReadError};
pub use crate::kinds::ChildKinds;
pub use crate::manifest::{Access, ChildKind, Manifest, ReadScope};
pub use crate::reconciler::{NoConfig, Reconciler};
pub use crate::request::{Phase, Request};
pub use crate::{child_kinds, export};
pub use kube::{CustomResource, KubeSchema};
pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};
