//! The tasks that read: one per watch, and one for discovery.
//!
//! `run` owns the driver and the driver owns the tasks: dropping it ends them all.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fastrand::Rng;
use innkeeper_model::error_chain;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{
    discovery::DiscoveryReader,
    error::Error,
    shared::CacheShared,
    state::TaskId,
    watch::{Watcher, pauses},
};

/// Interval at which an idle loop reports that it is alive: a third of the time after which `/livez` fails.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// Keeps the cache up to date while it runs.
#[must_use = "nothing is read before the driver runs"]
pub struct Driver {
    shared: Arc<CacheShared>,
    rng: Rng,
}

impl Driver {
    pub(super) fn new(shared: Arc<CacheShared>) -> Self {
        let rng = Rng::with_seed(shared.options.seed);
        Self { shared, rng }
    }

    /// Runs until a task panics. Calls `heartbeat` at least every five seconds.
    ///
    /// Dropping the future ends every task and closes every connection.
    pub async fn run(mut self, heartbeat: impl Fn() + Send) -> Result<Infallible, Error> {
        let mut tasks = JoinSet::new();
        let mut running: BTreeMap<TaskId, AbortHandle> = BTreeMap::new();
        tasks.spawn(discover(Arc::clone(&self.shared), self.rng.fork()));
        let mut turns = interval(HEARTBEAT_EVERY);
        // After a stall, one heartbeat says as much as all the missed ones.
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            heartbeat();
            self.arrange(&mut tasks, &mut running);
            tokio::select! {
                () = self.shared.rearrange.notified() => {}
                // The set is empty only while the runtime shuts down, and the runtime waits until this future yields.
                Some(result) = tasks.join_next() => match result {
                    Err(error) if error.is_panic() => return Err(Error::TaskDied(error)),
                    // A watch that is no longer needed.
                    Ok(()) | Err(_) => {}
                },
                _ = turns.tick() => {}
            }
        }
    }

    /// Starts missing watch tasks and aborts superfluous ones.
    fn arrange(&mut self, tasks: &mut JoinSet<()>, running: &mut BTreeMap<TaskId, AbortHandle>) {
        let tasks_wanted = self.shared.state.lock().table.wanted_tasks();
        running.retain(|task, handle| {
            let is_wanted = tasks_wanted.contains_key(task);
            if !is_wanted {
                handle.abort();
            }
            is_wanted
        });
        for (task, spec) in tasks_wanted {
            running.entry(task).or_insert_with(|| {
                let shared = Arc::clone(&self.shared);
                tasks.spawn(Watcher::new(shared, task, spec, self.rng.fork()).run())
            });
        }
    }
}

/// Delays between discoveries after a hint that the kinds changed. A CustomResourceDefinition's event arrives before
/// the API server serves the kind: usually by some 20 ms, under load by seconds.
const AFTER_HINT: [Duration; 4] = [
    Duration::from_millis(30),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// Discovery interval while a caller waits for a kind, such as a user after an install. Without changes it costs two
/// small requests.
const WHILE_WAITED_FOR: Duration = Duration::from_millis(200);

/// Repeats discovery, periodically and after hints.
async fn discover(shared: Arc<CacheShared>, mut rng: Rng) {
    let mut reader = DiscoveryReader::default();
    let mut failures = pauses(&shared.options, rng.u64(..));
    let mut after_hint = [].iter();
    loop {
        match reader.refresh(&shared.wire).await {
            Ok(kinds) => {
                failures = pauses(&shared.options, rng.u64(..));
                if shared.discovery_error.lock().take().is_some() {
                    tracing::info!("the API server answers");
                }
                shared.unauthorized.store(false, Ordering::Relaxed);
                if let Some(kinds) = kinds {
                    tracing::debug!(kinds = kinds.len(), "the served kinds changed");
                    // Before the count: callers of `wait_served` read the state when the count changes.
                    if shared.state.lock().serve(kinds, Instant::now()) {
                        shared.rearrange.notify_one();
                    }
                    shared.discovered.send_modify(|count| *count += 1);
                }
            }
            Err(problem) => {
                let message = error_chain(&problem).to_string();
                let is_unauthorized = problem.is_unauthorized();
                shared
                    .unauthorized
                    .store(is_unauthorized, Ordering::Relaxed);
                // Logged once: each attempt during an outage has the same message.
                let previous = shared.discovery_error.lock().replace(message.clone());
                if previous.as_ref() != Some(&message) {
                    tracing::warn!(error = %message, "waiting for the API server");
                }
                // The backoff is added to the requested pause, so that waiting hosts do not retry together.
                let requested = problem.retry_after().unwrap_or_default();
                let pause = failures.delay();
                sleep(requested.min(shared.options.retry_max) + pause).await;
                continue;
            }
        }
        // Jittered, because hosts that start together would otherwise ask together for ever.
        let jittered = shared
            .options
            .discovery_interval
            .mul_f64(0.8 + 0.4 * rng.f64());
        let is_awaited = shared.discovered.receiver_count() > 0;
        let usual = if is_awaited {
            WHILE_WAITED_FOR
        } else {
            jittered
        };
        let pause = after_hint.next().copied().unwrap_or(usual);
        tokio::select! {
            () = sleep(pause) => {}
            () = shared.rediscover.notified() => {
                after_hint = AFTER_HINT.iter();
                // Hints come in bursts: let the whole burst arrive.
                sleep(after_hint.next().copied().unwrap_or_default()).await;
            }
        }
    }
}
