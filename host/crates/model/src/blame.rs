//! Who caused a failure and when to retry it, so that every error type answers in the same terms.

use std::time::Duration;

/// The party at fault.
///
/// It decides the exit code when a command reads a source. Conditions and passes carry their own reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// The plugin's code.
    Guest,
    /// The content of the parent or an object that it refers to.
    Parent,
    /// The cluster: API server, permissions or policies.
    Cluster,
    /// The host itself.
    Host,
}

/// The next attempt after a failed pass.
///
/// The variants' order matters: [`after_both`](Self::after_both) takes the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// No further attempt.
    Never,
    /// Retry when an input changes.
    OnChange,
    /// An attempt after the parent's back-off.
    Backoff,
    /// An attempt after the pause that the API server asked for, not earlier.
    At(Duration),
}

impl Retry {
    /// Returns when to retry after two failures in one pass.
    ///
    /// An attempt wins over none: one failure may pass without help while the other one stays. Of two attempts the
    /// later one wins, so that a pause that the API server asked for is kept.
    pub fn after_both(self, other: Self) -> Self {
        self.max(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_two_failures_an_attempt_wins_and_the_pause_of_the_api_server_is_kept() {
        let [second, minute] = [Duration::from_secs(1), Duration::from_mins(1)];
        for (one, other, expected) in [
            (Retry::Never, Retry::Never, Retry::Never),
            (Retry::Never, Retry::OnChange, Retry::OnChange),
            (Retry::Never, Retry::Backoff, Retry::Backoff),
            (Retry::OnChange, Retry::Backoff, Retry::Backoff),
            (Retry::Never, Retry::At(second), Retry::At(second)),
            (Retry::OnChange, Retry::At(second), Retry::At(second)),
            (Retry::Backoff, Retry::At(second), Retry::At(second)),
            (Retry::At(minute), Retry::At(second), Retry::At(minute)),
        ] {
            assert_eq!(one.after_both(other), expected, "{one:?}, {other:?}");
            assert_eq!(other.after_both(one), expected, "{other:?}, {one:?}");
        }
    }
}
