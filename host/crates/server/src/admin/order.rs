//! Recording orders: the request to `/debug/recordings`, and its answer with one recording per line.

use std::{convert::Infallible, time::Duration};

use axum::body::{Body, Bytes};
use futures::stream;
use innkeeper_command::ParentName;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// The maximum number of recordings per order; their bytes have another limit.
pub const RECORDINGS_MAX: u32 = 100;

/// The maximum duration of an order, in seconds, so that forgotten orders end.
pub const RECORDING_SECONDS_MAX: u64 = 3600;

/// An order to record calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordingOrder {
    /// The calls to record.
    pub of: RecordingTarget,
    /// Number of recordings, 1 to [`RECORDINGS_MAX`].
    pub number: u32,
    /// Duration of the order in seconds, 1 to [`RECORDING_SECONDS_MAX`].
    pub seconds: u64,
}

/// The calls to record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum RecordingTarget {
    /// The next calls for a parent.
    Parent(ParentName),
    /// The next calls of a plugin that end with a fault.
    Faults {
        /// The plugin's name.
        plugin: String,
    },
}

/// Why the host refuses an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderRefusal {
    /// No active plugin has this name or parent.
    Unknown(String),
    /// The host must not record these calls, or has too many orders.
    Refused(String),
}

impl RecordingOrder {
    /// Parses a request.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let order: Self = serde_json::from_str(text)
            .map_err(|error| format!("failed to parse the order: {error}"))?;
        let is_bounded = (1..=RECORDINGS_MAX).contains(&order.number)
            && (1..=RECORDING_SECONDS_MAX).contains(&order.seconds);
        is_bounded.then_some(order).ok_or_else(|| {
            format!("give a number of 1 to {RECORDINGS_MAX} and a time of 1 to {RECORDING_SECONDS_MAX} seconds")
        })
    }

    /// Returns the duration.
    pub const fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Returns a body with one line per recording, until the channel closes or the time is over.
pub(super) fn lines(from: mpsc::Receiver<String>, until: Instant) -> Body {
    Body::from_stream(stream::unfold(from, move |mut from| async move {
        let recording = timeout_at(until, from.recv()).await.ok()??;
        let line = Bytes::from(recording + "\n");
        Some((Ok::<_, Infallible>(line), from))
    }))
}
