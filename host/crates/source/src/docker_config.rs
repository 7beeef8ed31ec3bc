//! Pull secrets: credentials by registry.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::SecretString;
use serde::Deserialize;

use super::{Credentials, Failure};

/// A pull secret, as in `.dockerconfigjson`.
#[derive(Clone, Debug, Default)]
pub struct DockerConfig {
    logins: Vec<(LoginScope, Login)>,
}

/// Credentials in a registry entry.
#[derive(Clone, Debug)]
pub(super) enum Login {
    Password(Credentials),
    /// An identity token, which is exchanged for access tokens.
    Identity(SecretString),
    /// An access token.
    Registry(SecretString),
}

/// The scope for credentials: a host, in which `*` matches one label, and a repository name prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LoginScope {
    host: String,
    path: String,
}

#[derive(Deserialize)]
struct StoredLogins {
    auths: BTreeMap<String, StoredLogin>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredLogin {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

impl DockerConfig {
    /// Reads a `.dockerconfigjson` value.
    pub fn from_json(text: &[u8]) -> Result<Self, Failure> {
        // The text may hold passwords where it is malformed, so parse errors are not shown.
        let stored: StoredLogins = serde_json::from_slice(text).map_err(|_| {
            let form = r#"{"auths": {"registry": {"auth": ...}}}"#;
            Failure::credentials(
                "all registries",
                &format!("the pull secret is not of the form {form}"),
            )
        })?;
        let mut logins = Vec::new();
        for (key, login) in stored.auths {
            if let Some(login) = login.read(&key)? {
                logins.push((LoginScope::read(&key), login));
            }
        }
        Ok(Self { logins })
    }

    /// Returns the credentials for a repository. The entry with the longest path wins, and then one with the exact
    /// host.
    pub(super) fn login(&self, host: &str, repository: &str) -> Option<&Login> {
        self.logins
            .iter()
            .filter(|(scope, _)| scope.covers(host, repository))
            .max_by_key(|(scope, _)| (scope.path.len(), !scope.host.contains('*')))
            .map(|(_, login)| login)
    }
}

impl StoredLogin {
    fn read(self, key: &str) -> Result<Option<Login>, Failure> {
        if !self.registrytoken.is_empty() {
            return Ok(Some(Login::Registry(self.registrytoken.into())));
        }
        if !self.identitytoken.is_empty() {
            return Ok(Some(Login::Identity(self.identitytoken.into())));
        }
        let (user, password) = if self.auth.is_empty() {
            (self.username, self.password)
        } else {
            STANDARD
                .decode(self.auth)
                .ok()
                .and_then(|pair| String::from_utf8(pair).ok())
                .and_then(|pair| {
                    // A password may have colons, and a name has none.
                    let (user, password) = pair.split_once(':')?;
                    // The Docker CLI removes zeros, too.
                    Some((user.to_owned(), password.trim_end_matches('\0').to_owned()))
                })
                .ok_or_else(|| {
                    let problem = "auth in the pull secret is not the base64 of name:password";
                    Failure::credentials(key, problem)
                })?
        };
        // `docker login` with a credential helper leaves empty entries.
        Ok((!user.is_empty()).then(|| {
            Login::Password(Credentials::Basic {
                user,
                password: password.into(),
            })
        }))
    }
}

impl LoginScope {
    /// Keys are hosts, hosts with paths, or the addresses that `docker login` writes: `https://index.docker.io/v1/`.
    fn read(key: &str) -> Self {
        let key = key.split_once("://").map_or(key, |(_, rest)| rest);
        let (host, path) = key.split_once('/').unwrap_or((key, ""));
        let path = match path.trim_matches('/') {
            // The API version, and no repository.
            "v1" | "v2" => "",
            path => path,
        };
        Self {
            host: match host {
                // The host that Docker Hub serves pulls from.
                "docker.io" | "index.docker.io" => "registry-1.docker.io".to_owned(),
                host => host.to_owned(),
            },
            path: path.to_owned(),
        }
    }

    fn covers(&self, host: &str, repository: &str) -> bool {
        let mut labels = self.host.split('.').zip(host.split('.'));
        // `zip` ends with the shorter name, and `*` matches one label only.
        let same_length = self.host.split('.').count() == host.split('.').count();
        let below = repository
            .strip_prefix(self.path.as_str())
            .is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with('/'));
        same_length && below && labels.all(|(pattern, label)| pattern == "*" || pattern == label)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn user(config: &DockerConfig, host: &str, repository: &str) -> Option<String> {
        match config.login(host, repository)? {
            Login::Password(Credentials::Basic { user, .. }) => Some(user.clone()),
            other => Some(format!("{other:?}")),
        }
    }

    #[test]
    fn credentials_are_for_the_registry_that_they_name() {
        let config = DockerConfig::from_json(
            br#"{"auths": {
                "registry.example": {"username": "all", "password": "x"},
                "registry.example/plugins": {"username": "plugins", "password": "x"},
                "*.example": {"username": "star", "password": "x"},
                "registry.example:5000": {"username": "port", "password": "x"},
                "https://index.docker.io/v1/": {"auth": "aHViOmE6Yg=="},
                "helper.test": {}
            }}"#,
        )
        .unwrap();
        for (host, repository, expected) in [
            ("registry.example", "other/a", Some("all")),
            ("registry.example", "plugins/a", Some("plugins")),
            ("registry.example", "plugins", Some("plugins")),
            ("registry.example", "pluginsx/a", Some("all")),
            ("mirror.example", "a", Some("star")),
            ("a.mirror.example", "a", None),
            ("registry.example:5000", "plugins/a", Some("port")),
            ("registry.example:5001", "a", None),
            ("registry-1.docker.io", "library/a", Some("hub")),
            ("helper.test", "a", None),
            ("evil.test", "a", None),
        ] {
            let credentials = user(&config, host, repository);
            assert_eq!(credentials.as_deref(), expected, "{host}/{repository}");
        }
        let Some(Login::Password(Credentials::Basic { password, .. })) =
            config.login("registry-1.docker.io", "a")
        else {
            panic!("the Docker Hub has a password");
        };
        assert_eq!(password.expose_secret(), "a:b");
    }

    #[test]
    fn a_broken_pull_secret_is_not_shown() {
        for text in [
            "hunter2",
            r#"{"auths": "hunter2"}"#,
            r#"{"auths": {"a.test": {"auth": "hunter2"}}}"#,
            r#"{"auths": {"a.test": {"password": ["hunter2"]}}}"#,
        ] {
            let error = DockerConfig::from_json(text.as_bytes()).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let config = br#"{"auths": {"a.test": {"username": "a", "password": "hunter2"}}}"#;
        let shown = format!("{:?}", DockerConfig::from_json(config).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
