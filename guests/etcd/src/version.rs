//! etcd versions: parsing and allowed upgrades.

/// An etcd version, ordered as in semantic versioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) patch: u32,
    pub(crate) release: Release,
}

/// The part of a version after the three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Release {
    /// A pre-release, with a number if it has one.
    Before(Stage, Option<u32>),
    /// The final release.
    Final,
}

/// The kinds of pre-releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Alpha,
    Beta,
    Pre,
    Candidate,
}

impl Stage {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Alpha, "alpha"),
        (Self::Beta, "beta"),
        (Self::Pre, "pre"),
        (Self::Candidate, "rc"),
    ];
}

impl Release {
    /// Parses the text after the three numbers. In image tags, a number or a word that names no pre-release means a
    /// build of the version.
    fn parse(text: &str) -> Self {
        let text = text.trim_start_matches('-').to_ascii_lowercase();
        let is_letter = |c: &char| c.is_ascii_alphabetic();
        let word: String = text.chars().take_while(is_letter).collect();
        let mut stages = Stage::ALL.iter();
        let Some((stage, _)) = stages.find(|(_, name)| *name == word) else {
            return Self::Final;
        };
        let rest = &text[word.len()..];
        let number = leading_digits(rest.strip_prefix('.').unwrap_or(rest)).parse();
        Self::Before(*stage, number.ok())
    }
}

fn leading_digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

impl Version {
    pub(crate) const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
            release: Release::Final,
        }
    }

    /// Parses a text that starts with three numbers, after an optional `v`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let rest = parts.next()?;
        let patch = leading_digits(rest);
        Some(Self {
            major,
            minor,
            patch: patch.parse().ok()?,
            release: Release::parse(&rest[patch.len()..]),
        })
    }

    /// The version in an image's tag.
    pub(crate) fn from_image(image: &str) -> Option<Self> {
        let name = image.split('@').next().unwrap_or_default();
        let (_, tag) = name
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .split_once(':')?;
        Self::parse(tag)
    }

    /// True for 3.`minor` and later versions, including pre-releases.
    pub(crate) fn is_from_minor(self, minor: u32) -> bool {
        (self.major, self.minor) >= (3, minor)
    }

    /// True if etcd serves `/livez` and `/readyz`: since 3.4.29, 3.5.11 and 3.6.0.
    pub(crate) fn has_health_endpoints(self) -> bool {
        match (self.major, self.minor) {
            (3, 4) => self.patch >= 29,
            (3, 5) => self.patch >= 11,
            _ => self.is_from_minor(6),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        let Release::Before(stage, number) = self.release else {
            return Ok(());
        };
        let name = Stage::ALL.iter().find(|(other, _)| *other == stage);
        write!(f, "-{}", name.map_or("", |entry| entry.1))?;
        number.map_or(Ok(()), |number| write!(f, ".{number}"))
    }
}

/// The lowest versions from which upstream supports an upgrade to the next minor version.
///
/// Members that were removed from a 3.5 cluster before 3.5.26 come back in 3.6 and stop it.
const UPGRADE_FROM: [Version; 2] = [Version::new(3, 5, 26), Version::new(3, 6, 11)];

/// Checks that one version may replace another: etcd supports upgrades by one minor version and no downgrades.
///
/// `field` is the field with the target.
pub(crate) fn check_upgrade(field: &str, current: Version, target: Version) -> Result<(), String> {
    let is_same_line = current.major == target.major && current.minor == target.minor;
    let is_next_minor =
        current.major == target.major && current.minor.checked_add(1) == Some(target.minor);
    if target < current {
        return Err(format!(
            "{field}: downgrade from {current} to {target} is not allowed"
        ));
    }
    if is_next_minor {
        let mut least = UPGRADE_FROM.iter();
        let least =
            least.find(|version| (version.major, version.minor) == (current.major, current.minor));
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
