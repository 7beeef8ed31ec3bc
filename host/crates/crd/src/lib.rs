//! CustomResourceDefinitions without an API server: pure.
//!
//! - [`check`](check()) and [`check_parent`] decide whether the host can serve a definition's objects as parents.
//! - [`check_installed`] decides whether a plugin's definition may replace the installed one.
//! - [`Schema`] admits objects as the API server would.
//! - [`config`] applies the same schema dialect to plugin configurations.
//! - [`Kinds`] knows plurals and scopes without a cluster.
//!
//! This crate does not install anything: `plan` computes the write, `plugin-controller` reads and installs.

mod bounds;
mod check;
mod compatibility;
pub mod config;
mod kinds;
mod schema;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use check::{Refusal, check, check_parent};
pub use compatibility::{Installed, check_installed};
pub use kinds::Kinds;
pub use schema::{Admitted, Error, Rejection, RejectionCause, Schema, schema_of};

/// Returns a definition's name.
pub fn name_of(crd: &Map<String, Value>) -> Option<&str> {
    crd.get("metadata")?.get("name")?.as_str()
}

/// Returns a version, whether it is served or not.
fn find_version<'a>(crd: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    versions(crd.get("spec")).find(|version| version["name"] == name)
}

fn versions(spec: Option<&Value>) -> impl Iterator<Item = &Value> {
    spec.and_then(|spec| spec.get("versions")?.as_array())
        .into_iter()
        .flatten()
}

fn text<'a>(value: Option<&'a Value>, pointer: &str) -> Option<&'a str> {
    value?.pointer(pointer)?.as_str()
}

fn is_served(version: &Value) -> bool {
    version["served"] == true
}
