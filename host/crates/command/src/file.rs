//! Files that commands read, up to a maximum size, and write atomically, through a temporary file beside them.

use std::{
    fs::{File, Permissions},
    io::{self, Read, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use tempfile::{Builder, NamedTempFile};

use crate::Exit;

/// A command's largest input, in bytes: twice the largest component. Parsed, it takes about fifty times the memory.
pub const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Reads to the end.
///
/// # Errors
///
/// [`io::ErrorKind::FileTooLarge`] if there are more than `bytes_max` bytes.
pub fn read_within(input: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= bytes_max) {
        return Ok(bytes);
    }
    let problem = format!("it has more than the {bytes_max} bytes that are allowed");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, problem))
}

/// Reads a text file up to [`INPUT_BYTES_MAX`].
///
/// # Errors
///
/// As [`read_within`], and [`io::ErrorKind::InvalidData`] if the file is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = read_within(File::open(path)?, INPUT_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Creates a file with cluster data, readable by its owner only.
///
/// # Errors
///
/// [`io::ErrorKind::AlreadyExists`] if the file exists; it stays unchanged.
pub fn create_for_owner(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Also the default for temporary files, but secrecy depends on it.
    temporary(path, bytes, 0o600)?.persist_noclobber(path)?;
    Ok(())
}

/// Returns the exit code of a command that cannot create the file that the user named.
pub fn exit(error: &io::Error) -> Exit {
    match error.kind() {
        // NotFound: the directory in the path does not exist.
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound => Exit::Usage,
        _ => Exit::Failure,
    }
}

/// Creates or replaces a file with the usual permissions.
///
/// # Errors
///
/// Errors of the file system; an existing file then stays unchanged.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The mode that programs ask for: the umask reduces it.
    temporary(path, bytes, 0o666)?.persist(path)?;
    Ok(())
}

fn temporary(path: &Path, bytes: &[u8], mode: u32) -> io::Result<NamedTempFile> {
    // A file can be renamed only within a file system.
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let mut file = Builder::new()
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory.unwrap_or_else(|| Path::new(".")))?;
    file.write_all(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn an_input_is_read_up_to_its_largest_size() {
        assert_eq!(read_within(&b"abc"[..], 3).unwrap(), b"abc");
        let error = read_within(io::repeat(b'a'), 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(
            error.to_string().contains("more than the 3 bytes"),
            "{error}"
        );
    }

    #[test]
    fn a_file_is_created_for_its_owner_alone_and_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        create_for_owner(&path, b"first").unwrap();
        assert_eq!(mode(&path), 0o600);
        let taken = create_for_owner(&path, b"second").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        // No file may have such a name: the write fails after all bytes are written.
        create_for_owner(&directory.path().join("a".repeat(256)), b"third").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace(&path, b"first").unwrap();
        replace(&path, b"second").unwrap();
        // The umask is that of the process; no test may change it for the others.
        assert_eq!(mode(&path) & 0o600, 0o600);
        // A directory is in the place of the file.
        let taken = directory.path().join("directory");
        fs::create_dir(&taken).unwrap();
        replace(&taken, b"third").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
