//! Artifact references: `registry.example/plugins/memcached:1.4.0`.

use std::{fmt, str::FromStr};

use innkeeper_model::Digest;

/// An artifact reference: registry, repository, and a tag, a manifest digest, or both.
///
/// Nothing is filled in: a default registry or tag would be a guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// A text that does not name an artifact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" does not name an artifact: {problem}")]
pub struct InvalidReference {
    /// The text as given.
    pub text: String,
    /// The defect, and the remedy.
    pub problem: &'static str,
}

/// Length limits for repositories and tags in registries, in bytes.
const REPOSITORY_MAX: usize = 255;
const TAG_MAX: usize = 128;

impl Reference {
    /// The registry as written, with port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository in the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The registry and the repository, as signatures name them.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The tag.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The manifest digest.
    pub const fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The version to request: the digest if there is one, because a tag may have moved.
    pub(super) fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => String::new(),
        }
    }

    fn parse(text: &str) -> Result<Self, InvalidReference> {
        let invalid = |problem| InvalidReference {
            text: text.to_owned(),
            problem,
        };
        let (rest, digest) = match text.split_once('@') {
            None => (text, None),
            Some((rest, digest)) => {
                let digest = digest.parse().map_err(|_| {
                    invalid("the digest after the @ must be sha256: and 64 hexadecimal digits")
                })?;
                (rest, Some(digest))
            }
        };
        let (registry, rest) = rest
            .split_once('/')
            .filter(|(registry, _)| is_registry(registry))
            .ok_or_else(|| {
                invalid("it must start with a registry, as in ghcr.io/plugins/memcached:1.4.0")
            })?;
        let (repository, tag) = match rest.split_once(':') {
            None => (rest, None),
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
        };
        if !is_repository(repository) {
            return Err(invalid(
                "the repository must consist of lower-case letters, digits, and single . _ - / between them",
            ));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid(
                "the tag must consist of at most 128 letters, digits, and . _ -, and start with none of . -",
            ));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag,
            digest,
        })
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let reference = Self::parse(text)?;
        if reference.tag.is_none() && reference.digest.is_none() {
            return Err(InvalidReference {
                text: text.to_owned(),
                problem: "give a tag, or @sha256: and the digest of the manifest",
            });
        }
        Ok(reference)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            registry,
            repository,
            tag,
            digest,
        } = self;
        write!(f, "{registry}/{repository}")?;
        if let Some(tag) = tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// A host with a dot, a port or the name `localhost`: everything else would be a repository.
fn is_registry(text: &str) -> bool {
    let host = text
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b':' | b'[' | b']'));
    host && !text.starts_with(['.', '-', ':']) && (text.contains(['.', ':']) || text == "localhost")
}

/// Every part starts and ends with a letter or a digit, so that none is `..`.
fn is_repository(text: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= REPOSITORY_MAX
        && text.split('/').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().copied().is_some_and(alphanumeric)
                && bytes.last().copied().is_some_and(alphanumeric)
                && bytes.iter().all(|c| alphanumeric(*c) || b"._-".contains(c))
        })
}

fn is_tag(text: &str) -> bool {
    (1..=TAG_MAX).contains(&text.len())
        && !text.starts_with(['.', '-'])
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown() {
        let digest = Digest::hash(b"manifest");
        for text in [
            "registry.example/plugins/memcached:1.4.0".to_owned(),
            "localhost/a:b".to_owned(),
            "localhost:5000/a/b/c:latest".to_owned(),
            "127.0.0.1:5000/a__b.c-d:V1_x".to_owned(),
            "[::1]:5000/a:b".to_owned(),
            format!("ghcr.io/a@{digest}"),
            format!("ghcr.io/a:1@{digest}"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
        let both: Reference = format!("ghcr.io/a:1@{digest}").parse().unwrap();
        assert_eq!(both.version(), digest.to_string());
        assert_eq!(both.tag(), Some("1"));
    }

    #[test]
    fn missing_parts_of_a_name_are_not_guessed() {
        for (text, problem) in [
            ("memcached:1", "must start with a registry"),
            ("plugins/memcached:1", "must start with a registry"),
            ("", "must start with a registry"),
            ("/a:1", "must start with a registry"),
            ("user@ghcr.io/a:1", "after the @"),
            ("ghcr.io/memcached", "give a tag"),
            ("ghcr.io/a@sha256:12", "after the @"),
            ("ghcr.io/A:1", "the repository"),
            ("ghcr.io/a/../b:1", "the repository"),
            ("ghcr.io/a//b:1", "the repository"),
            ("ghcr.io/a?b:1", "the repository"),
            ("ghcr.io/:1", "the repository"),
            ("ghcr.io/a:", "the tag"),
            ("ghcr.io/a:-1", "the tag"),
            ("ghcr.io/a:1/2", "the tag"),
        ] {
            let error = text.parse::<Reference>().unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }
}
