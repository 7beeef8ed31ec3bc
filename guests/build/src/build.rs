//! One cargo call for all guests, and a component of each module that it makes.

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

/// The profile of plugins, small and fast: a whole pass is faster at level 3 than at "s".
///
/// Cargo is given all of it, so that a workspace without a profile of this name builds the same.
pub const PROFILE: &str = "guest";

/// What the profile consists of.
const PROFILE_SETTINGS: [(&str, &str); 7] = [
    ("inherits", "\"release\""),
    ("opt-level", "3"),
    ("lto", "true"),
    ("codegen-units", "1"),
    ("panic", "\"abort\""),
    ("strip", "true"),
    ("debug", "false"),
];

/// What every guest package of this workspace is named after.
const PREFIX: &str = "innkeeper-guest-";

/// A guest to build.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guest {
    /// The package's name in its workspace.
    pub package: String,
    /// The component's name: its file is this with `.wasm`.
    pub name: String,
}

impl Guest {
    /// A guest whose component is named as its package, less the prefix of this workspace's guests.
    pub fn of_package(package: &str) -> Self {
        let name = package.strip_prefix(PREFIX).unwrap_or(package);
        Self {
            package: package.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Every guest of a workspace, each named as its package.
    pub fn all(environment: &Environment, workspace_root: &Path) -> Result<Vec<Self>, Error> {
        let packages = packages_of(environment, workspace_root)?;
        let guests = packages.iter().filter(|package| makes_module(package));
        let mut guests: Vec<Self> = guests
            .map(|package| Self::of_package(package.name.as_str()))
            .collect();
        guests.sort();
        Ok(guests)
    }

    /// The guests of a workspace whose directory is below `directory`, each named as its own.
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
                let crate_dir = package.manifest_path.as_std_path().parent()?;
                let name = crate_dir.strip_prefix(&below).ok()?.file_name()?;
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

/// What to build, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The directory with the `Cargo.toml` of the workspace or the package.
    pub workspace_root: PathBuf,
    /// The guests; all are built in one cargo call, so that they share what they depend on.
    pub guests: Vec<Guest>,
    /// Where cargo keeps what it builds. Not the one of native builds: the compiler may differ.
    pub target_dir: PathBuf,
    /// Where the components go.
    pub out_dir: PathBuf,
    /// The cargo profile: [`PROFILE`], or one that the workspace has.
    pub profile: String,
    /// Whether the build fails instead of changing `Cargo.lock`.
    pub locked: bool,
}

/// A component that has been built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The guest that it is made of.
    pub guest: Guest,
    /// The component's file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: usize,
    /// Whether this build wrote the file; it stays untouched when its bytes are the same.
    pub written: bool,
}

/// Why guests were not built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The workspace cannot be read.
    #[error("failed to read the workspace in {}", directory.display())]
    ReadWorkspace {
        /// Where the workspace should be.
        directory: PathBuf,
        /// What cargo says.
        #[source]
        source: cargo_metadata::Error,
    },
    /// A guest is not a package of the workspace.
    #[error(
        "no package {package} in the workspace in {}; its guests are: {known}",
        directory.display()
    )]
    UnknownPackage {
        /// The package asked for.
        package: String,
        /// The workspace.
        directory: PathBuf,
        /// What could have been meant.
        known: String,
    },
    /// A package makes no module.
    #[error(
        "{package} builds no wasm module: add crate-type = [\"cdylib\", \"rlib\"] to [lib] in {manifest}"
    )]
    NoModule {
        /// The package.
        package: String,
        /// Its `Cargo.toml`.
        manifest: String,
    },
    /// Cargo cannot be started.
    #[error("failed to start {}", cargo.display())]
    StartCargo {
        /// The program.
        cargo: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What cargo reports cannot be read.
    #[error("failed to read the messages of cargo")]
    ReadMessages(#[source] io::Error),
    /// The code does not compile.
    #[error("cargo failed to build {packages} ({status}); its messages are above")]
    Compile {
        /// The packages, with commas.
        packages: String,
        /// How cargo ended.
        status: ExitStatus,
    },
    /// A module cannot be read.
    #[error("failed to read the module {}", path.display())]
    ReadModule {
        /// The module's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A module is not what a component can be made of.
    #[error("failed to make a component of {package} ({})", path.display())]
    Encode {
        /// The package.
        package: String,
        /// The module's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A component cannot be written.
    #[error("failed to write the component {}", path.display())]
    Write {
        /// The component's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Builds the guests and writes a component of each.
///
/// Cargo's own messages go to standard error as they come.
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

/// The packages of the guests, in their order.
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
        .map_err(|source| Error::ReadWorkspace {
            directory: directory.to_owned(),
            source,
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

/// Runs cargo and returns the module of each package that has one.
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
        // Flags for the host's machine code would break the target's, and change the bytes.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .args(["build", "--lib", "--message-format=json-render-diagnostics"])
        .args(["--target", TARGET, "--profile", &request.profile])
        .arg("--target-dir")
        .arg(&request.target_dir)
        .arg("--config")
        .arg(remap_config(environment, toolchain, request));
    if request.profile == PROFILE {
        for (name, value) in PROFILE_SETTINGS {
            let setting = format!("profile.{PROFILE}.{name}={value}");
            cargo.arg("--config").arg(setting);
        }
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
            // Building the standard library is not a stable feature of cargo; the compiler's own
            // source is the one thing that it is safe to build with this.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker)
            .arg("-Zbuild-std=std,panic_abort");
    }
    cargo
}

/// Keeps the machine's paths out of the component.
///
/// Panic messages name source files; with the paths of this machine in them, the same source would
/// give other bytes, and so another digest, on another machine.
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
    // A debug string of Rust is a basic string of TOML for every path that is text.
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
