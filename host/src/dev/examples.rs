//! Reads examples before the control plane starts, and applies them once the plugins are active.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use innkeeper_authoring::document::{self, Document};
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::{ObjectId, Resources as _, Scope};
use innkeeper_server::run::StatusRegistry;
use tokio::time::timeout;
use tracing::debug;

use super::shared;

/// The field manager of `dev`.
pub(super) const MANAGER: &str = "innkeeper-dev";

/// The maximum wait for an example's kind in discovery.
pub(super) const SERVED_WITHIN: Duration = Duration::from_secs(5);

/// One object to apply. It may lack a namespace, because the kind's scope is not known here.
pub(super) struct Example {
    path: PathBuf,
    pub(super) document: Document,
    /// The namespace for a namespaced object without one.
    default_namespace: String,
}

impl Example {
    /// Returns true if this is the example's identity.
    pub(super) fn is(&self, id: &ObjectId) -> bool {
        let Document {
            namespace, name, ..
        } = &self.document;
        let namespace = namespace.as_deref().unwrap_or(&self.default_namespace);
        self.document.group_kind() == id.kind
            && **name == *id.name
            && id
                .namespace
                .as_deref()
                // A cluster-scoped object matches although the example gets a default namespace.
                .is_none_or(|other| other == namespace)
    }
}

/// Reads the objects in all files.
pub(super) fn read(paths: &[PathBuf], default_namespace: &str) -> Result<Vec<Example>, Failure> {
    let mut examples = Vec::new();
    for path in paths {
        let documents = read_file(path)?.into_iter();
        examples.extend(documents.map(|document| Example {
            path: path.clone(),
            document,
            default_namespace: default_namespace.to_owned(),
        }));
    }
    Ok(examples)
}

fn read_file(path: &Path) -> Result<Vec<Document>, Failure> {
    let message = format!("failed to read the example {}", path.display());
    let text = fs::read_to_string(path).or_fail(Exit::Usage, &message)?;
    let documents = document::documents(&text, &path.display().to_string())?;
    // An apply needs a name; `generateName` works only with a POST.
    if let Some(unnamed) = documents
        .iter()
        .find(|document| document.metadata("name").is_none())
    {
        let message = format!("{message}: {} has no metadata.name", unnamed.kind);
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(documents)
}

/// Applies the examples in order.
pub(super) async fn apply(status: &StatusRegistry, examples: &[Example]) -> Result<(), Failure> {
    let shared = shared(status).await;
    for example in examples {
        let Example {
            path,
            document,
            default_namespace,
        } = example;
        let path = path.display();
        let kind = &document.kind;
        // Discovery lags behind the installation of a kind.
        if timeout(SERVED_WITHIN, shared.cluster.wait_served(kind))
            .await
            .is_err()
        {
            debug!(%kind, "the cluster does not serve the kind in time");
        }
        let Some(resource) = shared.cluster.resource(kind) else {
            let message = format!(
                "the cluster does not serve {kind} of {path}: add the plugin that installs this kind"
            );
            return Err(Failure::new(Exit::Failure, message));
        };
        let mut document = document.clone();
        if resource.scope == Scope::Namespaced {
            document.default_namespace(default_namespace);
        }
        shared
            .writers
            .leader()
            .object(MANAGER, &document.object, &resource)
            .await
            .or_fail(
                Exit::Failure,
                format!("failed to apply {} of {path}", document.id()),
            )?;
    }
    Ok(())
}
