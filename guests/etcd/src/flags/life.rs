//! The versions of etcd that have a flag.

use crate::version::Version;

/// The prefix of flags that etcd did not promise to keep. 3.6 takes most of them with and without it, 3.7 none with it.
pub(super) const EXPERIMENTAL: &str = "experimental-";

/// The first patches with a flag, as minor version and patch, in ascending order. Later minor versions have it as well.
type Patches = &'static [(u32, u32)];

/// The versions that have a flag.
#[derive(Clone, Copy)]
pub(super) enum Life {
    /// All versions from 3.4.0 on.
    Always,
    /// The versions from these patches on.
    Since(Patches),
    /// The versions before this minor version. The text tells what to do instead.
    Until(u32, &'static str),
    /// The versions from these patches on with the prefix, and those from this minor version on without it. The second minor
    /// version is the first that does not know the prefix.
    Renamed(Patches, u32, u32),
    /// The versions from these patches to 3.6 with the prefix, and a feature gate of this name from 3.6 on.
    Gate(Patches, &'static str),
}

impl Life {
    /// The problem of a version with a flag, and the remedy; none if the version has the flag. `plain` is the flag's name in
    /// the table if it is stated with the prefix.
    pub(super) fn problem(
        self,
        name: &str,
        plain: Option<&str>,
        version: Version,
    ) -> Option<String> {
        let removed = |minor: u32, remedy: &str| {
            version
                .is_from_minor(minor)
                .then(|| format!("{name} was removed in etcd 3.{minor}: {remedy}"))
        };
        match (self, plain) {
            (Self::Until(minor, remedy), None) => removed(minor, remedy),
            (Self::Always, None) => None,
            (Self::Since(patches), None) => unborn(name, patches, version, "leave it out"),
            (Self::Always | Self::Since(_) | Self::Until(..), Some(plain)) => {
                Some(format!("etcd has no flag {name}: use {plain}"))
            }
            (Self::Renamed(patches, _, until), Some(plain)) => {
                removed(until, &format!("use {plain}"))
                    .or_else(|| unborn(name, patches, version, "leave it out"))
            }
            (Self::Renamed(patches, from, _), None) => {
                let is_experimental = unborn(name, patches, version, "").is_none();
                let remedy = if is_experimental {
                    format!("use {EXPERIMENTAL}{name}")
                } else {
                    "leave it out".to_owned()
                };
                unborn(name, &[(from, 0)], version, &remedy)
            }
            (Self::Gate(patches, gate), Some(_)) => {
                removed(7, &format!("use feature-gates with {gate}=true"))
                    .or_else(|| unborn(name, patches, version, "leave it out"))
            }
            (Self::Gate(_, gate), None) => Some(if version.is_from_minor(6) {
                format!("etcd has no flag {name}: use feature-gates with {gate}=true")
            } else {
                format!("etcd has no flag {name}: use {EXPERIMENTAL}{name}")
            }),
        }
    }
}

/// The problem of a version from before these patches, and the remedy; none for a later one.
fn unborn(name: &str, patches: &[(u32, u32)], version: Version, remedy: &str) -> Option<String> {
    // The last patch of the same or an earlier minor version decides, and where there is none, the first one of a later.
    let is_past = |versions: &&(u32, u32)| version.is_from_minor(versions.0);
    let patch = patches.iter().rev().find(is_past);
    let (minor, patch) = *patch.or_else(|| patches.first())?;
    let is_born =
        version >= Version::new(3, minor, patch) || (patch == 0 && version.is_from_minor(minor));
    (!is_born).then(|| {
        format!("etcd {version} has no flag {name}, which came with 3.{minor}.{patch}: {remedy}")
    })
}
