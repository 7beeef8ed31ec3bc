//! The controller of one plugin and one kind of parents: decides on the times of passes and runs them.
//!
//! Holds the queue, takes triggers in, and starts a pass when a place is free.
//! It does not know the content of a pass, and it needs no state from before a restart.

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

/// An error that ends a controller before it is told to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pass panicked: an error of the host, never of a guest.
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
    /// The time of the change that it needs the pass for.
    pub since: Instant,
    /// True if the pass comes after those of other parents.
    pub is_last: bool,
}

impl Triggered {
    /// Returns a parent whose change has just been seen.
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

/// The work of a controller: triggers in, passes out.
pub trait Work: Send + Sync + 'static {
    /// Waits for at least one trigger; cancelling it loses none.
    fn triggers(&self) -> impl Future<Output = Vec<Triggered>> + Send;

    /// Runs one pass.
    fn pass(&self, parent: ObjectId, attempt: Attempt) -> impl Future<Output = Next> + Send;

    /// Queues every parent without a known change; they come back as triggers.
    /// Called once per [`Bounds::resync_period`], if that is set.
    fn resync(&self) {}

    /// Returns the time since a fixed moment, including the sleep of the machine.
    ///
    /// With a clock that stands still during sleep, a requeue would be late by the time that the machine has slept.
    fn now(&self) -> Duration {
        since_boot()
    }
}

/// The limits of a controller.
pub struct Bounds {
    /// A permit for each concurrent pass of the plugin; the controllers of all its kinds of parents share it.
    pub places: Arc<Semaphore>,
    /// The number of passes that may begin per second.
    pub passes_per_second_max: u32,
    /// The mean time between two resyncs; none for no resyncs.
    pub resync_period: Option<Duration>,
    /// The seed of the jitter; each queue needs its own.
    pub seed: u64,
}

/// The observers of a controller.
pub struct LoopTelemetry {
    /// Its metrics.
    pub metrics: ControllerMetrics,
    /// The heartbeat: called in every turn of the loop, at least every five seconds; dropped when the controller stops.
    pub heartbeat: Box<dyn Fn() + Send + Sync>,
}

/// The longest time between two turns of the loop, for its heartbeat and to notice that the machine has slept.
///
/// A third of the 15 s after which `/livez` reports a loop as stalled, so that one late turn is no failure.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// Runs passes until told to stop, and then until the running ones have ended.
///
/// Dropping the future aborts the passes. A pass that is aborted between two writes is like a crash at that place, and
/// the next pass converges.
pub async fn run<W: Work>(
    work: Arc<W>,
    bounds: Bounds,
    telemetry: LoopTelemetry,
    stop: CancellationToken,
) -> Result<(), Error> {
    let Bounds {
        places,
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
        never = controller.work_on(&places, heartbeat) => match never? {},
        () = stop.cancelled() => {}
    }
    // The queued keys need no pass now: the first list after the next start queues them again.
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

/// The state of the loop.
struct PassLoop<W> {
    work: Arc<W>,
    resync: Option<Resync>,
    queue: Queue<ObjectId>,
    /// The rate limit of passes; a longer burst than one second's worth would let a plugin exceed it.
    rate: Rate,
    bucket: TokenBucket<Duration>,
    passes: JoinSet<EndedPass>,
    /// The times at which the host saw the first change that no pass has begun for; at most one per queued parent.
    changed: BTreeMap<ObjectId, Instant>,
    edits: WaitingEdits,
    metrics: ControllerMetrics,
}

/// The parent of a pass that has ended, the time of its next one, and the time at which the host saw the first change
/// that the pass was for.
type EndedPass = (ObjectId, Next, Option<Instant>);

impl<W: Work> PassLoop<W> {
    async fn work_on(
        &mut self,
        places: &Arc<Semaphore>,
        heartbeat: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Infallible, Error> {
        let work = Arc::clone(&self.work);
        let mut turns = interval(HEARTBEAT_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            heartbeat();
            let wait = self.next_start();
            tokio::select! {
                // In this order: a pass that begins should see the ends of other passes and the changes so far.
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
                place = free_place(places, wait) => self.begin(place),
                _ = turns.tick() => self.resync(),
            }
        }
    }

    /// Returns the time until a pass may begin; none while no key waits.
    fn next_start(&self) -> Option<Duration> {
        let (due, now) = (self.queue.next_due()?, self.now());
        let wait = due.saturating_sub(now);
        Some(wait.max(self.bucket.wait(1, self.rate, now)))
    }

    fn resync(&mut self) {
        let now = self.now();
        if let Some(resync) = &mut self.resync
            && resync.is_due(now)
        {
            debug!("resync: queues every parent");
            self.work.resync();
        }
    }

    fn begin(&mut self, place: OwnedSemaphorePermit) {
        let now = self.now();
        let Some(Ticket {
            key,
            parked_since,
            waited,
        }) = self.queue.pop(now)
        else {
            return;
        };
        self.edits.set(self.queue.has_edits());
        self.bucket.take(1, self.rate, now);
        let attempt = Attempt {
            parked: parked_since.map(|since| now.saturating_sub(since)),
            changed: self.changed.remove(&key),
            edits: self.edits.clone(),
        };
        let changed = attempt.changed;
        let work = Arc::clone(&self.work);
        let running = self.metrics.begin(waited, self.queue.depth());
        self.passes.spawn(async move {
            let next = work.pass(key.clone(), attempt).await;
            running.end(result(&next));
            drop(place);
            (key, next, changed)
        });
    }

    fn end(&mut self, (parent, next, changed): EndedPass) {
        // The pass has not acted on the change, so the next pass is for it, too.
        if let (Next::Again(_) | Next::Parked(_), Some(changed)) = (&next, changed) {
            let seen = self.changed.entry(parent.clone()).or_insert(changed);
            *seen = changed.min(*seen);
        }
        let now = self.now();
        self.queue.done(&parent, next, now);
    }

    fn now(&self) -> Duration {
        self.work.now()
    }
}

/// Returns the label of a pass in metrics.
///
/// A pass that stops until its parent changes is a success: it has done everything that it can.
const fn result(next: &Next) -> PassResult {
    match next {
        Next::Settled | Next::UntilChanged | Next::Forget => PassResult::Success,
        Next::RequeueAfter(_) => PassResult::RequeueAfter,
        Next::Again(_) | Next::Parked(_) => PassResult::Requeue,
        Next::Backoff | Next::BackoffAtLeast(_) => PassResult::Error,
    }
}

/// Waits until a key is due and a place is free; for ever if no key waits.
async fn free_place(places: &Arc<Semaphore>, wait: Option<Duration>) -> OwnedSemaphorePermit {
    let Some(wait) = wait else {
        return std::future::pending().await;
    };
    // Even a timer of zero waits for the next millisecond, which is longer than most passes.
    if !wait.is_zero() {
        sleep(wait).await;
    }
    match Arc::clone(places).acquire_owned().await {
        Ok(place) => place,
        // The semaphore is never closed; a closed one would allow no pass.
        Err(_) => std::future::pending().await,
    }
}

/// Waits for at least one trigger of a registration; cancelling it loses none.
pub async fn triggers(registration: &Registration) -> Vec<Triggered> {
    /// The largest batch of triggers between two turns of the loop.
    ///
    /// Chosen: a turn with so many queue entries is short, and a resync of 100,000 parents takes about 100 turns.
    const TRIGGERS_MAX: usize = 1024;

    let triggers = registration.triggers(TRIGGERS_MAX).await;
    triggers
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
        // Mostly the host's own write of the status.
        Cause::ParentStatus => Class::Retry,
        Cause::Listed | Cause::Resync => Class::Initial,
    }
}

#[cfg(test)]
mod tests;
