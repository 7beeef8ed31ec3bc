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

/// The versions from which upstream supports an upgrade to the next minor version, by the minor version of 3.
///
/// Members that were removed from a cluster of 3.5 before 3.5.26 come back in 3.6 and stop it.
const UPGRADE_FROM: [Version; 2] = [Version::new(3, 5, 26), Version::new(3, 6, 11)];

/// Checks that one version may replace another: etcd supports an upgrade by one minor version, and no downgrade.
///
/// `field` is the field that names the target.
pub(crate) fn check_upgrade(field: &str, current: Version, target: Version) -> Result<(), String> {
    let is_same_line = current.major == target.major && current.minor == target.minor;
    let is_next_minor = current.major == target.major && target.minor == current.minor + 1;
    if target < current {
        return Err(format!(
            "{field}: downgrade from {current} to {target} is not allowed"
        ));
    }
    if is_next_minor {
        let mut least = UPGRADE_FROM.iter();
        let least = least.find(|it| (it.major, it.minor) == (current.major, current.minor));
        return match least {
            Some(least) if current < *least => Err(format!(
                "{field}: upgrade from {current} to {target} is not allowed, go to {least} or later first"
            )),
            _ => Ok(()),
        };
    }
    if is_same_line {
        return Ok(());
    }
    Err(format!(
        "{field}: upgrade from {current} to {target} is not allowed, go one minor version at a time"
    ))
}
