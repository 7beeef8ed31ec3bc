//! Rounds for each row in the fault matrix: network and server rows here, the others in `people`.
//!
//! Pure. Every round ends without faults and in the desired state, so any round can be dropped.

mod people;

use fastrand::Rng;

use super::plan::{Desired, ForeignEdit, Parent, Propagation, Sort, Step, Tampering};
use crate::relay::{
    Moment,
    rules::{Action, End, On, Rule, Verb},
};

const fn parent(sort: Sort, number: u16) -> Parent {
    Parent { sort, number }
}

const CACHE: Parent = parent(Sort::Cache, 0);
const OTHER_CACHE: Parent = parent(Sort::Cache, 1);
const PLAIN: Parent = parent(Sort::Plain, 0);
const FAREWELL: Parent = parent(Sort::Farewell, 0);
/// Created by rounds that need a new parent.
const NEW: Parent = parent(Sort::Cache, 2);

/// Path fragments that select watches, reads and writes.
const PATHS: [&str; 7] = [
    "",
    "/memcacheds",
    "/deployments",
    "/services",
    "/poddisruptionbudgets",
    "/unrulies",
    "/configmaps",
];

/// Rows in the random mix: those that need no second API server and no restored cluster.
const MIXED: [u8; 16] = [1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 19];

/// A plan's rounds; every eighth seed includes the ones that take minutes.
pub(super) fn rounds(row: u8, seed: u64, rng: &mut Rng) -> Vec<Vec<Step>> {
    let is_long = seed.is_multiple_of(8);
    let mut all = vec![vec![
        Step::Put(CACHE, desired(rng)),
        Step::Put(OTHER_CACHE, desired(rng)),
        Step::Put(PLAIN, good()),
        Step::Put(FAREWELL, good()),
        Step::Converge,
    ]];
    let count = match row {
        // Stopping and starting servers takes seconds.
        4 | 8 | 9 | 10 | 15 => 1,
        20 => 5,
        _ => 3,
    };
    for number in 0..count {
        let row = if row == 20 { one(rng, &MIXED) } else { row };
        all.push(round(row, is_long && number == 0, rng));
    }
    all
}

fn round(row: u8, is_long: bool, rng: &mut Rng) -> Vec<Step> {
    match row {
        1 => kill(Moment::Before, rng),
        2 => kill(Moment::After, rng),
        3 => lost_answers(rng),
        4 => stale_server(rng),
        5 => late_watches(rng),
        6 => unobserved(rng),
        7 => cut_watches(is_long, rng),
        8 => history_gone(rng),
        9 => restored(rng),
        10 => servers(rng),
        11 => overload(rng),
        12 => people::refusals(rng),
        13 => people::foreign_writers(rng),
        14 => people::churn(is_long, rng),
        15 => leader(rng),
        16 => people::misbehaviour(rng),
        17 => people::scarcity(rng),
        18 => people::corruption(rng),
        _ => people::credentials(rng),
    }
}

fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

fn desired(rng: &mut Rng) -> Desired {
    Desired {
        size: rng.u8(1..=3),
        extra: rng.bool(),
    }
}

const fn good() -> Desired {
    Desired {
        size: 1,
        extra: true,
    }
}

/// A user's edit to one parent.
fn edit(rng: &mut Rng) -> Step {
    let parent = one(rng, &[CACHE, OTHER_CACHE, PLAIN]);
    Step::Put(parent, desired(rng))
}

const fn on(verb: Verb, path: &'static str) -> On {
    On { verb, path }
}

fn path(rng: &mut Rng) -> &'static str {
    one(rng, &PATHS)
}

fn kill(moment: Moment, rng: &mut Rng) -> Vec<Step> {
    let writes = if rng.bool() {
        Step::Put(NEW, desired(rng))
    } else {
        edit(rng)
    };
    let number = rng.usize(1..=6);
    vec![
        Step::KillAt(moment, number, Box::new(writes)),
        Step::Converge,
    ]
}

fn lost_answers(rng: &mut Rng) -> Vec<Step> {
    let lost = Action::Answer {
        code: 504,
        retry_after: None,
    };
    let rule = Rule {
        on: on(Verb::Write, ""),
        every: rng.u32(1..=2),
        times: rng.u32(1..=3),
        action: one(rng, &[Action::Lose, Action::GiveUp, lost]),
    };
    vec![
        Step::Rule(rule),
        Step::Put(NEW, desired(rng)),
        edit(rng),
        Step::Converge,
        Step::ClearRules,
    ]
}

fn stale_server(rng: &mut Rng) -> Vec<Step> {
    let mut steps = vec![
        Step::Server(&["start", "apiserver-2"]),
        Step::Server(&["wait", "apiserver-2"]),
        edit(rng),
        Step::Converge,
        Step::Server(&["cut", "apiserver-2"]),
    ];
    match rng.u8(..3) {
        0 => steps.extend([
            Step::Delete(CACHE, Propagation::Background),
            Step::Put(CACHE, desired(rng)),
        ]),
        1 => steps.push(Step::EditChild(CACHE, ForeignEdit::Remove)),
        _ => steps.extend([edit(rng), edit(rng)]),
    }
    steps.push(Step::Converge);
    steps.push(Step::Server(&["front", "apiserver-2"]));
    // A running host knows newer objects than the API server shows; a restarted host knows none.
    if rng.bool() {
        steps.push(Step::Restart(&[]));
    }
    steps.extend([
        Step::Sleep(3000),
        Step::Server(&["mend", "apiserver-2"]),
        edit(rng),
        Step::Converge,
        Step::Server(&["front", "apiserver"]),
        Step::Server(&["stop", "apiserver-2"]),
        edit(rng),
        Step::Converge,
    ]);
    steps
}

fn late_watches(rng: &mut Rng) -> Vec<Step> {
    let by = rng.u64(100..3000);
    let rule = Rule::always(on(Verb::Watch, path(rng)), Action::Late(by));
    vec![
        Step::Rule(rule),
        Step::Put(NEW, desired(rng)),
        edit(rng),
        edit(rng),
        Step::Converge,
        edit(rng),
        Step::Converge,
        Step::ClearRules,
    ]
}

fn unobserved(rng: &mut Rng) -> Vec<Step> {
    let watches = on(Verb::Watch, path(rng));
    let mut steps = vec![Step::Rule(Rule::always(watches, Action::Hold))];
    match rng.u8(..4) {
        0 => steps.push(Step::EditChild(CACHE, ForeignEdit::Flip)),
        1 => steps.push(Step::EditChild(CACHE, ForeignEdit::Blink)),
        2 => steps.extend([
            Step::Delete(CACHE, Propagation::Background),
            Step::Put(CACHE, desired(rng)),
        ]),
        _ => {
            let before = desired(rng);
            let between = desired(rng);
            let puts = [before, between, before].map(|desired| Step::Put(CACHE, desired));
            steps.extend(puts);
        }
    }
    steps.push(Step::Sleep(500));
    if rng.bool() {
        steps.push(Step::CloseConnections(watches, End::Close));
    }
    steps.extend([Step::ClearRules, Step::Converge]);
    steps
}

fn cut_watches(is_long: bool, rng: &mut Rng) -> Vec<Step> {
    let path = path(rng);
    if is_long {
        let cut = Action::Cut {
            after: rng.usize(1..2000),
            end: End::Silence,
        };
        let rule = Rule::always(on(Verb::Watch, path), cut);
        let rule = Rule { times: 3, ..rule };
        return vec![
            Step::Rule(rule),
            edit(rng),
            edit(rng),
            Step::Converge,
            Step::ClearRules,
        ];
    }
    let cut = Action::Cut {
        after: rng.usize(1..4000),
        end: one(rng, &[End::Close, End::Reset]),
    };
    match rng.u8(..4) {
        // Cuts a host's first list.
        0 => {
            let rule = Rule::always(on(Verb::Read, path), cut);
            let rule = Rule { times: 2, ..rule };
            vec![
                Step::Rule(rule),
                Step::Restart(&[]),
                edit(rng),
                Step::Converge,
                Step::ClearRules,
            ]
        }
        1 => {
            let watches = on(Verb::Watch, path);
            let rule = Rule::always(watches, Action::NoBookmarks);
            vec![
                Step::Rule(rule),
                Step::CloseConnections(watches, End::Reset),
                edit(rng),
                Step::Converge,
                Step::ClearRules,
            ]
        }
        _ => {
            let rule = Rule::always(on(Verb::Watch, path), cut);
            let rule = Rule { times: 5, ..rule };
            vec![
                Step::Rule(rule),
                edit(rng),
                Step::EditChild(CACHE, ForeignEdit::Remove),
                edit(rng),
                Step::Converge,
                Step::ClearRules,
            ]
        }
    }
}

fn history_gone(rng: &mut Rng) -> Vec<Step> {
    let watches = on(Verb::Watch, "/deployments");
    let rule = |on, times, action| {
        Step::Rule(Rule {
            on,
            every: 1,
            times,
            action,
        })
    };
    let gone_response = Action::Answer {
        code: 410,
        retry_after: None,
    };
    // First one watch alone, while everything else is calm, so that only a new list can reveal the
    // deletion. A disruption budget would also reveal it, because budget status follows the Pods.
    let alone = Desired {
        extra: false,
        ..desired(rng)
    };
    let mut steps = vec![
        Step::Put(OTHER_CACHE, alone),
        Step::Converge,
        Step::Sleep(500),
        rule(watches, u32::MAX, Action::Expire),
        Step::CloseConnections(watches, End::Close),
        Step::EditChild(OTHER_CACHE, ForeignEdit::Remove),
        Step::Converge,
        Step::ClearRules,
        Step::Server(&["cut", "front"]),
        Step::EditChild(CACHE, ForeignEdit::Remove),
    ];
    if rng.bool() {
        steps.push(edit(rng));
    }
    steps.extend([
        Step::Server(&["compact"]),
        Step::Server(&["restart", "apiserver"]),
        Step::Server(&["mend", "front"]),
        Step::Converge,
        rule(
            on(one(rng, &[Verb::Read, Verb::Watch]), path(rng)),
            rng.u32(1..=4),
            gone_response,
        ),
        Step::CloseConnections(on(Verb::Watch, ""), End::Close),
        Step::EditChild(OTHER_CACHE, ForeignEdit::Remove),
        Step::Converge,
        Step::ClearRules,
    ]);
    steps
}

fn restored(rng: &mut Rng) -> Vec<Step> {
    vec![
        Step::Snapshot,
        Step::Put(CACHE, desired(rng)),
        Step::EditChild(OTHER_CACHE, ForeignEdit::Remove),
        Step::Converge,
        // Otherwise versions after the restore would soon be as high as before.
        Step::AdvanceVersions(600),
        Step::Restore,
        Step::Put(OTHER_CACHE, desired(rng)),
        Step::EditChild(CACHE, ForeignEdit::Remove),
        Step::Converge,
    ]
}

fn servers(rng: &mut Rng) -> Vec<Step> {
    let mut steps = vec![Step::Put(NEW, desired(rng))];
    match rng.u8(..4) {
        0 => steps.push(Step::Server(&["restart", "apiserver"])),
        1 => steps.extend([
            Step::Server(&["kill", "apiserver"]),
            Step::Server(&["wait", "apiserver"]),
        ]),
        2 => steps.extend([
            Step::Server(&["pause", "apiserver"]),
            Step::Sleep(2500),
            Step::Server(&["resume", "apiserver"]),
        ]),
        _ => steps.extend([
            Step::Server(&["start", "apiserver-2"]),
            Step::Server(&["wait", "apiserver-2"]),
            Step::Server(&["front", "apiserver-2"]),
            Step::Server(&["restart", "apiserver"]),
            edit(rng),
            Step::Converge,
            Step::Server(&["front", "apiserver"]),
            Step::Server(&["stop", "apiserver-2"]),
        ]),
    }
    let initializing = Rule {
        on: on(Verb::Any, path(rng)),
        every: 1,
        times: rng.u32(1..8),
        action: Action::Answer {
            code: 429,
            retry_after: Some(1),
        },
    };
    steps.extend([
        Step::Rule(initializing),
        Step::CloseConnections(on(Verb::Any, ""), End::Reset),
        edit(rng),
        Step::Converge,
        Step::ClearRules,
    ]);
    steps
}

fn overload(rng: &mut Rng) -> Vec<Step> {
    let mut steps = Vec::new();
    for verb in [Verb::Write, Verb::Read] {
        let action = Action::Answer {
            code: one(rng, &[429, 503, 500]),
            retry_after: one(rng, &[None, Some(1)]),
        };
        steps.push(Step::Rule(Rule {
            on: on(verb, ""),
            every: 3,
            times: 40,
            action,
        }));
    }
    let slow = Action::Late(rng.u64(100..1000));
    steps.extend([
        Step::Rule(Rule::always(on(Verb::Any, ""), slow)),
        Step::Put(NEW, desired(rng)),
        Step::Crowd(4),
        edit(rng),
        Step::Converge,
        Step::ClearRules,
    ]);
    steps
}

/// The lease holder's network fails, the process stops, or a client edits the lease. The standby
/// host is not affected.
fn leader(rng: &mut Rng) -> Vec<Step> {
    let hold = |path| Step::Rule(Rule::always(on(Verb::Any, path), Action::Hold));
    let fault = match rng.u8(..8) {
        0 => hold(""),
        // Everything but the lease works.
        1 => hold("/leases"),
        2 => {
            let late = Action::Late(rng.u64(500..6000));
            Step::Rule(Rule::always(on(Verb::Any, "/leases"), late))
        }
        3 => Step::RefuseConnections,
        4 => Step::Freeze,
        5 => Step::Tamper(Tampering::Skew(one(rng, &[3600, -3600]))),
        6 => Step::Tamper(Tampering::Remove),
        _ => Step::Tamper(Tampering::Give),
    };
    let is_frozen = fault == Step::Freeze;
    let mut steps = vec![Step::Standby, fault];
    if rng.bool() && !is_frozen {
        steps.push(Step::CloseConnections(on(Verb::Any, ""), End::Reset));
    }
    for _ in 0..16 {
        steps.extend([edit(rng), Step::Sleep(500)]);
    }
    if is_frozen {
        steps.push(Step::Thaw);
    }
    steps.extend([Step::Converge, Step::ClearRules, edit(rng), Step::Converge]);
    steps
}
