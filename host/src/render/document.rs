//! Objects from files.

use innkeeper_model::{GroupKind, Gvk, ObjectId};
use innkeeper_plan::encode_string_data;
use serde_json::{Map, Value};

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    pub(super) kind: Gvk,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) object: Map<String, Value>,
}

impl Document {
    /// Checks that a value has the fields of an object; the error names the first missing one.
    pub(super) fn new(value: Value) -> Result<Self, String> {
        let Value::Object(mut object) = value else {
            return Err("it is not a map".to_owned());
        };
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        let api_version = text("apiVersion").ok_or("it has no apiVersion")?;
        let kind = text("kind").ok_or("it has no kind")?;
        let kind = Gvk::parse(api_version, kind).map_err(|error| error.to_string())?;
        let metadata = |name: &str| {
            let text = object.get("metadata")?.get(name)?.as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let name = metadata("name")
            .or_else(|| metadata("generateName"))
            .ok_or("it has no metadata.name")?;
        let namespace = metadata("namespace");
        if kind == Gvk::new("", "v1", "Secret") {
            // An API server returns `stringData` only in its encoded form, as `data`.
            encode_string_data(&mut object);
        }
        Ok(Self {
            kind,
            namespace,
            name,
            object,
        })
    }

    pub(super) fn group_kind(&self) -> GroupKind {
        self.kind.group_kind()
    }

    pub(super) fn id(&self) -> ObjectId {
        ObjectId::new(self.group_kind(), self.namespace.as_deref(), &self.name)
    }

    /// A text below `metadata`.
    pub(super) fn metadata(&self, name: &str) -> Option<&str> {
        self.object
            .get("metadata")?
            .get(name)?
            .as_str()
            .filter(|text| !text.is_empty())
    }

    /// Sets a field below `metadata` unless it is there.
    pub(super) fn default_metadata(&mut self, name: &str, value: Value) {
        let metadata = self
            .object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            let slot = metadata.entry(name).or_insert(Value::Null);
            if slot.is_null() {
                *slot = value;
            }
        }
    }

    /// Puts the object into a namespace unless it is in one.
    pub(super) fn default_namespace(&mut self, namespace: &str) {
        if self.namespace.is_none() {
            self.namespace = Some(namespace.to_owned());
            self.default_metadata("namespace", namespace.into());
        }
    }
}
