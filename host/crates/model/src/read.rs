//! Tracked reads: a guest's requests for objects during a pass.

use std::sync::Arc;

use jiff::{Timestamp, tz::TimeZoneDatabase};
use serde::{Deserialize, Serialize};

use super::Gvk;

/// A reference to one object to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The kind in the requested version.
    #[serde(flatten)]
    pub kind: Gvk,
    /// The namespace; `None` means the parent's, or no namespace for a cluster-scoped kind.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

/// A selection within one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListSelector {
    /// The kind in the requested version.
    #[serde(flatten)]
    pub kind: Gvk,
    /// The namespace; `None` means every namespace that the grant covers.
    pub namespace: Option<Arc<str>>,
    /// A label selector in Kubernetes' text form; `None` selects all.
    pub label_selector: Option<Arc<str>>,
}

/// One read that a pass made. A later change to the result queues the parent.
///
/// The JSON form has a `verb`, the kind's fields, and `null` for anything omitted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase")]
pub enum ReadKey {
    /// One object.
    Get(ObjectRef),
    /// A list.
    List(ListSelector),
    /// A time zone's offset from UTC.
    ZoneOffset(ZoneTime),
}

/// An instant in a time zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneTime {
    /// The zone's name in the IANA time zone database.
    pub zone: Arc<str>,
    /// The milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

impl ZoneTime {
    /// Returns the seconds east of UTC; none for an unknown zone and after the year 9999.
    ///
    /// The time zone data is in the binary, so the answer depends on nothing else.
    pub fn offset(&self) -> Option<i32> {
        let instant = Timestamp::from_millisecond(self.unix_ms.try_into().ok()?).ok()?;
        let zone = TimeZoneDatabase::bundled().get(&self.zone).ok()?;
        Some(zone.to_offset(instant).seconds())
    }
}

/// The reason why a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The grants do not cover the read; the guest receives this as an error.
    #[error("reading {0} is not granted")]
    NotGranted(Gvk),
    /// The host does not watch this namespace; the guest receives the same error as for a missing grant.
    #[error(
        "{kind} of namespace {namespace} is not seen by this host: run it with --namespaces that include {namespace}"
    )]
    OutsideWatchedNamespaces {
        /// The requested kind.
        kind: Gvk,
        /// The requested namespace.
        namespace: Arc<str>,
    },
    /// The cluster does not serve the kind; the guest receives this as an error.
    #[error("{0} is not served")]
    NotServed(Gvk),
    /// The label selector does not parse, which is the guest's fault.
    #[error("\"{selector}\" is not a label selector")]
    InvalidSelector {
        /// The text as given.
        selector: String,
    },
    /// The cache does not hold the kind yet; the host parks the pass, and the guest receives no answer.
    #[error("{0} is not yet cached")]
    NotSynced(Gvk),
}

/// The answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One object as guests see it; none: it does not exist.
    Object(Option<Arc<str>>),
    /// The selected objects as guests see them, sorted by namespace and name.
    List(Vec<Arc<str>>),
    /// A time zone's offset in seconds; none if the zone is unknown.
    Offset(Option<i32>),
    /// No answer.
    Failed(ReadFailure),
}

/// Answers one pass's reads, and records them.
///
/// Within a pass, the same read always has the same answer.
pub trait Reads: Send {
    /// Returns one object as guests see it; `None` if it does not exist.
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure>;

    /// Returns the selected objects as guests see them, sorted by namespace and name.
    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure>;

    /// Returns a time zone's offset from UTC in seconds; `None` for an unknown zone.
    fn zone_offset(&mut self, time: &ZoneTime) -> Option<i32> {
        time.offset()
    }
}

#[cfg(test)]
mod tests {
    use super::ZoneTime;

    #[test]
    fn zones_have_offsets_from_the_data_of_the_binary() {
        // One second before summer time begins in 2026, and when it begins.
        let winter = 1_774_745_999_000;
        let summer = 1_774_746_000_000;
        for (zone, unix_ms, expected) in [
            ("UTC", 0, Some(0)),
            ("Europe/Berlin", winter, Some(3600)),
            ("Europe/Berlin", summer, Some(7200)),
            ("europe/berlin", summer, Some(7200)),
            ("Asia/Kathmandu", summer, Some(20_700)),
            ("America/St_Johns", winter, Some(-9000)),
            // Far beyond the transition table: the zone's rule counts.
            ("Europe/Berlin", 4_118_000_400_000, Some(7200)),
            ("Europe/Nowhere", 0, None),
            ("", 0, None),
            ("../etc/passwd", 0, None),
            ("UTC", u64::MAX, None),
        ] {
            let zone: ZoneTime = ZoneTime {
                zone: zone.into(),
                unix_ms,
            };
            assert_eq!(zone.offset(), expected, "{zone:?}");
        }
    }
}
