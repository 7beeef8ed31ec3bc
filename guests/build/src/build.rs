//! Runs one cargo command for all guests, and writes a component for each module.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use cargo_metadata::{Message, MetadataCommand, Package, PackageId};

use crate::machine::Environment;
use crate::toolchain::Toolchain;
use crate::{TARGET, component};

#[cfg(test)]
mod tests;

/// The plugin profile: small and fast. With optimization level 3 a whole pass is faster than with level "s".
///
/// All settings are passed to cargo, so workspaces without a profile of this name get the same build.
pub const PROFILE: &str = "guest";

/// The profile's settings.
const PROFILE_SETTINGS: [(&str, &str); 7] = [
    ("inherits", "\"release\""),
    ("opt-level", "3"),
    ("lto", "true"),
    ("codegen-units", "1"),
    ("panic", "\"abort\""),
    ("strip", "true"),
    ("debug", "false"),
];

/// The development profile for plugins: a first build takes half of the plugin profile's CPU time, and a changed crate
/// is recompiled in seconds.
pub const DEV_PROFILE: &str = "guest-dev";

/// The development profile's settings. Without optimization, a component has several times the code, and the host
/// takes longer to compile it than cargo saves. Level "s" is the quickest to build and has the smallest components; a call
/// takes a third more fuel than with the plugin profile.
const DEV_PROFILE_SETTINGS: [(&str, &str); 8] = [
    ("inherits", "\"release\""),
    ("opt-level", "\"s\""),
    ("lto", "false"),
    ("codegen-units", "16"),
    ("incremental", "true"),
    ("panic", "\"abort\""),
    ("strip", "true"),
    ("debug", "false"),
];

/// The prefix of this workspace's guest packages.
const PREFIX: &str = "innkeeper-guest-";

/// A guest to build.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guest {
    /// The package name in the workspace.
    pub package: String,
    /// The component name; the file is `<name>.wasm`.
    pub name: String,
}

impl Guest {
    /// A guest whose component is named like the package, without this workspace's guest prefix.
    pub fn for_package(package: &str) -> Self {
        let name = package.strip_prefix(PREFIX).unwrap_or(package);
        Self {
            package: package.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Every guest in a workspace, named like the package.
    pub fn all(environment: &Environment, workspace_root: &Path) -> Result<Vec<Self>, Error> {
        let packages = packages_of(environment, workspace_root)?;
        let mut guests: Vec<Self> = packages
            .iter()
            .filter(|package| makes_module(package))
            .map(|package| Self::for_package(package.name.as_str()))
            .collect();
        guests.sort();
        Ok(guests)
    }

    /// A workspace's guests below `directory`, named like their crate directories.
    pub fn all_below(
        environment: &Environment,
        workspace_root: &Path,
        directory: &Path,
    ) -> Result<Vec<Self>, Error> {
        let below = workspace_root.join(directory);
        let mut guests: Vec<Self> = packages_of(environment, workspace_root)?
            .iter()
            .filter(|package| makes_module(package))
            .filter_map(|package| {
                let name = package
                    .manifest_path
                    .as_std_path()
                    .parent()?
                    .strip_prefix(&below)
                    .ok()?
                    .file_name()?;
                Some(Self {
                    package: package.name.to_string(),
                    name: name.to_str()?.to_owned(),
                })
            })
            .collect();
        guests.sort();
        Ok(guests)
    }
}

/// What to build, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The directory with the workspace's or the package's `Cargo.toml`.
    pub workspace_root: PathBuf,
    /// The guests. One cargo command builds them all, so they share their dependencies.
    pub guests: Vec<Guest>,
    /// cargo's target directory. It must differ from that of native builds, because the compiler may differ.
    pub target_dir: PathBuf,
    /// The output directory for components.
    pub out_dir: PathBuf,
    /// The cargo profile: [`PROFILE`], [`DEV_PROFILE`], or one in the workspace.
    pub profile: String,
    /// Fail instead of changing `Cargo.lock`.
    pub locked: bool,
}

/// A built component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The component's guest.
    pub guest: Guest,
    /// The component's file.
    pub path: PathBuf,
    /// The file size in bytes.
    pub size_bytes: usize,
    /// True if this build wrote the file. It stays untouched if the bytes are the same.
    pub written: bool,
}

/// A build error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The workspace cannot be read.
    #[error(
        "failed to read the workspace in {}, run the command in the directory of a plugin's crate or name one",
        directory.display()
    )]
    ReadWorkspace {
        /// The workspace directory.
        directory: PathBuf,
        /// The error from `cargo metadata`.
        #[source]
        source: cargo_metadata::Error,
    },
    /// A guest is no package in the workspace.
    #[error(
        "failed to find the package {package} in the workspace in {}; its guests are: {known}",
        directory.display()
    )]
    UnknownPackage {
        /// The package name.
        package: String,
        /// The workspace directory.
        directory: PathBuf,
        /// The workspace's guests, separated by commas.
        known: String,
    },
    /// A package's library has no crate type that makes a module.
    #[error(
        "{package} builds no wasm module: add crate-type = [\"cdylib\", \"rlib\"] to [lib] in {manifest}"
    )]
    NoModule {
        /// The package.
        package: String,
        /// The `Cargo.toml`.
        manifest: String,
    },
    /// Cargo cannot be started.
    #[error("failed to start {}: install Rust from https://rustup.rs", cargo.display())]
    StartCargo {
        /// The program.
        cargo: PathBuf,
        /// The error from the operating system.
        #[source]
        source: io::Error,
    },
    /// cargo's messages cannot be read.
    #[error("failed to read the messages of cargo")]
    ReadMessages(#[source] io::Error),
    /// Cargo cannot compile the guests.
    #[error("cargo failed to build {packages} ({status}); its messages are above")]
    Compile {
        /// The packages, separated by commas.
        packages: String,
        /// cargo's exit status.
        status: ExitStatus,
    },
    /// A module cannot be read.
    #[error("failed to read the module {}", path.display())]
    ReadModule {
        /// The module file.
        path: PathBuf,
        /// The error from the operating system.
        #[source]
        source: io::Error,
    },
    /// A module cannot be wrapped into a component.
    #[error("failed to make a component of {package} ({})", path.display())]
    Encode {
        /// The package.
        package: String,
        /// The module file.
        path: PathBuf,
        /// The error from the encoder.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A component cannot be written.
    #[error("failed to write the component {}", path.display())]
    Write {
        /// The component file.
        path: PathBuf,
        /// The error from the operating system.
        #[source]
        source: io::Error,
    },
}

/// Builds the guests and writes a component for each.
///
/// cargo's own messages go straight to standard error.
pub fn build(
    environment: &Environment,
    toolchain: &Toolchain,
    request: &Request,
    report: &mut dyn FnMut(&str),
) -> Result<Vec<Component>, Error> {
    let packages = find_packages(environment, request)?;
    let names: Vec<&str> = request
        .guests
        .iter()
        .map(|guest| guest.package.as_str())
        .collect();
    report(&format!("building {} with {toolchain}", names.join(", ")));

    let modules = compile(environment, toolchain, request)?;
    request
        .guests
        .iter()
        .zip(packages)
        .map(|(guest, package)| {
            let module = modules
                .get(&package.id)
                .ok_or_else(|| no_module(&package))?;
            let component = wrap(guest, module, &request.out_dir)?;
            let state = if component.written {
                "written"
            } else {
                "unchanged"
            };
            report(&format!(
                "{}: {} KB, {state}",
                component.path.display(),
                component.size_bytes.div_ceil(1000)
            ));
            Ok(component)
        })
        .collect()
}

/// The guests' packages, in the guests' order.
fn find_packages(environment: &Environment, request: &Request) -> Result<Vec<Package>, Error> {
    let directory = &request.workspace_root;
    let packages = packages_of(environment, directory)?;
    let find = |guest: &Guest| {
        let package = packages
            .iter()
            .find(|package| package.name.as_str() == guest.package)
            .ok_or_else(|| Error::UnknownPackage {
                package: guest.package.clone(),
                directory: directory.clone(),
                known: packages
                    .iter()
                    .filter(|package| makes_module(package))
                    .map(|package| package.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })?;
        if makes_module(package) {
            Ok(package.clone())
        } else {
            Err(no_module(package))
        }
    };
    request.guests.iter().map(find).collect()
}

fn packages_of(environment: &Environment, directory: &Path) -> Result<Vec<Package>, Error> {
    let metadata = MetadataCommand::new()
        .cargo_path(environment.cargo())
        .current_dir(directory)
        .no_deps()
        .exec()
        .map_err(|source| match source {
            // A missing directory causes the same error.
            cargo_metadata::Error::Io(source) if directory.is_dir() => Error::StartCargo {
                cargo: environment.cargo().to_owned(),
                source,
            },
            source => Error::ReadWorkspace {
                directory: directory.to_owned(),
                source,
            },
        })?;
    Ok(metadata.packages)
}

fn makes_module(package: &Package) -> bool {
    package
        .targets
        .iter()
        .any(cargo_metadata::Target::is_cdylib)
}

fn no_module(package: &Package) -> Error {
    Error::NoModule {
        package: package.name.to_string(),
        manifest: package.manifest_path.to_string(),
    }
}

/// Runs cargo and returns each package's module, if it has one.
fn compile(
    environment: &Environment,
    toolchain: &Toolchain,
    request: &Request,
) -> Result<BTreeMap<PackageId, PathBuf>, Error> {
    let mut child = cargo(environment, toolchain, request)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| Error::StartCargo {
            cargo: environment.cargo().to_owned(),
            source,
        })?;
    let mut modules = BTreeMap::new();
    if let Some(stdout) = child.stdout.take() {
        for message in Message::parse_stream(BufReader::new(stdout)) {
            if let Message::CompilerArtifact(artifact) = message.map_err(Error::ReadMessages)?
                && artifact.target.is_cdylib()
                && let Some(module) = artifact
                    .filenames
                    .iter()
                    .find(|file| file.extension() == Some("wasm"))
            {
                modules.insert(artifact.package_id, module.clone().into_std_path_buf());
            }
        }
    }
    let status = child.wait().map_err(Error::ReadMessages)?;
    if status.success() {
        Ok(modules)
    } else {
        let packages: Vec<_> = request
            .guests
            .iter()
            .map(|guest| guest.package.as_str())
            .collect();
        Err(Error::Compile {
            packages: packages.join(", "),
            status,
        })
    }
}

fn cargo(environment: &Environment, toolchain: &Toolchain, request: &Request) -> Command {
    let mut cargo = Command::new(environment.cargo());
    cargo
        .current_dir(&request.workspace_root)
        .stdin(Stdio::null())
        // Flags for native code may be invalid for the target and change the module's bytes.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        // The profile decides: with another value, cargo builds all of the workspace's crates once more.
        .env_remove("CARGO_INCREMENTAL")
        .args(["build", "--lib", "--message-format=json-render-diagnostics"])
        .args(["--target", TARGET, "--profile", &request.profile])
        .arg("--target-dir")
        .arg(&request.target_dir)
        .arg("--config")
        .arg(remap_config(environment, toolchain, request));
    let settings: &[_] = match &*request.profile {
        PROFILE => &PROFILE_SETTINGS,
        DEV_PROFILE => &DEV_PROFILE_SETTINGS,
        _ => &[],
    };
    for (name, value) in settings {
        let setting = format!("profile.{}.{name}={value}", request.profile);
        cargo.arg("--config").arg(setting);
    }
    if request.locked {
        cargo.arg("--locked");
    }
    for guest in &request.guests {
        cargo.args(["--package", &guest.package]);
    }
    if let Toolchain::BuildStd { rustc, linker, .. } = toolchain {
        cargo
            .env("RUSTC", rustc)
            // Cargo's feature for building the standard library is unstable. It is safe here because the source
            // belongs to the same compiler.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker)
            .arg("-Zbuild-std=std,panic_abort");
    }
    cargo
}

/// The compiler flags that keep this machine's paths out of the component.
///
/// Panic messages contain source file names. With the machine's paths in them, the same source would have other bytes
/// and another digest on another machine.
fn remap_config(environment: &Environment, toolchain: &Toolchain, request: &Request) -> OsString {
    let mut flags = Vec::new();
    let mut remap = |from: &Path, to: &str| {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    };
    if let Some(home) = &environment.cargo_home {
        remap(home, "/cargo");
    }
    remap(&request.target_dir, "/target");
    if let Toolchain::BuildStd { sysroot, .. } = toolchain {
        remap(&sysroot.join("lib/rustlib/src/rust"), "/rust");
    }
    // Rust's debug strings are valid TOML basic strings for every UTF-8 path.
    format!("target.{TARGET}.rustflags={flags:?}").into()
}

fn wrap(guest: &Guest, module: &Path, out_dir: &Path) -> Result<Component, Error> {
    let bytes = fs::read(module).map_err(|source| Error::ReadModule {
        path: module.to_owned(),
        source,
    })?;
    let component = component::encode(&bytes).map_err(|source| Error::Encode {
        package: guest.package.clone(),
        path: module.to_owned(),
        source,
    })?;
    let path = out_dir.join(format!("{}.wasm", guest.name));
    let written = component::write(&path, &component).map_err(|source| Error::Write {
        path: path.clone(),
        source,
    })?;
    Ok(Component {
        guest: guest.clone(),
        path,
        size_bytes: component.len(),
        written,
    })
}
