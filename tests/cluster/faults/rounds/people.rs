//! Rounds in which users, guests and the machine misbehave.

use fastrand::Rng;

use super::{CACHE, FAREWELL, NEW, OTHER_CACHE, PLAIN, desired, edit, good, on, one, parent};
use crate::{
    faults::plan::{FRESH, ForeignEdit, Parent, Propagation, Refusal, Sort, Step},
    relay::rules::{Action, End, Rule, Verb},
};

pub(super) fn refusals(rng: &mut Rng) -> Vec<Step> {
    let is_isolated = [
        Step::Put(PLAIN, good()),
        Step::Put(parent(Sort::Plain, 1), good()),
        Step::AwaitSynced(parent(Sort::Plain, 1), "True", "Applied"),
        Step::AwaitSynced(NEW, "False", "ApplyFailed"),
    ];
    let mut steps = vec![Step::Delete(NEW, Propagation::Background)];
    match rng.u8(..4) {
        0 => {
            let refused = Action::Answer {
                code: one(rng, &[403, 500]),
                retry_after: None,
            };
            let path = one(rng, &["/services", "/deployments"]);
            steps.push(Step::Rule(Rule::always(on(Verb::Write, path), refused)));
            steps.push(Step::Put(NEW, desired(rng)));
            steps.extend(is_isolated);
            steps.push(Step::ClearRules);
        }
        1 | 2 => {
            let refusals = [Refusal::Policy, Refusal::Quota, Refusal::Webhook];
            let plural = one(rng, &["services", "deployments"]);
            steps.push(Step::Deny(one(rng, &refusals), plural));
            steps.push(Step::Put(NEW, desired(rng)));
            steps.extend(is_isolated);
            steps.push(Step::Allow);
        }
        _ => steps.extend([
            Step::Put(PLAIN, good()),
            Step::Converge,
            Step::DeleteCrd,
            Step::Sweep(PLAIN),
            Step::Sweep(parent(Sort::Plain, 1)),
            Step::Put(NEW, desired(rng)),
            Step::AwaitSynced(NEW, "True", "Applied"),
            Step::ApplyCrd,
            Step::Put(PLAIN, good()),
        ]),
    }
    steps.push(Step::Converge);
    steps
}

pub(super) fn foreign_writers(rng: &mut Rng) -> Vec<Step> {
    let parent = one(rng, &[CACHE, OTHER_CACHE, FAREWELL]);
    let edit_child = |edit| Step::EditChild(parent, edit);
    match rng.u8(..6) {
        0 => vec![
            edit_child(ForeignEdit::Disown),
            Step::AwaitSynced(parent, "False", "MetadataLost"),
            edit_child(ForeignEdit::Remove),
            Step::Converge,
        ],
        1 => {
            let new = Parent { number: 3, ..CACHE };
            vec![
                Step::Delete(new, Propagation::Background),
                Step::OccupyName(new),
                Step::Put(new, desired(rng)),
                Step::AwaitSynced(new, "False", "ChildNotOwned"),
                Step::FreeName(new),
                Step::Converge,
            ]
        }
        2 => {
            let mut steps = Vec::new();
            for _ in 0..5 {
                steps.extend([edit_child(ForeignEdit::Edit), Step::Sleep(rng.u64(0..200))]);
            }
            steps.push(Step::Converge);
            steps
        }
        _ => {
            let kinds = [
                ForeignEdit::Edit,
                ForeignEdit::Seize,
                ForeignEdit::Hide,
                ForeignEdit::Relabel,
                ForeignEdit::Forget,
                ForeignEdit::Remove,
                ForeignEdit::Blink,
            ];
            vec![
                edit_child(one(rng, &kinds)),
                Step::Converge,
                edit_child(one(rng, &kinds)),
                Step::Converge,
            ]
        }
    }
}

pub(super) fn churn(is_long: bool, rng: &mut Rng) -> Vec<Step> {
    let background = Propagation::Background;
    match rng.u8(..4) {
        _ if is_long => vec![Step::Crowd(1000), edit(rng), Step::Converge],
        0 => vec![
            Step::Put(NEW, desired(rng)),
            Step::Converge,
            Step::Delete(NEW, Propagation::Orphan),
            Step::Sweep(NEW),
            Step::Put(NEW, desired(rng)),
            Step::Converge,
        ],
        1 => vec![Step::Crowd(12), edit(rng), Step::Converge],
        2 => {
            let mut steps = Vec::new();
            for _ in 0..3 {
                steps.extend([
                    Step::Put(NEW, desired(rng)),
                    Step::Sleep(rng.u64(0..60)),
                    Step::Delete(NEW, one(rng, &[background, Propagation::Foreground])),
                ]);
            }
            steps.extend([Step::Put(NEW, desired(rng)), Step::Converge]);
            steps
        }
        _ => vec![
            Step::Put(FAREWELL, good()),
            Step::Sleep(rng.u64(0..60)),
            Step::Delete(FAREWELL, one(rng, &[background, Propagation::Foreground])),
            edit(rng),
            Step::Put(FAREWELL, good()),
            Step::Converge,
        ],
    }
}

pub(super) fn misbehaviour(rng: &mut Rng) -> Vec<Step> {
    let behaviours = [
        "trap",
        "loop",
        "allocate",
        "flood",
        "undeclared-kind",
        "many-children",
        "huge-object",
        "retry",
        "invalid",
    ];
    vec![
        Step::Put(PLAIN, good()),
        Step::Converge,
        Step::Misbehave(PLAIN, one(rng, &behaviours)),
        Step::Put(CACHE, desired(rng)),
        Step::Put(NEW, desired(rng)),
        Step::AwaitSynced(CACHE, "True", "Applied"),
        Step::AwaitSynced(NEW, "True", "Applied"),
        Step::Put(PLAIN, good()),
        Step::Converge,
    ]
}

pub(super) fn scarcity(rng: &mut Rng) -> Vec<Step> {
    match rng.u8(..5) {
        0 => vec![
            Step::Restart(&["--nofile=48:48"]),
            Step::Put(NEW, desired(rng)),
            edit(rng),
            Step::Sleep(3000),
            Step::Restart(&[]),
            Step::Converge,
        ],
        // The compiled component exceeds the limit, so the host has nothing to serve and exits with
        // an error.
        1 => vec![
            Step::Restart(&[FRESH, "--fsize=65536:65536"]),
            Step::Put(NEW, desired(rng)),
            edit(rng),
            Step::Sleep(3000),
            Step::Restart(&[]),
            Step::Converge,
        ],
        // Not even the log fits, but the plugins have been compiled before.
        2 | 3 => vec![
            Step::Restart(&["--fsize=4096:4096"]),
            Step::Put(NEW, desired(rng)),
            edit(rng),
            Step::Converge,
            Step::Restart(&[]),
            Step::Converge,
        ],
        _ => vec![
            Step::Put(NEW, desired(rng)),
            Step::Crowd(4),
            Step::Starve(rng.u8(5..40), 3000),
            edit(rng),
            Step::Converge,
        ],
    }
}

pub(super) fn corruption(rng: &mut Rng) -> Vec<Step> {
    let parent = one(rng, &[CACHE, FAREWELL]);
    let edit_child = |edit| Step::EditChild(parent, edit);
    let first = one(
        rng,
        &[ForeignEdit::Reown, ForeignEdit::Relabel, ForeignEdit::Edit],
    );
    vec![
        edit_child(first),
        Step::Sleep(rng.u64(0..100)),
        edit(rng),
        Step::Converge,
    ]
}

pub(super) fn credentials(rng: &mut Rng) -> Vec<Step> {
    let all = on(Verb::Any, "");
    let begins = match rng.u8(..3) {
        0 => Step::RefuseConnections,
        1 => Step::Rule(Rule::always(all, Action::Hold)),
        _ => {
            let refused = Action::Answer {
                code: 401,
                retry_after: None,
            };
            Step::Rule(Rule::always(all, refused))
        }
    };
    vec![
        begins,
        Step::CloseConnections(all, one(rng, &[End::Close, End::Reset])),
        edit(rng),
        Step::EditChild(CACHE, ForeignEdit::Remove),
        Step::Sleep(2000),
        Step::ClearRules,
        Step::Converge,
    ]
}
