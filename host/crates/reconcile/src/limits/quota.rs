//! The bounds on the children that a plugin makes in a namespace, and on those that a parent retains.
//!
//! The cache holds the texts of so many children and a quarter more, see [`cache_bound`].
//!
//! Pure: the caller brings the present size. That size comes from the cache, which lists all children with the plugin's
//! label before the first pass: it is right after a restart, and a pass costs one look-up per kind of children. Children
//! that other passes make at the same time are not in it, so a bound may be exceeded by their number.

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

use crate::{limits::exceeded::Bound, limits::throttled::HeldBack};

/// The time after which a parent over a bound has another pass. Chosen: the deletion of another parent's children
/// triggers no pass of this one.
const RECHECK: Duration = Duration::from_secs(30);

/// Returns the most children in a namespace whose texts are cached.
///
/// A quarter over the bounds of creates: passes at the same time exceed these, and children grow by defaults and status.
/// Only objects that the plugin has not made can use it up.
pub(crate) fn cache_bound(limits: &Limits) -> CacheSize {
    let more = |limit: usize| limit.saturating_add(limit / 4);
    CacheSize {
        objects: more(limits.namespace_objects_max),
        bytes: more(limits.namespace_bytes_max),
    }
}

/// The inputs besides the plan.
pub(crate) struct Quota<'a> {
    pub(crate) plugin: &'a PluginName,
    pub(crate) limits: &'a Limits,
    pub(crate) observed: &'a [Object],
    /// The kinds of children that are parents and could multiply.
    pub(crate) nested: &'a BTreeSet<GroupKind>,
}

/// The growth by one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Growth {
    size: CacheSize,
    nested: usize,
    retained: usize,
}

/// The children of a plugin in a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) all: CacheSize,
    /// The number of those that are parents and could multiply.
    pub(crate) nested: usize,
}

impl Quota<'_> {
    /// Removes the operations from a plan that would exceed a bound, and with them the prunes, which run only after
    /// everything else is as desired. `made` returns the plugin's children in a namespace.
    pub(crate) fn hold_back(
        &self,
        plan: &mut Plan,
        made: impl Fn(&str) -> Made,
    ) -> Option<HeldBack> {
        if plan.operations.is_empty() {
            return None;
        }
        let observed: BTreeMap<ObjectId, &Object> = self
            .observed
            .iter()
            .map(|object| (object.id(), object))
            .collect();
        let mut present: BTreeMap<Arc<str>, Made> = BTreeMap::new();
        let mut retained = self
            .observed
            .iter()
            .filter(|it| it.retained_for.is_some())
            .count();
        let mut first = None;
        let exceeds = |operation: &mut Operation| {
            let (Some(child), growth) = (operation.child(), self.growth(operation, &observed))
            else {
                return false;
            };
            let name = child.namespace.as_deref().unwrap_or_default();
            let made = present.entry(name.into()).or_insert_with(|| made(name));
            let bound = self.bound(child, growth, *made, retained);
            if let Some(bound) = bound {
                first.get_or_insert(bound);
                return true;
            }
            made.all = made.all.and(growth.size);
            made.nested += growth.nested;
            retained += growth.retained;
            false
        };
        let held: Vec<Operation> = plan.operations.extract_if(.., exceeds).collect();
        let bound = first?;
        plan.operations
            .retain(|operation| !matches!(operation, Operation::Prune { .. }));
        HeldBack::of_operations((RECHECK, bound), &held, self.observed)
    }

    /// Returns the bound that the growth would exceed.
    fn bound(
        &self,
        child: &ObjectId,
        growth: Growth,
        made: Made,
        retained: usize,
    ) -> Option<Bound> {
        let limits = self.limits;
        let place = (self.plugin, child.namespace.as_deref());
        let Growth {
            size: CacheSize { objects, bytes },
            nested,
            retained: more,
        } = growth;
        if more > 0 && retained + more > limits.retained_max {
            Some(Bound::retained(limits))
        } else if nested > 0 && made.nested + nested > limits.namespace_nested_max {
            Some(Bound::nested(place, limits))
        } else if objects > 0 && made.all.objects + objects > limits.namespace_objects_max {
            Some(Bound::objects(place, limits))
        } else if bytes > 0 && made.all.bytes + bytes > limits.namespace_bytes_max {
            Some(Bound::bytes(place, limits))
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
                let metadata = body.get("metadata");
                let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
                let mark = annotations.and_then(|all| all.get(ANNOTATION_RETAINED_FOR));
                growth.nested = usize::from(self.nested.contains(&id.kind));
                growth.retained = usize::from(mark.is_some());
            }
            Operation::Update { id, body, .. } => {
                let present = observed.get(id).map_or(0, |object| object.json.len());
                growth.size.bytes = length(body).saturating_sub(present);
            }
            Operation::Transfer { id, to, .. } => {
                let was_retained = observed.get(id).is_some_and(|it| it.retained_for.is_some());
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
