//! The commands `push`, `pull`, `sign` and `verify`, and the connection to registries.

use std::{env, fs, path::PathBuf, sync::Arc};

use clap::builder::{PathBufValueParser, TypedValueParser};
use innkeeper_command::{
    ResultFormat, examples, exit_codes,
    values::{Pem, authorities, private_key, proxies, public_key, read_file},
};
use innkeeper_model::Digest;
use innkeeper_source::{DockerConfigText, Proxies, PublicKey, RegistrySettings, SigningKey};

use super::CacheArgs;

/// Flags for the connection to registries.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Registry (HTTPS_PROXY, HTTP_PROXY and NO_PROXY apply)")]
pub struct RegistryArgs {
    /// Use plain HTTP, which others can read and change.
    #[arg(long)]
    pub insecure: bool,
    /// Trust the authorities in this PEM file in addition to the system's.
    #[arg(long, value_name = "FILE", value_parser = authorities())]
    pub ca_file: Option<Pem>,
    /// Registry credentials, in the form of ~/.docker/config.json [default: $DOCKER_CONFIG/config.json, then
    /// ~/.docker/config.json, then none].
    #[arg(long, value_name = "FILE", value_parser = docker_config())]
    pub docker_config: Option<DockerConfigText>,
    /// The credentials file in its usual place.
    #[arg(skip = usual_docker_config())]
    pub(crate) usual_docker_config: Option<DockerConfigText>,
    /// The proxies of the environment.
    #[arg(skip = proxies())]
    pub(crate) proxies: Proxies,
}

/// Flags of every command that loads a component.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LoadArgs {
    /// The registry.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// The cache.
    #[command(flatten)]
    pub cache: CacheArgs,
}

impl RegistryArgs {
    /// Returns the connection settings.
    pub fn settings(&self) -> RegistrySettings {
        let docker_config = self.docker_config.as_ref();
        RegistrySettings {
            insecure: self.insecure,
            certificates_pem: self.ca_file.clone().unwrap_or_default(),
            docker_config: docker_config.or(self.usual_docker_config.as_ref()).cloned(),
            proxies: self.proxies.clone(),
        }
    }
}

fn docker_config() -> impl TypedValueParser<Value = DockerConfigText> {
    PathBufValueParser::new().try_map(|path| {
        let text = read_file(&path)?;
        Ok::<_, String>(DockerConfigText {
            path,
            text,
            is_named: true,
        })
    })
}

/// Returns the file that `docker login` writes, if it exists.
#[expect(
    clippy::disallowed_methods,
    reason = "only flags and their defaults come from the environment"
)]
fn usual_docker_config() -> Option<DockerConfigText> {
    let directory = env::var_os("DOCKER_CONFIG")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".docker")))?;
    let path = directory.join("config.json");
    let text = fs::read(&path).ok()?;
    Some(DockerConfigText {
        path,
        text,
        is_named: false,
    })
}

/// Flags of `push`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper push plugin.wasm registry.example/plugins/memcached:1.4.0"), exit_codes!("the plugin failed to describe itself")))]
pub struct PushArgs {
    /// The plugin's .wasm file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Destination: registry.example/plugins/memcached:1.4.0
    #[arg(value_name = "REFERENCE")]
    pub reference: String,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// Flags of every command that fetches a plugin.
#[derive(Clone, Debug, clap::Args)]
pub struct FetchArgs {
    /// The plugin: registry.example/plugins/memcached:1.4.0, or @sha256: and the digest of its manifest.
    #[arg(value_name = "REFERENCE")]
    pub reference: String,
    /// Require this digest of the .wasm bytes.
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<Digest>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
    /// The registry.
    #[command(flatten)]
    pub registry: RegistryArgs,
}

/// Flags of `pull`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper pull registry.example/plugins/memcached:1.4.0", "innkeeper pull registry.example/plugins/memcached:1.4.0 --key cosign.pub --to plugin.wasm"), exit_codes!("the artifact has another digest, no signature by one of the keys, or is no plugin")))]
pub struct PullArgs {
    /// Require a valid signature from one of these public keys (PEM).
    #[arg(long = "key", value_name = "FILE", value_parser = public_key())]
    pub keys: Vec<PublicKey>,
    /// Output file [default: the last part of the repository's name, with .wasm].
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// The plugin.
    #[command(flatten)]
    pub fetch: FetchArgs,
}

/// Flags of `verify`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper verify registry.example/plugins/memcached:1.4.0 --key cosign.pub"), exit_codes!("the artifact has another digest, no signature by one of the keys, or is no plugin")))]
pub struct VerifyArgs {
    /// Require a valid signature from one of these public keys (PEM).
    #[arg(long = "key", value_name = "FILE", required = true, value_parser = public_key())]
    pub keys: Vec<PublicKey>,
    /// The plugin.
    #[command(flatten)]
    pub fetch: FetchArgs,
}

/// Flags of `sign`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper sign registry.example/plugins/memcached:1.4.0 --key cosign.key"), exit_codes!("the artifact has another digest, or is no plugin")))]
pub struct SignArgs {
    /// Private key: PKCS#8 as PEM, not encrypted, ECDSA on P-256 or Ed25519.
    #[arg(long, value_name = "FILE", value_parser = private_key())]
    pub key: Arc<SigningKey>,
    /// Repository that the signature names, for an artifact that is copied there with its signature [default: the
    /// reference's].
    #[arg(long, value_name = "REPOSITORY")]
    pub repository: Option<String>,
    /// The plugin.
    #[command(flatten)]
    pub fetch: FetchArgs,
}
