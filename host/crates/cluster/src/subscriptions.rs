//! Subscriptions to the objects and lists of one watch.
//!
//! A list is indexed by one label that all objects in it must have, so that a changed object is not matched with
//! thousands of selectors.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{Access, Expression, Selector, SelectorExt};

use super::{
    reader::Reader,
    store::{Change, ObjectKey, Store, label},
    stored::Stored,
};

/// The subject of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subscription {
    /// One object.
    Object(ObjectKey),
    /// A list.
    List(ListKey),
    /// The kind's availability.
    Kind,
}

/// One list, by index place and selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListKey {
    place: IndexPlace,
    expressions: Expressions,
}

/// A selector's expressions; a selector itself has no order.
type Expressions = Arc<[Expression]>;

/// A list's place in the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IndexPlace {
    /// None: all.
    namespace: Option<Arc<str>>,
    /// A label that everything in the list has, as `key=value`.
    label: Option<Arc<str>>,
}

impl ListKey {
    /// Creates a key with the rarest label that all objects in the list must have.
    pub(super) fn new(namespace: Option<&str>, selector: &Selector, store: &Store) -> Self {
        let expressions: Expressions = selector.clone().into_iter().collect();
        let rarest = expressions
            .iter()
            .filter_map(required_label)
            .min_by_key(|label| store.labelled_count(label));
        Self {
            place: IndexPlace {
                namespace: namespace.map(Arc::from),
                label: rarest.map(Arc::from),
            },
            expressions,
        }
    }

    /// The label that finds the objects.
    pub(super) fn label(&self) -> Option<&str> {
        self.place.label.as_deref()
    }
}

/// Returns the label that every selected object has, as `key=value`.
fn required_label(expression: &Expression) -> Option<String> {
    match expression {
        Expression::Equal(key, value) => Some(label(key, value)),
        Expression::In(key, values) if values.len() == 1 => {
            values.first().map(|value| label(key, value))
        }
        _ => None,
    }
}

/// Readers with the access that they have.
type Readers = BTreeMap<Reader, Access>;

/// Lists by selector.
type Lists = BTreeMap<Expressions, Readers>;

/// The subscriptions to one watch.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    objects: BTreeMap<ObjectKey, Readers>,
    lists: BTreeMap<IndexPlace, Lists>,
    kind: Readers,
    by_reader: BTreeMap<Reader, BTreeSet<Subscription>>,
}

impl Subscriptions {
    /// Adds a subscription. Of several for the same reader and subject, the richest access counts.
    pub(super) fn add(&mut self, reader: &Reader, subscription: &Subscription, access: Access) {
        let readers = match subscription {
            Subscription::Object(key) => self.objects.entry(key.clone()).or_default(),
            Subscription::List(ListKey { place, expressions }) => self
                .lists
                .entry(place.clone())
                .or_default()
                .entry(Arc::clone(expressions))
                .or_default(),
            Subscription::Kind => &mut self.kind,
        };
        readers
            .entry(reader.clone())
            // Two grants may share one watch, so that one read subscribes with both.
            .and_modify(|richest| *richest = access.min(*richest))
            .or_insert(access);
        self.by_reader
            .entry(reader.clone())
            .or_default()
            .insert(subscription.clone());
    }

    /// Removes a reader's subscriptions except these.
    pub(super) fn retain(&mut self, reader: &Reader, keep: &BTreeSet<Subscription>) {
        let Some(subscriptions) = self.by_reader.get_mut(reader) else {
            return;
        };
        let removed: Vec<Subscription> = subscriptions.difference(keep).cloned().collect();
        subscriptions.retain(|subscription| keep.contains(subscription));
        if subscriptions.is_empty() {
            self.by_reader.remove(reader);
        }
        for subscription in &removed {
            match subscription {
                Subscription::Object(key) => remove_reader(&mut self.objects, key, reader),
                Subscription::List(ListKey { place, expressions }) => {
                    if let Some(lists) = self.lists.get_mut(place) {
                        remove_reader(lists, expressions, reader);
                        if lists.is_empty() {
                            self.lists.remove(place);
                        }
                    }
                }
                Subscription::Kind => {
                    self.kind.remove(reader);
                }
            }
        }
    }

    /// Returns every reader with a subscription.
    pub(super) fn readers(&self) -> impl Iterator<Item = &Reader> {
        self.by_reader.keys()
    }

    /// Returns the readers that wait for the kind.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Reader> {
        self.kind.keys()
    }

    /// Returns the readers that see a change.
    pub(super) fn touched(&self, change: &Change) -> BTreeSet<Reader> {
        let mut touched = BTreeSet::new();
        if self.by_reader.is_empty() || !change.json_changed() {
            return touched;
        }
        let in_metadata = change.metadata_changed();
        let mut add = |readers: &Readers| {
            let sees = |access: &Access| *access != Access::Metadata || in_metadata;
            let seeing = readers.iter().filter(|(_, access)| sees(access));
            touched.extend(seeing.map(|(reader, _)| reader.clone()));
        };
        // Both states: an object that leaves a list by a label changes that list too.
        for stored in [&change.before, &change.after].into_iter().flatten() {
            if let Some(readers) = self.objects.get(&ObjectKey::for_object(stored)) {
                add(readers);
            }
            if !self.lists.is_empty() {
                self.each_list(stored, &mut add);
            }
        }
        touched
    }

    fn each_list(&self, stored: &Stored, add: &mut impl FnMut(&Readers)) {
        let labels = stored.label_map();
        let pairs: Vec<Option<Arc<str>>> = labels
            .iter()
            .map(|(key, value)| Some(label(key, value).into()))
            // The place of lists that require no label.
            .chain([None])
            .collect();
        for namespace in [None, Some(Arc::clone(&stored.namespace))] {
            for label in &pairs {
                let place = IndexPlace {
                    namespace: namespace.clone(),
                    label: label.clone(),
                };
                for (expressions, readers) in self.lists.get(&place).into_iter().flatten() {
                    if expressions
                        .iter()
                        .all(|expression| expression.matches(&labels))
                    {
                        add(readers);
                    }
                }
            }
        }
    }
}

/// Removes a reader, and the subject if that was the last reader.
fn remove_reader<K: Ord>(subjects: &mut BTreeMap<K, Readers>, key: &K, reader: &Reader) {
    if let Some(readers) = subjects.get_mut(key) {
        readers.remove(reader);
        if readers.is_empty() {
            subjects.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reader::SubscriberId,
        stored::{Shape, keep},
    };
    use innkeeper_model::{GroupKind, Gvk, ObjectId, parse_selector};

    fn stored(namespace: &str, name: &str, app: &str, spec: u8) -> Stored {
        let text = format!(
            r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"u","resourceVersion":"1","labels":{{"app":"{app}","x":"y"}}}},"spec":{spec}}}"#
        );
        keep(&text, &Shape::whole(&Gvk::new("", "v1", "Pod"))).unwrap()
    }

    fn change(before: Option<Stored>, after: Option<Stored>) -> Change {
        Change { before, after }
    }

    fn reader(name: &str) -> Reader {
        let parent = ObjectId::new(GroupKind::new("", "Pond"), None, name);
        Reader {
            subscriber_id: SubscriberId::default(),
            parent,
        }
    }

    struct Read(Subscriptions);

    impl Read {
        fn list(&mut self, name: &str, namespace: Option<&str>, text: &str) -> Subscription {
            let selector = parse_selector(text).unwrap();
            let key = ListKey::new(namespace, &selector, &Store::default());
            let to = Subscription::List(key);
            self.0.add(&reader(name), &to, Access::Full);
            to
        }

        fn touched(&self, change: &Change) -> Vec<String> {
            self.0
                .touched(change)
                .into_iter()
                .map(|reader| reader.parent.name.to_string())
                .collect()
        }
    }

    #[test]
    fn a_change_touches_exactly_its_readers() {
        let mut read = Read(Subscriptions::default());
        let absent = Subscription::Object(ObjectKey::new("demo", "a"));
        read.0.add(&reader("absent"), &absent, Access::Full);
        read.list("web", Some("demo"), "app=web");
        read.list("all", None, "");
        read.list("other namespace", Some("other"), "");
        read.list("not web", None, "app!=web");
        read.list("exists", None, "x");

        let added = change(None, Some(stored("demo", "a", "web", 1)));
        assert_eq!(read.touched(&added), ["absent", "all", "exists", "web"]);
        let relabelled = change(
            Some(stored("demo", "b", "web", 1)),
            Some(stored("demo", "b", "db", 1)),
        );
        assert_eq!(
            read.touched(&relabelled),
            ["all", "exists", "not web", "web"]
        );
        let same = change(
            Some(stored("demo", "a", "web", 1)),
            Some(stored("demo", "a", "web", 1)),
        );
        assert_eq!(read.touched(&same), [""; 0]);
    }

    #[test]
    fn metadata_readers_do_not_see_the_rest() {
        let mut read = Read(Subscriptions::default());
        let to = Subscription::Object(ObjectKey::new("demo", "a"));
        read.0.add(&reader("metadata"), &to, Access::Metadata);
        read.0.add(&reader("full"), &to, Access::Full);
        let spec = change(
            Some(stored("demo", "a", "web", 1)),
            Some(stored("demo", "a", "web", 2)),
        );
        assert_eq!(read.touched(&spec), ["full"]);
    }

    #[test]
    fn a_new_pass_replaces_the_earlier_subscriptions() {
        let mut read = Read(Subscriptions::default());
        read.list("p", None, "app=web");
        let databases = read.list("p", None, "app=db");
        read.0.retain(&reader("p"), &BTreeSet::from([databases]));
        let web = change(None, Some(stored("demo", "a", "web", 1)));
        let db = change(None, Some(stored("demo", "a", "db", 1)));
        assert_eq!(read.touched(&web), [""; 0]);
        assert_eq!(read.touched(&db), ["p"]);
        read.0.retain(&reader("p"), &BTreeSet::new());
        assert_eq!(read.touched(&db), [""; 0]);
        assert_eq!(read.0.readers().count(), 0);
        assert!(read.0.lists.is_empty() && read.0.objects.is_empty());
    }

    #[test]
    fn finds_the_labels_that_all_selected_objects_have() {
        let selector = parse_selector("a=1,b!=2,c in (3),d in (4,5),e").unwrap();
        let required: Vec<String> = selector
            .into_iter()
            .filter_map(|expression| required_label(&expression))
            .collect();
        assert_eq!(required, ["a=1", "c=3"]);
    }
}
