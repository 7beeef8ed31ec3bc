//! The command `build`.

use std::path::{Path, PathBuf};

use innkeeper_command::{ResultFormat, examples, exit_codes};
use innkeeper_guest_build::{DEV_PROFILE, Guest, PROFILE};

/// Flags of `build`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper build", "innkeeper build guests/memcached --out target/guests"), exit_codes!()))]
pub struct BuildArgs {
    /// Directory of the crate or workspace.
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Build only this package, as NAME.wasm [default: every plugin, by package name].
    #[arg(short, long = "package", value_name = "PACKAGE[=NAME]", value_parser = guest)]
    pub packages: Vec<Guest>,
    /// Build faster, without link-time optimisation; components are larger and slower.
    #[arg(long)]
    pub dev: bool,
    /// Output directory [default: DIR/target/plugins, with --dev DIR/target/plugins-dev].
    #[arg(long = "out", value_name = "DIR")]
    out_dir: Option<PathBuf>,
    /// Cargo's target directory [default: DIR/target/wasm].
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// Fail instead of changing Cargo.lock, which changes the digest.
    #[arg(long)]
    pub locked: bool,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
}

impl BuildArgs {
    /// The directory of the components.
    pub fn out_dir(&self) -> PathBuf {
        let name = if self.dev { "plugins-dev" } else { "plugins" };
        let usual = || self.directory.join("target").join(name);
        self.out_dir.clone().unwrap_or_else(usual)
    }

    /// The build of the plugin in a directory for development.
    pub fn for_dev(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            packages: Vec::new(),
            dev: true,
            out_dir: None,
            target_dir: None,
            locked: false,
            output: ResultFormat::Text,
        }
    }

    /// The profile of cargo.
    pub const fn profile(&self) -> &'static str {
        if self.dev { DEV_PROFILE } else { PROFILE }
    }

    /// The target directory of cargo.
    pub fn target_dir(&self) -> PathBuf {
        let usual = || self.directory.join("target/wasm");
        self.target_dir.clone().unwrap_or_else(usual)
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
    let guest = Guest::for_package(package);
    Ok(match name {
        Some(name) => Guest {
            name: name.to_owned(),
            ..guest
        },
        None => guest,
    })
}
