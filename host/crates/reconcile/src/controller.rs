//! Decides when which parent of one plugin and kind has its pass, and runs the passes.
//!
//! Holds the queue, takes triggers in, and starts a pass where a place is free.
//! It does not know what a pass does, and remembers nothing that a restart would miss.

pub mod queue;
mod resync;

use std::{collections::BTreeMap, convert::Infallible, future::Future, sync::Arc, time::Duration};

use innkeeper_apply::clock::since_boot;
use innkeeper_cluster::{Cause, Registration};
use innkeeper_metrics::{ControllerMetrics, PassResult};
use innkeeper_model::ObjectId;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{Next, Reconciler, Turn};
use queue::{Class, Queue, QueueOptions, Ticket};
use resync::Resync;

/// Why a controller ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pass panicked: an error of the host, never of a guest.
    #[error("failed to finish a pass")]
    Pass(#[source] JoinError),
}

/// What a controller works on: triggers in, passes out.
pub trait Work: Send + Sync + 'static {
    /// Waits for at least one trigger; cancelling it loses none.
    fn triggers(&self) -> impl Future<Output = Vec<(ObjectId, Class)>> + Send;

    /// Runs one pass.
    fn pass(&self, parent: ObjectId, turn: Turn) -> impl Future<Output = Next> + Send;

    /// Makes every parent due, although nothing is known to have changed; they come as triggers.
    /// Called where there is a period for it.
    fn resync(&self) {}

    /// What has passed since any fixed moment, the sleep of the machine included: what is due while it sleeps is due
    /// when it wakes up, and not so much later as it slept.
    fn now(&self) -> Duration {
        since_boot()
    }
}

/// What bounds a controller.
pub struct Bounds {
    /// The passes that the plugin may have at the same time, over all its kinds of parents.
    pub places: Arc<Semaphore>,
    /// Passes that may begin in a second.
    pub passes_per_second_max: u32,
    /// How long it takes on average until every parent is due again; none: never by time alone.
    pub resync_period: Option<Duration>,
    /// How the queue waits.
    pub queue: QueueOptions,
}

/// Who is told how a controller is doing.
pub struct Witness {
    /// Counts and times.
    pub metrics: ControllerMetrics,
    /// Called in every turn of the loop, at least every five seconds; dropped when the controller is told to stop.
    pub beat: Box<dyn Fn() + Send + Sync>,
}

/// How often an idle loop turns: to show that it does, and to see whether the machine has slept.
const BEAT_EVERY: Duration = Duration::from_secs(5);

/// Runs passes until told to stop, and then until the running ones have ended.
///
/// Dropping the future aborts the passes; a pass that is cut off between two writes is like a crash at that place, and
/// the next pass converges.
pub async fn run<W: Work>(
    work: Arc<W>,
    bounds: Bounds,
    witness: Witness,
    stop: CancellationToken,
) -> Result<(), Error> {
    let Bounds {
        places,
        passes_per_second_max,
        resync_period,
        queue,
    } = bounds;
    let Witness { metrics, beat } = witness;
    let now = work.now();
    let mut controller = PassLoop {
        work,
        resync: resync_period.map(|period| Resync::new(period, queue.seed, now)),
        queue: Queue::new(queue),
        pace: Pace::new(passes_per_second_max),
        passes: JoinSet::new(),
        changed: BTreeMap::new(),
        metrics,
    };
    tokio::select! {
        never = controller.work_on(&places, beat) => match never? {},
        () = stop.cancelled() => {}
    }
    // Whatever is queued is found again by the first list after the next start.
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
    pace: Pace,
    passes: JoinSet<EndedPass>,
    /// When the first change was seen that no pass has begun for; bounded by the parents that are queued.
    changed: BTreeMap<ObjectId, Instant>,
    metrics: ControllerMetrics,
}

/// A pass that has ended.
struct EndedPass {
    parent: ObjectId,
    next: Next,
    /// When the first change was seen that it was for.
    changed: Option<Instant>,
}

impl<W: Work> PassLoop<W> {
    async fn work_on(
        &mut self,
        places: &Arc<Semaphore>,
        beat: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Infallible, Error> {
        let work = Arc::clone(&self.work);
        let mut turns = interval(BEAT_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat();
            let wait = self.next_start();
            tokio::select! {
                // What ended and what changed is taken in before anything new begins: a pass should see it.
                biased;
                Some(ended) = self.passes.join_next() => self.end(ended.map_err(Error::Pass)?),
                triggers = work.triggers() => {
                    let now = self.now();
                    let count = triggers.len();
                    for (parent, class) in triggers {
                        if matches!(class, Class::User | Class::Child) {
                            let seen = self.changed.entry(parent.clone());
                            seen.or_insert_with(Instant::now);
                        }
                        self.queue.trigger(parent, class, now);
                    }
                    self.metrics.triggered(count, self.queue.depth());
                }
                place = free_place(places, wait) => self.begin(place),
                _ = turns.tick() => self.resync(),
            }
        }
    }

    /// After what time a pass may begin at the earliest; none while no key waits.
    fn next_start(&self) -> Option<Duration> {
        let due = self.queue.next_due()?.max(self.pace.free_at);
        Some(due.saturating_sub(self.now()))
    }

    fn resync(&mut self) {
        let now = self.now();
        if let Some(resync) = &mut self.resync
            && resync.is_due(now)
        {
            debug!("every parent is due again");
            self.work.resync();
        }
    }

    fn begin(&mut self, place: OwnedSemaphorePermit) {
        let now = self.now();
        let Some(Ticket {
            key,
            failures,
            parked_since,
            waited,
        }) = self.queue.pop(now)
        else {
            return;
        };
        self.pace.begin(now);
        let turn = Turn {
            failures,
            parked: parked_since.map(|since| now.saturating_sub(since)),
            changed: self.changed.remove(&key),
        };
        let work = Arc::clone(&self.work);
        let running = self.metrics.begin(waited, self.queue.depth());
        self.passes.spawn(async move {
            let next = work.pass(key.clone(), turn).await;
            running.end(result(&next));
            drop(place);
            EndedPass {
                parent: key,
                next,
                changed: turn.changed,
            }
        });
    }

    fn end(&mut self, ended: EndedPass) {
        let EndedPass {
            parent,
            next,
            changed,
        } = ended;
        // It has not looked at the change yet: the next pass is for it.
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

/// What is counted of a pass.
/// A parent that its plugin cannot serve before it changes is no failure: the pass has done all that there is to do.
const fn result(next: &Next) -> PassResult {
    match next {
        Next::Settled | Next::UntilChanged | Next::Forget => PassResult::Success,
        Next::RequeueAfter(_) => PassResult::RequeueAfter,
        Next::Again(_) | Next::Parked(_) => PassResult::Requeue,
        Next::Backoff | Next::BackoffAtLeast(_) => PassResult::Error,
    }
}

/// Waits until a key is due and a place is free; for ever when no key waits.
async fn free_place(places: &Arc<Semaphore>, wait: Option<Duration>) -> OwnedSemaphorePermit {
    let Some(wait) = wait else {
        return std::future::pending().await;
    };
    // A timer takes until its next millisecond even where there is nothing to wait for.
    if !wait.is_zero() {
        sleep(wait).await;
    }
    match Arc::clone(places).acquire_owned().await {
        Ok(place) => place,
        // Nobody closes it; if somebody did, no pass may begin any more.
        Err(_) => std::future::pending().await,
    }
}

/// Spreads the beginnings of passes: after a second's worth of them at once, one per interval.
struct Pace {
    interval: Duration,
    /// The time at which all beginnings so far would have been spread out.
    spent: Duration,
    /// When the next one may come.
    free_at: Duration,
}

impl Pace {
    fn new(per_second_max: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / per_second_max.max(1),
            spent: Duration::ZERO,
            free_at: Duration::ZERO,
        }
    }

    fn begin(&mut self, now: Duration) {
        self.spent = self.spent.max(now).saturating_add(self.interval);
        self.free_at = self.spent.saturating_sub(Duration::from_secs(1));
    }
}

impl Work for Reconciler {
    async fn triggers(&self) -> Vec<(ObjectId, Class)> {
        triggers(self.registration()).await
    }

    async fn pass(&self, parent: ObjectId, turn: Turn) -> Next {
        Self::pass(self, &parent, turn).await
    }

    fn resync(&self) {
        Self::resync(self);
    }
}

/// Waits for at least one trigger of a registration; cancelling it loses none.
pub async fn triggers(registration: &Registration) -> Vec<(ObjectId, Class)> {
    /// Bounds what is taken in between two looks at everything else.
    const TRIGGERS_MAX: usize = 1024;

    let triggers = registration.triggers(TRIGGERS_MAX).await;
    triggers
        .into_iter()
        .map(|(parent, trigger)| {
            debug!(%parent, cause = ?trigger.cause, object = ?trigger.object, "triggered");
            (parent, class(trigger.cause))
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
        // Mostly the echo of what the host itself wrote.
        Cause::ParentStatus => Class::Retry,
        Cause::Listed | Cause::Resync => Class::Initial,
    }
}

#[cfg(test)]
mod tests;
