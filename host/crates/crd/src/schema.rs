//! Admits custom resources as the API server does, without an API server.
//!
//! A [`Schema`] is a CustomResourceDefinition in one version. [`Schema::admit`] prunes, inserts defaults and validates
//! as a create does (Kubernetes 1.36): with the same verdict and the same failing paths, but with other messages.
//! Messages for validation rules come from the CustomResourceDefinition.
//! It does not know about admission webhooks and policies, updates (transition rules are skipped, as on create), or the
//! rules' cost limits.

mod cause;
mod format;
mod lists;
mod metadata;
mod node;
mod rules;
mod shape;
mod structure;
#[cfg(test)]
mod tests;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::{bounds, find_version, kinds};
pub use cause::{Rejection, RejectionCause};
use node::{Node, SchemaValue};
use rules::CompiledRules;
pub(crate) use structure::translate_exclusive_bounds;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// A CustomResourceDefinition that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field or the version is missing, or has another type.
    #[error("the CustomResourceDefinition has no valid {0}")]
    Missing(String),
    /// The schema or a rule in it is invalid.
    #[error("failed to compile the schema at \"{at}\"")]
    Schema {
        /// The place: a JSON pointer, or the path to the field that a rule is for.
        at: String,
        /// The compiler's answer.
        #[source]
        source: Source,
    },
}

impl Error {
    fn schema(at: &str, source: impl Into<Source>) -> Self {
        let at = at.to_owned();
        let source = source.into();
        Self::Schema { at, source }
    }
}

/// An object as the API server would store it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The object: pruned, with defaults. A status is kept, although a create drops it.
    pub object: Map<String, Value>,
    /// The dropped fields' paths; `kubectl` warns about these.
    pub unknown_fields: Vec<String>,
}

fn compile(schema: &Value) -> Result<Validator, Error> {
    structure::compile(schema)
        .map_err(|error| Error::schema(error.instance_path().as_str(), bounds::uncompiled(&error)))
}

/// Returns the schema for a version; none if the version is missing or has no schema.
pub fn schema_of<'a>(crd: &'a Map<String, Value>, version: &str) -> Option<&'a Value> {
    let schema = &find_version(crd, version)?["schema"]["openAPIV3Schema"];
    schema.is_object().then_some(schema)
}

/// A CustomResourceDefinition in one version, compiled.
#[derive(Debug)]
pub struct Schema {
    /// Names the kind in errors.
    subject: String,
    status_is_subresource: bool,
    root: Node,
    rules: CompiledRules,
    validator: Validator,
}

impl Schema {
    /// Compiles a CustomResourceDefinition in this version.
    ///
    /// # Errors
    ///
    /// Fails if a field, the version, the schema or a rule cannot be used.
    pub fn new(crd: &Map<String, Value>, version: &str) -> Result<Self, Error> {
        let spec = crd.get("spec").unwrap_or(&Value::Null);
        let text = |field: &str| {
            spec.pointer(field)
                .and_then(Value::as_str)
                .ok_or_else(|| Error::Missing(format!("spec{field}")))
        };
        let group = text("/group")?;
        let kind = text("/names/kind")?;
        let scope = kinds::scope(text("/scope")? == "Cluster");
        let (Some(served), Some(schema)) = (find_version(crd, version), schema_of(crd, version))
        else {
            return Err(Error::Missing(format!("schema of version {version}")));
        };
        let mut schema = schema.clone();
        bounds::check_schema(&schema).map_err(|problem| Error::schema("", problem))?;
        metadata::complete(&mut schema, &format!("{group}/{version}"), kind, scope);
        if let Some(Value::String(path)) = served.pointer("/subresources/scale/specReplicasPath")
            && let Some(Value::Object(replicas)) =
                schema.pointer_mut(&path.replace('.', "/properties/"))
        {
            // The API server also checks the replicas of the subresource `scale`: an int32, not negative.
            let range = json!({"type": "integer", "minimum": 0, "maximum": i32::MAX});
            replicas.insert("x-innkeeper".to_owned(), json!({"allOf": [range]}));
        }
        // Before the node is parsed, because only the compiler's errors name the place.
        let validator = compile(&schema)?;
        let root = serde_json::from_value(schema).map_err(|error| Error::schema("", error))?;
        let mut rules = CompiledRules::default();
        rules.collect(&root, &root, "")?;
        Ok(Self {
            status_is_subresource: served.pointer("/subresources/status").is_some(),
            subject: format!("{kind}.{group}"),
            rules,
            validator,
            root,
        })
    }

    /// Prunes, defaults and validates an object as a create does after `generateName` became a name.
    ///
    /// # Errors
    ///
    /// Fails with all causes that the API server would report.
    pub fn admit(&self, object: Map<String, Value>) -> Result<Admitted, Rejection> {
        let metadata = object.get("metadata");
        let text = |key| metadata?.get(key)?.as_str();
        let name = text("name").or_else(|| text("generateName"));
        let subject = format!("{} \"{}\"", self.subject, name.unwrap_or_default());

        let mut object = Value::Object(object);
        let unknown_fields = shape::normalize(&mut object, &self.root);
        metadata::tidy(&mut object);
        let fields = object.as_object_mut();
        // The API server drops a new object's status before it validates.
        let status = fields
            .filter(|_| self.status_is_subresource)
            .and_then(|all| all.remove("status"));
        let mut causes = self.check(&object);
        if !causes.is_empty() {
            causes.sort();
            causes.dedup();
            return Err(Rejection { subject, causes });
        }
        let mut object = object
            .as_object_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        object.extend(status.map(|status| ("status".to_owned(), status)));
        Ok(Admitted {
            object,
            unknown_fields,
        })
    }

    /// Returns why the API server would refuse a write to the subresource `status`; nothing if it accepts it.
    ///
    /// The rest of the object is the stored one, so only the status and the rules about it are judged. Server-side apply
    /// also refuses fields that the definition does not have.
    pub fn check_status(&self, object: Map<String, Value>) -> Vec<RejectionCause> {
        let is_status = |path: &str| path == "status" || path.starts_with("status.");
        let mut object = Value::Object(object);
        let unknown = shape::normalize(&mut object, &self.root);
        metadata::tidy(&mut object);
        let mut causes: Vec<RejectionCause> = unknown
            .into_iter()
            .filter(|path| is_status(path))
            .map(|path| RejectionCause::new(path, "the definition has no such field"))
            .collect();
        causes.extend(
            self.check_constraints(&object)
                .into_iter()
                .filter(|cause| is_status(&cause.path)),
        );
        if !causes.iter().any(|cause| cause.blocks_rules) {
            let rules = self.check_rules(&object);
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            // A rule that fails without the status as well says nothing about it.
            let without = self.check_rules(&object);
            causes.extend(rules.into_iter().filter(|cause| !without.contains(cause)));
        }
        causes.sort();
        causes.dedup();
        causes
    }

    fn check(&self, object: &Value) -> Vec<RejectionCause> {
        let mut causes = self.check_constraints(object);
        // Rules assume the types and sizes that the schema declares.
        if causes.iter().any(|cause| cause.blocks_rules) {
            let skipped = "not all rules were checked: correct the other fields first";
            causes.extend((!self.rules.0.is_empty()).then(|| RejectionCause::new("", skipped)));
        } else {
            causes.extend(self.check_rules(object));
        }
        causes
    }

    fn root_of<'a>(&'a self, object: &'a Value) -> SchemaValue<'a> {
        SchemaValue {
            node: &self.root,
            value: object,
            path: String::new(),
            schema_path: String::new(),
        }
    }

    fn check_rules(&self, object: &Value) -> Vec<RejectionCause> {
        let mut causes = Vec::new();
        self.root_of(object)
            .visit(&mut |place| causes.extend(self.rules.check(place)));
        causes
    }

    /// Checks everything but the rules.
    fn check_constraints(&self, object: &Value) -> Vec<RejectionCause> {
        let mut causes = structure::check(&self.validator, object);
        self.root_of(object).visit(&mut |place| {
            let SchemaValue { node, path, .. } = place;
            match place.value {
                Value::Number(number) => causes.extend(structure::check_number(number, node, path)),
                Value::Array(items) => causes.extend(lists::check(items, node, path)),
                Value::Object(map) if node.x_kubernetes_embedded_resource == Some(true) => {
                    causes.extend(metadata::check_annotations(map, path));
                }
                _ => {}
            }
        });
        causes
    }
}
