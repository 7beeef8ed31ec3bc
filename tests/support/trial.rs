//! Server-side dry runs: the API server's verdict on a new object that it does not store.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use http::{Request, header};
use http_body_util::BodyExt as _;
use kube::{
    api::DynamicObject,
    client::Body,
    core::{Resource as _, Status},
};
use serde_json::Value;

use crate::{User, user::Kind};

/// The response to a create with `dryRun=All`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The HTTP status.
    pub code: u16,
    /// Why the object was refused; empty if it was accepted.
    pub message: String,
    /// Why the object was refused, as fields and messages.
    pub causes: BTreeSet<(String, String)>,
    /// The warnings about unknown fields, each as `unknown field "spec.x"`.
    pub unknown_fields: BTreeSet<String>,
    /// The other warnings, such as those about a Pod Security level.
    pub warnings: BTreeSet<String>,
}

impl Trial {
    /// Returns true if the API server would have created the object.
    pub fn is_accepted(&self) -> bool {
        self.code == 201
    }
}

impl User {
    /// Creates `object` as `kind` with `dryRun=All` and `fieldValidation=Warn`.
    ///
    /// The API server then drops unknown fields with a warning for each and validates the rest. With `Strict` it would
    /// report only the unknown fields.
    #[expect(
        clippy::disallowed_methods,
        reason = "the client's own create gives no warnings"
    )]
    pub fn try_create(&self, kind: Kind<'_>, object: &Value) -> Result<Trial> {
        let (resource, _) = self.resource(kind)?;
        let path = DynamicObject::url_path(&resource, kind.namespace);
        let request = Request::post(format!("{path}?dryRun=All&fieldValidation=Warn"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(serde_json::to_vec(object)?))?;
        let (head, body) = self.block_on(async {
            let (head, body) = self.client().send(request).await?.into_parts();
            anyhow::Ok((head, body.collect().await?.to_bytes()))
        })?;
        let code = head.status.as_u16();
        let mut trial = Trial {
            code,
            message: String::new(),
            causes: BTreeSet::new(),
            unknown_fields: BTreeSet::new(),
            warnings: BTreeSet::new(),
        };
        for warning in head.headers.get_all(header::WARNING) {
            let text = unquoted(&String::from_utf8_lossy(warning.as_bytes()));
            if text.starts_with("unknown field ") {
                trial.unknown_fields.insert(text);
            } else {
                trial.warnings.insert(text);
            }
        }
        if !trial.is_accepted() {
            let status: Status = serde_json::from_slice(&body)
                .with_context(|| format!("{code}: {}", String::from_utf8_lossy(&body)))?;
            trial.message = status.message;
            let causes = status
                .details
                .into_iter()
                .flat_map(|details| details.causes);
            trial.causes = causes.map(|cause| (cause.field, cause.message)).collect();
        }
        Ok(trial)
    }
}

/// Returns the text inside the quotes in a warning such as `299 - "unknown field \"spec.x\""`.
fn unquoted(header: &str) -> String {
    let text = header.split_once('"').map_or(header, |(_, text)| text);
    text.strip_suffix('"')
        .unwrap_or(text)
        .replace("\\\"", "\"")
        .replace("\\\\", "\\")
}
