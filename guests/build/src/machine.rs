//! Facts about the machine on which the choice of a toolchain depends.
//!
//! All of them come through [`Environment`] and [`Machine`], so tests can describe a machine as data. The choice
//! itself is in `toolchain`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment variables that affect a build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `$CARGO`: the cargo to run. Default: the one in `$PATH`.
    pub cargo: Option<PathBuf>,
    /// `$RUSTC`: cargo's compiler. Default: the one in `$PATH`.
    pub rustc: Option<PathBuf>,
    /// `$INNKEEPER_RUSTC`: a compiler for guests only, with the standard library's source.
    pub innkeeper_rustc: Option<PathBuf>,
    /// `$CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER`: the linker. Default: the first one that exists.
    pub linker: Option<PathBuf>,
    /// rustup may download: `$RUSTUP_AUTO_INSTALL` is not `0`.
    pub rustup_may_download: bool,
    /// The directories in `$PATH`.
    pub path: Vec<PathBuf>,
    /// `$CARGO_HOME`, the directory with the dependencies' sources. Default: `.cargo` in `$HOME`.
    pub cargo_home: Option<PathBuf>,
}

impl Environment {
    /// This process's environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place of this crate that reads the environment"
    )]
    pub fn from_process() -> Self {
        let path = |name| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        Self {
            cargo: path("CARGO"),
            rustc: path("RUSTC"),
            innkeeper_rustc: path("INNKEEPER_RUSTC"),
            linker: path("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER"),
            rustup_may_download: env::var_os("RUSTUP_AUTO_INSTALL")
                .is_none_or(|value| value != "0"),
            path: env::var_os("PATH")
                .map(|paths| env::split_paths(&paths).collect())
                .unwrap_or_default(),
            cargo_home: path("CARGO_HOME").or_else(|| path("HOME").map(|home| home.join(".cargo"))),
        }
    }

    /// The cargo to run.
    pub(crate) fn cargo(&self) -> &Path {
        self.cargo.as_deref().unwrap_or_else(|| Path::new("cargo"))
    }

    /// The compiler that cargo uses by default.
    pub(crate) fn rustc(&self) -> &Path {
        self.rustc.as_deref().unwrap_or_else(|| Path::new("rustc"))
    }
}

/// Access to the machine, as far as the choice needs it.
pub(crate) trait Machine {
    /// Runs `program` with `args` and returns the standard output; `None` if it does not exist or fails.
    fn run(&self, program: &Path, args: &[&str]) -> Option<String>;
    /// Returns true if `path` is a file.
    fn is_file(&self, path: &Path) -> bool;
    /// The names in `directory`; empty if it cannot be read.
    fn names(&self, directory: &Path) -> Vec<PathBuf>;
}

/// The machine on which this process runs, with a current directory.
///
/// The directory matters because rustup selects the compiler by it.
pub(crate) struct Local<'a> {
    pub(crate) directory: &'a Path,
}

impl Machine for Local<'_> {
    fn run(&self, program: &Path, args: &[&str]) -> Option<String> {
        let output = Command::new(program)
            .args(args)
            .current_dir(self.directory)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn names(&self, directory: &Path) -> Vec<PathBuf> {
        directory
            .read_dir()
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())))
            .collect()
    }
}
