//! Fault attribution and retry of a failure: error types answer with these instead of deciding themselves.

use std::time::Duration;

/// The party at fault.
///
/// The exit code of commands that read a source follows from it. Conditions and passes carry a reason of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// The plugin's code.
    Guest,
    /// The content of the parent, or of an object that it refers to.
    Parent,
    /// The cluster: its API server, permissions or policies.
    Cluster,
    /// The host itself.
    Host,
}

/// The time of the next attempt after a failed pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// No further attempt.
    Never,
    /// An attempt when an input of the pass changes.
    OnChange,
    /// An attempt after the parent's back-off.
    Backoff,
    /// An attempt after the pause that the API server asked for, not earlier.
    At(Duration),
}
