//! Objects from files.

use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::{GroupKind, Gvk, ObjectId, yaml};
use innkeeper_plan::encode_string_data;
use serde_json::{Map, Value};

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The kind.
    pub kind: Gvk,
    /// The namespace, if the object names one.
    pub namespace: Option<String>,
    /// The name, or else the prefix of a generated name.
    pub name: String,
    /// All fields.
    pub object: Map<String, Value>,
}

impl Document {
    /// Checks that a value has the fields of an object; the error names the first missing one.
    pub(crate) fn new(value: Value) -> Result<Self, String> {
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
            // An API server returns `stringData` only in encoded form, as `data`.
            encode_string_data(&mut object);
        }
        Ok(Self {
            kind,
            namespace,
            name,
            object,
        })
    }

    /// The kind without version.
    pub fn group_kind(&self) -> GroupKind {
        self.kind.group_kind()
    }

    /// Kind, namespace and name.
    pub fn id(&self) -> ObjectId {
        ObjectId::new(self.group_kind(), self.namespace.as_deref(), &self.name)
    }

    /// A `metadata` field.
    pub(crate) fn metadata_field(&self, name: &str) -> Option<&Value> {
        self.object.get("metadata")?.get(name)
    }

    /// A `metadata` text.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata_field(name)?
            .as_str()
            .filter(|text| !text.is_empty())
    }

    /// Sets a field below `metadata` unless it is there.
    pub(crate) fn default_metadata(&mut self, name: &str, value: Value) {
        let metadata = self
            .object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            let slot = metadata.entry(name).or_insert(Value::Null);
            // A YAML key without a value has the value null.
            if slot.is_null() {
                *slot = value;
            }
        }
    }

    /// Puts the object into a namespace unless it is in one.
    pub fn default_namespace(&mut self, namespace: &str) {
        if self.namespace.is_none() {
            self.namespace = Some(namespace.to_owned());
            self.default_metadata("namespace", namespace.into());
        }
    }
}

/// Reads objects from YAML or JSON text; splits lists as `kubectl get -o yaml` prints them.
pub fn documents(text: &str, from: &str) -> Result<Vec<Document>, Failure> {
    let values = yaml::read(text).or_fail(Exit::Usage, format!("failed to parse {from}"))?;
    let mut documents = Vec::new();
    for (mut value, number) in values.into_iter().zip(1..) {
        // `List` from kubectl, and typed ones such as PodList from the API.
        let is_list = value
            .get("kind")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.ends_with("List"));
        let items = value
            .get_mut("items")
            .filter(|items| is_list && items.is_array());
        let items = match items.map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => vec![value],
        };
        for item in items {
            documents.push(Document::new(item).map_err(|problem| {
                let message = format!("document {number} of {from} is not an object: {problem}");
                Failure::new(Exit::Usage, message)
            })?);
        }
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kind_namespace_and_name_of_an_object() {
        let text =
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: demo}\n";
        let document = documents(text, "web.yaml").unwrap().remove(0);
        assert_eq!(document.kind.to_string(), "apps/v1 Deployment");
        assert_eq!(document.namespace.as_deref(), Some("demo"));
        assert_eq!(document.name, "web");
    }

    #[test]
    fn names_the_missing_field_of_an_object() {
        for (text, missing) in [
            ("[]", "it is not a map"),
            ("kind: A", "it has no apiVersion"),
            ("apiVersion: v1", "it has no kind"),
            ("apiVersion: a/b/c\nkind: A", "a/b/c"),
            ("apiVersion: v1\nkind: A", "it has no metadata.name"),
        ] {
            let error = documents(text, "web.yaml").unwrap_err().to_string();
            let start = "document 1 of web.yaml is not an object: ";
            let problem = error.strip_prefix(start).unwrap();
            assert!(problem.contains(missing), "{text}: {problem}");
        }
    }
}
