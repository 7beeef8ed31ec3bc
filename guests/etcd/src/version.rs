//! Versions of etcd: parsing, and the upgrades that are allowed.

/// A version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) patch: u32,
}

impl Version {
    pub(crate) const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Parses a text that starts with three numbers, after an optional `v`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts = text.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let rest = parts.next()?;
        let end = rest
            .find(|it: char| !it.is_ascii_digit())
            .unwrap_or(rest.len());
        Some(Self {
            major,
            minor,
            patch: rest[..end].parse().ok()?,
        })
    }

    /// The version in the tag of an image.
    pub(crate) fn of_image(image: &str) -> Option<Self> {
        let name = image.split('@').next().unwrap_or_default();
        let (_, tag) = name
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .split_once(':')?;
        Self::parse(tag)
    }

    /// Returns true if etcd serves `/livez` and `/readyz`: from 3.4.29, 3.5.11 and 3.6.0 on.
    pub(crate) fn has_health_endpoints(self) -> bool {
        match (self.major, self.minor) {
            (3, 4) => self.patch >= 29,
            (3, 5) => self.patch >= 11,
            _ => self >= Self::new(3, 6, 0),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Checks that one version may replace another. etcd supports an upgrade by one minor version, and no downgrade.
pub(crate) fn check_upgrade(current: Version, target: Version) -> Result<(), String> {
    let is_same_line = current.major == target.major && current.minor == target.minor;
    let is_next_minor = current.major == target.major && target.minor == current.minor + 1;
    if target < current {
        return Err(format!(
            "spec.image: downgrade from {current} to {target} is not allowed"
        ));
    }
    if is_same_line || is_next_minor {
        return Ok(());
    }
    Err(format!(
        "spec.image: upgrade from {current} to {target} is not allowed, go one minor version at a time"
    ))
}
