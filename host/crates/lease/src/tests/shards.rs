//! Several hosts that share shards: they join and die, their requests are late, and some have another number of shards.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use innkeeper_model::{ResourceVersion, Shard, ShardSet, Shards};
use proptest::{collection::vec, option, prelude::*};

use super::{TIMES, s, wall};
use crate::{
    Lease, LeaseRecord,
    balance::{Action, Holder, Observer, Share, Slot, View, lease_name},
    machine::{Decision, Machine, Write},
};

/// Milliseconds, on every host's clock.
type Ms = u64;

const STEP: Ms = 50;

/// Hosts join and die before this time.
const EVENTS_END: Ms = 60_000;

/// Enough to move every shard after the last event.
const END: Ms = EVENTS_END + 200_000;

/// The group's name.
const GROUP: &str = "innkeeper";

/// The stored Leases, by name.
#[derive(Default)]
struct Server {
    leases: BTreeMap<String, Lease>,
    version: u64,
}

impl Server {
    /// Writes as the API server does: only over the version that the write names.
    fn write(&mut self, name: &str, write: Write, shards: Shards) -> Option<Lease> {
        let stored = self.leases.get(name).map(|lease| lease.version);
        if stored != write.replaces {
            return None;
        }
        self.version += 1;
        let lease = Lease {
            version: ResourceVersion(self.version),
            record: write.record,
            shards,
        };
        self.leases.insert(name.to_owned(), lease.clone());
        Some(lease)
    }
}

/// An election's state.
enum Term {
    /// Takes the Lease at this time.
    Taking(Ms),
    /// Has taken it, and reads the other Leases at this time.
    Confirming(Ms),
    /// Holds the claim, and renews it at this time.
    Held(Ms),
    /// Its writes have ended at this time.
    Leaving(Ms),
    /// Has ended; known to the host when no list is under way.
    Ended,
}

struct Election {
    term: Term,
    machine: Machine,
    /// The time of the last successful write.
    since: Ms,
    /// True once the claim was held: an election may be given up before.
    was_held: bool,
}

struct Host {
    identity: String,
    shards: Shards,
    starts: Ms,
    dies: Option<Ms>,
    observer: Observer,
    elections: BTreeMap<Slot, Election>,
    /// The next list, or the answer to one and when it arrives.
    lists_at: Ms,
    answer: Option<(Ms, BTreeMap<String, Lease>)>,
}

impl Host {
    fn new(index: usize, shards: Shards, starts: Ms, dies: Option<Ms>) -> Self {
        let identity = format!("host {index}");
        Self {
            observer: Observer::new(GROUP, &identity, shards, TIMES),
            identity,
            shards,
            starts,
            dies: dies.map(|lives| starts + lives),
            elections: BTreeMap::new(),
            lists_at: starts,
            answer: None,
        }
    }

    fn is_alive(&self, now: Ms) -> bool {
        self.starts <= now && self.dies.is_none_or(|dies| now < dies)
    }

    /// Returns the shards for which this host may write; a dead one may have written until its claim lapsed.
    fn writes(&self, now: Ms) -> impl Iterator<Item = Shard> {
        self.elections.iter().filter_map(move |(slot, election)| {
            let is_held = matches!(election.term, Term::Held(_) | Term::Leaving(_))
                && election.was_held
                && now < election.since + ms(TIMES.renew_deadline);
            match slot {
                Slot::Shard(shard) if is_held => Some(*shard),
                _ => None,
            }
        })
    }

    fn step(&mut self, now: Ms, server: &mut Server, rng: &mut Rng) {
        let slots: Vec<Slot> = self.elections.keys().copied().collect();
        for slot in slots {
            self.step_election(slot, now, server, rng);
        }
        if self.answer.is_none() {
            self.elections
                .retain(|_, election| !matches!(election.term, Term::Ended));
        }
        if let Some((_, leases)) = self.answer.take_if(|(arrives, _)| *arrives <= now) {
            let view = self.observer.observe(&leases, clock(now));
            self.act(&view, now, rng);
            let has_free = view.holders.values().any(|holder| holder.host().is_none());
            self.lists_at = now + if has_free { 400 } else { 2_000 };
        } else if self.answer.is_none() && self.lists_at <= now {
            self.answer = Some((now + latency(rng), server.leases.clone()));
        }
    }

    fn act(&mut self, view: &View, now: Ms, rng: &mut Rng) {
        let shard = |slot: &Slot| match slot {
            Slot::Shard(shard) => Some(*shard),
            Slot::Next => None,
        };
        let own: ShardSet = self.elections.keys().filter_map(shard).collect();
        let leaving = self.elections.iter().find_map(|(slot, election)| {
            shard(slot).filter(|_| matches!(election.term, Term::Leaving(_) | Term::Ended))
        });
        let part = Share {
            identity: &self.identity,
            own: &own,
            leaving,
            reserved: TIMES.duration,
        };
        for action in part.actions(view) {
            let (slot, is_taken) = match action {
                Action::Take(shard) => (Slot::Shard(shard), true),
                Action::Ask => (Slot::Next, true),
                Action::GiveUp(shard) => (Slot::Shard(shard), false),
                Action::StopAsking => (Slot::Next, false),
            };
            if is_taken {
                let machine = self.observer.machine(slot);
                let term = Term::Taking(now + latency(rng));
                self.elections.entry(slot).or_insert(Election {
                    term,
                    machine,
                    since: 0,
                    was_held: false,
                });
            } else if let Some(election) = self.elections.get_mut(&slot)
                && !matches!(election.term, Term::Ended)
            {
                election.term = Term::Leaving(now + rng.u64(0..3_000));
            }
        }
    }

    fn step_election(&mut self, slot: Slot, now: Ms, server: &mut Server, rng: &mut Rng) {
        let Some(election) = self.elections.get_mut(&slot) else {
            return;
        };
        let is_due = match election.term {
            Term::Taking(at) | Term::Confirming(at) | Term::Held(at) | Term::Leaving(at) => {
                at <= now
            }
            Term::Ended => false,
        };
        if !is_due {
            return;
        }
        let name = slot.lease_name(GROUP);
        let stored = server.leases.get(&name).cloned();
        let goes_on = match election.term {
            Term::Taking(_) => {
                election.term = Term::Confirming(now + latency(rng));
                match election.machine.decide(stored, clock(now), wall(1)) {
                    Decision::Write(write) => {
                        election.write(write, &name, self.shards, now, server)
                    }
                    _ => false,
                }
            }
            Term::Confirming(_) => {
                election.term = Term::Held(now + 2_000);
                let view = self.observer.observe(&server.leases, clock(now));
                let is_confirmed = slot == Slot::Next || view.is_consistent();
                election.was_held = is_confirmed;
                if !is_confirmed {
                    release(election, stored, &name, self.shards, server);
                }
                is_confirmed
            }
            Term::Held(_) => {
                election.term = Term::Held(now + 2_000);
                let renewal = election.machine.renewal(clock(now), wall(clock_s(now)));
                renewal.is_some_and(|write| election.write(write, &name, self.shards, now, server))
            }
            Term::Leaving(_) | Term::Ended => {
                release(election, stored, &name, self.shards, server);
                false
            }
        };
        if !goes_on {
            election.term = Term::Ended;
        }
    }
}

impl Election {
    fn write(
        &mut self,
        write: Write,
        name: &str,
        shards: Shards,
        now: Ms,
        server: &mut Server,
    ) -> bool {
        let Some(lease) = server.write(name, write, shards) else {
            return false;
        };
        self.since = now;
        self.machine.wrote(lease, clock(now), clock(now)).is_some()
    }
}

fn release(
    election: &Election,
    stored: Option<Lease>,
    name: &str,
    shards: Shards,
    server: &mut Server,
) {
    let write = stored.and_then(|lease| election.machine.release(&lease, wall(1)));
    if let Some(write) = write {
        server.write(name, write, shards);
    }
}

fn clock(now: Ms) -> Duration {
    Duration::from_millis(now)
}

fn clock_s(now: Ms) -> i64 {
    i64::try_from(now / 1000).unwrap()
}

fn ms(duration: Duration) -> Ms {
    u64::try_from(duration.as_millis()).unwrap()
}

/// Mostly prompt; sometimes as long as a request may take.
fn latency(rng: &mut Rng) -> Ms {
    if rng.u8(..) < 8 {
        rng.u64(0..5_000)
    } else {
        rng.u64(0..300)
    }
}

/// Runs hosts to the end, and checks at each step that no two write for one shard, nor with two numbers of shards.
fn run(hosts: &mut [Host], seed: u64, mut check: impl FnMut(Ms, &[Host], &Server)) {
    let mut server = Server::default();
    let mut rng = Rng::with_seed(seed);
    for now in (0..END).step_by(usize::try_from(STEP).unwrap()) {
        for host in hosts.iter_mut().filter(|host| host.is_alive(now)) {
            host.step(now, &mut server, &mut rng);
        }
        let mut writers: BTreeMap<Shard, &str> = BTreeMap::new();
        let mut number = None;
        for host in hosts.iter() {
            for shard in host.writes(now) {
                let other = writers.insert(shard, &host.identity);
                assert_eq!(other, None, "{} {shard} at {now}", host.identity);
                assert_eq!(*number.get_or_insert(host.shards), host.shards, "at {now}");
            }
        }
        check(now, hosts, &server);
    }
}

fn count(number: u32) -> Shards {
    Shards::new(number).unwrap()
}

fn shards_of(host: &Host) -> usize {
    host.writes(END - STEP).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hosts_that_join_and_die_end_with_even_shares(
        seed in any::<u64>(),
        number in 2..=16_u32,
        lives in vec((0..EVENTS_END, option::weighted(0.3, 0..EVENTS_END)), 0..=5),
    ) {
        let shards = count(number);
        // The first one lives on.
        let first = Host::new(0, shards, 0, None);
        let others = lives.iter().enumerate();
        let others = others.map(|(index, (starts, dies))| Host::new(index + 1, shards, *starts, *dies));
        let mut hosts: Vec<Host> = std::iter::once(first).chain(others).collect();
        let nobody_dies = hosts.iter().all(|host| host.dies.is_none());
        let mut all_were_held = false;
        run(&mut hosts, seed, |now, hosts, server| {
            let is_held = |shard| server.leases.get(&lease_name(GROUP, shard)).is_some_and(|lease| !lease.record.holder.is_empty());
            let free = shards.all().filter(|shard| !is_held(*shard)).count();
            let leaving = hosts.iter().flat_map(|host| host.elections.iter()).filter(|(slot, election)| {
                matches!((slot, &election.term), (Slot::Shard(_), Term::Leaving(_)))
            });
            let moving = free + leaving.count();
            all_were_held |= free == 0;
            // Shards move one at a time.
            assert!(!nobody_dies || !all_were_held || moving <= 1 , "{moving} move at {now}");
        });
        let shares: Vec<usize> = hosts.iter().filter(|host| host.dies.is_none()).map(shards_of).collect();
        prop_assert_eq!(shares.iter().sum::<usize>(), usize::from(shards.get()), "{:?}", shares);
        let most = shares.iter().max().unwrap();
        let least = shares.iter().min().unwrap();
        prop_assert!(most - least <= 1, "{:?}", shares);
    }

    #[test]
    fn hosts_with_different_numbers_never_write_at_the_same_time(
        seed in any::<u64>(),
        lives in vec((prop_oneof![Just(2_u32), Just(3), Just(8)], 0..EVENTS_END / 4, option::of(0..EVENTS_END)), 2..=5),
    ) {
        let hosts = lives.iter().enumerate();
        let mut hosts: Vec<Host> = hosts.map(|(index, (number, starts, dies))| Host::new(index, count(*number), *starts, *dies)).collect();
        run(&mut hosts, seed, |_, _, _| {});
        // The ones that are left over do not wait for ever.
        let lives_on = hosts.iter().any(|host| host.dies.is_none());
        let shares: Vec<usize> = hosts.iter().filter(|host| host.dies.is_none()).map(shards_of).collect();
        prop_assert!(!lives_on || shares.iter().any(|count| *count > 0), "{:?}", shares);
    }
}

fn shard(index: usize) -> Shard {
    count(64).at(index).unwrap()
}

/// Returns a view from one letter per shard, then the asker's: a host, `-` free, `r` just released, `R` long ago.
fn view(letters: &str) -> View {
    let holder = |letter| match letter {
        '-' => Holder::Nobody,
        'r' => Holder::Released(s(1)),
        'R' => Holder::Released(TIMES.duration),
        host => Holder::Host(String::from(host)),
    };
    let (shards, next) = letters.split_once(' ').unwrap();
    let shards = shards
        .chars()
        .enumerate()
        .map(|(index, letter)| (Slot::Shard(shard(index)), holder(letter)));
    let next = next.chars().map(|letter| (Slot::Next, holder(letter)));
    View {
        holders: shards.chain(next).collect(),
        is_agreed: true,
        conflict: None,
        expires_in: None,
    }
}

/// Returns the actions of the host `B` as text.
fn actions(view: &View) -> Vec<String> {
    let own = view.holders.iter().filter_map(|(slot, holder)| match slot {
        Slot::Shard(shard) if holder.host() == Some("B") => Some(*shard),
        _ => None,
    });
    let part = Share {
        identity: "B",
        own: &own.collect(),
        leaving: None,
        reserved: TIMES.duration,
    };
    let text = |action: &Action| match action {
        Action::Take(shard) => format!("take {shard}"),
        Action::GiveUp(shard) => format!("give up {shard}"),
        Action::Ask => "ask".to_owned(),
        Action::StopAsking => "stop asking".to_owned(),
    };
    part.actions(view).iter().map(text).collect()
}

#[test]
fn a_host_takes_gives_up_and_asks() {
    for (letters, expected) in [
        // Alone.
        ("---- -", "take 0,take 1,take 2,take 3"),
        ("BBBB -", ""),
        // The free shards are shared out, and each host begins elsewhere.
        ("A---- -", "take 3,take 4"),
        ("C---- -", "take 1,take 2"),
        ("ACB- -", "take 3"),
        ("-CBA -", "take 0"),
        // Another host has two more.
        ("AA -", "ask"),
        ("ABA -", ""),
        ("ABAA -", "ask"),
        ("ABAA C", ""),
        ("ABAA B", ""),
        ("ABAB B", "stop asking"),
        // A released shard is the asker's for a while.
        ("ABAr C", ""),
        ("ABAR C", "take 3"),
        ("ABAr -", "take 3"),
        ("ABAr B", "stop asking,take 3"),
        ("AAAr B", "take 3"),
        ("rBBB C", "take 0"),
        // One shard at a time, never the leader's, and only from the host with the most.
        ("BBBB C", "give up 3"),
        ("BBBC C", "give up 2"),
        ("BBCC C", ""),
        ("BB C", "give up 1"),
        ("B- C", "take 1"),
        ("AABB C", ""),
        ("DDBB C", "give up 3"),
        ("DDDBB C", ""),
    ] {
        assert_eq!(actions(&view(letters)).join(","), expected, "{letters}");
    }
}

#[test]
fn a_host_waits_for_the_leader_and_for_hosts_with_another_number_of_shards() {
    let undecided = View {
        is_agreed: false,
        ..view("--- -")
    };
    assert_eq!(actions(&undecided), ["take 0"]);
    let conflict = View {
        conflict: Some(("x".to_owned(), count(2))),
        ..view("--- B")
    };
    assert_eq!(actions(&conflict), ["stop asking"]);
}

#[test]
fn a_group_is_known_by_its_names() {
    let mut observer = Observer::new(GROUP, "a", count(2), TIMES);
    let held = |shards| Lease {
        version: ResourceVersion(1),
        record: LeaseRecord {
            holder: "x".to_owned(),
            duration_s: 15,
            ..LeaseRecord::default()
        },
        shards: count(shards),
    };
    for (name, shards, is_agreed, is_conflict) in [
        ("innkeeper", 2, true, false),
        ("innkeeper", 1, false, true),
        ("innkeeper.1", 2, false, false),
        ("innkeeper.7", 8, false, true),
        ("innkeeper.64", 8, false, false),
        // Another group.
        ("innkeeper-7", 8, false, false),
        ("innkeeper.next", 8, false, false),
        ("other", 8, false, false),
    ] {
        let leases = BTreeMap::from([(name.to_owned(), held(shards))]);
        let view = observer.observe(&leases, s(1));
        assert_eq!(view.is_agreed, is_agreed, "{name}");
        assert_eq!(view.conflict.is_some(), is_conflict, "{name}");
    }
    // A host that died does not block the others.
    let leases = BTreeMap::from([("innkeeper.7".to_owned(), held(8))]);
    assert!(observer.observe(&leases, s(2)).conflict.is_some());
    assert!(observer.observe(&leases, s(18)).conflict.is_none());
}
