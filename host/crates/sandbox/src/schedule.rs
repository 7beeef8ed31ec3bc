//! The order in which free guest threads take waiting calls.
//!
//! A pure data structure: it starts nothing and waits for nothing.
//! Clients with waiting calls take turns, so that a client with one call does not wait for all another one's calls.
//! Slow calls hold fewer than all threads, so that a prompt client waits for prompt calls only. The engine shares out
//! the memory of calls in the same way, by their deadlines.

use std::collections::{BTreeMap, VecDeque};

use crate::CallSpeed;

/// The consequence of an ended call for its client's next calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallVerdict {
    /// The call answered in time: the client is not slow.
    Prompt,
    /// The call exceeded the deadline: the client is slow.
    Slow,
    /// None.
    Nothing,
}

/// The waiting calls, and how many calls each client runs.
///
/// A call is slow if its deadline is long, or if its client is slow: a prompt client can still be slow on a call with a
/// long deadline.
///
/// Not bounded: each caller waits for its call, and callers are bounded elsewhere.
#[derive(Debug)]
pub(super) struct Schedule<C, W> {
    clients: BTreeMap<C, ClientCalls<W>>,
    /// The clients with waiting calls, each once. The first one that may run is next. One that may not keeps its place,
    /// so that slow clients take turns too.
    turns: VecDeque<C>,
    /// Running slow calls.
    slow_running: usize,
    slow_max: usize,
}

/// A call that waits for a thread.
#[derive(Debug)]
struct WaitingCall<W> {
    /// True if the deadline is long.
    long: bool,
    work: W,
}

/// A call that runs, from [`Schedule::next`] to [`Schedule::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningCall<C> {
    pub(super) client: C,
    /// The speed when the call began. A prompt call ends soon, even if the client becomes slow meanwhile.
    pub(super) speed: CallSpeed,
}

/// A client, which may use some of the threads.
#[derive(Debug)]
struct ClientCalls<W> {
    waiting: VecDeque<WaitingCall<W>>,
    running: usize,
    running_max: usize,
    /// True from a call that exceeded its deadline to the next one that answers. Its calls run one at a time meanwhile,
    /// so that a plugin that loops holds one thread.
    slow: bool,
}

impl<W> ClientCalls<W> {
    fn may_run(&self) -> bool {
        let running_max = if self.slow { 1 } else { self.running_max };
        self.running < running_max
    }

    /// Returns the next call's speed.
    fn speed(&self) -> CallSpeed {
        let is_slow = self.slow || self.waiting.front().is_some_and(|call| call.long);
        if is_slow {
            CallSpeed::Slow
        } else {
            CallSpeed::Prompt
        }
    }

    /// An idle client is forgotten, except a slow one: it must still be slow at its next call.
    fn is_worth_keeping(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty() || self.slow
    }
}

impl<C: Ord + Clone, W> Schedule<C, W> {
    /// Creates a schedule in which at most `slow_max` slow calls run at a time; at least one, or they would never run.
    pub(super) const fn new(slow_max: usize) -> Self {
        Self {
            clients: BTreeMap::new(),
            turns: VecDeque::new(),
            slow_running: 0,
            slow_max,
        }
    }

    /// Adds a client's call; at most `running_max` run at a time. `long` is true if the deadline is long.
    pub(super) fn add(&mut self, client: &C, running_max: usize, long: bool, work: W) {
        let calls = self.clients.entry(client.clone()).or_insert(ClientCalls {
            waiting: VecDeque::new(),
            running: 0,
            running_max,
            slow: false,
        });
        if calls.waiting.is_empty() {
            self.turns.push_back(client.clone());
        }
        calls.waiting.push_back(WaitingCall { long, work });
    }

    /// Returns true if a call may run now.
    pub(super) fn has_next(&self) -> bool {
        self.turns.iter().any(|client| self.may_run(client))
    }

    /// Removes and returns the next call; it counts as running until [`Schedule::done`].
    pub(super) fn next(&mut self) -> Option<(RunningCall<C>, W)> {
        let turn = self.turns.iter().position(|client| self.may_run(client))?;
        let name = self.turns.remove(turn)?;
        let client = self.clients.get_mut(&name)?;
        // Before the call leaves the queue: the speed is that of the first waiting call.
        let speed = client.speed();
        let WaitingCall { work, .. } = client.waiting.pop_front()?;
        client.running += 1;
        self.slow_running += usize::from(speed == CallSpeed::Slow);
        if !client.waiting.is_empty() {
            self.turns.push_back(name.clone());
        }
        Some((
            RunningCall {
                client: name,
                speed,
            },
            work,
        ))
    }

    /// Ends a call.
    pub(super) fn done(&mut self, call: &RunningCall<C>, verdict: CallVerdict) {
        // Always there: a client with a running call is kept.
        let Some(client) = self.clients.get_mut(&call.client) else {
            return;
        };
        client.running -= 1;
        self.slow_running -= usize::from(call.speed == CallSpeed::Slow);
        match verdict {
            CallVerdict::Prompt => client.slow = false,
            CallVerdict::Slow => client.slow = true,
            CallVerdict::Nothing => {}
        }
        if !client.is_worth_keeping() {
            self.clients.remove(&call.client);
        }
    }

    fn may_run(&self, client: &C) -> bool {
        let may_slow_run = self.slow_running < self.slow_max;
        self.clients.get(client).is_some_and(|client| {
            client.may_run() && (may_slow_run || client.speed() == CallSpeed::Prompt)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// More slow calls than any test here runs.
    const MANY: usize = 9;

    fn drained(schedule: &mut Schedule<char, u32>) -> Vec<(char, u32)> {
        let next = || schedule.next().map(|(call, work)| (call.client, work));
        std::iter::from_fn(next).collect()
    }

    fn call(client: char) -> RunningCall<char> {
        RunningCall {
            client,
            speed: CallSpeed::Prompt,
        }
    }

    fn slow_call(client: char) -> RunningCall<char> {
        RunningCall {
            client,
            speed: CallSpeed::Slow,
        }
    }

    #[test]
    fn waiting_clients_take_turns() {
        let mut schedule = Schedule::new(MANY);
        for (client, call) in [('a', 1), ('a', 2), ('a', 3), ('b', 4), ('c', 5), ('b', 6)] {
            schedule.add(&client, 9, false, call);
        }
        let order = drained(&mut schedule);
        let expected = [('a', 1), ('b', 4), ('c', 5), ('a', 2), ('b', 6), ('a', 3)];
        assert_eq!(order, expected);
    }

    #[test]
    fn a_client_does_not_wait_for_one_that_has_its_share() {
        let mut schedule = Schedule::new(MANY);
        for call in 0..5 {
            schedule.add(&'a', 2, false, call);
        }
        assert_eq!(drained(&mut schedule), [('a', 0), ('a', 1)]);
        schedule.add(&'b', 2, false, 5);
        assert_eq!(drained(&mut schedule), [('b', 5)]);
        schedule.done(&call('a'), CallVerdict::Prompt);
        assert_eq!(drained(&mut schedule), [('a', 2)]);
    }

    #[test]
    fn calls_of_a_slow_client_run_one_at_a_time_until_one_answers() {
        let mut schedule = Schedule::new(MANY);
        for call in 0..6 {
            schedule.add(&'a', 2, false, call);
        }
        assert_eq!(drained(&mut schedule), [('a', 0), ('a', 1)]);
        schedule.done(&call('a'), CallVerdict::Slow);
        assert_eq!(drained(&mut schedule), [], "the other one still runs");
        schedule.done(&call('a'), CallVerdict::Nothing);
        assert_eq!(drained(&mut schedule), [('a', 2)]);
        schedule.done(&slow_call('a'), CallVerdict::Nothing);
        assert_eq!(drained(&mut schedule), [('a', 3)]);
        schedule.done(&slow_call('a'), CallVerdict::Prompt);
        assert_eq!(drained(&mut schedule), [('a', 4), ('a', 5)]);
    }

    #[test]
    fn a_slow_client_is_remembered_and_others_are_forgotten() {
        let mut schedule = Schedule::new(MANY);
        for (client, verdict) in [('a', CallVerdict::Slow), ('b', CallVerdict::Prompt)] {
            schedule.add(&client, 2, false, 0);
            assert_eq!(drained(&mut schedule), [(client, 0)]);
            schedule.done(&call(client), verdict);
        }
        assert_eq!(schedule.clients.keys().collect::<Vec<_>>(), [&'a']);
        schedule.add(&'a', 2, false, 1);
        schedule.add(&'a', 2, false, 2);
        assert_eq!(drained(&mut schedule), [('a', 1)]);
    }

    /// Each step adds calls (`a1`, or `A1` with a long deadline), or ends one (`-a`, and `!a` if it exceeded its
    /// deadline), and states the calls that run next. At most two slow calls run at a time.
    #[test]
    fn slow_calls_wait_for_each_other_and_prompt_ones_do_not_wait_for_them() {
        let mut schedule = Schedule::new(2);
        let mut running: Vec<RunningCall<char>> = Vec::new();
        for (step, expected) in [
            // Long deadlines are slow from the first call on.
            ("A1 A2 B1 C1 D1", "A1 B1"),
            ("e1 e2", "e1 e2"),
            // Each of them has its turn, and the first one again after all others.
            ("-A", "C1"),
            ("-B", "D1"),
            ("-C", "A2"),
            // A prompt client is slow after the first fault, and waits with the others.
            ("!e !e", ""),
            ("e3 f1", "f1"),
            ("-A", "e3"),
            ("B2", ""),
            // After an answer in time it is prompt again.
            ("-e e4 e5", "B2 e4 e5"),
            // A short deadline is prompt, even if the client also has long ones.
            ("b3 B4", "b3"),
            ("-D", "B4"),
        ] {
            for part in step.split_whitespace() {
                let (first, rest) = part.split_at(1);
                let sign = first.chars().next().unwrap();
                let name = rest.chars().next().unwrap();
                if !matches!(sign, '-' | '!') {
                    let work: u32 = rest.parse().unwrap();
                    schedule.add(
                        &sign.to_ascii_lowercase(),
                        3,
                        sign.is_ascii_uppercase(),
                        work,
                    );
                    continue;
                }
                let client = name.to_ascii_lowercase();
                let index = running.iter().position(|call| call.client == client);
                let call = running.remove(index.unwrap());
                let verdict = if sign == '!' {
                    CallVerdict::Slow
                } else {
                    CallVerdict::Prompt
                };
                schedule.done(&call, verdict);
            }
            let mut next = Vec::new();
            while let Some((call, work)) = schedule.next() {
                next.push(format!("{}{work}", call.client));
                running.push(call);
            }
            assert_eq!(next.join(" "), expected.to_ascii_lowercase(), "{step}");
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(usize, bool),
        Next,
        Done(usize, CallVerdict),
    }

    fn step() -> impl Strategy<Value = Step> {
        let verdict = prop_oneof![
            3 => Just(CallVerdict::Prompt),
            1 => Just(CallVerdict::Slow),
            1 => Just(CallVerdict::Nothing),
        ];
        prop_oneof![
            (0..4_usize, any::<bool>()).prop_map(|(client, long)| Step::Add(client, long)),
            Just(Step::Next),
            (0..16_usize, verdict).prop_map(|(which, verdict)| Step::Done(which, verdict)),
        ]
    }

    /// A schedule with a separate account of the calls in it.
    struct Watched {
        schedule: Schedule<usize, (usize, bool)>,
        running_max: usize,
        running: Vec<RunningCall<usize>>,
        /// The calls that began, in their order: client, number.
        began: Vec<(usize, usize)>,
        /// Calls that were added and have not begun, with their lengths, by client.
        waiting: [VecDeque<bool>; 4],
        slow: [bool; 4],
    }

    impl Watched {
        fn slow_running(&self) -> usize {
            self.running
                .iter()
                .filter(|call| call.speed == CallSpeed::Slow)
                .count()
        }

        fn count(&self, client: usize) -> usize {
            self.running
                .iter()
                .filter(|call| call.client == client)
                .count()
        }

        /// Returns true if a client's next call is prompt and within the share.
        fn has_prompt_call(&self, client: usize) -> bool {
            let is_prompt = self.waiting[client].front() == Some(&false) && !self.slow[client];
            is_prompt && self.count(client) < self.running_max
        }

        fn begin(&mut self) -> bool {
            let expected = self.schedule.has_next();
            let next = self.schedule.next();
            assert_eq!(expected, next.is_some());
            let Some((call, (number, long))) = next else {
                let kept_waiting = (0..4).find(|&client| self.has_prompt_call(client));
                assert_eq!(kept_waiting, None, "no prompt call waits for a slow one");
                return false;
            };
            let client = call.client;
            assert_eq!(self.waiting[client].pop_front(), Some(long));
            assert_eq!(call.speed == CallSpeed::Slow, long || self.slow[client]);
            self.running.push(call);
            let is_slow = self.slow[client];
            assert!(self.count(client) <= if is_slow { 1 } else { self.running_max });
            assert!(self.slow_running() <= self.schedule.slow_max);
            self.began.push((client, number));
            true
        }
    }

    proptest! {
        /// Q4: for any order of arrivals and ends.
        #[test]
        fn shares_are_kept_and_every_call_runs_once_in_its_order(
            steps in vec(step(), 0..200),
            running_max in 1..4_usize,
            slow_max in 1..4_usize,
        ) {
            let mut watched = Watched {
                schedule: Schedule::new(slow_max),
                running_max,
                running: Vec::new(),
                began: Vec::new(),
                waiting: Default::default(),
                slow: [false; 4],
            };
            let mut added = 0;
            for step in steps {
                match step {
                    Step::Add(client, long) => {
                        watched.schedule.add(&client, running_max, long, (added, long));
                        watched.waiting[client].push_back(long);
                        added += 1;
                    }
                    Step::Next => {
                        watched.begin();
                    }
                    Step::Done(..) if watched.running.is_empty() => {}
                    Step::Done(which, verdict) => {
                        let call = watched.running.remove(which % watched.running.len());
                        let slow = &mut watched.slow[call.client];
                        *slow = match verdict {
                            CallVerdict::Nothing => *slow,
                            verdict => verdict == CallVerdict::Slow,
                        };
                        watched.schedule.done(&call, verdict);
                    }
                }
            }
            loop {
                while watched.begin() {}
                let Some(call) = watched.running.pop() else { break };
                watched.schedule.done(&call, CallVerdict::Nothing);
            }
            prop_assert_eq!(watched.began.len(), added);
            for client in 0..4 {
                let calls = watched.began.iter().filter(|(began, _)| *began == client);
                prop_assert!(calls.is_sorted(), "each client's calls run in their order");
            }
        }

        /// A slow client waits for at most one call of each other slow client before it gets a thread.
        #[test]
        fn slow_clients_do_not_starve_each_other(calls in vec(0..4_usize, 1..60)) {
            let mut schedule = Schedule::new(1);
            for &client in &calls {
                schedule.add(&client, 2, true, ());
            }
            let mut order = Vec::new();
            while let Some((call, ())) = schedule.next() {
                schedule.done(&call, CallVerdict::Slow);
                order.push(call.client);
            }
            prop_assert_eq!(order.len(), calls.len());
            for client in 0..4 {
                let turns: Vec<usize> = (0..order.len()).filter(|&at| order[at] == client).collect();
                for pair in turns.windows(2) {
                    let between = &order[pair[0] + 1..pair[1]];
                    let mut others = between.to_vec();
                    others.sort_unstable();
                    others.dedup();
                    prop_assert_eq!(others.len(), between.len());
                }
            }
        }
    }
}
