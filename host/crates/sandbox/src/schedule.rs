//! The order in which free guest threads take waiting calls.
//!
//! A pure data structure: it starts nothing and waits for nothing.
//! Clients with waiting calls take turns, so that a client with one call does not wait for all calls of another.

use std::collections::{BTreeMap, VecDeque};

/// The consequence of an ended call for the next calls of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learned {
    /// The call answered in time: the client is not slow.
    Prompt,
    /// The call exceeded its deadline: the client is slow.
    Slow,
    /// None.
    Nothing,
}

/// The waiting calls, and the number of running calls of each client.
///
/// Not bounded: each caller waits for the end of its call, and the number of callers is bounded elsewhere.
#[derive(Debug)]
pub(super) struct Schedule<C, W> {
    clients: BTreeMap<C, ClientCalls<W>>,
    /// The clients with waiting calls, each once. The first one below its share is next.
    turns: VecDeque<C>,
}

/// A client, which may use a share of the threads.
#[derive(Debug)]
struct ClientCalls<W> {
    waiting: VecDeque<W>,
    running: usize,
    running_max: usize,
    /// True from a call that exceeded its deadline to the next one that answers. Its calls run one at a time meanwhile, so
    /// that a plugin that loops holds one thread.
    slow: bool,
}

impl<W> ClientCalls<W> {
    fn may_run(&self) -> bool {
        let running_max = if self.slow { 1 } else { self.running_max };
        self.running < running_max
    }

    /// An idle client is forgotten, except a slow one: it must still be slow at its next call.
    fn is_worth_keeping(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty() || self.slow
    }
}

impl<C: Ord + Clone, W> Schedule<C, W> {
    pub(super) const fn new() -> Self {
        Self {
            clients: BTreeMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Adds a call of a client, of which at most `running_max` run at a time.
    pub(super) fn add(&mut self, client: &C, running_max: usize, work: W) {
        let known = self.clients.entry(client.clone()).or_insert(ClientCalls {
            waiting: VecDeque::new(),
            running: 0,
            running_max,
            slow: false,
        });
        if known.waiting.is_empty() {
            self.turns.push_back(client.clone());
        }
        known.waiting.push_back(work);
    }

    /// Returns true if a call may run now.
    pub(super) fn has_next(&self) -> bool {
        self.turns.iter().any(|client| self.may_run(client))
    }

    /// Removes and returns the next call; it counts as running until [`Schedule::done`].
    pub(super) fn next(&mut self) -> Option<(C, W)> {
        let turn = self.turns.iter().position(|client| self.may_run(client))?;
        let name = self.turns.remove(turn)?;
        let client = self.clients.get_mut(&name)?;
        let work = client.waiting.pop_front()?;
        client.running += 1;
        if !client.waiting.is_empty() {
            self.turns.push_back(name.clone());
        }
        Some((name, work))
    }

    /// Ends a call.
    pub(super) fn done(&mut self, client: &C, learned: Learned) {
        let Some(known) = self.clients.get_mut(client) else {
            return;
        };
        known.running -= 1;
        match learned {
            Learned::Prompt => known.slow = false,
            Learned::Slow => known.slow = true,
            Learned::Nothing => {}
        }
        if !known.is_worth_keeping() {
            self.clients.remove(client);
        }
    }

    fn may_run(&self, client: &C) -> bool {
        self.clients.get(client).is_some_and(ClientCalls::may_run)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn drained(schedule: &mut Schedule<char, u32>) -> Vec<(char, u32)> {
        std::iter::from_fn(|| schedule.next()).collect()
    }

    #[test]
    fn waiting_clients_take_turns() {
        let mut schedule = Schedule::new();
        for (client, call) in [('a', 1), ('a', 2), ('a', 3), ('b', 4), ('c', 5), ('b', 6)] {
            schedule.add(&client, 9, call);
        }
        let order = drained(&mut schedule);
        let expected = [('a', 1), ('b', 4), ('c', 5), ('a', 2), ('b', 6), ('a', 3)];
        assert_eq!(order, expected);
    }

    #[test]
    fn a_client_does_not_wait_for_one_that_has_its_share() {
        let mut schedule = Schedule::new();
        for call in 0..5 {
            schedule.add(&'a', 2, call);
        }
        assert_eq!(drained(&mut schedule), [('a', 0), ('a', 1)]);
        schedule.add(&'b', 2, 5);
        assert_eq!(drained(&mut schedule), [('b', 5)]);
        schedule.done(&'a', Learned::Prompt);
        assert_eq!(drained(&mut schedule), [('a', 2)]);
    }

    #[test]
    fn calls_of_a_slow_client_run_one_at_a_time_until_one_answers() {
        let mut schedule = Schedule::new();
        for call in 0..6 {
            schedule.add(&'a', 2, call);
        }
        assert_eq!(drained(&mut schedule), [('a', 0), ('a', 1)]);
        schedule.done(&'a', Learned::Slow);
        assert_eq!(drained(&mut schedule), [], "the other one still runs");
        schedule.done(&'a', Learned::Nothing);
        assert_eq!(drained(&mut schedule), [('a', 2)]);
        schedule.done(&'a', Learned::Nothing);
        assert_eq!(drained(&mut schedule), [('a', 3)]);
        schedule.done(&'a', Learned::Prompt);
        assert_eq!(drained(&mut schedule), [('a', 4), ('a', 5)]);
    }

    #[test]
    fn a_slow_client_is_remembered_and_others_are_forgotten() {
        let mut schedule = Schedule::new();
        for (client, learned) in [('a', Learned::Slow), ('b', Learned::Prompt)] {
            schedule.add(&client, 2, 0);
            assert_eq!(drained(&mut schedule), [(client, 0)]);
            schedule.done(&client, learned);
        }
        assert_eq!(schedule.clients.keys().collect::<Vec<_>>(), [&'a']);
        schedule.add(&'a', 2, 1);
        schedule.add(&'a', 2, 2);
        assert_eq!(drained(&mut schedule), [('a', 1)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(usize),
        Next,
        Done(usize, Learned),
    }

    fn step() -> impl Strategy<Value = Step> {
        let learned = prop_oneof![
            3 => Just(Learned::Prompt),
            1 => Just(Learned::Slow),
            1 => Just(Learned::Nothing),
        ];
        prop_oneof![
            (0..4_usize).prop_map(Step::Add),
            Just(Step::Next),
            (0..16_usize, learned).prop_map(|(which, learned)| Step::Done(which, learned)),
        ]
    }

    proptest! {
        /// Q4: for any order of arrivals and ends.
        #[test]
        fn q4_shares_are_kept_and_every_call_runs_once_in_its_order(
            steps in vec(step(), 0..200),
            running_max in 1..4_usize,
        ) {
            let mut schedule = Schedule::new();
            let (mut added, mut running, mut ran) = (0, Vec::new(), Vec::new());
            let mut slow = [false; 4];
            let mut next = |schedule: &mut Schedule<usize, u32>, running: &mut Vec<usize>, slow: &[bool; 4]| {
                let expected = schedule.has_next();
                let next = schedule.next();
                assert_eq!(expected, next.is_some());
                let Some((client, call)) = next else { return false };
                running.push(client);
                let count = running.iter().filter(|&&other| other == client).count();
                assert!(count <= if slow[client] { 1 } else { running_max });
                ran.push((client, call));
                true
            };
            for step in steps {
                match step {
                    Step::Add(client) => {
                        schedule.add(&client, running_max, added);
                        added += 1;
                    }
                    Step::Next => {
                        next(&mut schedule, &mut running, &slow);
                    }
                    Step::Done(..) if running.is_empty() => {}
                    Step::Done(which, learned) => {
                        let client = running.remove(which % running.len());
                        slow[client] = match learned {
                            Learned::Nothing => slow[client],
                            learned => learned == Learned::Slow,
                        };
                        schedule.done(&client, learned);
                    }
                }
            }
            loop {
                while next(&mut schedule, &mut running, &slow) {}
                let Some(client) = running.pop() else { break };
                schedule.done(&client, Learned::Nothing);
            }
            prop_assert_eq!(ran.len(), usize::try_from(added).unwrap());
            for client in 0..4 {
                let calls = ran.iter().filter(|(ran, _)| *ran == client);
                prop_assert!(calls.is_sorted(), "each client's calls run in their order");
            }
        }
    }
}
