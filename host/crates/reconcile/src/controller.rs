//! The controller for one plugin and parent kind: queues triggers and runs passes.
//!
//! It does not know what a pass does, and needs no state from before a restart.

pub mod queue;
mod resync;

use std::{collections::BTreeMap, convert::Infallible, future::Future, sync::Arc, time::Duration};

use innkeeper_cluster::{Cause, Registration};
use innkeeper_lease::since_boot;
use innkeeper_metrics::{ControllerMetrics, PassResult};
use innkeeper_model::{ObjectId, Rate, TokenBucket};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{Attempt, Next, WaitingEdits};
use queue::{Class, Queue, Ticket};
use resync::Resync;

/// An error that ends a controller before shutdown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pass panicked: a bug in the host, never in a guest.
    #[error("failed to finish a pass")]
    Pass(#[source] JoinError),
}

/// A parent that needs a pass.
#[derive(Clone, Debug)]
pub struct Triggered {
    /// The parent.
    pub parent: ObjectId,
    /// The urgency.
    pub class: Class,
    /// The time of the change that needs the pass.
    pub since: Instant,
    /// True if the passes of other parents come first.
    pub is_last: bool,
}

impl Triggered {
    /// Returns a parent that has just changed.
    pub fn now(parent: ObjectId, class: Class) -> Self {
        let since = Instant::now();
        Self {
            parent,
            class,
            since,
            is_last: false,
        }
    }
}

/// A controller's source of triggers, and its passes.
pub trait Work: Send + Sync + 'static {
    /// Waits for at least one trigger; cancelling it loses none.
    fn triggers(&self) -> impl Future<Output = Vec<Triggered>> + Send;

    /// Runs one pass.
    fn pass(&self, parent: ObjectId, attempt: Attempt) -> impl Future<Output = Next> + Send;

    /// Triggers every parent. Called once per [`Bounds::resync_period`], if that is set.
    fn resync(&self) {}

    /// Returns the time since a fixed moment, including machine sleep; otherwise a requeue would be late by that sleep.
    fn now(&self) -> Duration {
        since_boot()
    }
}

/// A controller's limits.
pub struct Bounds {
    /// A permit for each of the plugin's concurrent passes, shared by the controllers of all its parent kinds.
    pub permits: Arc<Semaphore>,
    /// The most passes that may begin per second.
    pub passes_per_second_max: u32,
    /// The mean time between two resyncs; `None` for no resyncs.
    pub resync_period: Option<Duration>,
    /// The jitter's seed; each queue needs another one.
    pub seed: u64,
}

/// A controller's metrics and heartbeat.
pub struct LoopTelemetry {
    /// The metrics.
    pub metrics: ControllerMetrics,
    /// Called in every turn of the loop, at least every five seconds; dropped when the controller stops.
    pub heartbeat: Box<dyn Fn() + Send + Sync>,
}

/// The longest time between two turns of the loop, for the heartbeat and to notice machine sleep.
///
/// A third of the 15 s after which `/livez` reports a loop as stalled, so one late turn is no failure.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// Runs passes until `stop`, and then waits for the running ones.
///
/// Dropping the future aborts the passes. Aborting a pass between two writes is like a crash there: the next pass
/// converges.
pub async fn run<W: Work>(
    work: Arc<W>,
    bounds: Bounds,
    telemetry: LoopTelemetry,
    stop: CancellationToken,
) -> Result<(), Error> {
    let Bounds {
        permits,
        passes_per_second_max,
        resync_period,
        seed,
    } = bounds;
    let LoopTelemetry { metrics, heartbeat } = telemetry;
    let now = work.now();
    let mut controller = PassLoop {
        work,
        resync: resync_period.map(|period| Resync::new(period, seed, now)),
        queue: Queue::new(seed, |parent: &ObjectId| parent.namespace.clone()),
        rate: Rate {
            burst: u64::from(passes_per_second_max),
            refill: Duration::from_secs(1),
        },
        bucket: TokenBucket::default(),
        passes: JoinSet::new(),
        changed: BTreeMap::new(),
        edits: WaitingEdits::default(),
        metrics,
    };
    tokio::select! {
        never = controller.work_on(&permits, heartbeat) => match never? {},
        () = stop.cancelled() => {}
    }
    // Queued keys need no pass now: the first list after the next start queues them again.
    debug!(
        running = controller.passes.len(),
        queued = controller.queue.depth(),
        "draining"
    );
    while let Some(ended) = controller.passes.join_next().await {
        ended.map_err(Error::Pass)?;
    }
    Ok(())
}

struct PassLoop<W> {
    work: Arc<W>,
    resync: Option<Resync>,
    queue: Queue<ObjectId>,
    /// The rate limit for passes; with a longer burst than one second's worth, a plugin would exceed it.
    rate: Rate,
    bucket: TokenBucket<Duration>,
    passes: JoinSet<EndedPass>,
    /// The time of the first change that no pass has begun for; at most one entry per queued parent.
    changed: BTreeMap<ObjectId, Instant>,
    edits: WaitingEdits,
    metrics: ControllerMetrics,
}

/// An ended pass: its parent, the next pass, and when the host saw the first change that it was for.
type EndedPass = (ObjectId, Next, Option<Instant>);

impl<W: Work> PassLoop<W> {
    async fn work_on(
        &mut self,
        permits: &Arc<Semaphore>,
        heartbeat: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Infallible, Error> {
        let work = Arc::clone(&self.work);
        let mut turns = interval(HEARTBEAT_EVERY);
        // By default, all ticks that a stalled loop has missed would follow at once.
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            heartbeat();
            let wait = self.next_start();
            tokio::select! {
                // In this order, so that a pass begins after the ends of other passes and the changes so far.
                biased;
                Some(ended) = self.passes.join_next() => self.end(ended.map_err(Error::Pass)?),
                triggers = work.triggers() => {
                    let now = self.now();
                    let count = triggers.len();
                    for Triggered { parent, class, since, is_last } in triggers {
                        if matches!(class, Class::User | Class::Child) {
                            self.changed.entry(parent.clone()).or_insert(since);
                        }
                        if is_last {
                            self.queue.trigger_last(parent, class, now);
                        } else {
                            self.queue.trigger(parent, class, now);
                        }
                    }
                    self.edits.set(self.queue.has_edits());
                    self.metrics.triggered(count, self.queue.depth());
                }
                permit = next_permit(permits, wait) => self.begin(permit),
                _ = turns.tick() => self.resync(),
            }
        }
    }

    /// Returns the time until a pass may begin; `None` while no key waits.
    fn next_start(&self) -> Option<Duration> {
        let due = self.queue.next_due()?;
        let now = self.now();
        let rate_wait = self.bucket.wait(1, self.rate, now);
        Some(due.saturating_sub(now).max(rate_wait))
    }

    fn resync(&mut self) {
        let now = self.now();
        if let Some(resync) = &mut self.resync
            && resync.is_due(now)
        {
            debug!("resync: queueing every parent");
            self.work.resync();
        }
    }

    fn begin(&mut self, permit: OwnedSemaphorePermit) {
        let now = self.now();
        let Some(Ticket {
            key,
            cache_wait_since,
            waited,
        }) = self.queue.pop(now)
        else {
            return;
        };
        self.edits.set(self.queue.has_edits());
        self.bucket.take(1, self.rate, now);
        let attempt = Attempt {
            cache_wait: cache_wait_since.map(|since| now.saturating_sub(since)),
            changed: self.changed.remove(&key),
            edits: self.edits.clone(),
        };
        let changed = attempt.changed;
        let work = Arc::clone(&self.work);
        let running = self.metrics.begin(waited, self.queue.depth());
        self.passes.spawn(async move {
            let next = work.pass(key.clone(), attempt).await;
            running.end(result(&next));
            drop(permit);
            (key, next, changed)
        });
    }

    fn end(&mut self, (parent, next, changed): EndedPass) {
        // The pass has not acted on the change, so the next pass is for it.
        if let (Next::AwaitOwnWrites(_) | Next::AwaitCache(_), Some(changed)) = (&next, changed) {
            let earliest = self.changed.entry(parent.clone()).or_insert(changed);
            *earliest = changed.min(*earliest);
        }
        let now = self.now();
        self.queue.done(&parent, next, now);
    }

    fn now(&self) -> Duration {
        self.work.now()
    }
}

/// Returns the metrics label for a pass.
///
/// A pass that waits for a change is a success: it has done everything that it can.
const fn result(next: &Next) -> PassResult {
    match next {
        Next::Settled | Next::UntilChanged | Next::Forget => PassResult::Success,
        Next::RequeueAfter(_) => PassResult::RequeueAfter,
        Next::AwaitOwnWrites(_) | Next::AwaitCache(_) => PassResult::Requeue,
        Next::Backoff | Next::BackoffAtLeast(_) => PassResult::Error,
    }
}

/// Waits until a key is due, and then for a permit; for ever if no key waits.
async fn next_permit(permits: &Arc<Semaphore>, wait: Option<Duration>) -> OwnedSemaphorePermit {
    let Some(wait) = wait else {
        return std::future::pending().await;
    };
    // Even a timer of zero waits for the next millisecond, which is longer than most passes.
    if !wait.is_zero() {
        sleep(wait).await;
    }
    match Arc::clone(permits).acquire_owned().await {
        Ok(permit) => permit,
        // The semaphore is never closed.
        Err(_) => std::future::pending().await,
    }
}

/// Waits for at least one of a registration's triggers; cancelling it loses none.
pub async fn triggers(registration: &Registration) -> Vec<Triggered> {
    /// The largest batch of triggers between two turns of the loop: small enough for a short turn, and a resync with
    /// 100,000 parents takes about 100 turns.
    const TRIGGERS_MAX: usize = 1024;

    registration
        .triggers(TRIGGERS_MAX)
        .await
        .into_iter()
        .map(|(parent, trigger)| {
            debug!(%parent, cause = ?trigger.cause, object = ?trigger.object, "triggered");
            Triggered {
                parent,
                class: class(trigger.cause),
                since: trigger.since.unwrap_or_else(Instant::now),
                is_last: false,
            }
        })
        .collect()
}

fn class(cause: Cause) -> Class {
    match cause {
        Cause::ParentChanged | Cause::ParentGone => Class::User,
        Cause::ChildChanged | Cause::RelatedChanged | Cause::KindChanged | Cause::CaughtUp => {
            Class::Child
        }
        Cause::Swapped => Class::Swapped,
        // Mostly the host's own status write.
        Cause::ParentStatus => Class::Retry,
        Cause::Listed | Cause::Resync => Class::Initial,
    }
}

#[cfg(test)]
mod tests;
