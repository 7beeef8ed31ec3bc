//! The command `build`.

use std::path::PathBuf;

use innkeeper_guest_build::{Environment, Guest};

use super::{ResultFormat, streams::exit_codes};

/// Flags of `build`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!())]
pub(super) struct BuildArgs {
    /// The directory of the crate, or of a workspace with plugins.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Build only this package, into a file of this name [default: all that make a plugin, each named as its package].
    #[arg(short, long = "package", value_name = "PACKAGE[=NAME]", value_parser = guest)]
    packages: Vec<Guest>,
    /// Write the components into this directory, as NAME.wasm [default: DIR/target/plugins].
    #[arg(long = "out", value_name = "DIR")]
    out_dir: Option<PathBuf>,
    /// Let cargo keep what it builds in this directory [default: DIR/target/wasm].
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// Fail instead of changing Cargo.lock: what is built elsewhere is the same only with the same dependencies.
    #[arg(long)]
    locked: bool,
    /// Print in this form.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    output: ResultFormat,
}

/// What to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildSettings {
    /// The directory of the crate or the workspace.
    pub directory: PathBuf,
    /// The packages; empty: all that make a plugin.
    pub packages: Vec<Guest>,
    /// Where the components go.
    pub out_dir: PathBuf,
    /// Where cargo keeps what it builds.
    pub target_dir: PathBuf,
    /// Whether the build fails instead of changing `Cargo.lock`.
    pub locked: bool,
    /// What of the environment a build depends on.
    pub environment: Environment,
    /// The form.
    pub output: ResultFormat,
}

impl BuildArgs {
    pub(super) fn into_settings(self) -> BuildSettings {
        let Self {
            directory,
            packages,
            out_dir,
            target_dir,
            locked,
            output,
        } = self;
        let below = |name: &str| directory.join("target").join(name);
        BuildSettings {
            out_dir: out_dir.unwrap_or_else(|| below("plugins")),
            target_dir: target_dir.unwrap_or_else(|| below("wasm")),
            directory,
            packages,
            locked,
            environment: Environment::of_process(),
            output,
        }
    }
}

fn guest(text: &str) -> Result<Guest, String> {
    let (package, name) = match text.split_once('=') {
        Some((package, name)) => (package, Some(name)),
        None => (text, None),
    };
    if package.is_empty() || name.is_some_and(|name| name.is_empty() || name.contains('/')) {
        return Err("give PACKAGE or PACKAGE=NAME, and no / in NAME".to_owned());
    }
    let guest = Guest::of_package(package);
    Ok(match name {
        Some(name) => Guest {
            name: name.to_owned(),
            ..guest
        },
        None => guest,
    })
}
