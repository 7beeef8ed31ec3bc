//! Whether calls ask for predictions.

use std::sync::atomic::{AtomicU32, Ordering};

/// The wasted predictions in a row after which few calls ask for one: more than the passes that run at once, whose
/// predictions may all be used later.
const WASTED_MAX: u32 = 256;

/// Of the calls after that, one in this number asks, because the parents or the API server may have changed.
const CALLS_PER_PROBE: u32 = 64;

/// Counts what a revision's predictions were worth. One that the host does not use costs up to half a call.
#[derive(Debug, Default)]
pub(crate) struct Predictions {
    /// The calls that could have asked since the last used prediction; `NEVER` after a fault.
    wasted: AtomicU32,
}

/// Counts no further.
const NEVER: u32 = u32::MAX;

impl Predictions {
    /// Returns whether the next call asks for a prediction.
    pub(crate) fn ask(&self) -> bool {
        let next = |wasted: u32| (wasted != NEVER).then(|| (wasted + 1).min(NEVER - 1));
        match self
            .wasted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        {
            Ok(wasted) => wasted < WASTED_MAX || wasted.is_multiple_of(CALLS_PER_PROBE),
            Err(_) => false,
        }
    }

    /// Records that a prediction has saved a call.
    pub(crate) fn used(&self) {
        // Unless a call has faulted.
        self.wasted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |wasted| {
                (wasted != NEVER).then_some(0)
            })
            .ok();
    }

    /// Records that a call with a prediction has faulted: no further call of this revision asks.
    pub(crate) fn faulted(&self) {
        self.wasted.store(NEVER, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_seldom_while_no_prediction_is_used() {
        let predictions = Predictions::default();
        let asks = |calls: u32| (0..calls).filter(|_| predictions.ask()).count();
        assert_eq!(asks(WASTED_MAX), 256);
        assert_eq!(asks(10 * CALLS_PER_PROBE), 10);
        predictions.used();
        assert_eq!(asks(100), 100);
        predictions.faulted();
        predictions.used();
        assert_eq!(asks(10 * CALLS_PER_PROBE), 0);
    }
}
