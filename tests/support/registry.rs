//! An OCI registry and a forward proxy as processes, and registry clients.
//!
//! Except for the product, these are published programs that `tests/registry` builds.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    manifest::root,
    process::{Running, bound_with_log, path_from_env, spawn_bound},
    wait::eventually_for,
};

/// The credentials that a private registry accepts.
const USER: &str = "keeper";
const PASSWORD: &str = "of the inn";

/// The path of a key among the signing fixtures.
pub fn key_file(name: &str) -> String {
    root()
        .join("host/crates/source/src/tests/fixtures")
        .join(name)
        .to_string_lossy()
        .into_owned()
}

/// A registry's address, encryption and access.
#[derive(Clone, Debug, Default)]
pub struct RegistryOptions {
    /// The address to listen on; `None` picks a free loopback port.
    pub address: Option<String>,
    /// Serve TLS, with a certificate for the address, `registry.test` and `registry.example` from an authority that no
    /// client trusts.
    pub tls: bool,
    /// Require the tests' credentials.
    pub private: bool,
}

/// A running registry; dropping the value stops it. The content is in memory and is lost with the process.
#[derive(Debug)]
pub struct Registry(Listener);

impl Registry {
    /// Starts a registry without TLS or credentials.
    pub fn start() -> Result<Self> {
        Self::start_with(&RegistryOptions::default())
    }

    /// Starts a registry with these options.
    pub fn start_with(options: &RegistryOptions) -> Result<Self> {
        let RegistryOptions {
            address,
            tls,
            private,
        } = options;
        let mut arguments = vec!["serve".to_owned()];
        if let Some(address) = address {
            arguments.extend(["--address".to_owned(), address.clone()]);
        }
        if *tls {
            arguments.push("--tls".to_owned());
        }
        if *private {
            arguments.extend(["--user".to_owned(), format!("{USER}:{PASSWORD}")]);
        }
        Listener::start(&arguments).map(Self)
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// The reference for the tests' plugin; `version` is a tag (`:1`), a digest (`@sha256:...`) or both.
    pub fn reference(&self, version: &str) -> String {
        format!("{}/plugins/pond{version}", self.address())
    }

    /// The path to the CA certificate (PEM) for a registry with TLS.
    pub fn ca_file(&self) -> PathBuf {
        self.0.directory.path().join("ca.pem")
    }

    /// The requests so far, each as method and path.
    pub fn asked(&self) -> Result<Vec<String>> {
        self.0.asked()
    }

    /// A docker `config.json` with this registry's credentials.
    pub fn docker_config(&self) -> String {
        docker_config(self.address())
    }
}

/// The docker `config.json` that `docker login` would write for a private registry with this address.
pub fn docker_config(registry: &str) -> String {
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    json!({"auths": {registry: {"auth": auth}}}).to_string()
}

/// A forward proxy that sends every request to one server; dropping the value stops it.
#[derive(Debug)]
pub struct Proxy(Listener);

impl Proxy {
    /// Starts a proxy in front of a registry.
    pub fn start(registry: &Registry) -> Result<Self> {
        let arguments = ["proxy", "--to", registry.address()];
        Listener::start(&arguments.map(str::to_owned)).map(Self)
    }

    /// The value for `HTTPS_PROXY` and `HTTP_PROXY`.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// The requests so far, each as method and target.
    pub fn asked(&self) -> Result<Vec<String>> {
        self.0.asked()
    }
}

/// A registry or proxy process.
#[derive(Debug)]
struct Listener {
    // Dropped first: the process must end before its directory is removed.
    _process: Running,
    directory: TempDir,
    address: String,
}

impl Listener {
    fn start(arguments: &[String]) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-registry-")
            .tempdir()?;
        let errors = directory.path().join("errors");
        let mut command = bound_with_log(&path_from_env("INNKEEPER_REGISTRY")?, &errors)?;
        command.args(arguments).arg("--dir").arg(directory.path());
        let mut process = spawn_bound(command)?;
        let address_file = directory.path().join("address");
        let address = eventually_for(Duration::from_secs(30), "a registry listens", || {
            if let Ok(Some(status)) = process.try_wait() {
                let errors = fs::read_to_string(&errors);
                panic!("the process ended with {status}: {errors:?}");
            }
            fs::read_to_string(&address_file)
        });
        Ok(Self {
            _process: process,
            directory,
            address,
        })
    }

    fn asked(&self) -> Result<Vec<String>> {
        let log = fs::read_to_string(self.directory.path().join("log"))?;
        Ok(log.lines().map(str::to_owned).collect())
    }
}

/// A command-line registry client with a separate working directory and credentials.
///
/// It does not see the proxy settings or credentials of whoever runs the tests.
#[derive(Debug)]
pub struct Client {
    program: PathBuf,
    directory: TempDir,
    environment: Vec<(String, String)>,
}

impl Client {
    /// The product's own binary.
    pub fn innkeeper() -> Result<Self> {
        Self::new("INNKEEPER_BIN")
    }

    /// The `oras` client from OCI Registry As Storage.
    pub fn oras() -> Result<Self> {
        Self::new("INNKEEPER_ORAS")
    }

    /// The `crane` client from go-containerregistry.
    pub fn crane() -> Result<Self> {
        Self::new("INNKEEPER_CRANE")
    }

    /// The `cosign` client from sigstore; only `tests/full` builds it.
    pub fn cosign() -> Result<Self> {
        Self::new("INNKEEPER_COSIGN").map(|client| client.with("COSIGN_PASSWORD", ""))
    }

    fn new(variable: &str) -> Result<Self> {
        Ok(Self {
            program: path_from_env(variable)?,
            directory: tempfile::tempdir()?,
            environment: Vec::new(),
        })
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// The working directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file into the working directory; returns its path.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<String> {
        let path = self.directory().join(name);
        fs::write(&path, bytes)?;
        let path = path.to_str().context("temporary paths are text")?;
        Ok(path.to_owned())
    }

    /// Runs the client; returns its exit status and output.
    pub fn output<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        for name in ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command
            .args(arguments)
            .current_dir(self.directory())
            .env("HOME", self.directory())
            .env("DOCKER_CONFIG", self.directory())
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command.output()?)
    }

    /// Runs the client; returns its standard output, or an error with the standard error if the client fails.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String> {
        let output = self.output(arguments)?;
        if !output.status.success() {
            let shown: Vec<_> = arguments
                .iter()
                .map(|argument| argument.as_ref().to_owned())
                .collect();
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{} {shown:?}: {errors}", self.program.display());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
