//! The queue in virtual time, and compared with a reference model.

#![expect(
    clippy::unchecked_time_subtraction,
    reason = "a test that subtracts too much should panic"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a queue in which a key may name a namespace, as in `demo/a`.
fn queue() -> Queue<&'static str> {
    let namespace = |key: &&str| Some(key.split_once('/')?.0.into());
    Queue::new(0, namespace)
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Runs all passes that are due, each with success, and returns the keys in their order.
fn drain(queue: &mut Queue<&'static str>, now: Duration) -> Vec<&'static str> {
    let mut keys = Vec::new();
    while let Some(ticket) = queue.pop(now) {
        queue.done(&ticket.key, Next::Settled, now);
        keys.push(ticket.key);
    }
    keys
}

#[test]
fn many_triggers_make_one_pass() {
    let mut queue = queue();
    for class in [Class::Initial, Class::Child, Class::User, Class::Child] {
        queue.trigger("a", class, at(0));
    }
    assert_eq!(drain(&mut queue, at(0)), ["a"]);
}

#[test]
fn triggers_during_a_pass_are_exactly_one_more() {
    let mut queue = queue();
    queue.trigger("a", Class::User, at(0));
    let ticket = queue.pop(at(0)).unwrap();
    for _ in 0..5 {
        queue.trigger("a", Class::Child, at(0));
    }
    assert_eq!(
        queue.pop(at(0)),
        None,
        "a key should have one pass at a time"
    );
    queue.done(&ticket.key, Next::Settled, at(0));
    assert_eq!(drain(&mut queue, at(0)), ["a"]);
    assert_eq!(queue.next_due(), None);
}

#[test]
fn edits_go_before_children_retries_and_the_first_list() {
    let mut queue = queue();
    queue.trigger("listed", Class::Initial, at(10));
    queue.trigger("retried", Class::Retry, at(10));
    queue.trigger("child-1", Class::Child, at(10));
    queue.trigger("child-2", Class::Child, at(10));
    queue.trigger("edited", Class::User, at(10));
    assert_eq!(
        drain(&mut queue, at(10)),
        ["edited", "child-1", "child-2", "retried", "listed"]
    );
}

#[test]
fn a_key_that_has_waited_long_goes_before_an_urgent_one() {
    let mut queue = queue();
    queue.trigger("listed", Class::Initial, at(0));
    queue.trigger("edited", Class::User, at(16));
    assert_eq!(drain(&mut queue, at(16)), ["listed", "edited"]);
}

#[test]
fn a_burst_of_edits_goes_before_the_changes_of_its_first_children() {
    let mut queue = queue();
    queue.trigger("reported", Class::Child, at(0));
    queue.trigger("edited", Class::User, at(4));
    queue.trigger("edited-later", Class::User, at(6));
    assert_eq!(
        drain(&mut queue, at(6)),
        ["edited", "reported", "edited-later"]
    );
}

#[test]
fn namespaces_take_turns_and_each_keeps_its_order() {
    let mut queue = queue();
    for key in [
        "busy/1", "busy/2", "busy/3", "busy/4", "calm/1", "calm/2", "idle/1",
    ] {
        queue.trigger(key, Class::User, at(0));
    }
    let expected = [
        "busy/1", "calm/1", "idle/1", "busy/2", "calm/2", "busy/3", "busy/4",
    ];
    assert_eq!(drain(&mut queue, at(0)), expected);
}

#[test]
fn an_edit_waits_for_one_pass_of_a_namespace_with_a_thousand_older_edits() {
    let mut queue = Queue::<u32>::new(0, |key| {
        Some(if *key == 0 { "quiet" } else { "noisy" }.into())
    });
    for key in 1..=1000 {
        queue.trigger(key, Class::User, at(0));
    }
    // Edited again while they wait: neither the keys nor the turns change.
    for key in 1..=1000 {
        queue.trigger(key, Class::User, at(1));
    }
    queue.pop(at(9)).unwrap();
    queue.trigger(0, Class::User, at(9));
    let next = [queue.pop(at(9)).unwrap(), queue.pop(at(9)).unwrap()];
    assert!(next.iter().any(|ticket| ticket.key == 0), "{next:?}");
    assert_eq!(queue.depth(), 998);
}

#[test]
fn follow_ups_of_another_namespace_do_not_go_before_an_edit() {
    let mut queue = queue();
    for key in ["busy/1", "busy/2"] {
        queue.trigger(key, Class::Child, at(0));
    }
    queue.trigger("calm/1", Class::User, at(4));
    assert_eq!(drain(&mut queue, at(4)), ["calm/1", "busy/1", "busy/2"]);
}

#[test]
fn a_more_urgent_trigger_moves_a_waiting_key_up() {
    let mut queue = queue();
    queue.trigger("a", Class::Initial, at(0));
    queue.trigger("b", Class::Initial, at(0));
    queue.trigger("b", Class::User, at(0));
    assert_eq!(drain(&mut queue, at(0)), ["b", "a"]);
}

/// Fails a key `rounds` times, each time after the delay, and returns the delays.
fn delays(queue: &mut Queue<&'static str>, rounds: usize) -> Vec<Duration> {
    let mut now = at(0);
    queue.trigger("a", Class::Child, now);
    let mut delays = Vec::new();
    for _ in 0..rounds {
        let ticket = queue.pop(now).expect("the key should be due");
        queue.done(&ticket.key, Next::Backoff, now);
        let due = queue.next_due().unwrap();
        assert_eq!(queue.pop(due - Duration::from_nanos(1)), None);
        delays.push(due - now);
        now = due;
    }
    delays
}

#[test]
fn failures_back_off_exponentially_with_jitter_up_to_a_cap() {
    let delays = delays(&mut queue(), 16);
    let mut base = BACKOFF_MIN;
    for delay in &delays {
        let jittered = base..=base * 2;
        assert!(jittered.contains(delay), "{delay:?} is not in {jittered:?}");
        base = (base * 2).min(BACKOFF_MAX / 2);
    }
    assert!(delays.iter().all(|delay| *delay <= BACKOFF_MAX));
    assert!(
        delays.iter().any(|delay| delay.subsec_nanos() != 0),
        "{delays:?} should be jittered"
    );
}

#[test]
fn keys_that_fail_together_do_not_retry_together() {
    let mut queue = Queue::<u32>::new(0, |_| None);
    for key in 0..100 {
        queue.trigger(key, Class::Child, at(0));
    }
    while let Some(ticket) = queue.pop(at(0)) {
        queue.done(&ticket.key, Next::Backoff, at(0));
    }
    let due: BTreeSet<Duration> = queue.delayed.iter().map(|(due, _, _)| *due).collect();
    assert!(due.len() > 90, "{} distinct times", due.len());
}

#[test]
fn a_success_ends_the_back_off() {
    let mut queue = queue();
    let before = delays(&mut queue, 8);
    let due = queue.next_due().unwrap();
    queue.pop(due).unwrap();
    queue.done(&"a", Next::Settled, due);
    queue.trigger("a", Class::Child, due);
    queue.pop(due).unwrap();
    queue.done(&"a", Next::Backoff, due);
    assert!(queue.next_due().unwrap() - due < *before.last().unwrap());
}

#[test]
fn a_users_edit_ends_the_back_off_at_once() {
    let mut queue = queue();
    let delays = delays(&mut queue, 12);
    let now = delays.iter().sum::<Duration>();
    queue.trigger("a", Class::User, now - SECOND);
    queue.pop(now - SECOND).unwrap();
    queue.trigger("a", Class::User, now);
    queue.done(&"a", Next::Backoff, now);
    queue
        .pop(now)
        .expect("the edit during the pass should end the back-off");
    queue.done(&"a", Next::Backoff, now);
    let delay = queue.next_due().unwrap() - now;
    assert!(delay <= 2 * BACKOFF_MIN, "{delay:?}");
}

#[test]
fn a_key_that_keeps_failing_is_retried_every_few_minutes_and_at_once_after_an_edit() {
    let mut queue = queue();
    let delays = delays(&mut queue, 20);
    for delay in &delays[14..] {
        assert!((at(120)..=at(300)).contains(delay), "{delays:?}");
    }
    let now = delays[..19].iter().sum::<Duration>() + SECOND;
    assert_eq!(queue.pop(now), None);
    queue.trigger("a", Class::User, now);
    assert!(queue.pop(now).is_some());
}

#[test]
fn a_changed_child_shortens_a_back_off_to_a_second() {
    let mut queue = queue();
    let delays = delays(&mut queue, 12);
    let now = delays[..11].iter().sum::<Duration>();
    queue.trigger("a", Class::Child, now);
    assert_eq!(queue.next_due(), Some(now + SECOND));
    queue.pop(now + SECOND).unwrap();
    queue.trigger("a", Class::Child, now + SECOND);
    queue.done(&"a", Next::Backoff, now + SECOND);
    // The first delay of a back-off is shorter: this one continues.
    assert_eq!(queue.next_due(), Some(now + 2 * SECOND));
}

#[test]
fn a_refused_pass_waits_for_the_requested_pause() {
    let mut queue = queue();
    queue.trigger("a", Class::Child, at(0));
    queue.pop(at(0)).unwrap();
    queue.done(&"a", Next::BackoffAtLeast(at(7)), at(0));
    assert_eq!(queue.next_due(), Some(at(7)));
    queue.trigger("a", Class::Child, at(1));
    assert_eq!(queue.next_due(), Some(at(7)));
    queue.trigger("a", Class::User, at(1));
    assert_eq!(queue.next_due(), Some(Duration::ZERO));
}

#[test]
fn a_requeue_is_in_time_and_an_earlier_change_replaces_it() {
    let mut queue = queue();
    queue.trigger("a", Class::User, at(100));
    queue.pop(at(100)).unwrap();
    queue.done(&"a", Next::RequeueAfter(at(5)), at(100));
    assert_eq!(queue.pop(at(105) - Duration::from_millis(1)), None);
    assert_eq!(queue.next_due(), Some(at(105)));
    queue.trigger("a", Class::Child, at(102));
    assert_eq!(drain(&mut queue, at(102)), ["a"]);
    assert_eq!(
        queue.next_due(),
        None,
        "the pass for the change should replace the requeue"
    );
}

#[test]
fn an_invalid_parent_waits_for_a_change() {
    let mut queue = queue();
    queue.trigger("a", Class::User, at(0));
    queue.pop(at(0)).unwrap();
    queue.done(&"a", Next::UntilChanged, at(0));
    assert_eq!(queue.next_due(), None);
    queue.trigger("a", Class::Child, at(1));
    assert_eq!(drain(&mut queue, at(1)), ["a"]);
}

#[test]
fn a_parked_key_has_another_pass_and_keeps_the_begin_of_its_wait() {
    let mut queue = queue();
    queue.trigger("a", Class::User, at(0));
    queue.pop(at(0)).unwrap();
    queue.done(&"a", Next::AwaitCache(at(10)), at(1));
    queue.trigger("a", Class::Child, at(3));
    let ticket = queue.pop(at(3)).unwrap();
    assert_eq!(ticket.cache_wait_since, Some(at(1)));
    queue.done(&"a", Next::AwaitCache(at(10)), at(4));
    assert_eq!(
        queue.next_due(),
        Some(at(14)),
        "a parked key should have a time for its next pass"
    );
    let ticket = queue.pop(at(14)).unwrap();
    assert_eq!(
        ticket.cache_wait_since,
        Some(at(1)),
        "the wait should be the same"
    );
    queue.done(&"a", Next::Settled, at(14));
    queue.trigger("a", Class::User, at(15));
    assert_eq!(queue.pop(at(15)).unwrap().cache_wait_since, None);
}

#[test]
fn a_kind_that_syncs_during_the_pass_is_not_missed() {
    let mut queue = queue();
    queue.trigger("a", Class::User, at(0));
    queue.pop(at(0)).unwrap();
    queue.trigger("a", Class::Child, at(1));
    queue.done(&"a", Next::AwaitCache(at(10)), at(1));
    assert!(queue.pop(at(1)).is_some());
}

#[test]
fn the_hosts_own_writes_do_not_shorten_a_back_off() {
    let mut queue = queue();
    let delays = delays(&mut queue, 12);
    let due = queue.next_due();
    let now = delays[..11].iter().sum::<Duration>();
    queue.trigger("a", Class::Retry, now);
    assert_eq!(queue.next_due(), due);
}

#[test]
fn edits_go_before_a_swap_and_a_swap_ends_every_back_off() {
    let mut queue = queue();
    for key in ["failed", "refused", "requeued", "running", "waiting"] {
        queue.trigger(key, Class::User, at(0));
    }
    for _ in 0..4 {
        queue.pop(at(0)).unwrap();
    }
    queue.done(&"failed", Next::Backoff, at(0));
    queue.done(&"refused", Next::BackoffAtLeast(at(200)), at(0));
    queue.done(&"requeued", Next::RequeueAfter(at(200)), at(0));
    for key in [
        "absent", "failed", "refused", "requeued", "running", "waiting",
    ] {
        queue.trigger(key, Class::Swapped, at(0));
    }
    queue.trigger("edited", Class::User, at(0));
    queue.done(&"running", Next::Backoff, at(0));
    let expected = [
        "waiting", "edited", "absent", "failed", "refused", "requeued", "running",
    ];
    assert_eq!(drain(&mut queue, at(0)), expected);
    assert_eq!(
        queue.next_due(),
        None,
        "each key should have exactly one pass"
    );
}

#[test]
fn a_settled_key_takes_no_memory() {
    let mut queue = queue();
    queue.trigger("a", Class::User, at(0));
    drain(&mut queue, at(0));
    assert!(queue.entries.is_empty() && queue.handles.is_empty());
    assert!(queue.ready.is_empty() && queue.due.is_empty() && queue.delayed.is_empty());
}

/// One step of the property test, on one of a few keys.
#[derive(Clone, Debug)]
enum Step {
    Trigger(u8, Class),
    Pop,
    Done(u8, Next),
    Advance(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..6_u8;
    let class = prop_oneof![
        Just(Class::User),
        Just(Class::Child),
        Just(Class::Swapped),
        Just(Class::Retry),
        Just(Class::Initial)
    ];
    let millis = (0..3000_u64).prop_map(Duration::from_millis);
    let next = prop_oneof![
        3 => Just(Next::Settled),
        1 => millis.clone().prop_map(Next::RequeueAfter),
        2 => Just(Next::Backoff),
        1 => millis.clone().prop_map(Next::BackoffAtLeast),
        1 => Just(Next::UntilChanged),
        1 => millis.clone().prop_map(Next::AwaitOwnWrites),
        1 => millis.clone().prop_map(Next::AwaitCache),
        1 => Just(Next::Forget),
    ];
    prop_oneof![
        4 => (key.clone(), class).prop_map(|(key, class)| Step::Trigger(key, class)),
        4 => Just(Step::Pop),
        4 => (key, next).prop_map(|(key, next)| Step::Done(key, next)),
        2 => millis.prop_map(Step::Advance),
    ]
}

/// Puts a third of the keys into each of two namespaces, and the others into none.
fn three_namespaces(key: u8) -> Namespace {
    let name = ["a", "b"].get(usize::from(key % 3))?;
    Some((*name).into())
}

/// The promises about one key, as a simple model.
#[derive(Default)]
struct Promise {
    running: bool,
    /// A trigger has come since the last pass began.
    owed: bool,
    /// The last pass failed, so the next one may wait.
    failed: bool,
}

/// The reference model, which checks the queue after each step.
#[derive(Default)]
struct Reference {
    keys: BTreeMap<u8, Promise>,
    now: Duration,
}

impl Reference {
    fn step(&mut self, queue: &mut Queue<u8>, step: Step) {
        let now = self.now;
        match step {
            Step::Trigger(key, class) => {
                queue.trigger(key, class, now);
                let promise = self.keys.entry(key).or_default();
                promise.owed = true;
                promise.failed &= !class.ends_backoff();
            }
            Step::Advance(by) => self.now += by,
            Step::Pop => self.pop(queue),
            Step::Done(key, next) => self.done(queue, key, next),
        }
    }

    fn pop(&mut self, queue: &mut Queue<u8>) {
        let due: BTreeMap<u8, Duration> = queue
            .delayed
            .iter()
            .map(|(due, _, handle)| (queue.entries[*handle].key, *due))
            .collect();
        // The end of a delay counts as a trigger.
        for (key, due) in &due {
            if *due <= self.now {
                let promise = self.keys.entry(*key).or_default();
                (promise.owed, promise.failed) = (true, false);
            }
        }
        let Some(ticket) = queue.pop(self.now) else {
            for (key, promise) in &self.keys {
                assert!(
                    promise.running || !promise.owed || (promise.failed && due.contains_key(key)),
                    "the trigger of {key} was lost"
                );
            }
            return;
        };
        let promise = self.keys.entry(ticket.key).or_default();
        assert!(
            !promise.running,
            "{} should have one pass at a time",
            ticket.key
        );
        assert!(
            promise.owed,
            "{} should not run without a trigger",
            ticket.key
        );
        *promise = Promise {
            running: true,
            ..Promise::default()
        };
    }

    fn done(&mut self, queue: &mut Queue<u8>, key: u8, next: Next) {
        let promise = self.keys.entry(key).or_default();
        let running = std::mem::take(&mut promise.running);
        queue.done(&key, next.clone(), self.now);
        if !running {
            return;
        }
        promise.failed = matches!(next, Next::Backoff | Next::BackoffAtLeast(_));
        let is_key = |(_, _, handle): &&(Duration, u64, usize)| queue.entries[*handle].key == key;
        if let Some(due) = queue.delayed.iter().find(is_key) {
            let longest = BACKOFF_MAX.max(Duration::from_secs(3));
            assert!(
                due.0 <= self.now + longest,
                "the delay of {key} should have a bound"
            );
        }
    }

    /// Ends all passes with success: each key that is owed a pass has one, and then no key has another.
    fn settle(&mut self, queue: &mut Queue<u8>) {
        for key in 0..6 {
            self.done(queue, key, Next::Settled);
        }
        self.now += Duration::from_secs(1000);
        let mut runs = BTreeMap::<u8, u32>::new();
        while let Some(ticket) = queue.pop(self.now) {
            *runs.entry(ticket.key).or_default() += 1;
            queue.done(&ticket.key, Next::Settled, self.now);
        }
        for (key, promise) in &self.keys {
            let ran = runs.get(key).copied().unwrap_or(0);
            assert!(ran <= 1, "{key} ran {ran} times without a trigger");
            assert!(ran == 1 || !promise.owed, "the trigger of {key} was lost");
        }
        assert!(queue.entries.is_empty() && queue.next_due().is_none());
    }
}

/// Returns how often to run 1000 steps: 100 times, or 1000 times with `INNKEEPER_FULL=1`.
///
/// The short variant runs with every change, the long one has a million steps.
#[expect(
    clippy::disallowed_methods,
    reason = "only this test reads its number of runs"
)]
fn cases() -> u32 {
    if std::env::var("INNKEEPER_FULL").is_ok_and(|full| full == "1") {
        1000
    } else {
        100
    }
}

/// A step of the swap test: one of the queue, or none for a swap.
fn step_or_swap() -> impl Strategy<Value = Option<Step>> {
    prop_oneof![20 => step().prop_map(Some), 1 => Just(None)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Q1: one pass at a time, no lost trigger, no pass without a trigger.
    #[test]
    fn the_queue_keeps_its_promises(steps in proptest::collection::vec(step(), 1000)) {
        let mut queue = Queue::new(0, |key| three_namespaces(*key));
        let mut reference = Reference::default();
        for step in steps {
            reference.step(&mut queue, step);
        }
        reference.settle(&mut queue);
    }

    /// Between two turns of a namespace with a due key, each of the others has at most one turn with a due key.
    #[test]
    fn no_namespace_has_two_turns_while_another_waits(
        triggers in proptest::collection::vec((0..30_u8, 0..20_u64), 1..60),
        first in 20..40_u64,
    ) {
        let mut queue = Queue::new(0, |key| three_namespaces(*key));
        for (key, time) in triggers {
            queue.trigger(key, Class::User, at(time));
        }
        let order: Vec<Namespace> = std::iter::from_fn(|| queue.pop(at(first)))
            .map(|ticket| three_namespaces(ticket.key))
            .collect();
        for (place, namespace) in order.iter().enumerate() {
            let after = &order[place + 1..];
            let until = after.iter().position(|other| other == namespace);
            let between = &after[..until.unwrap_or_default()];
            let others: BTreeSet<_> = between.iter().collect();
            prop_assert_eq!(others.len(), between.len(), "{:?}", order);
        }
    }

    /// For any steps around swaps: one pass at a time, and each key has a pass that began after the last swap.
    #[test]
    fn every_key_has_a_pass_after_a_swap(
        steps in proptest::collection::vec(step_or_swap(), 200)
    ) {
        let mut queue = Queue::new(0, |key| three_namespaces(*key));
        let mut reference = Reference::default();
        // The keys without a pass since the last swap.
        let mut owed = BTreeSet::new();
        let running = |reference: &Reference| -> BTreeSet<u8> {
            reference
                .keys
                .iter()
                .filter(|(_, promise)| promise.running)
                .map(|(key, _)| *key)
                .collect()
        };
        for step in steps {
            let before = running(&reference);
            match step {
                Some(step) => reference.step(&mut queue, step),
                None => for key in 0..6 {
                    reference.step(&mut queue, Step::Trigger(key, Class::Swapped));
                    owed.insert(key);
                }
            }
            owed.retain(|key| before.contains(key) || !running(&reference).contains(key));
        }
        for key in 0..6 {
            reference.done(&mut queue, key, Next::Settled);
        }
        reference.now += Duration::from_secs(1000);
        while let Some(ticket) = queue.pop(reference.now) {
            owed.remove(&ticket.key);
            queue.done(&ticket.key, Next::Settled, reference.now);
        }
        prop_assert_eq!(owed, BTreeSet::new());
    }
}

#[test]
fn a_ticket_has_the_time_that_its_key_was_queued() {
    let mut queue = queue();
    let waited = |queue: &mut Queue<&'static str>, now| queue.pop(now).map(|ticket| ticket.waited);
    queue.trigger("a", Class::Initial, at(0));
    // More urgent, but queued since the first trigger.
    queue.trigger("a", Class::User, at(2));
    assert_eq!(waited(&mut queue, at(5)), Some(at(5)));
    queue.trigger("a", Class::Child, at(6));
    queue.done(&"a", Next::Settled, at(7));
    assert_eq!(
        waited(&mut queue, at(9)),
        Some(at(2)),
        "the wait should count from the end of the pass"
    );
    queue.done(&"a", Next::RequeueAfter(at(10)), at(9));
    assert_eq!(
        waited(&mut queue, at(22)),
        Some(at(3)),
        "the wait should count from the due time"
    );
}

#[test]
fn a_queue_tells_if_an_edit_waits() {
    let mut queue = queue();
    queue.trigger("a", Class::Child, at(0));
    assert!(!queue.has_edits());
    queue.trigger("a", Class::User, at(1));
    queue.trigger("b", Class::User, at(1));
    for _ in 0..2 {
        assert!(queue.has_edits());
        queue.pop(at(9)).unwrap();
    }
    assert!(!queue.has_edits());
}

/// Any number of less important keys delay no other one, however long they have waited and however it was triggered.
#[test]
fn less_important_keys_come_after_all_others() {
    let mut queue = queue();
    for key in ["x/edited", "x/failed", "y/listed"] {
        let class = if key == "y/listed" {
            Class::Initial
        } else {
            Class::User
        };
        queue.trigger_last(key, class, at(0));
    }
    queue.trigger("z/listed", Class::Initial, at(600));
    queue.trigger("z/edited", Class::User, at(610));
    assert_eq!(queue.pop(at(610)).unwrap().key, "z/edited");
    assert_eq!(queue.pop(at(610)).unwrap().key, "z/listed");
    // Their own order is the usual one.
    assert_eq!(queue.pop(at(610)).unwrap().key, "x/edited");
    assert_eq!(queue.pop(at(610)).unwrap().key, "x/failed");
    // A retry is as unimportant as the first pass.
    queue.done(&"x/failed", Next::RequeueAfter(at(10)), at(610));
    queue.trigger("z/retried", Class::Initial, at(640));
    assert_eq!(queue.pop(at(640)).unwrap().key, "z/retried");
    assert_eq!(queue.pop(at(640)).unwrap().key, "y/listed");
    assert_eq!(queue.pop(at(640)).unwrap().key, "x/failed");
    assert_eq!(queue.pop(at(640)), None);
}

#[test]
fn a_less_important_key_moves_up_when_it_becomes_important_or_has_waited_for_an_hour() {
    let mut queue = queue();
    for key in ["a", "b"] {
        queue.trigger_last(key, Class::Initial, at(0));
    }
    queue.trigger("c", Class::Initial, at(10));
    queue.trigger("b", Class::User, at(11));
    assert_eq!(drain(&mut queue, at(11)), ["b", "c", "a"]);

    queue.trigger_last("a", Class::User, at(100));
    queue.trigger("b", Class::User, at(3701));
    assert_eq!(drain(&mut queue, at(3701)), ["a", "b"]);
}
