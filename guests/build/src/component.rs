//! Encodes a core module as a component and writes the file.

use std::error::Error as StdError;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use wit_component::{ComponentEncoder, metadata};

/// Wraps a core module, whose WIT world is in a custom section, into a component and validates it.
pub(crate) fn encode(module: &[u8]) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
    // Without a world, the encoder makes an empty component, and only the host that loads it would fail.
    let (_, bindgen) = metadata::decode(module)?;
    if bindgen.resolve.worlds[bindgen.world].exports.is_empty() {
        return Err("the module exports nothing: does the crate call the export macro?".into());
    }
    let component = ComponentEncoder::default()
        .validate(true)
        .module(module)?
        .encode()?;
    Ok(component)
}

/// Writes `bytes` to `path` atomically. Returns false if the file already has these bytes.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(false);
    }
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(directory)?;
    let mut file = tempfile::Builder::new()
        .prefix(".component-")
        // Temporary files are private; a component gets ordinary permissions. The umask still applies.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_bytes_that_are_no_module() {
        assert!(encode(b"not wasm").is_err());
    }

    #[test]
    fn rejects_a_module_without_a_world() {
        let error = encode(b"\0asm\x01\0\0\0").unwrap_err().to_string();
        assert!(error.contains("exports nothing"), "{error}");
    }

    #[test]
    fn writes_only_what_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/a.wasm");
        assert!(write(&path, b"one").unwrap());
        let first = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(!write(&path, b"one").unwrap());
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), first);
        assert!(write(&path, b"two").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let entries: Vec<_> = path.parent().unwrap().read_dir().unwrap().collect();
        assert_eq!(
            entries.len(),
            1,
            "nothing but the component stays: {entries:?}"
        );
    }
}
