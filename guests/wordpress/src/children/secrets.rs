//! The Secrets that the host fills with random values: database passwords and the site's salts.
//!
//! The host creates each one once and keeps it from then on, even one that a user created.

use std::collections::BTreeMap;

use innkeeper_sdk::prelude::*;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::{Kinds, observe::Observation, site::Site};

/// The site's user in a managed database.
const USERNAME: &str = "wordpress";

/// Printable ASCII without quotes, backslash, backtick, dollar sign and space, which are special in shells, PHP or
/// SQL.
const SALT: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789\
                    !#%&()*+,-./:;<=>?@[]^_{|}~";

/// The keys and salts with which WordPress signs cookies.
pub(crate) const SALT_KEYS: [&str; 8] = [
    "AUTH_KEY",
    "SECURE_AUTH_KEY",
    "LOGGED_IN_KEY",
    "NONCE_KEY",
    "AUTH_SALT",
    "SECURE_AUTH_SALT",
    "LOGGED_IN_SALT",
    "NONCE_SALT",
];

/// A managed database's passwords.
pub(super) fn database(site: &Site<'_>, observation: &Observation) -> Option<Child> {
    let name = site.mysql_name();
    if observation.has_generated_secret {
        return Some(existing(site, "db-secret", &name));
    }
    if !site.credentials.is_generated || observation.has_lost_credentials(site) {
        return None;
    }
    let mut data = BTreeMap::from([("username".to_owned(), USERNAME.to_owned())]);
    let root_password = site.spec.root_password();
    if let Some(password) = root_password {
        data.insert("root-password".to_owned(), password.to_owned());
    }
    let secret = Secret {
        metadata: metadata(name, &site.labels("database")),
        string_data: Some(data),
        ..Default::default()
    };
    let mut child = new(site, "db-secret", &secret).generate("password", 32, ALPHANUMERIC);
    if root_password.is_none() {
        child = child.generate("root-password", 32, ALPHANUMERIC);
    }
    Some(child)
}

/// The site's keys and salts.
pub(super) fn salts(site: &Site<'_>, observation: &Observation) -> Child {
    let name = site.salts_name();
    if observation.salts.is_some() {
        return existing(site, "salts", &name);
    }
    let secret = Secret {
        metadata: metadata(name, &site.labels("web")),
        ..Default::default()
    };
    let child = new(site, "salts", &secret);
    SALT_KEYS
        .into_iter()
        .fold(child, |child, key| child.generate(key, 64, SALT))
}

/// A new Secret, not ready until the next pass observes it. The children after it wait until the hash is known;
/// otherwise Pods would restart right after their start.
fn new(site: &Site<'_>, key: &str, secret: &Secret) -> Child {
    Kinds::child(key, secret)
        .once()
        .not_ready()
        .removal(site.policy())
}

fn existing(site: &Site<'_>, key: &str, name: &str) -> Child {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } });
    Child::untyped(key, &secret)
        .hold()
        .ready()
        .removal(site.policy())
}
