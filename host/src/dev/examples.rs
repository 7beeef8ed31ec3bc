//! The examples: read before the control plane starts, applied once the plugins are active.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use innkeeper_model::{Gvk, ObjectId, Scope, yaml};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tracing::debug;

use super::Error;
use crate::run::StatusRegistry;

/// The field manager of `dev`.
const MANAGER: &str = "innkeeper-dev";

/// The longest wait for the kind of an example to appear in discovery.
const SERVED_WITHIN: Duration = Duration::from_secs(5);

/// One object to apply.
pub(super) struct Example {
    path: PathBuf,
    kind: Gvk,
    namespace: Option<String>,
    name: String,
    body: Map<String, Value>,
}

impl Example {
    /// Returns true if the identity is that of the example.
    pub(super) fn is(&self, id: &ObjectId) -> bool {
        let namespace = self.namespace.as_deref().unwrap_or("default");
        self.kind.group_kind() == id.kind
            && *self.name == *id.name
            && id
                .namespace
                .as_deref()
                .is_none_or(|other| other == namespace)
    }

    /// The kind.
    pub(super) fn kind(&self) -> &Gvk {
        &self.kind
    }

    /// The identity; without a namespace if the file names none, because the scope of the kind is not known here.
    pub(super) fn id(&self) -> ObjectId {
        ObjectId::new(
            self.kind.group_kind(),
            self.namespace.as_deref(),
            &self.name,
        )
    }
}

/// Reads the documents of all files.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Example>, Error> {
    let mut examples = Vec::new();
    for path in paths {
        let of_file = read_file(path).map_err(|source| Error::ReadExample {
            path: path.clone(),
            source,
        })?;
        examples.extend(of_file);
    }
    Ok(examples)
}

/// A reason for which the file of an example cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is not YAML.
    #[error(transparent)]
    Parse(#[from] yaml::Error),
    /// A document is not a Kubernetes object; documents count from 1.
    #[error("document {document} has no {missing}")]
    Shape {
        /// The position of the document.
        document: usize,
        /// The missing field.
        missing: &'static str,
    },
}

fn read_file(path: &Path) -> Result<Vec<Example>, Unusable> {
    let documents = yaml::read(&fs::read_to_string(path)?)?;
    let examples = documents.into_iter().zip(1..).map(|(body, document)| {
        let shape = shape(body).map_err(|missing| Unusable::Shape { document, missing })?;
        let (kind, namespace, name, body) = shape;
        Ok(Example {
            path: path.to_owned(),
            kind,
            namespace,
            name,
            body,
        })
    });
    examples.collect()
}

type Shape = (Gvk, Option<String>, String, Map<String, Value>);

/// Splits off the fields that every object has; the error names the first missing one.
fn shape(document: Value) -> Result<Shape, &'static str> {
    let Value::Object(body) = document else {
        return Err("fields");
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let metadata = body.get("metadata").and_then(Value::as_object);
    let of_metadata = |field| text(metadata.and_then(|metadata| metadata.get(field)));
    let api_version = text(body.get("apiVersion")).ok_or("apiVersion")?;
    let kind = text(body.get("kind")).ok_or("kind")?;
    let kind =
        Gvk::parse(&api_version, &kind).map_err(|_| "apiVersion of the form group/version")?;
    let name = of_metadata("name").ok_or("metadata.name")?;
    let namespace = of_metadata("namespace");
    Ok((kind, namespace, name, body))
}

/// Applies the examples in the given order.
pub(super) async fn apply(status: &StatusRegistry, examples: &[Example]) -> Result<(), Error> {
    let Some(shared) = status.shared() else {
        return Ok(());
    };
    for example in examples {
        let Example {
            path,
            kind,
            namespace,
            body,
            ..
        } = example;
        // A kind that a plugin has just installed appears in discovery after a delay.
        if timeout(SERVED_WITHIN, shared.cluster.wait_served(kind))
            .await
            .is_err()
        {
            debug!(%kind, "the kind is not served in time");
        }
        let Some(resource) = shared.resources.resource(kind) else {
            return Err(Error::ExampleNotServed {
                path: path.clone(),
                kind: kind.clone(),
            });
        };
        let mut body = body.clone();
        if resource.scope == Scope::Namespaced
            && namespace.is_none()
            && let Some(Value::Object(metadata)) = body.get_mut("metadata")
        {
            metadata.insert("namespace".to_owned(), Value::from("default"));
        }
        let applied = shared.writer.object(MANAGER, &body, &resource).await;
        applied.map_err(|source| Error::ApplyExample {
            path: path.clone(),
            object: example.id(),
            source: Box::new(source),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kind_namespace_and_name_of_an_object() {
        let text =
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: demo}\n";
        let document = yaml::read(text).unwrap().remove(0);
        let (kind, namespace, name, _) = shape(document).unwrap();
        assert_eq!(kind.to_string(), "apps/v1 Deployment");
        assert_eq!((namespace.as_deref(), &*name), (Some("demo"), "web"));
    }

    #[test]
    fn names_the_missing_field_of_an_object() {
        for (text, missing) in [
            ("[]", "fields"),
            ("kind: A", "apiVersion"),
            ("apiVersion: v1", "kind"),
            (
                "apiVersion: a/b/c\nkind: A",
                "apiVersion of the form group/version",
            ),
            ("apiVersion: v1\nkind: A", "metadata.name"),
        ] {
            let document = yaml::read(text).unwrap().remove(0);
            assert_eq!(shape(document).unwrap_err(), missing, "{text}");
        }
    }
}
