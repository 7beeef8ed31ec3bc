//! The examples: read before the control plane starts, applied once the plugins are active.

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

/// The longest wait for the kind of an example to appear in discovery.
pub(super) const SERVED_WITHIN: Duration = Duration::from_secs(5);

/// One object to apply; without a namespace if the file names none, because the scope of the kind is not known here.
pub(super) struct Example {
    path: PathBuf,
    pub(super) document: Document,
    /// The namespace of the object if the file names none and the kind is namespaced.
    default: String,
}

impl Example {
    /// Returns true if the identity is that of the example.
    pub(super) fn is(&self, id: &ObjectId) -> bool {
        let Document {
            namespace, name, ..
        } = &self.document;
        let namespace = namespace.as_deref().unwrap_or(&self.default);
        self.document.group_kind() == id.kind
            && **name == *id.name
            && id
                .namespace
                .as_deref()
                .is_none_or(|other| other == namespace)
    }
}

/// Reads the objects of all files; those without a namespace go to the default one.
pub(super) fn read(paths: &[PathBuf], default: &str) -> Result<Vec<Example>, Failure> {
    let mut examples = Vec::new();
    for path in paths {
        let documents = read_file(path)?.into_iter();
        examples.extend(documents.map(|document| Example {
            path: path.clone(),
            document,
            default: default.to_owned(),
        }));
    }
    Ok(examples)
}

fn read_file(path: &Path) -> Result<Vec<Document>, Failure> {
    let message = format!("failed to read the example {}", path.display());
    let text = fs::read_to_string(path).or_fail(Exit::Usage, &message)?;
    let documents = document::documents(&text, &path.display().to_string())?;
    if let Some(unnamed) = documents.iter().find(|one| one.metadata("name").is_none()) {
        let message = format!("{message}: {} has no metadata.name", unnamed.kind);
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(documents)
}

/// Applies the examples in the given order.
pub(super) async fn apply(status: &StatusRegistry, examples: &[Example]) -> Result<(), Failure> {
    let shared = shared(status).await;
    for example in examples {
        let Example {
            path,
            document,
            default,
        } = example;
        let (path, kind) = (path.display(), &document.kind);
        // A kind that a plugin has just installed appears in discovery after a delay.
        if timeout(SERVED_WITHIN, shared.cluster.wait_served(kind))
            .await
            .is_err()
        {
            debug!(%kind, "the kind is not served in time");
        }
        let Some(resource) = shared.cluster.resource(kind) else {
            let message = format!(
                "the cluster does not serve {kind} of {path}: add the plugin that installs this kind"
            );
            return Err(Failure::new(Exit::Failure, message));
        };
        let mut document = document.clone();
        if resource.scope == Scope::Namespaced {
            document.default_namespace(default);
        }
        let writer = &shared.writer;
        let applied = writer.object(MANAGER, &document.object, &resource).await;
        applied.or_fail(
            Exit::Failure,
            format!("failed to apply {} of {path}", document.id()),
        )?;
    }
    Ok(())
}
