//! The build of plugins from source to components with an embedded description: `innkeeper build`.
//!
//! `innkeeper-guest-build` turns a crate into a component. This module loads each component as the host does, calls
//! `describe`, and embeds the answer in the component.
//! Builds are reproducible: the same source gives the same bytes on every machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use innkeeper_guest_build::{
    self as guest_build, Component, Environment, Guest, Request, Toolchain, ToolchainError,
};
use innkeeper_model::Digest;
use innkeeper_sandbox::{Engine, artifact, description};
use serde_json::{Value, json};

use crate::{
    config::{BuildArgs, Exit, ResultFormat, Streams},
    plugin_file,
};

/// A failure to build a component.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory does not exist.
    #[error("failed to open the directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No package in the directory is a plugin.
    #[error(
        "no package in {} makes a plugin: add crate-type = [\"cdylib\", \"rlib\"] to its [lib]",
        directory.display()
    )]
    NoGuest {
        /// The directory.
        directory: PathBuf,
    },
    /// No usable Rust toolchain was found.
    #[error("failed to find a compiler that can build plugins")]
    Toolchain(#[source] ToolchainError),
    /// The crate cannot be compiled or converted to a component.
    #[error("failed to build")]
    Build(#[source] guest_build::Error),
    /// The temporary directory for components without a description cannot be created.
    #[error("failed to create a directory in {}", path.display())]
    Temporary {
        /// The output directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The sandbox cannot be set up.
    #[error("failed to set up the sandbox")]
    Engine(#[source] plugin_file::Error),
    /// The component is not a plugin, or cannot be described.
    #[error("failed to load the component of {package} as a plugin")]
    Plugin {
        /// The package.
        package: String,
        /// The cause.
        #[source]
        source: plugin_file::Error,
    },
    /// The component cannot be written.
    #[error("failed to write {}", path.display())]
    Keep {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The result cannot be written.
    #[error("failed to write the result")]
    Write(#[source] io::Error),
}

impl Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Directory { .. }
            | Self::NoGuest { .. }
            | Self::Build(
                guest_build::Error::ReadWorkspace { .. }
                | guest_build::Error::UnknownPackage { .. }
                | guest_build::Error::NoModule { .. },
            ) => Exit::Usage,
            _ => Exit::Failure,
        }
    }
}

/// Builds components and prints their digests.
pub fn run(args: &BuildArgs, streams: &mut Streams<'_>) -> Exit {
    let made = build(args, streams).map(|()| Exit::Success);
    streams.end(made, Error::exit)
}

fn build(args: &BuildArgs, streams: &mut Streams<'_>) -> Result<(), Error> {
    let directory = &args.directory;
    let (environment, out_dir) = (Environment::of_process(), args.out_dir());
    let no_directory = |source| Error::Directory {
        path: directory.clone(),
        source,
    };
    let workspace_root = directory.canonicalize().map_err(no_directory)?;
    let guests = if args.packages.is_empty() {
        Guest::all(&environment, &workspace_root).map_err(Error::Build)?
    } else {
        args.packages.clone()
    };
    if guests.is_empty() {
        return Err(Error::NoGuest {
            directory: directory.clone(),
        });
    }
    let mut report = |line: &str| streams.note(line);
    let toolchain = Toolchain::find(&environment, &workspace_root, &mut report);
    let toolchain = toolchain.map_err(Error::Toolchain)?;
    // Components without a description go to a temporary directory, so that the output directory never contains one.
    let no_temporary = |source| Error::Temporary {
        path: out_dir.clone(),
        source,
    };
    fs::create_dir_all(&out_dir).map_err(no_temporary)?;
    let bare = tempfile::tempdir_in(&out_dir).map_err(no_temporary)?;
    let request = Request {
        workspace_root,
        guests,
        target_dir: std::path::absolute(args.target_dir()).map_err(no_directory)?,
        out_dir: bare.path().to_owned(),
        profile: guest_build::PROFILE.to_owned(),
        locked: args.locked,
    };
    let built = guest_build::build(&environment, &toolchain, &request, &mut |_| ());
    let built = built.map_err(Error::Build)?;
    let engine = plugin_file::engine().map_err(Error::Engine)?;
    let results = built
        .iter()
        .map(|component| finish(component, &engine, &out_dir));
    let results = results.collect::<Result<Vec<_>, _>>()?;
    write(streams, args.output, &results)
}

/// Embeds the description in a component and writes it to the output directory.
fn finish(component: &Component, engine: &Engine, out_dir: &Path) -> Result<Value, Error> {
    let Component { guest, path, .. } = component;
    let unusable = |source| Error::Plugin {
        package: guest.package.clone(),
        source,
    };
    let bytes = plugin_file::read(path).map_err(unusable)?;
    let described = plugin_file::describe(engine, &bytes).map_err(unusable)?;
    let manifest = described.manifest();
    let bytes = description::embed(&bytes, manifest);
    // The description makes the component larger: check the host's limits again here, and not only at its deployment.
    artifact::check(&bytes, &artifact::Limits::default())
        .map_err(|source| unusable(source.into()))?;
    let file = out_dir.join(format!("{}.wasm", guest.name));
    keep(&file, &bytes).map_err(|source| Error::Keep {
        path: file.clone(),
        source,
    })?;
    Ok(json!({
        "package": guest.package,
        "file": file,
        "digest": Digest::of(&bytes).to_string(),
        "size": bytes.len(),
        "name": manifest.name.as_str(),
        "version": manifest.version,
    }))
}

/// Writes a file atomically; a file with the same content keeps its modification time.
fn keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    plugin_file::keep(path, bytes)
}

fn write(streams: &mut Streams<'_>, output: ResultFormat, built: &[Value]) -> Result<(), Error> {
    let text = match output {
        ResultFormat::Json => format!("{:#}\n", json!(built)),
        ResultFormat::Text => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let line = |one: &Value| format!("{}  {}", text(&one["digest"]), text(&one["file"]));
            let lines: Vec<String> = built.iter().map(line).collect();
            lines.join("\n") + "\n"
        }
    };
    streams.write(text.as_bytes()).map_err(Error::Write)
}
