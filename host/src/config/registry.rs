//! The commands `push`, `pull`, `sign` and `verify`, and how registries are spoken with.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use innkeeper_source::{DockerConfigText, RegistrySettings};

use super::{Error, streams::exit_codes};

/// Flags by which registries are spoken with.
#[derive(Clone, Debug, clap::Args)]
#[command(
    next_help_heading = "Registry (proxies are taken from HTTPS_PROXY, HTTP_PROXY and NO_PROXY)"
)]
pub(super) struct RegistryArgs {
    /// Speak plain HTTP with the registry; whoever is in between can read and change everything.
    #[arg(long)]
    insecure: bool,
    /// Trust the authorities of this PEM file as well as those of the system.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Sign in with what this file says for the registry, in the form of ~/.docker/config.json
    /// [default: $DOCKER_CONFIG/config.json, then ~/.docker/config.json; without them as nobody].
    #[arg(long, value_name = "FILE")]
    docker_config: Option<PathBuf>,
}

impl RegistryArgs {
    pub(super) fn into_settings(self) -> Result<RegistrySettings, Error> {
        let Self {
            insecure,
            ca_file,
            docker_config,
        } = self;
        let certificates_pem = ca_file
            .map(|path| read("the trusted authorities", &path))
            .transpose()?
            .unwrap_or_default();
        let docker_config = match docker_config {
            Some(path) => Some(DockerConfigText {
                text: read("the credentials for registries", &path)?,
                path,
                is_named: true,
            }),
            None => usual_docker_config(),
        };
        Ok(RegistrySettings {
            insecure,
            certificates_pem,
            docker_config,
            proxies: proxies(),
        })
    }
}

/// What `docker login` wrote, if anybody ever called it.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads the environment"
)]
fn usual_docker_config() -> Option<DockerConfigText> {
    let directory = env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let directory = directory.or_else(|| Some(env::home_dir()?.join(".docker")))?;
    let path = directory.join("config.json");
    let text = fs::read(&path).ok()?;
    Some(DockerConfigText {
        path,
        text,
        is_named: false,
    })
}

/// The proxies for `https` and for `http`, and what needs none.
pub(super) fn proxies() -> [Option<String>; 3] {
    ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"].map(proxy)
}

/// A proxy's variable, in upper or in lower case.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads the environment"
)]
fn proxy(name: &str) -> Option<String> {
    let value = env::var(name).or_else(|_| env::var(name.to_lowercase()));
    value.ok().filter(|value| !value.is_empty())
}

pub(super) fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::ReadGiven {
        what,
        path: path.to_owned(),
        source,
    })
}

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ResultFormat {
    /// Lines for people.
    Text,
    /// One JSON object.
    Json,
}

/// Flags of `push`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("the plugin failed to describe itself"))]
pub(super) struct PushArgs {
    /// The plugin's .wasm file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to, with a tag: registry.example/plugins/memcached:1.4.0
    #[arg(value_name = "REFERENCE")]
    reference: String,
    #[command(flatten)]
    registry: RegistryArgs,
    /// Print in this form.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    output: ResultFormat,
}

/// What to push, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSettings {
    /// The file.
    pub file: PathBuf,
    /// Where to.
    pub reference: String,
    /// How registries are spoken with.
    pub registry: RegistrySettings,
    /// The form.
    pub output: ResultFormat,
}

impl PushArgs {
    pub(super) fn into_settings(self) -> Result<PushSettings, Error> {
        let Self {
            file,
            reference,
            registry,
            output,
        } = self;
        Ok(PushSettings {
            file,
            reference,
            registry: registry.into_settings()?,
            output,
        })
    }
}

/// Flags of `pull` and `verify`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ExpectArgs {
    /// The plugin: registry.example/plugins/memcached:1.4.0, or @sha256: and the digest of its manifest.
    #[arg(value_name = "REFERENCE")]
    reference: String,
    /// Insist on this digest of the .wasm bytes.
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    registry: RegistryArgs,
    /// Print in this form.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    output: ResultFormat,
}

/// Flags of `pull`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("the artifact has another digest, no signature by one of the keys, or is no plugin"))]
pub(super) struct PullArgs {
    #[command(flatten)]
    expect: ExpectArgs,
    /// Insist on a signature by the other half of one of these public keys, as cosign.pub.
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Write the plugin into this file [default: the last part of the repository's name, with .wasm].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Flags of `verify`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("the artifact has another digest, no signature by one of the keys, or is no plugin"))]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    expect: ExpectArgs,
    /// Insist on a signature by the other half of one of these public keys, as cosign.pub.
    #[arg(long = "key", value_name = "FILE", required = true)]
    keys: Vec<PathBuf>,
}

/// What to fetch, and what it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSettings {
    /// The plugin.
    pub reference: String,
    /// The digest that it has to have.
    pub digest: Option<String>,
    /// The public keys of which one has to have signed; none: signatures are not looked at.
    pub keys: Vec<KeyText>,
    /// Whether the plugin is kept, and where; none: only looked at.
    pub kept: Option<KeptAs>,
    /// How registries are spoken with.
    pub registry: RegistrySettings,
    /// The form.
    pub output: ResultFormat,
}

/// Where a pulled plugin goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptAs {
    /// Into this file.
    File(PathBuf),
    /// Into a file named as the repository.
    Named,
}

/// A file with a key.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

/// Shows no key.
impl std::fmt::Debug for KeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyText({})", self.path.display())
    }
}

fn read_key(path: PathBuf) -> Result<KeyText, Error> {
    let text = fs::read_to_string(&path).map_err(|source| Error::ReadGiven {
        what: "the key",
        path: path.clone(),
        source,
    })?;
    Ok(KeyText { path, text })
}

impl ExpectArgs {
    fn into_settings(
        self,
        keys: Vec<PathBuf>,
        kept: Option<KeptAs>,
    ) -> Result<PullSettings, Error> {
        let Self {
            reference,
            digest,
            registry,
            output,
        } = self;
        let keys: Result<Vec<_>, _> = keys.into_iter().map(read_key).collect();
        Ok(PullSettings {
            reference,
            digest,
            keys: keys?,
            kept,
            registry: registry.into_settings()?,
            output,
        })
    }
}

impl PullArgs {
    pub(super) fn into_settings(self) -> Result<PullSettings, Error> {
        let Self { expect, keys, to } = self;
        let kept = to.map_or(KeptAs::Named, KeptAs::File);
        expect.into_settings(keys, Some(kept))
    }
}

impl VerifyArgs {
    pub(super) fn into_settings(self) -> Result<PullSettings, Error> {
        let Self { expect, keys } = self;
        expect.into_settings(keys, None)
    }
}

/// Flags of `sign`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("the artifact has another digest, or is no plugin"))]
pub(super) struct SignArgs {
    /// The plugin: registry.example/plugins/memcached:1.4.0, or @sha256: and the digest of its manifest.
    #[arg(value_name = "REFERENCE")]
    reference: String,
    /// Sign with this private key: PKCS#8 as PEM, not encrypted, ECDSA on P-256 or Ed25519.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Sign only if the .wasm bytes have this digest.
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    registry: RegistryArgs,
    /// Print in this form.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    output: ResultFormat,
}

/// What to sign, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignSettings {
    /// The plugin.
    pub reference: String,
    /// The private key.
    pub key: KeyText,
    /// The digest that it has to have.
    pub digest: Option<String>,
    /// How registries are spoken with.
    pub registry: RegistrySettings,
    /// The form.
    pub output: ResultFormat,
}

impl SignArgs {
    pub(super) fn into_settings(self) -> Result<SignSettings, Error> {
        let Self {
            reference,
            key,
            digest,
            registry,
            output,
        } = self;
        Ok(SignSettings {
            reference,
            key: read_key(key)?,
            digest,
            registry: registry.into_settings()?,
            output,
        })
    }
}
