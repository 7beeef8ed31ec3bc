//! The lease by which hosts agree on who writes, as it is stored in the cluster.

use jiff::Timestamp;

use super::ResourceVersion;

/// A lease as it was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The version that a write must replace.
    pub version: ResourceVersion,
    /// What it says.
    pub record: LeaseRecord,
}

/// What a lease says.
///
/// Its times are those of the clock of whoever wrote them: they are for people, nothing is decided by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it; empty: nobody.
    pub holder: String,
    /// For how long it is held after each renewal, in seconds.
    pub duration_s: u32,
    /// When the holder got it.
    pub acquired: Option<Timestamp>,
    /// When the holder renewed it last.
    pub renewed: Option<Timestamp>,
    /// How often it went from one holder to another.
    pub transitions: u32,
}
