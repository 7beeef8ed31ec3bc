//! The digest that identifies bytes.

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

/// The algorithm prefix, as registries write it.
const PREFIX: &str = "sha256:";

/// A SHA-256 digest, displayed as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// A text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a digest: use sha256: and 64 hexadecimal digits in lower case")]
pub struct InvalidDigest(
    /// The text as given.
    pub String,
);

/// Computes a digest over bytes that arrive in pieces.
#[derive(Clone, Debug, Default)]
pub struct Digester(Sha256);

impl Digester {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the digest over all pieces.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Returns bytes as hexadecimal digits in lower case.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0xf])
        .map(digit)
        .collect()
}

impl Digest {
    /// Hashes bytes.
    pub fn hash(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Hashes the concatenated parts.
    pub fn hash_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digester = Digester::default();
        for part in parts {
            digester.update(part);
        }
        digester.finish()
    }

    /// Returns the digest's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the digest as 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Parses what [`to_hex`](Self::to_hex) returns: 64 hexadecimal digits in lower case.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix(PREFIX)
            .and_then(Self::from_hex)
            .ok_or_else(|| InvalidDigest(text.to_owned()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_itself_as_registries_do() {
        assert_eq!(
            Digest::hash(b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        let parts: [&[u8]; 2] = [b"a", b"b"];
        assert_eq!(Digest::hash_parts(parts), Digest::hash(b"ab"));
    }

    #[test]
    fn parses_only_its_own_form() {
        let digest = Digest::hash(b"pond");
        let shown = digest.to_string();
        assert_eq!(shown.parse(), Ok(digest));
        for text in [
            "",
            "sha256:",
            &shown[7..],
            &shown[..70],
            &format!("{shown}0"),
            &shown.to_uppercase(),
            &shown.replace("sha256", "sha512"),
            &format!("sha256:+{}", &shown[8..]),
        ] {
            assert_eq!(text.parse::<Digest>(), Err(InvalidDigest(text.to_owned())));
        }
    }
}
