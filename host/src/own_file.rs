//! Files with data of a cluster, which only their owner can read.

use std::{
    io::{self, Write as _},
    path::Path,
};

use tempfile::NamedTempFile;

/// Writes a new file, whole or not at all.
///
/// # Errors
///
/// [`io::ErrorKind::AlreadyExists`] if there is a file; it stays unchanged.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    // Temporary files have the mode 0600.
    let mut file = NamedTempFile::new_in(directory.unwrap_or_else(|| Path::new(".")))?;
    file.write_all(bytes)?;
    file.persist_noclobber(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_file_is_written_for_its_owner_alone_and_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write_new(&path, b"first").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let taken = write_new(&path, b"second").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        // No file may have such a name: the write fails after all bytes are written.
        write_new(&directory.path().join("a".repeat(256)), b"third").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
