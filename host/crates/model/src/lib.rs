//! The host's vocabulary as plain types.
//!
//! The sandbox, the cache and the writer exchange data in these types: `sandbox` converts WIT types to and from them,
//! `cluster` and `apply` the JSON of the Kubernetes API.
//! This crate does no I/O, never waits, and does not depend on wasmtime or on the Kubernetes client, except for the
//! client's label selectors.

#[macro_use]
mod documented;

mod answer;
mod backoff;
mod blame;
mod chain;
mod condition;
mod digest;
pub mod foreign;
mod host_scope;
mod kind;
mod limits;
mod list;
mod manifest;
mod names;
mod object;
mod operation;
mod plugin_reason;
mod read;
mod resource;
mod selector;
mod shards;
pub mod syntax;
mod token_bucket;
pub mod yaml;

pub use answer::{
    ApplyPolicy, Child, Desired, Event, EventType, Fault, FaultKind, Generated, Outcome, Phase,
    PredictedChild, Prediction, Readiness, RemovalPolicy, Report,
};
pub use backoff::Backoff;
pub use blame::{Blame, Retry};
pub use chain::{causes, error_chain};
pub use condition::{Condition, ConditionStatus, reason, whole_seconds};
pub use digest::{Digest, Digester, InvalidDigest, hex};
pub use host_scope::HostScope;
pub use kind::{GroupKind, Gvk, InvalidApiVersion, ObjectId, Scope, child_order, kind_of_crd};
pub use kube_core::{Expression, Selector, SelectorExt};
pub use limits::{Limits, NAMESPACE_BURST, SHORT_DEADLINE_MAX};
pub use list::join_first;
pub use manifest::{Access, ChildKind, Manifest, ParentKind, Reach, ReadKind, ReadScope, Requests};
pub use names::{
    ANNOTATION_ADOPT, ANNOTATION_APPLIED, ANNOTATION_DEPTH, ANNOTATION_GENERATED, ANNOTATION_HOSTS,
    ANNOTATION_KEY, ANNOTATION_NAMESPACES, ANNOTATION_PAUSED, ANNOTATION_PLUGIN_SELECTOR,
    ANNOTATION_PLUGINS, ANNOTATION_RETAINED_FOR, ANNOTATION_SHARDS, ANNOTATION_SKIP_FINALIZE,
    ANNOTATION_TRACE, DOMAIN_PREFIX, InvalidPluginName, LABEL_AGGREGATE, LABEL_PLUGIN, NAMES,
    PluginName,
};
pub use object::{ManagedEntry, Object, ResourceVersion, Uid, json_length};
pub use operation::Operation;
pub use plugin_reason::PluginReason;
pub use read::{Answer, ListSelector, ObjectRef, ReadFailure, ReadKey, Reads, ZoneTime};
pub use resource::{HashKey, Resource, Resources};
pub use selector::{InvalidSelector, is_valid_selector, parse_selector};
pub use shards::{Shard, ShardSet, Shards, namespace_hash};
pub use token_bucket::{Rate, TokenBucket};
