//! The threads that run guests.
//!
//! Plain threads and not those of the asynchronous runtime: a guest computes for as long as its deadline allows.
//! A plugin holds at most half of them, so that one that is slow cannot starve the others, and a single one from the
//! moment that it exceeds its deadline until it answers again.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{
    config::Guard,
    model::{Limits, Phase, PluginName, Reads},
    plugin::{CallFault, CallReport, Context, End, Error, ObservedChild, Plugin, Request},
};

type Work = Box<dyn FnOnce() + Send>;

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
    /// Why the pass runs.
    pub phase: Phase,
    /// Answers the guest's reads.
    pub reads: R,
    /// What is fixed for the pass.
    pub context: Context,
    /// What the plugin may use.
    pub limits: Arc<Limits>,
}

impl<R: Reads + 'static> Job<R> {
    fn run(self, plugin: &Plugin) -> (CallReport, R) {
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
    // None only while it is dropped.
    work: Option<mpsc::SyncSender<Work>>,
    workers: Vec<JoinHandle<()>>,
    idle: Arc<Semaphore>,
    /// Told when a thread panicked.
    died: Arc<Notify>,
    share: u32,
    shares: Mutex<BTreeMap<PluginName, Arc<Share>>>,
    rehearsals: Arc<Semaphore>,
}

/// What a turn of calls came to.
pub struct Turn<R> {
    /// What those that ran came to, in the order of their jobs.
    pub called: Vec<(CallReport, R)>,
    /// The jobs that did not run.
    pub left: VecDeque<Job<R>>,
}

/// What one plugin holds of the threads, over all its revisions.
struct Share {
    free: Arc<Semaphore>,
    /// It exceeded its deadline and has not answered since.
    slow: AtomicBool,
}

/// Held by a running call; given back on whatever way it ends.
struct Held {
    _share: OwnedSemaphorePermit,
    _thread: OwnedSemaphorePermit,
}

impl Pool {
    /// Starts the threads.
    pub fn start(threads: NonZeroUsize) -> Result<Self, Error> {
        let threads = threads.get();
        let (work, queue) = mpsc::sync_channel::<Work>(threads);
        let queue = Arc::new(Mutex::new(queue));
        let died = Arc::new(Notify::new());
        let workers = (0..threads)
            .map(|index| {
                let queue = Arc::clone(&queue);
                let obituary = Obituary(Arc::clone(&died));
                thread::Builder::new()
                    .name(format!("guests-{index}"))
                    .spawn(move || {
                        serve(&queue);
                        drop(obituary);
                    })
            })
            .collect::<Result<_, _>>()
            .map_err(|source| Error::StartThread { source })?;
        let share = if Guard::HalfOfThreads.holds() {
            (threads / 2).max(1)
        } else {
            threads
        };
        Ok(Self {
            work: Some(work),
            workers,
            idle: Arc::new(Semaphore::new(threads)),
            died,
            share: u32::try_from(share).unwrap_or(u32::MAX),
            shares: Mutex::new(BTreeMap::new()),
            rehearsals: Arc::new(Semaphore::new(1)),
        })
    }

    /// Runs one call on one of the threads, as soon as a thread and the share of the plugin that serves under `name` are
    /// free; one component may serve under several names, each with a share of its own.
    ///
    /// When the future is dropped the call still runs to its end, at most until its deadline, and its report is lost.
    /// Fails only when the pool is at its end.
    pub async fn call<R: Reads + 'static>(
        &self,
        name: &PluginName,
        plugin: Arc<Plugin>,
        job: Job<R>,
    ) -> Result<(CallReport, R), Error> {
        let share = self.share_of(name);
        let held = self.acquire(&share).await?;
        self.run(held, move || {
            let (report, reads) = job.run(&plugin);
            share.learn(&report.end);
            (report, reads)
        })
        .await
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
        let closed = |_| Error::PoolClosed;
        let turn = Arc::clone(&self.rehearsals).acquire_owned().await;
        let thread = Arc::clone(&self.idle).acquire_owned().await;
        let held = Held {
            _share: turn.map_err(closed)?,
            _thread: thread.map_err(closed)?,
        };
        self.run(held, move || {
            let begin = Instant::now();
            let mut called = Vec::with_capacity(jobs.len());
            while let Some(job) = jobs.pop_front() {
                called.push(job.run(&plugin));
                if begin.elapsed() >= TURN_MAX {
                    break;
                }
            }
            Turn { called, left: jobs }
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        held: Held,
        calls: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let work = move || {
            let said = calls();
            drop(held);
            // Nobody listens when the caller has gone: then nobody needs it.
            drop(answer.send(said));
        };
        self.work
            .as_ref()
            .and_then(|queue| queue.try_send(Box::new(work)).ok())
            .ok_or(Error::PoolClosed)?;
        answered.await.map_err(|_| Error::PoolClosed)
    }

    /// Waits until one of the threads has panicked, which is an error of the host: with one thread less, or with the
    /// call that it left behind, nothing is certain any more.
    pub async fn died(&self) -> Error {
        self.died.notified().await;
        Error::PoolClosed
    }

    fn share_of(&self, plugin: &PluginName) -> Arc<Share> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(plugin) {
            return Arc::clone(share);
        }
        // Those that nobody uses remember nothing but slowness, which a plugin that is gone need not keep.
        shares.retain(|_, share| Arc::strong_count(share) > 1 || share.is_slow());
        let free = usize::try_from(self.share).unwrap_or(Semaphore::MAX_PERMITS);
        let share = Arc::new(Share {
            free: Arc::new(Semaphore::new(free)),
            slow: AtomicBool::new(false),
        });
        shares.insert(plugin.clone(), Arc::clone(&share));
        share
    }

    /// The share first: a plugin that waits for its own must not hold a thread meanwhile.
    async fn acquire(&self, share: &Arc<Share>) -> Result<Held, Error> {
        loop {
            let slow = share.is_slow();
            // A slow plugin's call takes its whole share, so that it runs alone.
            let permits = if slow { self.share } else { 1 };
            let held = Arc::clone(&share.free)
                .acquire_many_owned(permits)
                .await
                .map_err(|_| Error::PoolClosed)?;
            let thread = Arc::clone(&self.idle)
                .acquire_owned()
                .await
                .map_err(|_| Error::PoolClosed)?;
            // It may have become slow while this call waited.
            if slow || !share.is_slow() {
                return Ok(Held {
                    _share: held,
                    _thread: thread,
                });
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Without a sender the threads end after their call.
        drop(self.work.take());
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a thread that runs plugins panicked");
            }
        }
    }
}

impl Share {
    fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    fn learn(&self, end: &End) {
        match end {
            End::Answered(_) => self.slow.store(false, Ordering::Relaxed),
            End::Faulted(CallFault::DeadlineExceeded { .. }) => {
                self.slow.store(true, Ordering::Relaxed);
            }
            End::Faulted(_) | End::GuestFault(_) | End::Parked(_) => {}
        }
    }
}

/// Tells of a thread that panics.
struct Obituary(Arc<Notify>);

impl Drop for Obituary {
    fn drop(&mut self) {
        if thread::panicking() {
            // Kept for whoever asks later.
            self.0.notify_one();
        }
    }
}

fn serve(queue: &Mutex<mpsc::Receiver<Work>>) {
    loop {
        // The lock is held while waiting: one thread waits for work, the others for their turn.
        let work = queue.lock().recv();
        match work {
            Ok(work) => work(),
            Err(mpsc::RecvError) => break,
        }
    }
}
