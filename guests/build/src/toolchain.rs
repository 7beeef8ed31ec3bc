//! Chooses the compiler for guests.
//!
//! Machines get the target's standard library from different places. In order of preference:
//!
//! 1. it is installed for the compiler that cargo uses by default;
//! 2. rustup may download it, then 1;
//! 3. a compiler contains the standard library's source, and cargo builds it. Distributions
//!    package such a compiler, and rustup has the component `rust-src`;
//! 4. otherwise there is no compiler for guests, and the error names the remedies.
//!
//! One compiler version cannot build another version's source, so the source must be in
//! the compiler's sysroot.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::TARGET;
use crate::machine::{Environment, Local, Machine};

#[cfg(test)]
mod tests;

/// The oldest compiler version for guests, as `major.minor`.
const RUST_VERSION_MIN: &str = env!("CARGO_PKG_RUST_VERSION");

/// The way in which this machine compiles for [`TARGET`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toolchain {
    /// The target is installed for cargo's compiler.
    Installed,
    /// Cargo builds the standard library from the source in the compiler's sysroot.
    BuildStd {
        /// The compiler.
        rustc: PathBuf,
        /// The compiler's sysroot, with the libraries and their source.
        sysroot: PathBuf,
        /// The wasm linker.
        linker: PathBuf,
    },
}

/// Why this machine cannot compile a guest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No compiler has the target's standard library or the source.
    #[error(
        "failed to find a compiler for {TARGET}\n\
         {tried}\
         do one of these:\n  \
         with rustup:          rustup target add {TARGET}\n  \
         on Debian or Ubuntu:  apt-get install --no-install-recommends rustc-web rust-web-src\n  \
         elsewhere:            set INNKEEPER_RUSTC to a rustc of {RUST_VERSION_MIN} or newer whose \
         sysroot has lib/rustlib/src/rust/library"
    )]
    NoCompiler {
        /// The compilers that were tried, and why each one does not work.
        tried: Tried,
    },
    /// There is a compiler, but no wasm linker.
    #[error(
        "failed to find a linker for wasm for {rustc}: neither rust-lld in a sysroot nor wasm-ld in \
         PATH\n\
         install lld (on Debian or Ubuntu: apt-get install lld), or set \
         CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER to a linker",
        rustc = rustc.display()
    )]
    NoLinker {
        /// The compiler.
        rustc: PathBuf,
    },
}

/// The compilers that were tried, and why each one does not work, one line each.
#[derive(Debug, Default)]
pub struct Tried(Vec<String>);

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl Toolchain {
    /// Finds the toolchain for the workspace in `directory`.
    ///
    /// Runs `rustup target add` if the target is missing and rustup may download; passes the command to `report`
    /// first.
    pub fn find(
        environment: &Environment,
        directory: &Path,
        report: &mut dyn FnMut(&str),
    ) -> Result<Self, Error> {
        choose(environment, &Local { directory }, report)
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed => write!(f, "the installed target {TARGET}"),
            Self::BuildStd { rustc, linker, .. } => write!(
                f,
                "{} and its standard library's source, linked by {}",
                rustc.display(),
                linker.display()
            ),
        }
    }
}

fn choose(
    environment: &Environment,
    machine: &dyn Machine,
    report: &mut dyn FnMut(&str),
) -> Result<Toolchain, Error> {
    let mut tried = Tried::default();
    let in_use = environment.rustc();

    if has_target(machine, in_use) {
        return Ok(Toolchain::Installed);
    }
    tried
        .0
        .push(format!("{}: {TARGET} is not installed", in_use.display()));

    match rustup_add(environment, machine, report) {
        Ok(()) if has_target(machine, in_use) => return Ok(Toolchain::Installed),
        Ok(()) => tried.0.push(format!(
            "rustup: added {TARGET}, but not to {}",
            in_use.display()
        )),
        Err(why) => tried.0.push(format!("rustup: {why}")),
    }

    for rustc in candidates(environment) {
        match source_of(machine, &rustc) {
            Ok(sysroot) => {
                let linker =
                    find_linker(environment, machine, &rustc).ok_or_else(|| Error::NoLinker {
                        rustc: rustc.clone(),
                    })?;
                return Ok(Toolchain::BuildStd {
                    rustc,
                    sysroot,
                    linker,
                });
            }
            Err(why) => tried.0.push(format!("{}: {why}", rustc.display())),
        }
    }
    Err(Error::NoCompiler { tried })
}

/// The compilers that may contain their source, in order of preference: the user's guest compiler, cargo's compiler,
/// the distribution's.
fn candidates(environment: &Environment) -> Vec<PathBuf> {
    let mut candidates: Vec<PathBuf> = environment
        .innkeeper_rustc
        .clone()
        .into_iter()
        .chain([
            environment.rustc().to_owned(),
            PathBuf::from("/usr/bin/rustc"),
        ])
        .collect();
    candidates.dedup();
    candidates
}

/// True if the target's standard library is installed.
///
/// The compiler prints the directory even if the target is not installed, so this looks for the library itself.
fn has_target(machine: &dyn Machine, rustc: &Path) -> bool {
    let args = ["--print", "target-libdir", "--target", TARGET];
    machine.run(rustc, &args).is_some_and(|libdir| {
        machine.names(Path::new(libdir.trim())).iter().any(|name| {
            name.extension()
                .is_some_and(|extension| extension == "rlib")
                && name.to_string_lossy().starts_with("libstd-")
        })
    })
}

fn rustup_add(
    environment: &Environment,
    machine: &dyn Machine,
    report: &mut dyn FnMut(&str),
) -> Result<(), &'static str> {
    let rustup = in_path(environment, machine, "rustup").ok_or("is not in PATH")?;
    if !environment.rustup_may_download {
        return Err("must not download (RUSTUP_AUTO_INSTALL=0)");
    }
    report(&format!("rustup target add {TARGET}"));
    machine
        .run(&rustup, &["target", "add", TARGET])
        .map(|_| ())
        .ok_or("failed to add the target")
}

/// The sysroot of a compiler that can build the standard library. The error says why the compiler does not work.
fn source_of(machine: &dyn Machine, rustc: &Path) -> Result<PathBuf, String> {
    let printed = machine
        .run(rustc, &["--version"])
        .ok_or("does not exist or does not run")?;
    let version = printed.split_whitespace().nth(1).unwrap_or_default();
    if minor_of(version) < minor_of(RUST_VERSION_MIN) {
        return Err(format!("is {version}, older than {RUST_VERSION_MIN}"));
    }
    let sysroot = sysroot_of(machine, rustc).ok_or("does not print its sysroot")?;
    // Cargo needs a standard library that is a workspace; this file exists since then.
    if machine.is_file(&sysroot.join("lib/rustlib/src/rust/library/Cargo.lock")) {
        Ok(sysroot)
    } else {
        Err("does not contain the source of its standard library".to_owned())
    }
}

/// Parses `1.95` as `(1, 95)`. `None`, which is less than every version, for other text.
fn minor_of(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

fn sysroot_of(machine: &dyn Machine, rustc: &Path) -> Option<PathBuf> {
    let sysroot = machine.run(rustc, &["--print", "sysroot"])?;
    Some(PathBuf::from(sysroot.trim()))
}

/// The wasm linker: `rustc`'s, or that of cargo's default compiler, or LLVM's.
fn find_linker(environment: &Environment, machine: &dyn Machine, rustc: &Path) -> Option<PathBuf> {
    if let Some(linker) = &environment.linker {
        return Some(linker.clone());
    }
    let bundled = [rustc, environment.rustc()].into_iter().find_map(|rustc| {
        let host = machine.run(rustc, &["--print", "host-tuple"])?;
        let linker = sysroot_of(machine, rustc)?
            .join("lib/rustlib")
            .join(host.trim())
            .join("bin/rust-lld");
        machine.is_file(&linker).then_some(linker)
    });
    bundled.or_else(|| {
        // A linker with the compiler's LLVM version reads the object files; an older one may fail.
        let verbose = machine.run(rustc, &["-vV"])?;
        let llvm = verbose
            .lines()
            .find_map(|line| line.strip_prefix("LLVM version: "))
            .and_then(|version| version.split('.').next())?;
        in_path(environment, machine, &format!("wasm-ld-{llvm}"))
            .or_else(|| in_path(environment, machine, "wasm-ld"))
    })
}

fn in_path(environment: &Environment, machine: &dyn Machine, program: &str) -> Option<PathBuf> {
    environment
        .path
        .iter()
        .map(|directory| directory.join(program))
        .find(|path| machine.is_file(path))
}
