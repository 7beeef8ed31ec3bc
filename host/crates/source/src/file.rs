//! A plugin as a file below one directory, and no file elsewhere.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Component, Path},
};

use innkeeper_model::Digest;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

use super::{Failure, FailureKind, File, Part, Settings};

/// Reads a plugin part; the signature is beside the file.
pub(super) async fn read(
    settings: &Settings,
    file: &File,
    part: Part,
) -> Result<(Vec<u8>, Digest), Failure> {
    let directory = settings.source_dir.clone().ok_or_else(|| {
        FailureKind::NoSourceDir
            .failure("the host has no directory for plugin files: start it with --source-dir DIR")
    })?;
    let path = format!("{}{}", file.path, part.suffix);
    tokio::task::spawn_blocking(move || read_below(&directory, &path, part))
        .await
        .map_err(|source| FailureKind::ReadFailed.because("failed to finish reading", source))?
}

fn read_below(directory: &Path, path: &str, part: Part) -> Result<(Vec<u8>, Digest), Failure> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat(CWD, directory, flags, Mode::empty()).map_err(|source| {
        let directory = directory.display();
        let message = format!("failed to open {directory}, the directory for plugin files");
        FailureKind::ReadFailed.because(message, io::Error::from(source))
    })?;
    let file = std::fs::File::from(open(&opened, path)?);
    // Asked of the open file, because the path may lead to another one by now.
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(refused("it is not a regular file"));
    }
    part.with_digest(part.read(file).map_err(unreadable)?)
}

/// Opens a file below the directory.
fn open(directory: &OwnedFd, path: &str) -> Result<OwnedFd, Failure> {
    let plain = !path.is_empty()
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain {
        return Err(refused(
            "it must be a path from the directory downwards, without ..",
        ));
    }
    // Without NONBLOCK, opening a pipe would block until another process writes into it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // The kernel checks while it follows the path, so no process can move a link between a check and the open. Links
    // within the directory are followed: a mounted ConfigMap consists of them.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, path, flags, Mode::empty(), resolve).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => FailureKind::NotFound
            .failure("there is no such file below the host's directory for plugin files"),
        Errno::XDEV | Errno::LOOP => refused("a link in it leads out of the directory"),
        _ => unreadable(error.into()),
    })
}

fn unreadable(source: io::Error) -> Failure {
    FailureKind::ReadFailed.because("failed to read the file", source)
}

fn refused(problem: &str) -> Failure {
    FailureKind::SourceInvalid.failure(format!("the path is refused: {problem}"))
}
