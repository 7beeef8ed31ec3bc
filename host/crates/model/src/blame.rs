//! The blame and the retry rule of a failure: the only properties of an error that the loop reads.

use std::time::Duration;

/// The party that caused a failure; it decides where the failure is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// The plugin's code.
    Guest,
    /// The parent, or an object that it refers to.
    Parent,
    /// The cluster: its API server, its permissions, its policies.
    Cluster,
    /// The host itself.
    Host,
}

/// The rule for retrying a failed pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// No retry.
    Never,
    /// A retry when an input of the pass changes.
    OnChange,
    /// A retry with the parent's back-off.
    Backoff,
    /// A retry after this time at the earliest, as the API server requested.
    At(Duration),
}
