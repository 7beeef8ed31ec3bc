//! The subscriptions of readers to the objects and lists of one watch.
//!
//! A list is indexed by one label that all its objects must have, so that a changed object is not tested against the
//! selectors of thousands of parents.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{Access, Selector, SelectorExt, required_labels};

use super::{
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
    /// The availability of the kind.
    Kind,
}

/// One list: its place and its selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListKey {
    bucket: Bucket,
    selector: Arc<str>,
}

/// The place of a list in the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bucket {
    /// None: all.
    namespace: Option<Arc<str>>,
    /// A label, as `key=value`, of everything in the list.
    label: Option<Arc<str>>,
}

impl ListKey {
    /// Creates the key of a list, with the rarest label that all its objects must have.
    pub(super) fn new(
        namespace: Option<&str>,
        selector: &Selector,
        text: &Arc<str>,
        store: &Store,
    ) -> Self {
        let required = required_labels(selector);
        let rarest = required
            .iter()
            .min_by_key(|label| store.labelled_count(label));
        Self {
            bucket: Bucket {
                namespace: namespace.map(Arc::from),
                label: rarest.map(|label| label.as_str().into()),
            },
            selector: Arc::clone(text),
        }
    }

    /// The label by which its objects are found.
    pub(super) fn label(&self) -> Option<&str> {
        self.bucket.label.as_deref()
    }
}

/// Readers with the form in which they see the objects.
type Readers<R> = BTreeMap<R, Access>;

/// The lists of a bucket by the text of their selectors.
type Lists<R> = BTreeMap<Arc<str>, (Selector, Readers<R>)>;

/// The subscriptions to one watch.
#[derive(Debug)]
pub(super) struct Subscriptions<R> {
    objects: BTreeMap<ObjectKey, Readers<R>>,
    lists: BTreeMap<Bucket, Lists<R>>,
    kind: Readers<R>,
    held: BTreeMap<R, BTreeSet<Subscription>>,
}

impl<R> Default for Subscriptions<R> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            lists: BTreeMap::new(),
            kind: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }
}

impl<R: Clone + Ord> Subscriptions<R> {
    /// Adds a subscription; the selector is that of a list.
    pub(super) fn add(
        &mut self,
        reader: &R,
        to: &Subscription,
        selector: &Selector,
        access: Access,
    ) {
        let readers = match to {
            Subscription::Object(key) => self.objects.entry(key.clone()).or_default(),
            Subscription::List(ListKey {
                bucket,
                selector: text,
            }) => {
                let lists = self.lists.entry(bucket.clone()).or_default();
                let list = lists.entry(Arc::clone(text));
                &mut list.or_insert_with(|| (selector.clone(), Readers::new())).1
            }
            Subscription::Kind => &mut self.kind,
        };
        readers.insert(reader.clone(), access);
        let held = self.held.entry(reader.clone()).or_default();
        held.insert(to.clone());
    }

    /// Removes all subscriptions of a reader except these.
    pub(super) fn retain(&mut self, reader: &R, keep: &BTreeSet<Subscription>) {
        let Some(held) = self.held.get_mut(reader) else {
            return;
        };
        let gone: Vec<Subscription> = held.difference(keep).cloned().collect();
        held.retain(|subscription| keep.contains(subscription));
        if held.is_empty() {
            self.held.remove(reader);
        }
        for subscription in gone {
            self.remove(reader, subscription);
        }
    }

    fn remove(&mut self, reader: &R, subscription: Subscription) {
        match subscription {
            Subscription::Object(key) => {
                if let Some(readers) = self.objects.get_mut(&key) {
                    readers.remove(reader);
                    if readers.is_empty() {
                        self.objects.remove(&key);
                    }
                }
            }
            Subscription::List(ListKey { bucket, selector }) => {
                let Some(lists) = self.lists.get_mut(&bucket) else {
                    return;
                };
                if let Some((_, readers)) = lists.get_mut(&selector) {
                    readers.remove(reader);
                    if readers.is_empty() {
                        lists.remove(&selector);
                    }
                }
                if lists.is_empty() {
                    self.lists.remove(&bucket);
                }
            }
            Subscription::Kind => {
                self.kind.remove(reader);
            }
        }
    }

    /// Returns every reader with a subscription.
    pub(super) fn readers(&self) -> impl Iterator<Item = &R> {
        self.held.keys()
    }

    /// Returns the readers that could not read the kind.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &R> {
        self.kind.keys()
    }

    /// Returns the readers for which a change makes a difference.
    pub(super) fn touched(&self, change: &Change) -> BTreeSet<R> {
        let mut touched = BTreeSet::new();
        if self.held.is_empty() || !change.shows() {
            return touched;
        }
        let in_metadata = change.shows_in_metadata();
        let mut add = |readers: &Readers<R>| {
            let sees = |access: &Access| *access != Access::Metadata || in_metadata;
            let seeing = readers.iter().filter(|(_, access)| sees(access));
            touched.extend(seeing.map(|(reader, _)| reader.clone()));
        };
        for stored in [&change.before, &change.after].into_iter().flatten() {
            if let Some(readers) = self.objects.get(&ObjectKey::of(stored)) {
                add(readers);
            }
            if !self.lists.is_empty() {
                self.each_list(stored, &mut add);
            }
        }
        touched
    }

    fn each_list(&self, stored: &Stored, add: &mut impl FnMut(&Readers<R>)) {
        let labels = stored.label_map();
        let pairs: Vec<Option<Arc<str>>> = labels
            .iter()
            .map(|(key, value)| Some(label(key, value).into()))
            .chain([None])
            .collect();
        for namespace in [None, Some(Arc::clone(&stored.namespace))] {
            for label in &pairs {
                let bucket = Bucket {
                    namespace: namespace.clone(),
                    label: label.clone(),
                };
                let lists = self
                    .lists
                    .get(&bucket)
                    .into_iter()
                    .flat_map(BTreeMap::values);
                lists
                    .filter(|(selector, _)| selector.matches(&labels))
                    .for_each(|(_, readers)| add(readers));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{Shape, keep};
    use innkeeper_model::{Gvk, parse_selector};

    fn stored(namespace: &str, name: &str, app: &str, spec: u8) -> Stored {
        let text = format!(
            r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"u","resourceVersion":"1","labels":{{"app":"{app}","x":"y"}}}},"spec":{spec}}}"#
        );
        let shape = Shape {
            kind: Gvk::new("", "v1", "Pod"),
            form: Access::Full,
            managers: Some(BTreeSet::new()),
            hash_key: None,
        };
        keep(&text, &shape).unwrap()
    }

    fn change(before: Option<Stored>, after: Option<Stored>) -> Change {
        Change { before, after }
    }

    struct Read(Subscriptions<&'static str>);

    impl Read {
        fn list(
            &mut self,
            reader: &'static str,
            namespace: Option<&str>,
            text: &str,
        ) -> Subscription {
            let selector = parse_selector(text).unwrap();
            let key = ListKey::new(namespace, &selector, &text.into(), &Store::default());
            let to = Subscription::List(key);
            self.0.add(&reader, &to, &selector, Access::Full);
            to
        }

        fn touched(&self, change: &Change) -> Vec<&'static str> {
            self.0.touched(change).into_iter().collect()
        }
    }

    #[test]
    fn a_change_touches_exactly_its_readers() {
        let mut read = Read(Subscriptions::default());
        let absent = Subscription::Object(ObjectKey::new("demo", "a"));
        read.0
            .add(&"absent", &absent, &Selector::default(), Access::Full);
        read.list("web", Some("demo"), "app=web");
        read.list("all", None, "");
        read.list("other namespace", Some("other"), "");
        read.list("not web", None, "app!=web");
        read.list("exists", None, "x");

        let came = change(None, Some(stored("demo", "a", "web", 1)));
        assert_eq!(read.touched(&came), ["absent", "all", "exists", "web"]);
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
        read.0
            .add(&"metadata", &to, &Selector::default(), Access::Metadata);
        read.0.add(&"full", &to, &Selector::default(), Access::Full);
        let spec = change(
            Some(stored("demo", "a", "web", 1)),
            Some(stored("demo", "a", "web", 2)),
        );
        assert_eq!(read.touched(&spec), ["full"]);
    }

    #[test]
    fn a_new_pass_replaces_what_the_former_one_read() {
        let mut read = Read(Subscriptions::default());
        read.list("p", None, "app=web");
        let kept = read.list("p", None, "app=db");
        read.0.retain(&"p", &BTreeSet::from([kept]));
        let web = change(None, Some(stored("demo", "a", "web", 1)));
        let db = change(None, Some(stored("demo", "a", "db", 1)));
        assert_eq!((read.touched(&web), read.touched(&db)), (vec![], vec!["p"]));
        read.0.retain(&"p", &BTreeSet::new());
        assert_eq!(read.touched(&db), [""; 0]);
        assert_eq!(read.0.readers().count(), 0);
        assert!(read.0.lists.is_empty() && read.0.objects.is_empty());
    }
}
