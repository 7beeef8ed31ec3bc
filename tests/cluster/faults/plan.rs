//! A fault plan as data: what users, other clients, the network and the servers do while a host
//! works, and the desired final state.
//!
//! Pure: the same row and seed always give the same plan.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    str::FromStr,
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Value, json};

use super::rounds;
use crate::relay::{
    Moment,
    rules::{Action, End, On, Rule},
};

/// Rows in the fault matrix.
pub(crate) const ROWS: [u8; 20] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
];

/// A pseudo limit: the host starts without compiled plugins and has to compile them.
pub(crate) const FRESH: &str = "fresh";

/// The row in which two hosts compete for a lease.
pub(crate) const LEADER_ROW: u8 = 15;

/// A plan's steps, in rounds that do not depend on each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) name: Name,
    /// The first round creates the parents.
    pub(crate) rounds: Vec<Vec<Step>>,
}

/// Identifies a plan: `F7:12`, or `F7:12-2-4` without rounds 2 and 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) row: u8,
    pub(crate) seed: u64,
    dropped: Vec<usize>,
}

impl Name {
    pub(crate) const fn new(row: u8, seed: u64) -> Self {
        Self {
            row,
            seed,
            dropped: Vec::new(),
        }
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{}:{}", self.row, self.seed)?;
        self.dropped
            .iter()
            .try_for_each(|round| write!(f, "-{round}"))
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (row, rest) = text.strip_prefix(['F', 'f'])?.split_once(':')?;
            let mut numbers = rest.split('-');
            let name = Self {
                row: row.parse().ok()?,
                seed: numbers.next()?.parse().ok()?,
                dropped: numbers
                    .map(|number| number.parse().ok())
                    .collect::<Option<_>>()?,
            };
            ROWS.contains(&name.row).then_some(name)
        };
        parse().ok_or_else(|| format!("{text} names no plan: write F7:12 or F7:12-2"))
    }
}

impl Plan {
    /// Builds the plan with this name.
    pub(crate) fn new(name: Name) -> Self {
        let mut rng = Rng::with_seed(name.seed.wrapping_mul(31).wrapping_add(name.row.into()));
        let rounds = rounds::rounds(name.row, name.seed, &mut rng)
            .into_iter()
            .enumerate()
            .filter(|(number, _)| *number == 0 || !name.dropped.contains(number))
            .map(|(_, round)| round)
            .collect();
        Self { name, rounds }
    }

    /// Plans with one round less than this one, to find the smallest plan that fails.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let all = self.rounds.len() + self.name.dropped.len();
        (1..all)
            .filter(|round| !self.name.dropped.contains(round))
            .map(|round| {
                let mut name = self.name.clone();
                name.dropped.push(round);
                name.dropped.sort_unstable();
                Self::new(name)
            })
            .collect()
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.rounds.iter().flatten()
    }

    /// Time limit for convergence after a fault has ended. A silent connection is noticed only when
    /// the watch should have ended, a crowd takes long, and everything else needs one backoff. A
    /// watch that is repeatedly cut within the same event backs off for up to 30 s each time.
    ///
    /// After a server was down, the cluster's controllers must reconnect, too, because the plan
    /// compares their work together with the host's: client-go gives up a silent connection after
    /// 45 s and backs off for up to 30 s.
    pub(crate) fn patience(&self) -> Duration {
        let step_seconds = |step: &Step| match step {
            Step::Rule(rule) => match rule.action {
                Action::Cut {
                    end: End::Silence, ..
                } => 240,
                Action::Cut { .. } => 180,
                _ => 60,
            },
            Step::Crowd(count) if *count > 100 => 240,
            Step::Server(_) => 180,
            _ => 60,
        };
        Duration::from_secs(self.steps().map(step_seconds).max().unwrap_or(60))
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan {}", self.name)?;
        for (number, round) in self.rounds.iter().enumerate() {
            write!(f, "\n  round {number}")?;
            for step in round {
                write!(f, "\n    {step:?}")?;
            }
        }
        Ok(())
    }
}

/// A step in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A user applies a parent with this desired state.
    Put(Parent, Desired),
    /// A user applies this many more Memcacheds.
    Crowd(u16),
    /// A user deletes a parent.
    Delete(Parent, Propagation),
    /// A client deletes the children that a deleted parent left behind.
    Sweep(Parent),
    /// A client edits a parent's first child.
    EditChild(Parent, ForeignEdit),
    /// A client creates an object under the name of a parent's first child, before the parent
    /// exists.
    OccupyName(Parent),
    /// That object is deleted, and must be unchanged.
    FreeName(Parent),
    /// A guest misbehaves for a parent, as the parent's spec says.
    Misbehave(Parent, &'static str),
    /// The cluster refuses writes to a plural in the namespace.
    Deny(Refusal, &'static str),
    /// The cluster accepts them again.
    Allow,
    /// An administrator deletes the plain parents' CRD.
    DeleteCrd,
    /// An administrator applies that CRD again.
    ApplyCrd,
    /// The network gets a rule.
    Rule(Rule),
    /// Connections are closed.
    CloseConnections(On, End),
    /// New connections are refused.
    RefuseConnections,
    /// The network works again.
    ClearRules,
    /// Runs a command on the control plane.
    Server(&'static [&'static str]),
    /// Saves the cluster state together with the desired state.
    Snapshot,
    /// Restores the saved state.
    Restore,
    /// Another client writes this many objects, and then edits all objects in the plan, so every
    /// watch has an event with the new version.
    AdvanceVersions(u32),
    /// Kills the host at this write, counted from now, and restarts it; the inner step makes it
    /// write.
    KillAt(Moment, usize, Box<Self>),
    /// Kills the host and restarts it with limits in `prlimit` syntax, possibly with [`FRESH`]; an
    /// empty list means none. Limits may keep the host from working or make it exit with an error.
    Restart(&'static [&'static str]),
    /// Starts a second host with a working network as a standby. From now on the first one may
    /// exit.
    Standby,
    /// Stops the host, as on a suspended machine.
    Freeze,
    /// Continues the host.
    Thaw,
    /// A client edits the lease.
    Tamper(Tampering),
    /// Gives the host this share of the processor time, in percent, for this many milliseconds.
    Starve(u8, u64),
    /// Waits this many milliseconds.
    Sleep(u64),
    /// A parent's `Synced` condition soon has this status and reason.
    AwaitSynced(Parent, &'static str, &'static str),
    /// The cluster soon reaches the desired state.
    Converge,
}

/// How the cluster refuses requests that it would otherwise accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// By an admission policy.
    Policy,
    /// By a quota, which applies only to new objects.
    Quota,
    /// By a webhook that does not answer.
    Webhook,
}

/// A foreign edit to the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tampering {
    /// Shifts the renewal time by this many seconds.
    Skew(i64),
    /// Deletes the lease.
    Remove,
    /// Gives the lease to a holder that will not renew it.
    Give,
}

/// A parent in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parent {
    pub(crate) sort: Sort,
    pub(crate) number: u16,
}

/// A parent's guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// `memcached`: a Deployment, a Service, and with `extra` a disruption budget.
    Cache,
    /// `unruly`: two ConfigMaps, and without `extra` none.
    Plain,
    /// `farewell`: a ConfigMap, and another one while the parent is being deleted.
    Farewell,
}

/// A parent's desired state; ignores fields that this sort of parent lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Desired {
    pub(crate) size: u8,
    pub(crate) extra: bool,
}

/// How a deletion treats the parent's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// A foreign edit to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignEdit {
    /// Deletes it.
    Remove,
    /// Sets a field that the host owns.
    Edit,
    /// Applies that field with force, as another manager.
    Seize,
    /// Removes the host's label.
    Hide,
    /// Gives that label another value.
    Relabel,
    /// Removes the host's label and puts it back.
    Flip,
    /// Removes the managed fields.
    Forget,
    /// Removes the owner reference.
    Disown,
    /// Makes it the child of another, nonexistent object.
    Reown,
    /// Deletes it, and briefly creates an object with the same name.
    Blink,
}

/// A child in a desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Child {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    /// The plural, as in the audit log.
    pub(crate) resource: &'static str,
    pub(crate) name: String,
}

/// The parents' kinds, followed by the children's.
pub(crate) const KINDS: [(&str, &str); 7] = [
    ("cache.example.com/v1", "Memcached"),
    ("test.innkeeper.dev/v1", "Unruly"),
    ("test.innkeeper.dev/v1", "Farewell"),
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("policy/v1", "PodDisruptionBudget"),
];

impl Parent {
    pub(crate) fn name(self) -> String {
        let sort = match self.sort {
            Sort::Cache => "cache",
            Sort::Plain => "plain",
            Sort::Farewell => "farewell",
        };
        format!("{sort}-{}", self.number)
    }

    pub(crate) const fn kind(self) -> (&'static str, &'static str) {
        match self.sort {
            Sort::Cache => KINDS[0],
            Sort::Plain => KINDS[1],
            Sort::Farewell => KINDS[2],
        }
    }

    /// The object that a user applies.
    pub(crate) fn object(self, desired: Desired) -> Value {
        let (api_version, kind) = self.kind();
        let mut spec = match self.sort {
            Sort::Cache => json!({ "size": desired.size }),
            Sort::Plain => json!({ "behaviour": if desired.extra { "good" } else { "nothing" } }),
            Sort::Farewell => json!({ "end": "goodbye" }),
        };
        if self.sort == Sort::Cache && desired.extra {
            spec["highAvailability"] =
                json!({ "podDisruptionBudget": { "enabled": true, "maxUnavailable": 1 } });
        }
        // Three-byte characters, so that a cut watch is likely to end inside one.
        let annotations = json!({ "test.example/text": "\u{2603}".repeat(300) });
        json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": { "name": self.name(), "annotations": annotations },
            "spec": spec,
        })
    }

    /// The children in a desired state; the first one exists in every state that has any.
    pub(crate) fn children(self, desired: Desired) -> Vec<Child> {
        let name = self.name();
        let child =
            |(api_version, kind): (&'static str, &'static str), resource, name: &str| Child {
                api_version,
                kind,
                resource,
                name: name.to_owned(),
            };
        let map = |key| child(KINDS[5], "configmaps", &format!("{name}-{key}"));
        match self.sort {
            Sort::Cache => {
                let mut children = vec![
                    child(KINDS[3], "deployments.apps", &name),
                    child(KINDS[4], "services", &name),
                ];
                if desired.extra {
                    children.push(child(KINDS[6], "poddisruptionbudgets.policy", &name));
                }
                children
            }
            Sort::Plain if desired.extra => vec![map("first"), map("second")],
            Sort::Plain => Vec::new(),
            Sort::Farewell => vec![map("hello")],
        }
    }

    /// The child that foreign edits concern.
    pub(crate) fn first_child(self) -> Child {
        let desired = Desired {
            size: 1,
            extra: true,
        };
        self.children(desired).swap_remove(0)
    }
}

/// All parents' desired states, as the plan proceeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DesiredParents {
    pub(crate) now: BTreeMap<Parent, Desired>,
    snapshot: BTreeMap<Parent, Desired>,
}

impl DesiredParents {
    /// Applies a step's effect.
    pub(crate) fn take(&mut self, step: &Step) {
        match step {
            Step::Put(parent, desired) => {
                self.now.insert(*parent, *desired);
            }
            Step::Crowd(count) => self.now.extend(crowd(*count)),
            Step::Delete(parent, _) => {
                self.now.remove(parent);
            }
            Step::DeleteCrd => self.now.retain(|parent, _| parent.sort != Sort::Plain),
            Step::Snapshot => self.snapshot = self.now.clone(),
            Step::Restore => self.now = self.snapshot.clone(),
            Step::KillAt(_, _, step) => self.take(step),
            _ => {}
        }
    }
}

/// Returns this many Memcacheds, with numbers that are not used elsewhere.
pub(crate) fn crowd(count: u16) -> impl Iterator<Item = (Parent, Desired)> {
    let desired = Desired {
        size: 1,
        extra: false,
    };
    (0..count).map(move |number| {
        let parent = Parent {
            sort: Sort::Cache,
            number: 100 + number,
        };
        (parent, desired)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_always_gives_the_same_plan() {
        for row in ROWS {
            for seed in 1..50 {
                let plan = Plan::new(Name::new(row, seed));
                assert!(plan.rounds.len() > 1, "{plan}");
                let name: Name = plan.name.to_string().parse().unwrap();
                assert_eq!(Plan::new(name), plan);
            }
        }
        let two = [1, 2].map(|seed| Plan::new(Name::new(20, seed)).rounds);
        assert_ne!(two[0], two[1]);
        for wrong in ["", "F7", "F0:1", "F21:1", "F7:x", "F7:1-x", "7:1"] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_plan_is_reduced_by_one_round_at_a_time() {
        let plan = Plan::new(Name::new(20, 3));
        let count = plan.rounds.len();
        let smaller = plan.smaller();
        assert_eq!(smaller.len(), count - 1);
        for (dropped, smaller) in (1..).zip(&smaller) {
            let mut rounds = plan.rounds.clone();
            rounds.remove(dropped);
            assert_eq!(smaller.rounds, rounds);
            let name: Name = smaller.name.to_string().parse().unwrap();
            assert_eq!(&Plan::new(name), smaller);
        }
        let mut last = plan;
        while let Some(smaller) = last.smaller().pop() {
            last = smaller;
        }
        assert_eq!(last.rounds.len(), 1);
    }

    #[test]
    fn a_restore_resets_the_desired_state() {
        let parent = Parent {
            sort: Sort::Cache,
            number: 0,
        };
        let desired = |size| Desired { size, extra: false };
        let mut desired_parents = DesiredParents::default();
        let steps = [
            Step::Put(parent, desired(1)),
            Step::Snapshot,
            Step::Put(parent, desired(2)),
            Step::Crowd(2),
        ];
        for step in &steps {
            desired_parents.take(step);
        }
        assert_eq!(desired_parents.now.len(), 3);
        desired_parents.take(&Step::Restore);
        assert_eq!(desired_parents.now, BTreeMap::from([(parent, desired(1))]));
        desired_parents.take(&Step::Delete(parent, Propagation::Orphan));
        assert!(desired_parents.now.is_empty());
    }
}
