//! Tracked reads, answered from the given objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_crd::Kinds;
use innkeeper_model::{
    Access, Expression, Gvk, HashKey, ListSelector, ObjectRef, Reach, ReadFailure, ReadKey,
    ReadKind, Reads, Scope, Selector, SelectorExt, ZoneTime, parse_selector,
};
use serde::Deserialize as _;
use serde_json::json;

use super::{
    Offline,
    observed::{ObservedObjects, present},
};
use crate::document::Document;

/// Answers one pass's reads.
///
/// The access rules are the cache's: a kind is readable only in exactly the declared version, and only in namespaces
/// that a grant's scope covers.
#[derive(Debug)]
pub(crate) struct OfflineReads {
    simulation: Simulation,
    objects: Vec<Document>,
    granted: Vec<ReadKind>,
    own_namespace: Option<Arc<str>>,
    kinds: Kinds,
    hash_key: HashKey,
    recorded: Vec<ReadKey>,
}

/// The simulated part of the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Simulation {
    /// Reverses lists and children.
    pub(crate) reversed: bool,
    /// Each object that the plugin reads exists, with nothing but metadata.
    pub(crate) exists: bool,
}

/// A grant that covers a read.
struct MatchingGrant<'a> {
    access: Access,
    selector: &'a Selector,
    reach: Reach,
}

impl MatchingGrant<'_> {
    fn covers(&self, document: &Document, labels: &BTreeMap<String, String>) -> bool {
        let reached = match (&self.reach, document.namespace.as_deref()) {
            (Reach::Everywhere, _) => true,
            (Reach::Within(names), Some(name)) => names.contains(name),
            (Reach::Within(_), None) => false,
        };
        reached && self.selector.matches(labels)
    }
}

impl OfflineReads {
    pub(super) fn new(
        observed: &ObservedObjects,
        plugin: &Offline<'_>,
        simulation: Simulation,
    ) -> Self {
        Self {
            simulation,
            objects: observed.objects.clone(),
            granted: plugin.grants.reads_for(plugin.manifest),
            own_namespace: observed.parent.namespace.clone(),
            kinds: plugin.kinds.clone(),
            hash_key: plugin.hash_key.clone(),
            recorded: Vec::new(),
        }
    }

    /// Returns the distinct reads, in the order in which they were first used.
    pub(super) fn recorded(&self) -> &[ReadKey] {
        &self.recorded
    }

    /// Returns true if another pass would get the same answers to the reads of this one.
    pub(crate) fn agree(&mut self, other: &mut Self) -> bool {
        self.recorded.clone().iter().all(|key| match key {
            ReadKey::Get(reference) => self.get(reference) == other.get(reference),
            ReadKey::List(selector) => self.list(selector) == other.list(selector),
            ReadKey::ZoneOffset(_) => true,
        })
    }

    fn record(&mut self, key: ReadKey) {
        if !self.recorded.contains(&key) {
            self.recorded.push(key);
        }
    }

    /// Returns the grants that cover a read, sorted by access, the widest first.
    fn matching_grants(
        &self,
        kind: &Gvk,
        namespace: Option<Arc<str>>,
        is_get: bool,
    ) -> Result<Vec<MatchingGrant<'_>>, ReadFailure> {
        let scope = self.kinds.resource_of(kind).scope;
        let own = self.own_namespace.as_ref();
        let target = namespace.or_else(|| own.filter(|_| is_get).cloned());
        // A cluster-scoped parent gives a read no default namespace.
        let nameless = is_get && scope == Scope::Namespaced && target.is_none();
        let mut grants: Vec<MatchingGrant<'_>> = self
            .granted
            .iter()
            .filter(|read| read.kind == *kind)
            .map(|read| MatchingGrant {
                access: read.access,
                selector: &read.label_selector,
                reach: read.scope.reach(scope, own, target.as_ref()),
            })
            .filter(|grant| grant.reach != Reach::Within(BTreeSet::new()))
            .collect();
        // The first grant that covers an object decides how much of it the guest sees.
        grants.sort_by_key(|grant| grant.access);
        if grants.is_empty() || nameless {
            return Err(ReadFailure::NotGranted(kind.clone()));
        }
        Ok(grants)
    }

    /// Returns the requested objects in the form for guests, sorted by namespace and name.
    fn answer(
        &self,
        kind: &Gvk,
        namespace: Option<Arc<str>>,
        name: Option<&str>,
        chosen: &Selector,
    ) -> Result<Vec<Arc<str>>, ReadFailure> {
        let grants = self.matching_grants(kind, namespace, name.is_some())?;
        let mut objects: BTreeMap<(Option<&str>, &str), Arc<str>> = BTreeMap::new();
        for document in &self.objects {
            let fits = document.group_kind() == kind.group_kind()
                && name.is_none_or(|name| document.name == name);
            if !fits {
                continue;
            }
            let labels = labels(document);
            if !chosen.matches(&labels) {
                continue;
            }
            let grant = grants.iter().find(|grant| grant.covers(document, &labels));
            if let Some(grant) = grant {
                let shown = self.show(document, kind, grant.access)?;
                objects.insert((document.namespace.as_deref(), &document.name), shown);
            }
        }
        Ok(objects.into_values().collect())
    }

    /// Returns a placeholder object whose labels match the selector.
    fn placeholder(
        &self,
        kind: &Gvk,
        namespace: Option<Arc<str>>,
        name: &str,
        chosen: &Selector,
    ) -> Option<Arc<str>> {
        let labels = labels_for(chosen)?;
        let mut metadata = json!({"name": name, "uid": name, "labels": labels});
        let is_namespaced = self.kinds.resource_of(kind).scope == Scope::Namespaced;
        let namespace = namespace.or_else(|| self.own_namespace.clone());
        if let Some(namespace) = namespace.filter(|_| is_namespaced) {
            metadata["namespace"] = json!(&*namespace);
        }
        let api_version = kind.api_version();
        let kind = &*kind.kind;
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        Some(object.to_string().into())
    }

    fn show(
        &self,
        document: &Document,
        kind: &Gvk,
        access: Access,
    ) -> Result<Arc<str>, ReadFailure> {
        // Label the object with the requested version, as if the API server had converted it.
        let document = Document {
            kind: kind.clone(),
            ..document.clone()
        };
        present(&document, access, &self.hash_key)
            .map(|object| object.json)
            .map_err(|_| ReadFailure::NotServed(kind.clone()))
    }
}

impl Reads for OfflineReads {
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        self.record(ReadKey::Get(reference.clone()));
        let ObjectRef {
            kind,
            namespace,
            name,
        } = reference;
        let all = Selector::default();
        let object = self.answer(kind, namespace.clone(), Some(name), &all)?;
        if object.is_empty() && self.simulation.exists {
            return Ok(self.placeholder(kind, namespace.clone(), name, &all));
        }
        Ok(object.into_iter().next())
    }

    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        self.record(ReadKey::List(selector.clone()));
        let text = selector.label_selector.as_deref().unwrap_or_default();
        let chosen = parse_selector(text).map_err(|_| ReadFailure::InvalidSelector {
            selector: text.to_owned(),
        })?;
        let kind = &selector.kind;
        let namespace = selector.namespace.clone();
        let mut objects = self.answer(kind, namespace.clone(), None, &chosen)?;
        if objects.is_empty() && self.simulation.exists {
            objects.extend(self.placeholder(kind, namespace, "example", &chosen));
        }
        if self.simulation.reversed {
            objects.reverse();
        }
        Ok(objects)
    }

    fn zone_offset(&mut self, time: &ZoneTime) -> Option<i32> {
        self.record(ReadKey::ZoneOffset(time.clone()));
        time.offset()
    }
}

/// Returns labels that match a selector; none if no labels do.
fn labels_for(selector: &Selector) -> Option<BTreeMap<String, String>> {
    // The allowed values for each label that must exist; none: any value.
    let mut required: BTreeMap<String, Option<BTreeSet<String>>> = BTreeMap::new();
    let mut refused = BTreeSet::new();
    for expression in selector.clone() {
        let (key, values) = match expression {
            Expression::NotEqual(key, value) => {
                refused.insert((key, value));
                continue;
            }
            Expression::NotIn(key, values) => {
                refused.extend(values.into_iter().map(|value| (key.clone(), value)));
                continue;
            }
            Expression::DoesNotExist(_) => continue,
            Expression::Exists(key) => (key, None),
            Expression::Equal(key, value) => (key, Some([value].into())),
            Expression::In(key, values) => (key, Some(values)),
        };
        let allowed = required.entry(key).or_default();
        *allowed = match (allowed.take(), values) {
            (Some(one), Some(other)) => Some(&one & &other),
            (one, other) => one.or(other),
        };
    }
    let mut labels = BTreeMap::new();
    for (key, values) in required {
        let is_free = |value: &String| !refused.contains(&(key.clone(), value.clone()));
        let value = match values {
            Some(values) => values.into_iter().find(is_free)?,
            // One more candidate than refused values, so one is free.
            None => (0..=refused.len())
                .map(|number| format!("example-{number}"))
                .find(is_free)?,
        };
        labels.insert(key, value);
    }
    // A key that must exist and must not exist matches nothing.
    selector.matches(&labels).then_some(labels)
}

fn labels(document: &Document) -> BTreeMap<String, String> {
    document
        .metadata_field("labels")
        .and_then(|labels| BTreeMap::deserialize(labels).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_imagined_object_matches_the_selector_of_its_list() {
        for text in [
            "",
            "app=web",
            "app!=web",
            "tier in (a,b)",
            "tier in (a,b),tier in (b,c),tier!=c",
            "tier in (a,b),tier notin (a)",
            "app",
            "app,app!=example-0,app notin (example-1)",
            "!app",
            "app=web,!old,x!=web",
        ] {
            let selector = parse_selector(text).unwrap();
            let labels = labels_for(&selector).unwrap_or_else(|| panic!("{text} has labels"));
            assert!(selector.matches(&labels), "{text}: {labels:?}");
        }
        for text in [
            "app=a,app=b",
            "app,!app",
            "app=a,app!=a",
            "app in (a),app notin (a,b)",
        ] {
            assert_eq!(labels_for(&parse_selector(text).unwrap()), None, "{text}");
        }
    }
}
