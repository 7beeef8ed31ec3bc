//! The threads that run guests.
//!
//! Plain threads and not the asynchronous runtime's: a guest computes for as long as the deadline allows.
//! A plugin holds at most half the threads, so that one that is slow cannot starve the others, and a single one from
//! the moment that it exceeds a deadline until it answers again.
//! Slow plugins, and those with a long deadline, leave one thread to the others, which wait for short deadlines only.
//! Of the memory, the engine leaves them half.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use innkeeper_model::{Limits, Phase, PluginName, Reads};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use super::schedule::{CallVerdict, RunningCall, Schedule};
use crate::{
    CallFault, CallReport, CallSpeed, Context, End, Error, ObservedChild, Plugin, Request,
};

/// After this time, a group of dry-run calls leaves the thread, once the running call has ended.
///
/// Handing a thread over takes about as long as a call, so a group has many usual calls (about 0.3 ms).
/// Passes wait for the thread, so it is far less than a deadline. Measured with 1,000 live parents: a swap takes 79 ms
/// in groups, and took 204 ms with single calls.
const DRY_RUN_GROUP_MAX: Duration = Duration::from_millis(5);

/// One call, owned, so that it can go to another thread.
#[derive(Clone, Debug)]
pub struct Job<R> {
    /// The parent as guests see it.
    pub parent: Arc<str>,
    /// All children, sorted by kind, namespace and name.
    pub children: Vec<ObservedChild>,
    /// The reason for the pass.
    pub phase: Phase,
    /// True if nothing can be created in the parent's namespace, because it is being deleted.
    pub namespace_terminating: bool,
    /// True if the guest should predict the next call's report.
    pub predict: bool,
    /// Answers the guest's reads.
    pub reads: R,
    /// The pass's clock and seed.
    pub context: Context,
    /// The plugin's limits.
    pub limits: Arc<Limits>,
}

impl<R: Reads + 'static> Job<R> {
    fn run(self, plugin: &Plugin) -> Result<(CallReport, R), Error> {
        let request = Request {
            parent: &self.parent,
            children: &self.children,
            phase: self.phase,
            namespace_terminating: self.namespace_terminating,
            predict: self.predict,
        };
        plugin.call(&request, self.reads, &self.context, &self.limits)
    }
}

/// The threads that run guests; joined when it is dropped, which waits for the calls that run.
pub struct Pool {
    queue: Arc<CallQueue>,
    workers: Vec<JoinHandle<()>>,
    /// Notified when a thread panicked.
    panicked: Arc<Notify>,
    /// The most threads that a plugin may have at a time.
    share: usize,
    /// The most threads that dry runs may have at a time.
    dry_runs_max: usize,
}

/// The queue from which the threads take their calls.
///
/// A thread that ends a call takes the next one itself, so the pool wakes no thread between two calls.
struct CallQueue {
    state: Mutex<PoolState>,
    changed: Condvar,
}

struct PoolState {
    schedule: Schedule<Client, Work>,
    /// The threads that wait for a call.
    idle: usize,
    stopped: bool,
}

/// A client, whose calls share threads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Client {
    /// A plugin, over all revisions.
    Plugin(PluginName),
    /// All dry runs with a long deadline, or all others: short ones do not wait for long ones.
    DryRuns { long: bool },
}

/// Runs calls, reports their end to the schedule, and sends their results to the waiting future.
type Work = Box<dyn FnOnce(&CallQueue, &RunningCall<Client>) + Send>;

/// The results from a group of dry-run calls.
pub struct DryRunResults<R> {
    /// The results for the jobs that ran, in the same order.
    pub called: Vec<(CallReport, R)>,
    /// The jobs that did not run.
    pub left: VecDeque<Job<R>>,
}

impl Pool {
    /// Starts the threads. A single thread serves slow plugins too, so a host starts at least two.
    pub fn start(threads: NonZeroUsize) -> Result<Self, Error> {
        let threads = threads.get();
        // One thread stays with calls that end soon.
        let slow_max = threads.saturating_sub(1).max(1);
        let queue = Arc::new(CallQueue {
            state: Mutex::new(PoolState {
                schedule: Schedule::new(slow_max),
                idle: 0,
                stopped: false,
            }),
            changed: Condvar::new(),
        });
        let panicked = Arc::new(Notify::new());
        let workers = (0..threads)
            .map(|index| {
                let queue = Arc::clone(&queue);
                let guard = PanicGuard(Arc::clone(&panicked));
                thread::Builder::new()
                    .name(format!("guests-{index}"))
                    .spawn(move || {
                        queue.serve();
                        // Named here so that this thread owns it: a panic in `serve` then drops it.
                        drop(guard);
                    })
            })
            .collect::<Result<_, _>>()
            .map_err(Error::StartThread)?;
        let share = (threads / 2).max(1);
        Ok(Self {
            queue,
            workers,
            panicked,
            share,
            dry_runs_max: 1,
        })
    }

    /// Gives all threads to dry runs, for a process without passes.
    pub fn for_dry_runs(mut self) -> Self {
        self.dry_runs_max = self.workers.len();
        self
    }

    /// Runs one call, once a thread is free and the plugin with this name holds less than its share of the threads. One
    /// component may be active under several names, each with a separate share.
    ///
    /// If the future is dropped, a running call still ends normally, at most at the deadline, and the report is lost.
    /// Fails if the pool is closed, or if the host cannot map the plugin's code again; neither is the guest's fault.
    pub async fn call<R: Reads + 'static>(
        &self,
        name: &PluginName,
        plugin: Arc<Plugin>,
        job: Job<R>,
    ) -> Result<(CallReport, R), Error> {
        let client = Client::Plugin(name.clone());
        let long = job.limits.has_long_deadline();
        self.run(&client, self.share, long, move |speed| {
            let mut called = job.run(&plugin);
            let verdict = called.as_mut().map_or(CallVerdict::Nothing, |(report, _)| {
                report.speed = speed;
                verdict(&report.end)
            });
            (verdict, called)
        })
        .await?
    }

    /// Runs a dry run's calls in order on one thread. All plugins with short deadlines together have one such
    /// group at a time, outside of their shares, and those with long deadlines another one, unless the threads are
    /// [for dry runs](Self::for_dry_runs). A group that takes long ends early, but after at least one call, and returns
    /// the remaining jobs.
    ///
    /// A call that exceeds the deadline here does not make the plugin's active revision slow.
    pub async fn dry_run<R: Reads + 'static>(
        &self,
        plugin: Arc<Plugin>,
        mut jobs: VecDeque<Job<R>>,
    ) -> Result<DryRunResults<R>, Error> {
        let long = jobs.iter().any(|job| job.limits.has_long_deadline());
        let running_max = self.dry_runs_max;
        self.run(&Client::DryRuns { long }, running_max, long, move |_| {
            let begin = Instant::now();
            let mut called = Vec::with_capacity(jobs.len());
            while let Some(job) = jobs.pop_front() {
                match job.run(&plugin) {
                    Ok(ended) => called.push(ended),
                    // The code is mapped once for a group, so that a failure concerns all calls.
                    Err(error) => return (CallVerdict::Nothing, Err(error)),
                }
                if begin.elapsed() >= DRY_RUN_GROUP_MAX {
                    break;
                }
            }
            (
                CallVerdict::Nothing,
                Ok(DryRunResults { called, left: jobs }),
            )
        })
        .await?
    }

    async fn run<T: Send + 'static>(
        &self,
        client: &Client,
        running_max: usize,
        long: bool,
        calls: impl FnOnce(CallSpeed) -> (CallVerdict, T) + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let work = move |queue: &CallQueue, call: &RunningCall<Client>| {
            // The waiting future was dropped.
            if answer.is_closed() {
                return queue.done(call, CallVerdict::Nothing);
            }
            let (verdict, result) = calls(call.speed);
            // Before the answer: a caller that receives it and calls again must find the schedule up to date.
            queue.done(call, verdict);
            drop(answer.send(result));
        };
        self.queue.add(client, running_max, long, Box::new(work));
        answered.await.map_err(|_| Error::PoolClosed)
    }

    /// Waits until one of the threads has panicked. The host has to end then: a thread is missing, and the call of that
    /// thread still counts as running.
    pub async fn panicked(&self) -> Error {
        self.panicked.notified().await;
        Error::PoolClosed
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Each thread ends after the running call.
        self.queue.state.lock().stopped = true;
        self.queue.changed.notify_all();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a thread that runs plugins panicked");
            }
        }
    }
}

impl CallQueue {
    fn add(&self, client: &Client, running_max: usize, long: bool, work: Work) {
        let mut state = self.state.lock();
        state.schedule.add(client, running_max, long, work);
        self.wake_another(state);
    }

    fn done(&self, call: &RunningCall<Client>, verdict: CallVerdict) {
        // Wakes no thread: the one that ended this call takes the next.
        self.state.lock().schedule.done(call, verdict);
    }

    /// Runs calls until the pool is dropped.
    fn serve(&self) {
        while let Some((call, work)) = self.next() {
            work(self, &call);
        }
    }

    /// Waits for the next call that may run; returns none once the pool stops.
    fn next(&self) -> Option<(RunningCall<Client>, Work)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(next) = state.schedule.next() {
                // One notification may stand for several calls: each woken thread passes it on.
                self.wake_another(state);
                return Some(next);
            }
            state.idle += 1;
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Wakes a thread if another call may run.
    fn wake_another(&self, state: MutexGuard<'_, PoolState>) {
        let wakes = state.idle > 0 && state.schedule.has_next();
        // Released first: the woken thread should find the lock free.
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
    }
}

/// Returns what a call's outcome means for the plugin's next calls.
const fn verdict(end: &End) -> CallVerdict {
    match end {
        End::Answered(_) => CallVerdict::Prompt,
        End::Faulted(CallFault::DeadlineExceeded { .. }) => CallVerdict::Slow,
        // These may come before the part that is slow, so only an answer ends the slow state.
        End::Faulted(_) | End::GuestFault(_) | End::Parked(_) => CallVerdict::Nothing,
    }
}

/// Reports if the thread that holds it panics.
struct PanicGuard(Arc<Notify>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            // One notification is kept for a caller that waits later.
            self.0.notify_one();
        }
    }
}
