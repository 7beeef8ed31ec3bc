//! An OCI registry and a forward proxy as processes of their own, and the independent clients of registries.
//!
//! `tests/registry` has them; they know nothing of the product.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    process::{Running, bound, path_from_env, spawn_bound},
    wait::eventually_for,
};

/// The name that a private registry knows, and its password.
const USER: &str = "keeper";
const PASSWORD: &str = "of the inn";

/// How a registry lets others speak with it.
#[derive(Clone, Debug, Default)]
pub struct RegistryOptions {
    /// Where it listens; none: on any free port.
    pub address: Option<String>,
    /// By TLS, with a certificate for its address and `registry.test` by an authority that nobody knows.
    pub tls: bool,
    /// Only who has the name and the password.
    pub private: bool,
}

/// A registry; ends with its value, and has nothing when it is started again.
#[derive(Debug)]
pub struct Registry(Listener);

impl Registry {
    /// Starts one without TLS that serves everybody.
    pub fn start() -> Result<Self> {
        Self::start_with(&RegistryOptions::default())
    }

    /// Starts one.
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

    /// The reference of the one plugin of the tests, with a tag or a digest behind it.
    pub fn reference(&self, version: &str) -> String {
        format!("{}/plugins/pond{version}", self.address())
    }

    /// The authority that a registry with TLS has its certificate from, as PEM.
    pub fn ca_file(&self) -> PathBuf {
        self.0.directory.path().join("ca.pem")
    }

    /// What it was asked for, each as its method and its path.
    pub fn asked(&self) -> Result<Vec<String>> {
        self.0.asked()
    }

    /// What `docker login` would keep for a private one.
    pub fn docker_config(&self) -> String {
        docker_config(self.address())
    }
}

/// What `docker login` would keep for a private registry that is called so.
pub fn docker_config(registry: &str) -> String {
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    json!({"auths": {registry: {"auth": auth}}}).to_string()
}

/// A forward proxy that resolves every name to one server; ends with its value.
#[derive(Debug)]
pub struct Proxy(Listener);

impl Proxy {
    /// Starts one before a registry.
    pub fn start(registry: &Registry) -> Result<Self> {
        let arguments = ["proxy", "--to", registry.address()];
        Listener::start(&arguments.map(str::to_owned)).map(Self)
    }

    /// What `HTTPS_PROXY` and `HTTP_PROXY` are to be.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// What it was asked for, each as its method and where to.
    pub fn asked(&self) -> Result<Vec<String>> {
        self.0.asked()
    }
}

/// The process behind both.
#[derive(Debug)]
struct Listener {
    // Dropped first: the process ends before its directory goes.
    _process: Running,
    directory: TempDir,
    address: String,
}

impl Listener {
    fn start(arguments: &[String]) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-registry-")
            .tempdir()?;
        let errors = File::create(directory.path().join("errors"))?;
        let mut command = bound(&path_from_env("INNKEEPER_REGISTRY")?);
        command.args(arguments).arg("--dir").arg(directory.path());
        command.stdout(errors.try_clone()?).stderr(errors);
        let mut process = spawn_bound(command)?;
        let wanted = directory.path().join("address");
        let address = eventually_for(Duration::from_secs(30), "a registry listens", || {
            if let Ok(Some(status)) = process.try_wait() {
                let errors = fs::read_to_string(directory.path().join("errors"));
                panic!("it ended with {status}: {errors:?}");
            }
            fs::read_to_string(&wanted)
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

/// A client of registries, with files and credentials of its own.
///
/// What is in the environment of the one who runs the tests does not reach it.
#[derive(Debug)]
pub struct Client {
    program: PathBuf,
    directory: TempDir,
    environment: Vec<(String, String)>,
}

impl Client {
    /// The product.
    pub fn innkeeper() -> Result<Self> {
        Self::new("INNKEEPER_BIN")
    }

    /// The client of the OCI registries as storage project.
    pub fn oras() -> Result<Self> {
        Self::new("INNKEEPER_ORAS")
    }

    /// The signer of the sigstore project, which only long runs have.
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

    /// With a variable in its environment.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// The directory that it works in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Puts a file into that directory; gives its path.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<String> {
        let path = self.directory().join(name);
        fs::write(&path, bytes)?;
        let path = path.to_str().context("temporary paths are text")?;
        Ok(path.to_owned())
    }

    /// How it ends, and what it says.
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

    /// What it says on standard output; fails if it fails.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String> {
        let output = self.output(arguments)?;
        if !output.status.success() {
            let shown: Vec<_> = arguments.iter().map(|it| it.as_ref().to_owned()).collect();
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{} {shown:?}: {errors}", self.program.display());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
