//! An object stated by a reconciler: JSON text, and a value tree only on access.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::json;

/// An object stated by a reconciler.
///
/// It dereferences to `serde_json::Value`. Most objects go to the host unread, and building the tree takes longer than
/// writing the text.
#[derive(Clone, Debug)]
pub struct Stated {
    /// None after a mutable access to the tree, which makes the text stale.
    text: Option<String>,
    tree: OnceCell<Value>,
}

impl Stated {
    /// The object without null members and without an empty `status`.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON, such as a map whose keys are not strings.
    pub(crate) fn new(object: &impl Serialize) -> Self {
        let text = json::text(object);
        // Typed objects of k8s-openapi have no null members, only an empty status. A text that contains
        // one of these forms as data takes the slow path and gives the same result; the word alone is in
        // every script that names /dev/null.
        let slow = [":null", "[null", ",null", r#""status":{}"#];
        if slow.iter().any(|form| text.contains(form)) {
            return Self::stripped(&text);
        }
        Self {
            text: Some(text),
            tree: OnceCell::new(),
        }
    }

    /// Parses the text again. A second serializer per type would be a tenth of a component.
    fn stripped(text: &str) -> Self {
        let mut tree = parse(text);
        json::remove_nulls(&mut tree);
        if let Some(members) = tree.as_object_mut()
            && members
                .get("status")
                .and_then(Value::as_object)
                .is_some_and(serde_json::Map::is_empty)
        {
            members.remove("status");
        }
        Self {
            text: None,
            tree: OnceCell::from(tree),
        }
    }

    /// The text without null members, which state that a field is absent.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match &self.text {
            Some(text) => text.into(),
            None => json::text(&json::to_value(self.tree())).into(),
        }
    }

    /// The text that crosses the boundary; deterministic for the same sequence of changes.
    pub(crate) fn into_text(self) -> String {
        let Self { text, tree } = self;
        text.unwrap_or_else(|| json::canonical(tree.into_inner().unwrap_or_default()))
    }

    fn tree(&self) -> &Value {
        let parsed = || self.text.as_deref().map(parse).unwrap_or_default();
        self.tree.get_or_init(parsed)
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("should be the text that was written")
}

impl Deref for Stated {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.tree()
    }
}

impl DerefMut for Stated {
    fn deref_mut(&mut self) -> &mut Value {
        self.tree();
        self.text = None;
        self.tree.get_mut().expect("should have been made above")
    }
}

impl PartialEq for Stated {
    fn eq(&self, other: &Self) -> bool {
        // Equal texts need no trees. Trees can be equal without: one may have been changed, which sorts the members.
        let is_same = self.text.is_some() && self.text == other.text;
        is_same || self.tree() == other.tree()
    }
}

impl Eq for Stated {}

impl From<Stated> for Value {
    fn from(mut stated: Stated) -> Self {
        std::mem::take(&mut *stated)
    }
}

impl Serialize for Stated {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.tree().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::{Value, json};

    use super::Stated;

    #[test]
    fn passes_on_an_unread_text_as_it_was_written() {
        #[derive(serde::Serialize)]
        struct Unsorted {
            b: u8,
            a: u8,
        }
        let stated = Stated::new(&Unsorted { b: 1, a: 2 });
        assert_eq!(stated["a"], 2);
        assert_eq!(stated.into_text(), r#"{"b":1,"a":2}"#);
        // The word null as data does not make a tree of values, which would sort the members.
        let script = [("b", "ping 2>/dev/null"), ("a", "null")];
        let stated = Stated::new(&script.map(|(name, text)| json!({ name: text })));
        assert!(stated.text.is_some());
    }

    #[test]
    fn leaves_out_nulls_and_an_empty_status() {
        for (object, expected) in [
            (
                json!({"a": null, "b": {"c": [null, 1]}}),
                json!({"b": {"c": [1]}}),
            ),
            (json!({"a": "null"}), json!({"a": "null"})),
            (json!({"a": {"b": [1, null]}}), json!({"a": {"b": [1]}})),
            (json!({"a": "b:null"}), json!({"a": "b:null"})),
            (
                json!({"status": {}, "a": {"status": {}}}),
                json!({"a": {"status": {}}}),
            ),
            (json!({"status": {"a": null}}), json!({})),
        ] {
            let text = Stated::new(&object).into_text();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        }
        let secret = Stated::new(&Secret::default()).into_text();
        assert_eq!(
            secret,
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{}}"#
        );
    }

    #[test]
    fn passes_on_the_changed_object() {
        let mut stated = Stated::new(&ConfigMap::default());
        let before = stated.clone();
        assert_eq!(stated, before);
        stated["data"] = json!({"a": "b"});
        assert_ne!(stated, before);
        let expected = r#"{"apiVersion":"v1","data":{"a":"b"},"kind":"ConfigMap","metadata":{}}"#;
        assert_eq!(serde_json::to_string(&stated).unwrap(), expected);
        assert_eq!(stated.into_text(), expected);
    }
}
