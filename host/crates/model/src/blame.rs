//! Whose fault a failure is, and when to try again: the only questions that the loop asks an error.

use std::time::Duration;

/// Whose fault a failure is, which decides where it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// The plugin's code.
    Guest,
    /// What the parent says, or what it refers to.
    Parent,
    /// The cluster: its API server, its permissions, its policies.
    Cluster,
    /// Innkeeper itself.
    Host,
}

/// When a failed pass is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// Not at all.
    Never,
    /// When an input of the pass changes.
    OnChange,
    /// With the parent's back-off.
    Backoff,
    /// Not before so much time has passed, because the API server said so.
    At(Duration),
}
