//! Several candidates for one lease: their clocks differ, processes freeze, messages are late or lost, and another client
//! edits the lease.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{ResourceVersion, Shards};
use jiff::Timestamp;
use proptest::{collection::vec, prelude::*};

use super::TIMES;
use crate::{
    Lease,
    machine::{Decision, Machine, Write},
};

/// Milliseconds of true time, which no candidate sees.
type Ms = u64;

/// The length of a run: more than ten lease durations, so that the lease can change hands several times.
const END: Ms = 200_000;

/// One request's fate.
#[derive(Clone, Debug)]
struct Fate {
    /// The time for which the process freezes before it sends the request.
    freeze: Ms,
    /// The request's time to the API server.
    there: Ms,
    /// The answer's time back to the candidate.
    back: Ms,
    /// False if the request is lost.
    arrives: bool,
    /// False if the answer is lost.
    is_answered: bool,
    /// The request's timeout.
    patience: Ms,
}

/// One candidate's properties.
#[derive(Clone, Debug)]
struct Nature {
    starts: Ms,
    offset: Ms,
    /// The clock's rate, in thousandths of true time.
    rate: u64,
    fates: Vec<Fate>,
}

impl Nature {
    /// Returns the monotonic clock's time.
    fn clock(&self, now: Ms) -> Duration {
        Duration::from_millis(self.offset + now * self.rate / 1000)
    }

    /// Returns the wall clock's time.
    fn wall(&self, now: Ms) -> Timestamp {
        let shown = i64::try_from(self.clock(now).as_millis()).unwrap();
        Timestamp::from_millisecond(shown).unwrap()
    }

    /// Returns the true time at which the clock certainly shows `clock`.
    fn truth(&self, clock: Duration) -> Ms {
        let shown = u64::try_from(clock.as_millis()).unwrap() - self.offset;
        (shown * 1000).div_ceil(self.rate)
    }
}

/// A request to the API server, which serves requests as they arrive.
#[derive(Debug)]
enum Request {
    Read,
    Write(Write),
}

/// A candidate's state.
struct Candidate {
    nature: Nature,
    machine: Machine,
    step: usize,
    /// The periods in which it believes that it may write, in true time.
    claims: Vec<(Ms, Ms)>,
    is_over: bool,
}

/// The events by time; the number orders events at the same time.
type Events = BTreeMap<(Ms, u64), (usize, Event)>;

enum Event {
    Attempt,
    Arrive {
        request: Request,
        sent: Duration,
        fate: Fate,
        wait_until: Ms,
    },
    Answer {
        request: Request,
        sent: Duration,
        result: Result<Option<Lease>, ()>,
    },
    GiveUp {
        step: usize,
    },
    Edit(Edit),
}

/// Another client's edit.
#[derive(Clone, Debug)]
enum Edit {
    /// Removes the holder and states another duration, but not a released lease's.
    RemoveHolder(u32),
    /// Names a candidate, or with a larger number a foreign holder.
    Name(usize),
    /// Changes the term's start and the transitions.
    Restart(u32),
}

struct World {
    candidates: Vec<Candidate>,
    lease: Option<Lease>,
    version: u64,
    events: Events,
    count: u64,
}

impl World {
    fn new(natures: Vec<Nature>) -> Self {
        let mut world = Self {
            candidates: Vec::new(),
            lease: None,
            version: 0,
            events: Events::new(),
            count: 0,
        };
        for (index, nature) in natures.into_iter().enumerate() {
            world.add(nature.starts, index, Event::Attempt);
            world.candidates.push(Candidate {
                machine: Machine::new(format!("candidate {index}"), TIMES),
                nature,
                step: 0,
                claims: Vec::new(),
                is_over: false,
            });
        }
        world
    }

    fn add(&mut self, at: Ms, index: usize, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), (index, event));
    }

    fn edit(&mut self, edit: Edit) {
        let Some(Lease {
            version, record, ..
        }) = &mut self.lease
        else {
            return;
        };
        match edit {
            Edit::RemoveHolder(duration_s) => {
                record.holder.clear();
                record.duration_s = duration_s;
            }
            Edit::Name(index) => record.holder = format!("candidate {index}"),
            Edit::Restart(transitions) => {
                record.acquired = None;
                record.transitions = transitions;
            }
        }
        self.version += 1;
        *version = ResourceVersion(self.version);
    }

    fn run(&mut self) {
        while let Some(((now, _), (index, event))) = self.events.pop_first() {
            if now > END {
                return;
            }
            match event {
                Event::Attempt => self.turn(now, index),
                Event::Arrive {
                    request,
                    sent,
                    fate,
                    wait_until,
                } => {
                    let result = self.serve(&request);
                    let back = now + fate.back;
                    // An answer after the timeout is lost.
                    if fate.is_answered && back < wait_until {
                        self.add(
                            back,
                            index,
                            Event::Answer {
                                request,
                                sent,
                                result,
                            },
                        );
                    }
                }
                Event::Answer {
                    request,
                    sent,
                    result,
                } => {
                    self.answer(now, index, request, sent, result);
                }
                Event::Edit(edit) => self.edit(edit),
                Event::GiveUp { step } => {
                    if self.candidates[index].step == step {
                        self.pause(now, index);
                    }
                }
            }
        }
    }

    /// Serves a request as the API server does.
    fn serve(&mut self, request: &Request) -> Result<Option<Lease>, ()> {
        let Request::Write(Write { replaces, record }) = request else {
            return Ok(self.lease.clone());
        };
        if self.lease.as_ref().map(|lease| lease.version) != *replaces {
            return Err(());
        }
        self.version += 1;
        self.lease = Some(Lease {
            version: ResourceVersion(self.version),
            record: record.clone(),
            shards: Shards::ONE,
        });
        Ok(self.lease.clone())
    }

    fn turn(&mut self, now: Ms, index: usize) {
        let candidate = &self.candidates[index];
        if candidate.is_over {
            return;
        }
        let clock = candidate.nature.clock(now);
        let request = match candidate.machine.renewal(clock, candidate.nature.wall(now)) {
            Some(write) => Request::Write(write),
            None => Request::Read,
        };
        self.send(now, index, request);
    }

    fn send(&mut self, now: Ms, index: usize, request: Request) {
        let candidate = &mut self.candidates[index];
        candidate.step += 1;
        let step = candidate.step;
        let fates = &candidate.nature.fates;
        let fate = fates[step % fates.len()].clone();
        // The candidate reads the clock before the process can freeze.
        let sent = candidate.nature.clock(now);
        let begun = now + fate.freeze;
        let wait_until = begun + fate.patience;
        if fate.arrives {
            let at = begun + fate.there;
            self.add(
                at,
                index,
                Event::Arrive {
                    request,
                    sent,
                    fate,
                    wait_until,
                },
            );
        }
        self.add(wait_until, index, Event::GiveUp { step });
    }

    fn answer(
        &mut self,
        now: Ms,
        index: usize,
        request: Request,
        sent: Duration,
        result: Result<Option<Lease>, ()>,
    ) {
        let candidate = &mut self.candidates[index];
        candidate.step += 1;
        let clock = candidate.nature.clock(now);
        let wall = candidate.nature.wall(now);
        match (request, result) {
            (Request::Read, Ok(lease)) => match candidate.machine.decide(lease, clock, wall) {
                Decision::Write(write) => self.send(now, index, Request::Write(write)),
                Decision::Wait => self.pause(now, index),
                Decision::Yield { .. } | Decision::Lapse => self.end(now, index),
            },
            (Request::Write(_), Ok(Some(lease))) => {
                if let Some(from) = candidate.machine.wrote(lease, sent, clock) {
                    let until = candidate.nature.truth(from + TIMES.renew_deadline);
                    match candidate.claims.last_mut() {
                        Some(last) if now < last.1 => last.1 = until,
                        _ => candidate.claims.push((now, until)),
                    }
                }
                self.pause(now, index);
            }
            // Another candidate was faster.
            _ => self.send(now, index, Request::Read),
        }
    }

    fn end(&mut self, now: Ms, index: usize) {
        let candidate = &mut self.candidates[index];
        candidate.is_over = true;
        if let Some(last) = candidate.claims.last_mut() {
            last.1 = last.1.min(now);
        }
    }

    fn pause(&mut self, now: Ms, index: usize) {
        let candidate = &mut self.candidates[index];
        candidate.step += 1;
        let retry = u64::try_from(TIMES.retry.as_millis()).unwrap();
        let pause = if candidate.machine.is_holder() {
            retry
        } else {
            retry / 4
        };
        self.add(now + pause, index, Event::Attempt);
    }
}

/// Mostly prompt requests; some freeze for up to twice the lease's duration or take longer than it.
/// The usual timeout is the host's: half the renew deadline.
fn fate() -> impl Strategy<Value = Fate> {
    let freeze = prop_oneof![20 => Just(0), 1 => 0..30_000_u64];
    let delay = || prop_oneof![10 => 0..50_u64, 1 => 0..20_000_u64];
    let happens = || prop::bool::weighted(0.9);
    let patience = prop_oneof![3 => Just(5_000_u64), 1 => 100..40_000_u64];
    (freeze, delay(), delay(), happens(), happens(), patience).prop_map(
        |(freeze, there, back, arrives, is_answered, patience)| Fate {
            freeze,
            there,
            back,
            arrives,
            is_answered,
            patience,
        },
    )
}

/// Candidates with clocks as in fault F15: up to two hours apart, and up to 5 % fast or slow.
fn nature() -> impl Strategy<Value = Nature> {
    (
        0..30_000_u64,
        0..7_200_000_u64,
        950..=1050_u64,
        vec(fate(), 8..40),
    )
        .prop_map(|(starts, offset, rate, fates)| Nature {
            starts,
            offset,
            rate,
            fates,
        })
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (2..100_u32).prop_map(Edit::RemoveHolder),
        (0..4_usize).prop_map(Edit::Name),
        (0..=u32::MAX).prop_map(Edit::Restart),
    ]
}

proptest! {
    #[test]
    fn no_two_candidates_hold_claims_at_the_same_time(
        natures in vec(nature(), 2..=3),
        edits in vec((0..END, edit()), 0..8),
    ) {
        let mut world = World::new(natures);
        for (at, edit) in edits {
            world.add(at, 0, Event::Edit(edit));
        }
        world.run();
        for (index, one) in world.candidates.iter().enumerate() {
            for other in &world.candidates[..index] {
                for (from, until) in &one.claims {
                    for (other_from, other_until) in &other.claims {
                        prop_assert!(
                            until <= other_from || other_until <= from,
                            "{from}..{until} and {other_from}..{other_until}",
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_candidate_whose_requests_are_answered_gets_the_lease_and_keeps_it(mut nature in nature()) {
        for fate in &mut nature.fates {
            *fate = Fate { freeze: 0, there: 5, back: 5, arrives: true, is_answered: true, patience: 5_000 };
        }
        let starts = nature.starts;
        let mut world = World::new(vec![nature]);
        world.run();
        let claims = &world.candidates[0].claims;
        prop_assert_eq!(claims.len(), 1);
        prop_assert!(claims[0].0 <= starts + 20 && claims[0].1 > END);
    }
}
