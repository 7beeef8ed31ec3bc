//! The names that nearly every reconciler needs: `use innkeeper_sdk::prelude::*;`.

pub use crate::child::{
    ALPHANUMERIC, ApplyPolicy, Child, Generated, Readiness, RemovalPolicy, metadata,
};
pub use crate::children::{Children, Observed};
pub use crate::condition::{Condition, ConditionStatus, Conditions, StoredCondition};
pub use crate::crd::Crd;
pub use crate::export;
pub use crate::fault::{Fault, FaultKind};
pub use crate::hash::Hashed;
pub use crate::host::{Host, ReadError};
pub use crate::manifest::{Access, Manifest, ReadScope};
pub use crate::outcome::{Desired, Event, EventType, Outcome, Report};
pub use crate::reconciler::Reconciler;
pub use crate::request::{Phase, Request};
