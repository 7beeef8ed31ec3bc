//! Reads the CustomResourceDefinition for `innkeeper new --from-crd`.

use std::path::Path;

use innkeeper_command::{Exit, Failure, OrFail as _, file::read_text};
use innkeeper_crd::{Schema, schema_of};
use innkeeper_model::{Gvk, yaml};
use serde_json::{Map, Value, json};

use crate::generate::{Choices, generate};

/// Number of examples to try for a valid parent; each takes about a millisecond.
const TRIES: u32 = 500;

/// One version in a CustomResourceDefinition.
pub(super) struct Definition {
    pub(super) kind: Gvk,
    pub(super) plural: String,
    pub(super) is_cluster_scoped: bool,
    /// The definition without the fields that a cluster adds.
    pub(super) object: Value,
    /// The version's schema.
    pub(super) schema: Value,
    compiled: Schema,
}

impl Definition {
    /// Reads a file's only definition, or the one for this kind.
    pub(super) fn read(file: &Path, kind: Option<&Gvk>) -> Result<Self, Failure> {
        let path = file.display();
        let text = read_text(file).or_fail(Exit::Usage, format!("failed to read {path}"))?;
        let objects = yaml::read(&text).or_fail(Exit::Usage, format!("failed to parse {path}"))?;
        let is_wanted = |object: &Value| {
            let spec = &object["spec"];
            object["kind"] == "CustomResourceDefinition"
                && kind.is_none_or(|kind| {
                    spec["group"] == *kind.group && spec["names"]["kind"] == *kind.kind
                })
        };
        let mut definitions: Vec<Value> = objects.into_iter().filter(is_wanted).collect();
        let (Some(object), true) = (definitions.pop(), definitions.is_empty()) else {
            let message = format!(
                "failed to find one CustomResourceDefinition in {path}: give a file with one, or name it with --kind GROUP/VERSION/KIND"
            );
            return Err(Failure::new(Exit::Usage, message));
        };
        Self::new(&object, kind).or_fail(
            Exit::Usage,
            format!("failed to use the CustomResourceDefinition in {path}"),
        )
    }

    fn new(
        object: &Value,
        kind: Option<&Gvk>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let spec = &object["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
        let version = match kind {
            Some(kind) => kind.version.to_string(),
            None => versions
                .iter()
                .find(|version| version["storage"] == true)
                .map(|version| text(&version["name"]))
                .unwrap_or_default(),
        };
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": object["metadata"]["name"]},
            "spec": spec,
        });
        let empty = Map::new();
        let crd = object.as_object().unwrap_or(&empty);
        let compiled = Schema::new(crd, &version)?;
        let schema = schema_of(crd, &version).cloned().unwrap_or_default();
        if schema["properties"]["spec"]["type"] != "object" {
            return Err(format!("version {version} has no spec").into());
        }
        Ok(Self {
            kind: Gvk::new(text(&spec["group"]), version, text(&spec["names"]["kind"])),
            plural: text(&spec["names"]["plural"]),
            is_cluster_scoped: spec["scope"] == "Cluster",
            object,
            schema,
            compiled,
        })
    }

    /// The scope as the SDK names it.
    pub(super) const fn scope(&self) -> &'static str {
        if self.is_cluster_scoped {
            "Cluster"
        } else {
            "Namespaced"
        }
    }

    /// Returns a small parent, and its spec as the API server stores it if the parent is valid.
    ///
    /// Rules over several fields are satisfied by trial, with as few fields as possible first.
    pub(super) fn example(&self) -> (Value, Option<Value>) {
        let mut tries = (0..TRIES).map(|size| self.parent(Choices::random(size.into(), size)));
        let valid = tries.find_map(|parent| {
            let object = parent.as_object().cloned().unwrap_or_default();
            let mut stored = self.compiled.admit(object).ok()?.object;
            Some((parent, stored.remove("spec")))
        });
        valid.unwrap_or_else(|| (self.parent(Choices::default()), None))
    }

    fn parent(&self, mut choices: Choices) -> Value {
        let mut metadata = json!({"name": "example"});
        if !self.is_cluster_scoped {
            metadata["namespace"] = json!("default");
        }
        json!({
            "apiVersion": self.kind.api_version(),
            "kind": *self.kind.kind,
            "metadata": metadata,
            "spec": generate(&self.schema["properties"]["spec"], &mut choices),
        })
    }
}
