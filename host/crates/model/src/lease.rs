//! The lease that decides which host writes, as stored in the cluster.

use jiff::Timestamp;

use super::ResourceVersion;

/// The label of the leases of hosts: its key and its value, which the chart gives the other objects of a host.
pub const LABEL_LEASE: (&str, &str) = ("app.kubernetes.io/name", "innkeeper");

/// A lease as it was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The version that the next write must replace; the API server rejects the write if it is no longer current.
    pub version: ResourceVersion,
    /// The content.
    pub record: LeaseRecord,
}

/// The content of a lease.
///
/// Each time comes from the clock of the host that wrote it. The times inform the user only: no host decides by them,
/// because clocks of different hosts differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder; empty if the lease is free.
    pub holder: String,
    /// The time for which each renewal holds the lease, in seconds.
    pub duration_s: u32,
    /// The time at which the holder acquired it.
    pub acquired: Option<Timestamp>,
    /// The time of the holder's last renewal.
    pub renewed: Option<Timestamp>,
    /// The number of changes from one holder to another.
    pub transitions: u32,
}
