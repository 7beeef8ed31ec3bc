//! The limits on a plugin's children in a namespace, and on a parent's retained children.
//!
//! Pure: the caller passes the current usage. The cache counts it, and lists all children with the plugin's label before
//! the first pass: so the usage is right after a restart, and a pass costs one look-up per child kind. Concurrent passes
//! do not see each other's creates, so they may exceed a limit by these.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use innkeeper_cluster::CacheSize;
use innkeeper_model::{
    ANNOTATION_RETAINED_FOR, GroupKind, Limits, Object, ObjectId, Operation, PluginName,
    RemovalPolicy, json_length,
};
use innkeeper_plan::Plan;
use serde_json::{Map, Value};

use super::{exceeded::LimitExceeded, throttled::Throttled};

/// The time until a parent over a limit has another pass, because deleting another parent's children triggers none.
const RECHECK: Duration = Duration::from_secs(30);

/// Returns the most children that the cache holds for a namespace.
///
/// A quarter more than the plugin may create, because concurrent passes exceed their limits, and defaults and status add
/// to the children. Only objects that others have labelled can fill the rest.
pub(crate) fn cache_limit(limits: &Limits) -> CacheSize {
    let more = |limit: usize| limit.saturating_add(limit / 4);
    CacheSize {
        objects: more(limits.namespace_objects_max),
        bytes: more(limits.namespace_bytes_max),
    }
}

/// The inputs beside the plan.
pub(crate) struct Quota<'a> {
    pub(crate) plugin: &'a PluginName,
    pub(crate) limits: &'a Limits,
    pub(crate) observed: &'a [Object],
    /// The child kinds that are parents and could multiply.
    pub(crate) nested: &'a BTreeSet<GroupKind>,
}

/// The growth by one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Growth {
    size: CacheSize,
    nested: usize,
    retained: usize,
}

/// A plugin's children in a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChildUsage {
    pub(crate) all: CacheSize,
    /// The number of children that are parents and could multiply.
    pub(crate) nested: usize,
}

impl Quota<'_> {
    /// Removes the operations from a plan that would exceed a limit, and the prunes with them. `usage` returns the plugin's
    /// children in a namespace.
    pub(crate) fn throttle(
        &self,
        plan: &mut Plan,
        usage: impl Fn(&str) -> ChildUsage,
    ) -> Option<Throttled> {
        if plan.operations.is_empty() {
            return None;
        }
        let observed: BTreeMap<ObjectId, &Object> = self
            .observed
            .iter()
            .map(|object| (object.id(), object))
            .collect();
        let mut usages: BTreeMap<Arc<str>, ChildUsage> = BTreeMap::new();
        let mut retained = self
            .observed
            .iter()
            .filter(|object| object.retained_for.is_some())
            .count();
        let mut first = None;
        let exceeds = |operation: &mut Operation| {
            let Some(child) = operation.child() else {
                return false;
            };
            let growth = self.growth(operation, &observed);
            let name = child.namespace.as_deref().unwrap_or_default();
            let usage = usages.entry(name.into()).or_insert_with(|| usage(name));
            if let Some(exceeded) = self.exceeded(child, growth, *usage, retained) {
                first.get_or_insert(exceeded);
                return true;
            }
            // The cache shows these writes only later, but the plan's next operations must count them.
            usage.all = usage.all.and(growth.size);
            usage.nested += growth.nested;
            retained += growth.retained;
            false
        };
        let waiting: Vec<Operation> = plan.operations.extract_if(.., exceeds).collect();
        let exceeded = first?;
        plan.remove_prunes();
        Throttled::by_limit((RECHECK, exceeded), &waiting, self.observed)
    }

    /// Returns the limit that the growth would exceed.
    fn exceeded(
        &self,
        child: &ObjectId,
        growth: Growth,
        usage: ChildUsage,
        retained: usize,
    ) -> Option<LimitExceeded> {
        let limits = self.limits;
        let place = (self.plugin, child.namespace.as_deref());
        let Growth {
            size: CacheSize { objects, bytes },
            nested,
            retained: more,
        } = growth;
        if more > 0 && retained + more > limits.retained_max {
            Some(LimitExceeded::retained(limits))
        } else if nested > 0 && usage.nested + nested > limits.namespace_nested_max {
            Some(LimitExceeded::nested(place, limits))
        } else if objects > 0 && usage.all.objects + objects > limits.namespace_objects_max {
            Some(LimitExceeded::objects(place, limits))
        } else if bytes > 0 && usage.all.bytes + bytes > limits.namespace_bytes_max {
            Some(LimitExceeded::bytes(place, limits))
        } else {
            None
        }
    }

    /// Returns the growth by an operation on the observed objects.
    fn growth(&self, operation: &Operation, observed: &BTreeMap<ObjectId, &Object>) -> Growth {
        let mut growth = Growth::default();
        match operation {
            Operation::Create { id, body, .. } => {
                growth.size.objects = 1;
                growth.size.bytes = length(body);
                let mark = body
                    .get("metadata")
                    .and_then(|metadata| metadata.get("annotations"))
                    .and_then(|annotations| annotations.get(ANNOTATION_RETAINED_FOR));
                growth.nested = usize::from(self.nested.contains(&id.kind));
                growth.retained = usize::from(mark.is_some());
            }
            Operation::Update { id, body, .. } => {
                let present = observed.get(id).map_or(0, |object| object.json.len());
                growth.size.bytes = length(body).saturating_sub(present);
            }
            Operation::Transfer { id, to, .. } => {
                let was_retained = observed
                    .get(id)
                    .is_some_and(|object| object.retained_for.is_some());
                growth.retained = usize::from(*to == RemovalPolicy::Retain && !was_retained);
            }
            Operation::Prune { .. } | Operation::AddFinalizer | Operation::RemoveFinalizer => {}
        }
        growth
    }
}

fn length(body: &Map<String, Value>) -> usize {
    json_length(body).unwrap_or_default()
}

#[cfg(test)]
mod tests;
