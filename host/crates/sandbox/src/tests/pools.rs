//! How plugins share the threads.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures::future::Either;
use innkeeper_model::{PluginName, SHORT_DEADLINE_MAX};

use super::*;
use crate::testing::{Description, guest};

/// A guest that reads once, so that a call can be held there.
const READING: &str =
    "(call $get {0} {1} (i32.const 0) (i32.const 0) (i32.const 0) {1} (i32.const 16))";

/// How many calls are in their read, now and at most.
#[derive(Debug, Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    /// Counts a call for as long as `stay` runs, which gets the maximum.
    fn count(&self, stay: impl FnOnce(&AtomicUsize)) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        stay(&self.most);
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Stays in the read for a while.
struct SlowReads(Arc<Gauge>);

impl Reads for SlowReads {
    fn get(&mut self, _: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        self.0
            .count(|_| std::thread::sleep(Duration::from_millis(20)));
        Ok(None)
    }

    fn list(&mut self, _: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        Ok(Vec::new())
    }
}

/// Stays in the read until this many calls are in one, or five seconds, and then for a while, in which more could come.
struct MeetingReads(Arc<Gauge>, usize);

impl Reads for MeetingReads {
    fn get(&mut self, _: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        let begin = Instant::now();
        self.0.count(|most| {
            while most.load(Ordering::SeqCst) < self.1 && begin.elapsed().as_secs() < 5 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
        });
        Ok(None)
    }

    fn list(&mut self, _: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        Ok(Vec::new())
    }
}

fn named(name: &str, instructions: &str) -> Arc<Plugin> {
    named_in(&ENGINE, name, instructions)
}

fn named_in(engine: &Engine, name: &str, instructions: &str) -> Arc<Plugin> {
    let description = Description {
        name: name.to_owned(),
        ..Description::default()
    };
    let guest = guest()
        .describing(description)
        .doing(instructions, &["v1", "Secret"]);
    Arc::new(plugin_of(engine, guest))
}

fn job<R>(reads: R, deadline: Duration) -> Job<R> {
    Job {
        parent: Arc::from("{}"),
        children: Vec::new(),
        phase: Phase::Reconcile,
        namespace_terminating: false,
        predict: false,
        reads,
        context: CONTEXT,
        limits: Arc::new(Limits {
            deadline,
            ..Limits::default()
        }),
    }
}

/// Calls a plugin under the name that it gives itself.
async fn call<R: Reads + 'static>(
    pool: &Pool,
    plugin: &Arc<Plugin>,
    job: Job<R>,
) -> Result<(CallReport, R), Error> {
    let name = &plugin.manifest().name;
    pool.call(name, Arc::clone(plugin), job).await
}

fn pool(threads: usize) -> Pool {
    Pool::start(NonZeroUsize::new(threads).unwrap()).unwrap()
}

#[tokio::test]
async fn a_plugin_holds_at_most_half_of_the_threads() {
    let pool = pool(4);
    let one = named("one", READING);
    let two = named("two", READING);
    let gauges = [Arc::new(Gauge::default()), Arc::new(Gauge::default())];
    let calls = (0..24).map(|index| {
        let plugin = if index % 2 == 0 { &one } else { &two };
        let reads = MeetingReads(Arc::clone(&gauges[index % 2]), 2);
        call(&pool, plugin, job(reads, SHORT_DEADLINE_MAX))
    });
    for ended in futures::future::join_all(calls).await {
        let (report, _) = ended.unwrap();
        assert!(matches!(report.end, End::Answered(_)), "{:?}", report.end);
    }
    for gauge in gauges {
        assert_eq!(gauge.most.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn a_plugin_alone_holds_half_of_the_threads() {
    let pool = pool(4);
    let plugin = named("one", READING);
    let gauge = Arc::new(Gauge::default());
    let calls = (0..8).map(|_| {
        let reads = MeetingReads(Arc::clone(&gauge), 2);
        call(&pool, &plugin, job(reads, SHORT_DEADLINE_MAX))
    });
    futures::future::join_all(calls).await;
    assert_eq!(gauge.most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn one_component_under_two_names_has_two_shares() {
    let pool = pool(4);
    let plugin = named("one", READING);
    let gauge = Arc::new(Gauge::default());
    let names = ["east", "west"].map(|name| PluginName::new(name).unwrap());
    let calls = (0..24).map(|index| {
        let job = job(MeetingReads(Arc::clone(&gauge), 3), SHORT_DEADLINE_MAX);
        pool.call(&names[index % 2], Arc::clone(&plugin), job)
    });
    for ended in futures::future::join_all(calls).await {
        assert!(ended.is_ok());
    }
    // One share is two threads.
    assert!(gauge.most.load(Ordering::SeqCst) > 2);
}

#[tokio::test]
async fn a_pool_of_one_thread_serves_everybody() {
    let pool = pool(1);
    let one = named("one", READING);
    let two = named("two", READING);
    for plugin in [&one, &two, &one] {
        let reads = SlowReads(Arc::default());
        let job = job(reads, SHORT_DEADLINE_MAX);
        let (report, _) = call(&pool, plugin, job).await.unwrap();
        assert!(matches!(report.end, End::Answered(_)), "{:?}", report.end);
    }
}

#[tokio::test]
async fn after_a_deadline_a_plugin_runs_alone_until_it_answers() {
    // Loops in phase finalize, else reads.
    let instructions = format!("(loop $again (br_if $again (local.get $phase))) {READING}");
    let pool = pool(4);
    let plugin = named("slow", &instructions);
    let looping = Job {
        phase: Phase::Finalize,
        ..job(SlowReads(Arc::default()), Duration::from_millis(10))
    };
    let (report, _) = call(&pool, &plugin, looping).await.unwrap();
    assert!(
        matches!(report.end, End::Faulted(CallFault::DeadlineExceeded { .. })),
        "{:?}",
        report.end
    );
    let gauge = Arc::new(Gauge::default());
    let most = async |calls: usize| {
        let reads = || SlowReads(Arc::clone(&gauge));
        let calls = (0..calls).map(|_| call(&pool, &plugin, job(reads(), SHORT_DEADLINE_MAX)));
        futures::future::join_all(calls).await;
        gauge.most.swap(0, Ordering::SeqCst)
    };
    assert_eq!(
        most(2).await,
        1,
        "the first one alone, and then there is one more"
    );
    assert_eq!(most(6).await, 2);
}

#[tokio::test]
async fn a_looping_plugin_does_not_starve_another() {
    let pool = pool(2);
    let looping = named("looping", "(loop $again (br $again))");
    let fine = named("fine", "");
    let loops = (0..8).map(|_| {
        let reads = FakeReads::default();
        call(&pool, &looping, job(reads, Duration::from_millis(100)))
    });
    let looped = std::pin::pin!(futures::future::join_all(loops));
    let served = std::pin::pin!(async {
        for _ in 0..20 {
            let job = job(FakeReads::default(), SHORT_DEADLINE_MAX);
            let (report, _) = call(&pool, &fine, job).await.unwrap();
            assert!(matches!(report.end, End::Answered(_)), "{:?}", report.end);
        }
    });
    // The loops begin first, and need a thread for most of a second.
    match futures::future::select(looped, served).await {
        Either::Left(_) => panic!("the loops ended before the others were served"),
        Either::Right(((), looped)) => {
            assert!(looped.await.iter().all(Result::is_ok));
        }
    }
}

/// Q4: three plugins that spin ask for all threads and for this much memory at once. Each of them has several calls, so
/// that a thread which ends one finds the next.
async fn check_neighbour_is_served(engine: &Engine, threads: usize, memory_bytes_max: usize) {
    let deadline = SHORT_DEADLINE_MAX + Duration::from_millis(1);
    let job = |deadline, memory_bytes_max| Job {
        limits: Arc::new(Limits {
            deadline,
            memory_bytes_max,
            ..Limits::default()
        }),
        ..job(FakeReads::default(), deadline)
    };
    let pool = pool(threads);
    let spinning =
        ["one", "two", "three"].map(|name| named_in(engine, name, "(loop $again (br $again))"));
    let fine = named_in(engine, "fine", "");
    let loops = (0..9).map(|turn| {
        let job = job(deadline, memory_bytes_max);
        call(&pool, &spinning[turn % 3], job)
    });
    let looped = std::pin::pin!(futures::future::select_all(loops.map(Box::pin)));
    let served = std::pin::pin!(async {
        for turn in 1..=20 {
            // From a twentieth to all.
            let job = job(SHORT_DEADLINE_MAX, memory_bytes_max / 20 * turn);
            let (report, _) = call(&pool, &fine, job).await.unwrap();
            assert!(matches!(report.end, End::Answered(_)), "{:?}", report.end);
            assert_eq!(report.speed, CallSpeed::Prompt);
        }
    });
    match futures::future::select(looped, served).await {
        Either::Left(_) => panic!("the others were served only after a long deadline: {threads}"),
        Either::Right(((), looped)) => {
            let (first, ..) = looped.await;
            assert_eq!(first.unwrap().0.speed, CallSpeed::Slow);
        }
    }
}

#[tokio::test]
async fn plugins_with_long_deadlines_leave_a_thread_to_the_others() {
    for threads in 2..=4 {
        check_neighbour_is_served(&ENGINE, threads, Limits::default().memory_bytes_max).await;
    }
}

#[tokio::test]
async fn plugins_with_long_deadlines_leave_memory_to_the_others() {
    // As much as one call asks for; a twentieth is enough for the guest.
    const ALL: usize = 20 << 20;

    let settings = EngineSettings {
        memory_together_bytes_max: Some(ALL),
        ..EngineSettings::new(4.try_into().unwrap())
    };
    let engine = Engine::new(&settings).unwrap();
    for threads in 2..=4 {
        check_neighbour_is_served(&engine, threads, ALL).await;
    }
}

#[tokio::test]
async fn what_is_tried_out_takes_one_thread_and_makes_nobody_slow() {
    let pool = pool(4);
    let plugin = named("tried", READING);
    let gauge = Arc::new(Gauge::default());
    let reads = || SlowReads(Arc::clone(&gauge));
    let calls = (0..6).map(|_| {
        pool.dry_run(
            Arc::clone(&plugin),
            VecDeque::from([job(reads(), SHORT_DEADLINE_MAX)]),
        )
    });
    futures::future::join_all(calls).await;
    assert_eq!(gauge.most.swap(0, Ordering::SeqCst), 1);

    let looping = named("tried", "(loop $again (br $again))");
    let job_of = |reads| job(reads, Duration::from_millis(10));
    let jobs = (0..3).map(|_| job_of(FakeReads::default()));
    let turn = pool.dry_run(looping, jobs.collect()).await.unwrap();
    let (report, _) = &turn.called[0];
    assert!(matches!(report.end, End::Faulted(_)), "{:?}", report.end);
    let called = turn.called.len();
    let remaining = turn.left.len();
    assert_eq!((called, remaining), (1, 2), "others may want the thread");
    let calls = (0..6).map(|_| call(&pool, &plugin, job(reads(), SHORT_DEADLINE_MAX)));
    futures::future::join_all(calls).await;
    assert_eq!(
        gauge.most.load(Ordering::SeqCst),
        2,
        "its share is as it was"
    );
}

#[tokio::test]
async fn without_passes_dry_runs_take_all_threads() {
    let pool = pool(4).for_dry_runs();
    let plugin = named("tried", READING);
    let gauge = Arc::new(Gauge::default());
    let calls = (0..8).map(|_| {
        let job = job(MeetingReads(Arc::clone(&gauge), 4), SHORT_DEADLINE_MAX);
        pool.dry_run(Arc::clone(&plugin), VecDeque::from([job]))
    });
    futures::future::join_all(calls).await;
    assert_eq!(gauge.most.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_dry_run_with_a_short_deadline_does_not_wait_for_one_with_a_long_deadline() {
    let pool = pool(2);
    let looping = named("looping", "(loop $again (br $again))");
    let jobs = |deadline| VecDeque::from([job(FakeReads::default(), deadline)]);
    let long = pool.dry_run(looping, jobs(SHORT_DEADLINE_MAX * 2));
    let short = pool.dry_run(named("fine", ""), jobs(SHORT_DEADLINE_MAX));
    let long = std::pin::pin!(long);
    let short = std::pin::pin!(short);
    match futures::future::select(long, short).await {
        Either::Left(_) => panic!("the long one ended first"),
        Either::Right((ended, _)) => assert_eq!(ended.unwrap().called.len(), 1),
    }
}

#[tokio::test]
async fn a_dropped_call_gives_its_thread_back() {
    let pool = pool(1);
    let plugin = named("fine", READING);
    for _ in 0..3 {
        let reads = SlowReads(Arc::default());
        let call = call(&pool, &plugin, job(reads, SHORT_DEADLINE_MAX));
        // Polled once, so that the call runs, and then dropped.
        tokio::select! {
            biased;
            _ = call => {}
            () = std::future::ready(()) => {}
        }
    }
    let job = job(FakeReads::default(), SHORT_DEADLINE_MAX);
    let (report, _) = call(&pool, &plugin, job).await.unwrap();
    assert!(matches!(report.end, End::Answered(_)), "{:?}", report.end);
}

fn break_down() -> ! {
    panic!("on purpose")
}

/// Breaks a host invariant.
struct PanickingReads;

impl Reads for PanickingReads {
    fn get(&mut self, _: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        break_down()
    }

    fn list(&mut self, _: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_thread_that_panics_is_told() {
    let pool = pool(2);
    let alive = tokio::time::timeout(Duration::from_millis(10), pool.panicked()).await;
    assert!(alive.is_err());
    let job = job(PanickingReads, SHORT_DEADLINE_MAX);
    let result = call(&pool, &named("one", READING), job).await;
    assert!(matches!(result, Err(Error::PoolClosed)));
    let died = tokio::time::timeout(Duration::from_secs(10), pool.panicked()).await;
    assert!(matches!(died, Ok(Error::PoolClosed)));
}
