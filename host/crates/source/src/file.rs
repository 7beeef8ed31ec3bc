//! A plugin as a file below one directory, and no file elsewhere.

use std::{
    io::Read,
    os::fd::OwnedFd,
    path::{Component, Path},
};

use innkeeper_model::Digest;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

use super::{Expectation, Failure, Fetched, File, Settings, accept, signature};

pub(super) async fn fetch(
    settings: &Settings,
    file: &File,
    expectation: &Expectation,
) -> Result<Fetched, Failure> {
    let directory = settings.source_dir.clone().ok_or(Failure::NoSourceDir)?;
    let (path, bytes_max) = (file.path.clone(), settings.bytes_max);
    let expectation = expectation.clone();
    let work = move || read_and_check(&directory, &path, bytes_max, &expectation);
    tokio::task::spawn_blocking(work)
        .await
        .map_err(Failure::Panicked)?
}

fn read_and_check(
    directory: &Path,
    path: &str,
    bytes_max: u64,
    expectation: &Expectation,
) -> Result<Fetched, Failure> {
    let directory = openat(
        CWD,
        directory,
        OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|source| Failure::OpenSourceDir {
        path: directory.to_owned(),
        source: source.into(),
    })?;
    let bytes = read(&directory, path, "the plugin", bytes_max)?;
    let signature = if expectation.keys.is_empty() {
        None
    } else {
        let path = format!("{path}.sig");
        match read(
            &directory,
            &path,
            "the signature",
            signature::FILE_BYTES_MAX,
        ) {
            Err(Failure::FileMissing) => return Err(Failure::Unsigned { looked_for: path }),
            read => Some(read?),
        }
    };
    let digest = Digest::of(&bytes);
    accept(bytes, digest, expectation, signature.as_deref())
}

fn read(
    directory: &OwnedFd,
    path: &str,
    what: &'static str,
    bytes_max: u64,
) -> Result<Vec<u8>, Failure> {
    let file = std::fs::File::from(open(directory, path)?);
    let failed = |source| Failure::ReadFile { source };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Failure::PathRefused {
            problem: "it is not a regular file",
        });
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(Failure::TooLarge {
            what,
            max: bytes_max,
        });
    }
    Ok(bytes)
}

/// Opens a file below the directory.
///
/// The kernel enforces the boundary while it follows the path, so no process can move a link between a check and the
/// open.
/// Links inside of the directory are followed: a mounted ConfigMap consists of them.
fn open(directory: &OwnedFd, path: &str) -> Result<OwnedFd, Failure> {
    let plain = !path.is_empty()
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain {
        return Err(Failure::PathRefused {
            problem: "it must be a path from the directory downwards, without ..",
        });
    }
    // Without NONBLOCK, opening a pipe would block until another process writes into it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, path, flags, Mode::empty(), resolve).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => Failure::FileMissing,
        Errno::XDEV | Errno::LOOP => Failure::PathRefused {
            problem: "a link in it leads out of the directory",
        },
        _ => Failure::ReadFile {
            source: error.into(),
        },
    })
}
