//! What the API server does with a custom resource before it stores one, without an API server.
//!
//! A [`Schema`] is one version of one CustomResourceDefinition. [`Schema::admit`] prunes, fills in defaults and
//! validates as a create does, with the same verdict, the same paths and the same messages (Kubernetes 1.36).
//! It knows nothing of admission webhooks and policies, of updates (transition rules are skipped, as on create), and of
//! the cost limits of rules. Formats `isbn`, `creditcard`, `ssn` and `bsonobjectid` are accepted unseen.

mod cause;
mod embedded;
mod format;
mod go;
mod kinds;
mod lists;
mod metadata;
mod names;
mod node;
mod rules;
mod scale;
mod shape;
mod structure;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use cause::{Cause, CauseKind, Rejection};
pub use kinds::{Kinds, kind_of_crd};
use metadata::Scoped;
use node::Node;
pub use rules::CompileError;
use rules::RuleTree;
use scale::Scale;
use structure::Structure;

/// Why a CustomResourceDefinition cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field that every CustomResourceDefinition has is missing or of another type.
    #[error("the CustomResourceDefinition has no usable {0}")]
    Field(&'static str),
    /// The version is not in `spec.versions`.
    #[error("the CustomResourceDefinition {crd} has no version {version}")]
    Version {
        /// Its name.
        crd: String,
        /// The version asked for.
        version: String,
    },
    /// The schema is not a valid one.
    #[error("the schema of {kind} is broken at \"{at}\": {problem}")]
    Schema {
        /// The kind.
        kind: String,
        /// The place, as a JSON pointer.
        at: String,
        /// What is wrong.
        problem: String,
    },
    /// A validation rule does not compile.
    #[error("the rule \"{rule}\" at \"{at}\" does not compile")]
    Rule {
        /// The rule.
        rule: String,
        /// The place, as a path of fields.
        at: String,
        /// What the compiler says.
        #[source]
        source: CompileError,
    },
}

/// An object as the API server would store it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The object: pruned, with defaults. A status is kept, although a create drops it.
    pub object: Map<String, Value>,
    /// Paths of fields that the schema does not know; they were dropped, with a warning by `kubectl`.
    pub unknown_fields: Vec<String>,
}

/// One version of one CustomResourceDefinition, compiled.
#[derive(Debug)]
pub struct Schema {
    group: String,
    version: String,
    kind: String,
    scope: Scoped,
    status_is_subresource: bool,
    scale: Option<Scale>,
    root: Node,
    structure: Structure,
    rules: Option<RuleTree>,
}

impl Schema {
    /// Compiles a version of a CustomResourceDefinition.
    pub fn new(crd: &Map<String, Value>, version: &str) -> Result<Self, Error> {
        let spec = crd.get("spec").ok_or(Error::Field("spec"))?;
        let text = |pointer: &str, name: &'static str| {
            spec.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .ok_or(Error::Field(name))
        };
        let group = text("/group", "spec.group")?;
        let kind = text("/names/kind", "spec.names.kind")?;
        let plural = text("/names/plural", "spec.names.plural")?;
        let scope = Scoped::parse(&text("/scope", "spec.scope")?);
        let served = spec
            .get("versions")
            .and_then(Value::as_array)
            .ok_or(Error::Field("spec.versions"))?
            .iter()
            .find(|one| one.get("name").and_then(Value::as_str) == Some(version))
            .ok_or_else(|| Error::Version {
                crd: format!("{plural}.{group}"),
                version: version.to_owned(),
            })?;
        let raw = served
            .pointer("/schema/openAPIV3Schema")
            .filter(|schema| schema.is_object())
            .ok_or(Error::Field("spec.versions[].schema.openAPIV3Schema"))?;
        let structure = Structure::new(raw).map_err(|(at, problem)| Error::Schema {
            kind: kind.clone(),
            at,
            problem,
        })?;
        let subresource = |name: &str| served.pointer(&format!("/subresources/{name}"));
        Ok(Self {
            status_is_subresource: subresource("status").is_some(),
            scale: subresource("scale").and_then(Scale::new),
            root: Node::new(raw).into_root(),
            rules: RuleTree::new(raw)?,
            version: version.to_owned(),
            structure,
            group,
            kind,
            scope,
        })
    }

    /// Does to an object what a create does, once a name is made of `generateName`.
    pub fn admit(&self, object: Map<String, Value>) -> Result<Admitted, Rejection> {
        let name = ["name", "generateName"]
            .into_iter()
            .find_map(|key| object.get("metadata")?.get(key)?.as_str())
            .unwrap_or_default()
            .to_owned();
        let reject = |causes| Rejection::new(&self.group, &self.kind, &name, causes);

        let (mut object, mut unknown_fields) =
            metadata::decode(object).map_err(|cause| reject(vec![cause]))?;
        unknown_fields.extend(shape::prune(&mut object, &self.root));
        shape::drop_nulls(&mut object, &self.root);
        shape::fill_in(&mut object, &self.root);
        // The API server drops the status of a new object after decoding it, before it looks at values.
        let status = self
            .status_is_subresource
            .then(|| object.remove("status"))
            .flatten();

        let mut causes = metadata::check_type(&object, &self.group, &self.version, &self.kind);
        if causes.is_empty() {
            let value = Value::Object(object);
            causes.extend(metadata::check(&value, self.scope));
            causes.extend(self.structure.check(&value));
            causes.extend(self.scale.iter().filter_map(|scale| scale.check(&value)));
            causes.extend(embedded::check(&value, &self.root));
            causes.extend(lists::check(&value, &self.root));
            self.check_rules(&value, &mut causes);
            object = match value {
                Value::Object(object) => object,
                _ => Map::new(),
            };
        }
        if !causes.is_empty() {
            return Err(reject(causes));
        }
        object.extend(status.map(|status| ("status".to_owned(), status)));
        Ok(Admitted {
            object,
            unknown_fields,
        })
    }

    /// Rules are evaluated on objects of the right form only.
    fn check_rules(&self, object: &Value, causes: &mut Vec<Cause>) {
        let Some(rules) = &self.rules else { return };
        if causes.iter().any(|cause| cause.kind.blocks_rules()) {
            causes.push(Cause::rules_not_checked());
        } else {
            causes.extend(rules.check(object));
        }
    }
}
