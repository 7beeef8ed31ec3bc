//! The controller with passes that only record that they ran, in real time.

mod swapping;

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use innkeeper_metrics::Metrics;
use innkeeper_model::GroupKind;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::timeout};

use super::*;

/// Long enough for a busy machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Fake {
    triggers: Mutex<Vec<(ObjectId, Class)>>,
    triggered: Notify,
    /// The results of the next passes, by name; `Settled` once the list is empty.
    answers: Mutex<BTreeMap<String, Vec<Next>>>,
    running: Mutex<Vec<String>>,
    ran: Mutex<Vec<(String, Instant)>>,
    /// Passes wait for this if `held`.
    release: Notify,
    held: bool,
    start: OnceLock<Instant>,
    /// The time that the machine has slept.
    slept: Mutex<Duration>,
}

impl Fake {
    fn trigger(&self, name: &str, class: Class) {
        self.triggers.lock().push((parent(name), class));
        self.triggered.notify_one();
    }

    fn runs(&self) -> Vec<String> {
        self.ran
            .lock()
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    }

    async fn until(&self, done: impl Fn(&Self) -> bool) {
        let poll = async {
            while !done(self) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, poll)
            .await
            .expect("should happen in time");
    }
}

impl Work for Fake {
    async fn triggers(&self) -> Vec<Triggered> {
        loop {
            let taken = std::mem::take(&mut *self.triggers.lock());
            if !taken.is_empty() {
                let triggered = |(parent, class)| Triggered::now(parent, class);
                return taken.into_iter().map(triggered).collect();
            }
            self.triggered.notified().await;
        }
    }

    async fn pass(&self, parent: ObjectId, _: Attempt) -> Next {
        let name = parent.name.to_string();
        {
            let mut running = self.running.lock();
            assert!(
                !running.contains(&name),
                "{name} should have one pass at a time"
            );
            running.push(name.clone());
        }
        self.ran.lock().push((name.clone(), Instant::now()));
        if self.held {
            self.release.notified().await;
        }
        self.running.lock().retain(|other| *other != name);
        let mut answers = self.answers.lock();
        match answers.get_mut(&name) {
            Some(left) if !left.is_empty() => left.remove(0),
            _ => Next::Settled,
        }
    }

    fn resync(&self) {
        self.trigger("a", Class::Initial);
    }

    fn now(&self) -> Duration {
        self.start.get_or_init(Instant::now).elapsed() + *self.slept.lock()
    }
}

fn parent(name: &str) -> ObjectId {
    ObjectId::new(GroupKind::new("example.com", "Thing"), Some("demo"), name)
}

fn bounds(permits: usize) -> Bounds {
    Bounds {
        permits: Arc::new(Semaphore::new(permits)),
        passes_per_second_max: 10_000,
        resync_period: None,
        seed: 0,
    }
}

/// Observers that do nothing.
fn telemetry() -> LoopTelemetry {
    LoopTelemetry {
        metrics: Metrics::new().controller("example/thing", 1),
        heartbeat: Box::new(|| {}),
    }
}

/// Runs a controller beside the test and stops it at the end of the test.
async fn with_controller<F: Future<Output = ()>>(fake: &Arc<Fake>, permits: usize, test: F) {
    with_bounds(fake, bounds(permits), test).await;
}

async fn with_bounds<F: Future<Output = ()>>(fake: &Arc<Fake>, bounds: Bounds, test: F) {
    let stop = CancellationToken::new();
    let running = run(Arc::clone(fake), bounds, telemetry(), stop.clone());
    let test = async {
        test.await;
        stop.cancel();
    };
    let both = async { tokio::join!(running, test) };
    let (ended, ()) = timeout(PATIENCE, both).await.expect("should end in time");
    ended.unwrap();
}

#[tokio::test]
async fn runs_triggered_passes() {
    let fake = Arc::new(Fake::default());
    with_controller(&fake, 2, async {
        fake.trigger("a", Class::User);
        fake.until(|fake| fake.runs() == ["a"]).await;
        fake.trigger("a", Class::Child);
        fake.until(|fake| fake.runs() == ["a", "a"]).await;
    })
    .await;
}

/// A timer waits at least for its next millisecond, which is longer than most passes. Without timers, these passes take
/// less than half of that on average.
#[tokio::test]
async fn a_queued_pass_waits_for_no_timer() {
    const PARENTS: u16 = 1000;
    const TIMER: Duration = Duration::from_millis(1);

    let fake = Arc::new(Fake::default());
    with_controller(&fake, 1, async {
        for number in 0..PARENTS {
            fake.trigger(&format!("p{number}"), Class::User);
        }
        fake.until(|fake| fake.ran.lock().len() == usize::from(PARENTS))
            .await;
    })
    .await;

    let ran = fake.ran.lock();
    let took = ran[ran.len() - 1].1 - ran[0].1;
    assert!(took < u32::from(PARENTS) * TIMER / 2, "{took:?}");
}

#[tokio::test]
async fn retries_and_requeues_are_in_time() {
    let fake = Arc::new(Fake::default());
    let requeue = Duration::from_millis(300);
    let answers = vec![Next::Backoff, Next::RequeueAfter(requeue)];
    fake.answers.lock().insert("a".to_owned(), answers);
    with_controller(&fake, 1, async {
        fake.trigger("a", Class::User);
        fake.until(|fake| fake.runs().len() == 3).await;
    })
    .await;
    let times: Vec<_> = fake.ran.lock().iter().map(|(_, at)| *at).collect();
    assert!(times[1] - times[0] >= queue::BACKOFF_MIN);
    let waited = times[2] - times[1];
    assert!(
        waited >= requeue && waited < requeue + Duration::from_secs(1),
        "{waited:?}"
    );
}

/// No drift: the sleep of the machine delays no requeue and no resync.
#[tokio::test]
async fn a_requeue_that_came_due_during_sleep_runs_after_it() {
    let fake = Arc::new(Fake::default());
    let answers = vec![Next::RequeueAfter(Duration::from_hours(1))];
    fake.answers.lock().insert("a".to_owned(), answers);
    with_controller(&fake, 1, async {
        fake.trigger("a", Class::User);
        fake.until(|fake| fake.runs().len() == 1).await;
        *fake.slept.lock() += Duration::from_mins(59);
        sleep(HEARTBEAT_EVERY + Duration::from_secs(1)).await;
        assert_eq!(
            fake.runs().len(),
            1,
            "a pass should not run before it is due"
        );
        *fake.slept.lock() += Duration::from_mins(1);
        fake.until(|fake| fake.runs().len() == 2).await;
    })
    .await;
}

#[tokio::test]
async fn every_parent_is_queued_again_after_the_resync_period() {
    let fake = Arc::new(Fake::default());
    let stop = CancellationToken::new();
    let bounds = Bounds {
        resync_period: Some(Duration::from_hours(10)),
        ..bounds(1)
    };
    let running = run(Arc::clone(&fake), bounds, telemetry(), stop.clone());
    let test = async {
        for resyncs in 1..=2 {
            *fake.slept.lock() += Duration::from_hours(11);
            fake.until(|fake| fake.runs().len() == resyncs).await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(running, test) };
    let (ended, ()) = timeout(PATIENCE, both).await.expect("should end in time");
    ended.unwrap();
}

#[tokio::test]
async fn never_runs_more_passes_than_it_has_permits() {
    let fake = Arc::new(Fake {
        held: true,
        ..Fake::default()
    });
    with_controller(&fake, 2, async {
        for name in ["a", "b", "c"] {
            fake.trigger(name, Class::User);
        }
        fake.until(|fake| fake.running.lock().len() == 2).await;
        assert_eq!(fake.runs(), ["a", "b"]);
        fake.release.notify_one();
        fake.until(|fake| fake.runs() == ["a", "b", "c"]).await;
        fake.release.notify_one();
        fake.release.notify_one();
        fake.until(|fake| {
            fake.release.notify_one();
            fake.running.lock().is_empty()
        })
        .await;
    })
    .await;
}

/// L3: running passes end normally after a stop, and queued ones do not begin.
#[tokio::test]
async fn finishes_running_passes_and_begins_none_after_a_stop() {
    let fake = Arc::new(Fake {
        held: true,
        ..Fake::default()
    });
    let stop = CancellationToken::new();
    let running = run(Arc::clone(&fake), bounds(1), telemetry(), stop.clone());
    let test = async {
        fake.trigger("a", Class::User);
        fake.trigger("b", Class::User);
        fake.until(|fake| fake.runs() == ["a"]).await;
        stop.cancel();
        tokio::task::yield_now().await;
        fake.release.notify_one();
    };
    let both = async { tokio::join!(running, test) };
    let (ended, ()) = timeout(PATIENCE, both).await.unwrap();
    ended.unwrap();
    assert_eq!(fake.runs(), ["a"]);
    assert!(fake.running.lock().is_empty());
}

#[tokio::test]
async fn begins_a_second_of_passes_at_once_and_then_one_per_interval() {
    const INTERVAL: Duration = Duration::from_millis(100);

    let limited = Bounds {
        passes_per_second_max: 10,
        ..bounds(20)
    };
    let fake = Arc::new(Fake::default());
    let begin = Instant::now();
    with_bounds(&fake, limited, async {
        for number in 0..12 {
            fake.trigger(&format!("p{number}"), Class::User);
        }
        fake.until(|fake| fake.ran.lock().len() == 12).await;
    })
    .await;

    let ran = fake.ran.lock();
    let since_begin = |pass: usize| ran[pass].1 - begin;
    assert!(since_begin(9) < 9 * INTERVAL, "{:?}", since_begin(9));
    assert!(since_begin(10) >= INTERVAL, "{:?}", since_begin(10));
    assert!(since_begin(11) >= 2 * INTERVAL, "{:?}", since_begin(11));
}

#[tokio::test]
async fn passes_are_counted_by_result_and_each_turn_is_a_heartbeat() {
    let metrics = Metrics::new();
    let beats = Arc::new(AtomicUsize::new(0));
    let turns = Arc::clone(&beats);
    let telemetry = LoopTelemetry {
        metrics: metrics.controller("example/thing", 1),
        heartbeat: Box::new(move || {
            turns.fetch_add(1, Ordering::Relaxed);
        }),
    };
    let fake = Arc::new(Fake::default());
    let answers = vec![Next::Backoff, Next::RequeueAfter(Duration::from_hours(1))];
    fake.answers.lock().insert("a".to_owned(), answers);
    let stop = CancellationToken::new();
    let running = run(Arc::clone(&fake), bounds(1), telemetry, stop.clone());
    let test = async {
        fake.trigger("a", Class::User);
        fake.until(|fake| fake.runs().len() == 2).await;
        fake.trigger("b", Class::User);
        fake.until(|fake| fake.runs().len() == 3).await;
        stop.cancel();
    };
    let (ended, ()) = timeout(PATIENCE, async { tokio::join!(running, test) })
        .await
        .unwrap();
    ended.unwrap();
    let counted = metrics.encode().unwrap();
    for line in [
        "controller_runtime_reconcile_total{controller=\"example/thing\",result=\"success\"} 1",
        "controller_runtime_reconcile_total{controller=\"example/thing\",result=\"requeue_after\"} 1",
        "controller_runtime_reconcile_total{controller=\"example/thing\",result=\"error\"} 1",
        "controller_runtime_active_workers{controller=\"example/thing\"} 0",
        "workqueue_adds_total{name=\"example/thing\"} 2",
        "workqueue_depth{name=\"example/thing\"} 0",
        "workqueue_queue_duration_seconds_count{name=\"example/thing\"} 3",
    ] {
        assert!(
            counted.lines().any(|found| found == line),
            "{line}\n{counted}"
        );
    }
    // At least one turn for each trigger and for each end of a pass.
    assert!(beats.load(Ordering::Relaxed) >= 4);
    // The stopped controller has dropped its heartbeat.
    assert_eq!(Arc::strong_count(&beats), 1);
}
