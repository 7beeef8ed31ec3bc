//! Queues a reconciler's events and writes them beside the passes.

use std::future::Future;

use futures::{StreamExt as _, stream};
use innkeeper_apply::EventWrite;
use innkeeper_metrics::PluginMetrics;
use innkeeper_model::error_chain;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, Sender, error::TrySendError};
use tracing::debug;

use crate::shared::Shared;

/// The largest number of queued events, as in client-go.
const WAITING_MAX: usize = 1000;

/// The largest number of concurrent event writes.
///
/// Enough for events about new parents, whose passes make three other requests each, and few beside other writes.
const WRITES_MAX: usize = 4;

/// The queued events; closed before the first pass and after the last one.
#[derive(Default)]
pub(crate) struct EventQueue(Mutex<Option<Sender<EventWrite>>>);

impl EventQueue {
    /// Queues an event, or drops it if the queue is full.
    pub(crate) fn push(&self, shared: &Shared, metrics: &PluginMetrics, write: EventWrite) {
        let sender = self.0.lock();
        let refused = match &*sender {
            Some(sender) => sender.try_send(write).err().map(TrySendError::into_inner),
            None => Some(write),
        };
        if let Some(write) = refused {
            debug!(reason = write.reason(), "event dropped, the queue is full");
            metrics.event_dropped();
            // Otherwise the next one would raise the count of an Event that does not exist.
            shared.events.forget(&write);
        }
    }

    /// Opens the queue, and writes events until it is closed and empty.
    pub(crate) fn write<'a>(&self, shared: &'a Shared) -> impl Future<Output = ()> + use<'a> {
        let (sender, mut waiting) = mpsc::channel(WAITING_MAX);
        *self.0.lock() = Some(sender);
        stream::poll_fn(move |task| waiting.poll_recv(task)).for_each_concurrent(
            WRITES_MAX,
            async |write| {
                // Events inform people, and no pass depends on them.
                if let Err(error) = shared
                    .events
                    .write(
                        shared.writers.for_namespace(write.parent_namespace()),
                        &write,
                    )
                    .await
                {
                    let error = error_chain(&error);
                    debug!(%error, reason = write.reason(), "failed to write an event");
                }
            },
        )
    }

    /// Closes the queue.
    pub(crate) fn close(&self) {
        self.0.lock().take();
    }
}
