//! A registry for other crates' tests.

use serde_json::json;

use super::registry::{PASSWORD, Registry, SignIn, USER};

/// A registry on loopback that stops when dropped; the only repository is `plugins/pond`.
pub struct TestRegistry(Registry);

impl TestRegistry {
    /// Starts a registry for anonymous clients, or one that requires a name and a password.
    pub async fn start(is_private: bool) -> Self {
        let sign_in = if is_private {
            SignIn::Basic
        } else {
            SignIn::Not
        };
        Self(Registry::start(sign_in).await)
    }

    /// An artifact's reference in it.
    pub fn reference(&self, version: &str) -> String {
        self.0.artifact(version).reference.to_string()
    }

    /// The file that `docker login` writes.
    pub fn docker_config(&self) -> Vec<u8> {
        let login = json!({"username": USER, "password": PASSWORD});
        json!({"auths": {self.0.server.host(): login}})
            .to_string()
            .into_bytes()
    }
}
