//! The threads that run guests.
//!
//! Plain threads and not those of the asynchronous runtime: a guest computes for as long as its deadline allows.
//! A plugin holds at most half of them, so that one that is slow cannot starve the others, and a single one from the
//! moment that it exceeds its deadline until it answers again.

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

use super::schedule::{Learned, Schedule};
use crate::{CallFault, CallReport, Context, End, Error, ObservedChild, Plugin, Request};

/// How long calls that only try something out keep a thread, and the call that runs then comes to its end.
///
/// Many calls of the usual length, because it takes about as long as one of them to hand a thread over; far less than a
/// deadline, because passes wait for the thread.
const TURN_MAX: Duration = Duration::from_millis(5);

/// One call, owned, so that it can go to another thread.
#[derive(Clone, Debug)]
pub struct Job<R> {
    /// The parent as guests see it.
    pub parent: Arc<str>,
    /// All its children, sorted by kind, namespace and name.
    pub children: Vec<ObservedChild>,
    /// The reason for the pass.
    pub phase: Phase,
    /// Answers the guest's reads.
    pub reads: R,
    /// The clock and the seed of the pass.
    pub context: Context,
    /// The limits of the plugin.
    pub limits: Arc<Limits>,
}

impl<R: Reads + 'static> Job<R> {
    fn run(self, plugin: &Plugin) -> Result<(CallReport, R), Error> {
        let request = Request {
            parent: &self.parent,
            children: &self.children,
            phase: self.phase,
        };
        plugin.call(&request, self.reads, &self.context, &self.limits)
    }
}

/// The threads that run guests; joined when it is dropped, which waits for the calls that run.
pub struct Pool {
    desk: Arc<Desk>,
    workers: Vec<JoinHandle<()>>,
    /// Told when a thread panicked.
    died: Arc<Notify>,
    /// The number of threads that a plugin may have at a time.
    share: usize,
}

/// The place from which threads fetch their work.
///
/// A free thread looks for its next call itself, so that no other thread has to be woken between two calls.
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    schedule: Schedule<Client, Work>,
    /// Threads that wait.
    idle: usize,
    stopped: bool,
}

/// The owner of calls that share threads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Client {
    /// A plugin, over all its revisions.
    Plugin(PluginName),
    /// All that is only tried out.
    Rehearsals,
}

/// Runs calls, reports their end at the desk, and sends their results to the future that waits for them.
type Work = Box<dyn FnOnce(&Desk, &Client) + Send>;

/// The results of a turn of calls.
pub struct Turn<R> {
    /// The results of the jobs that ran, in the order of the jobs.
    pub called: Vec<(CallReport, R)>,
    /// The jobs that did not run.
    pub left: VecDeque<Job<R>>,
}

impl Pool {
    /// Starts the threads.
    pub fn start(threads: NonZeroUsize) -> Result<Self, Error> {
        let threads = threads.get();
        let desk = Arc::new(Desk {
            state: Mutex::new(State {
                schedule: Schedule::new(),
                idle: 0,
                stopped: false,
            }),
            changed: Condvar::new(),
        });
        let died = Arc::new(Notify::new());
        let workers = (0..threads)
            .map(|index| {
                let desk = Arc::clone(&desk);
                let obituary = Obituary(Arc::clone(&died));
                thread::Builder::new()
                    .name(format!("guests-{index}"))
                    .spawn(move || {
                        desk.serve();
                        drop(obituary);
                    })
            })
            .collect::<Result<_, _>>()
            .map_err(|source| Error::StartThread { source })?;
        let share = (threads / 2).max(1);
        Ok(Self {
            desk,
            workers,
            died,
            share,
        })
    }

    /// Runs one call on one of the threads, as soon as a thread and the share of the plugin that serves under `name` are
    /// free; one component may serve under several names, each with a share of its own.
    ///
    /// When the future is dropped, a call that has begun still runs to its end, at most until its deadline, and its
    /// report is lost.
    /// Fails if the pool is at its end, or if the host cannot map the code of the plugin again; neither is a fault of the
    /// guest.
    pub async fn call<R: Reads + 'static>(
        &self,
        name: &PluginName,
        plugin: Arc<Plugin>,
        job: Job<R>,
    ) -> Result<(CallReport, R), Error> {
        let client = Client::Plugin(name.clone());
        self.run(&client, self.share, move || {
            let called = job.run(&plugin);
            let learned = called
                .as_ref()
                .map_or(Learned::Nothing, |(report, _)| learned(&report.end));
            (learned, called)
        })
        .await?
    }

    /// Runs calls that only try something out, in their order, on one thread: one such turn at a time of all plugins, on
    /// nobody's share. A turn that takes long ends early, but with one call at least, and leaves the rest of the jobs.
    ///
    /// Whether they exceed their deadline is no matter of the plugin that serves.
    pub async fn rehearse<R: Reads + 'static>(
        &self,
        plugin: Arc<Plugin>,
        mut jobs: VecDeque<Job<R>>,
    ) -> Result<Turn<R>, Error> {
        self.run(&Client::Rehearsals, 1, move || {
            let begin = Instant::now();
            let mut called = Vec::with_capacity(jobs.len());
            while let Some(job) = jobs.pop_front() {
                match job.run(&plugin) {
                    Ok(ended) => called.push(ended),
                    // The code is mapped once for all calls of a turn, so that a failure concerns all of them.
                    Err(error) => return (Learned::Nothing, Err(error)),
                }
                if begin.elapsed() >= TURN_MAX {
                    break;
                }
            }
            (Learned::Nothing, Ok(Turn { called, left: jobs }))
        })
        .await?
    }

    async fn run<T: Send + 'static>(
        &self,
        client: &Client,
        running_max: usize,
        calls: impl FnOnce() -> (Learned, T) + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let work = move |desk: &Desk, client: &Client| {
            // The future that waited for it was dropped.
            if answer.is_closed() {
                return desk.done(client, Learned::Nothing);
            }
            let (learned, said) = calls();
            // Before the answer: a caller that gets it and calls again finds the schedule up to date.
            desk.done(client, learned);
            drop(answer.send(said));
        };
        self.desk.add(client, running_max, Box::new(work));
        answered.await.map_err(|_| Error::PoolClosed)
    }

    /// Waits until one of the threads has panicked, which is an error of the host: with one thread less, or with the
    /// call that it left behind, nothing is certain any more.
    pub async fn died(&self) -> Error {
        self.died.notified().await;
        Error::PoolClosed
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The threads end after their call.
        self.desk.state.lock().stopped = true;
        self.desk.changed.notify_all();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a thread that runs plugins panicked");
            }
        }
    }
}

impl Desk {
    fn add(&self, client: &Client, running_max: usize, work: Work) {
        let mut state = self.state.lock();
        state.schedule.add(client, running_max, work);
        self.wake_another(state);
    }

    fn done(&self, client: &Client, learned: Learned) {
        self.state.lock().schedule.done(client, learned);
    }

    /// Runs calls until the pool is at its end.
    fn serve(&self) {
        while let Some((client, work)) = self.next() {
            work(self, &client);
        }
    }

    /// Waits for a call that may run.
    fn next(&self) -> Option<(Client, Work)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(next) = state.schedule.next() {
                self.wake_another(state);
                return Some(next);
            }
            state.idle += 1;
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Wakes a thread if there is a call for it.
    fn wake_another(&self, state: MutexGuard<'_, State>) {
        let wakes = state.idle > 0 && state.schedule.has_next();
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
    }
}

/// Returns the expectation for the next calls of the plugin after a call that ended so.
const fn learned(end: &End) -> Learned {
    match end {
        End::Answered(_) => Learned::Prompt,
        End::Faulted(CallFault::DeadlineExceeded { .. }) => Learned::Slow,
        End::Faulted(_) | End::GuestFault(_) | End::Parked(_) => Learned::Nothing,
    }
}

/// Tells of a thread that panics.
struct Obituary(Arc<Notify>);

impl Drop for Obituary {
    fn drop(&mut self) {
        if thread::panicking() {
            // Kept for a caller that asks later.
            self.0.notify_one();
        }
    }
}
