//! The Secrets that the host fills with random values: passwords of the database, salts of the
//! site.
//!
//! The host creates each one once and holds it from then on, also one that a user created.

use std::collections::BTreeMap;

use innkeeper_sdk::prelude::*;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::{observe::Observation, site::Site};

/// The site's user in a managed database.
const USERNAME: &str = "wordpress";

/// Printable ASCII without quotes, backslash, backtick, dollar sign and space, which have a meaning
/// in a shell, in PHP or in SQL.
const SALT: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789\
                    !#%&()*+,-./:;<=>?@[]^_{|}~";

/// The keys and salts that WordPress signs its cookies with.
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

/// The passwords of a managed database.
pub(super) fn database(site: &Site<'_>, observation: &Observation) -> Option<Child> {
    let name = site.mysql_name();
    if observation.has_generated_secret {
        return Some(held(site, "db-secret", &name));
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

/// The keys and salts of the site.
pub(super) fn salts(site: &Site<'_>, observation: &Observation) -> Child {
    let name = site.salts_name();
    if observation.salts.is_some() {
        return held(site, "salts", &name);
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

/// A new Secret; not ready until the next pass observes it. The children after it wait until its hash
/// is known, so that no pod restarts right after its start.
fn new(site: &Site<'_>, key: &str, secret: &Secret) -> Child {
    Child::new(key, secret)
        .once()
        .not_ready()
        .removal(site.policy())
}

fn held(site: &Site<'_>, key: &str, name: &str) -> Child {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } });
    Child::new(key, &secret)
        .hold()
        .ready()
        .removal(site.policy())
}
