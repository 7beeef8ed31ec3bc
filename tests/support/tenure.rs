//! Who held which Lease when, and which writes were outside of that, from the audit log alone.
//!
//! All times are the API server's, so hosts' clocks do not matter. A change of a Lease counts from when the API server
//! received it: its sender must have stopped before a release, and may begin only after the answer to a claim.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::audit::Write;

/// A Lease's state from one write to the next.
#[derive(Clone, Debug)]
struct Change {
    at: Timestamp,
    /// The whole identity; empty for a released Lease.
    holder: String,
    duration: SignedDuration,
}

/// The holders of all Leases over time.
#[derive(Clone, Debug, Default)]
pub struct Tenures {
    changes: BTreeMap<String, Vec<Change>>,
}

/// A Lease that passed from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The Lease.
    pub lease: String,
    /// The earlier holder's identity, without the random part.
    pub from: String,
    /// The new holder's.
    pub to: String,
    /// The earlier holder's last write to the Lease: the release, or the last renewal.
    pub left: Timestamp,
    /// When the new holder claimed it.
    pub taken: Timestamp,
    /// The earlier holder released it.
    pub is_released: bool,
}

impl Move {
    /// Returns true if the Lease is a shard's, and not the one whose holder asks for a shard.
    pub fn is_of_shard(&self) -> bool {
        self.lease
            .rsplit_once('.')
            .is_none_or(|(_, suffix)| suffix != "next")
    }
}

impl Tenures {
    /// Reads the changes of Leases among these writes, in any order.
    pub fn new(writes: &[Write]) -> Self {
        let mut writes: Vec<&Write> = writes
            .iter()
            .filter(|write| write.is_of_lease() && write.code < 300)
            .collect();
        writes.sort_by_key(|write| write.received);
        let mut tenures = Self::default();
        for write in writes {
            let spec = &write.body["spec"];
            let (Some(holder), Some(seconds)) = (
                spec["holderIdentity"].as_str(),
                spec["leaseDurationSeconds"].as_i64(),
            ) else {
                continue;
            };
            let change = Change {
                at: write.received,
                holder: holder.to_owned(),
                duration: SignedDuration::from_secs(seconds),
            };
            let changes = tenures.changes.entry(write.name.clone()).or_default();
            changes.push(change);
        }
        tenures
    }

    /// Returns the identity that may write under a Lease at a time; none if nobody may.
    pub fn holder(&self, lease: &str, at: Timestamp) -> Option<&str> {
        let changes = self.changes.get(lease)?;
        let last = changes.iter().rev().find(|change| change.at <= at)?;
        let is_held = !last.holder.is_empty() && at <= last.at + last.duration;
        is_held.then_some(&*last.holder)
    }

    /// Returns the hosts' writes that their senders had no right to send. `lease_of` returns the Lease under which a write
    /// belongs; none if any host may send it.
    pub fn strays(
        &self,
        writes: &[Write],
        lease_of: impl Fn(&Write) -> Option<String>,
    ) -> Vec<String> {
        let of_hosts = writes
            .iter()
            .filter(|write| write.is_by_host() && !write.is_of_lease());
        let stray = |write: &Write| {
            let lease = lease_of(write)?;
            let holder = self.holder(&lease, write.received);
            (holder != Some(sender(write))).then(|| {
                format!(
                    "{} in {:?} by {} at {}, under {lease} of {holder:?}",
                    write.line(),
                    write.namespace,
                    sender(write),
                    write.received
                )
            })
        };
        of_hosts.filter_map(stray).collect()
    }

    /// Returns the passages of all Leases from one host to another, in the order of their beginning.
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (lease, changes) in &self.changes {
            let mut last: Option<(&Change, bool)> = None;
            let mut holder = "";
            for change in changes {
                if change.holder.is_empty() {
                    last = last.map(|_| (change, true));
                    continue;
                }
                if let Some((left, is_released)) = last
                    && holder != change.holder
                {
                    moves.push(Move {
                        lease: lease.clone(),
                        from: short(holder).to_owned(),
                        to: short(&change.holder).to_owned(),
                        left: left.at,
                        taken: change.at,
                        is_released,
                    });
                }
                holder = &change.holder;
                last = Some((change, false));
            }
        }
        moves.sort_by_key(|passage| passage.left);
        moves
    }
}

/// The identity in a host's user agent; empty without one.
pub fn sender(write: &Write) -> &str {
    let agent = write.user_agent.split_once('(');
    let identity = agent.and_then(|(_, rest)| rest.split_once(')'));
    identity.map_or("", |(identity, _)| identity)
}

/// The part of an identity that `--lease-identity` states.
pub fn short(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(name, _)| name)
}

/// The time from each user's edit to the first write by a host that has its value, or a later value for the same object.
///
/// `value_of` returns the key of the parent and the value in an edit or in a host's write; values grow with each edit.
/// Edits without such a write come with none.
pub fn reactions(
    writes: &[Write],
    value_of: impl Fn(&Write) -> Option<(String, u64)>,
) -> Vec<(String, u64, Option<SignedDuration>)> {
    let mut served: BTreeMap<String, BTreeMap<u64, Timestamp>> = BTreeMap::new();
    let mut edits = Vec::new();
    for write in writes.iter().filter(|write| write.code < 300) {
        let Some((key, value)) = value_of(write) else {
            continue;
        };
        if write.is_by_host() {
            let values = served.entry(key).or_default();
            let first = values.entry(value).or_insert(write.answered);
            *first = (*first).min(write.answered);
        } else {
            edits.push((key, value, write.answered));
        }
    }
    let reaction = |(key, value, edited): (String, u64, Timestamp)| {
        let served = served
            .get(&key)
            .and_then(|values| values.range(value..).map(|(_, at)| *at).min());
        (key, value, served.map(|at| at.duration_since(edited)))
    };
    edits.into_iter().map(reaction).collect()
}

/// Returns the number in an object's field, written as a number or as text.
pub fn number(object: &Value, pointer: &str) -> Option<u64> {
    let value = object.pointer(pointer)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn write(agent: &str, resource: &str, second: i64, body: Value) -> Write {
        Write {
            verb: "patch".to_owned(),
            resource: resource.to_owned(),
            namespace: "one".to_owned(),
            name: "innkeeper.1".to_owned(),
            user: "admin".to_owned(),
            user_agent: agent.to_owned(),
            uri: String::new(),
            code: 200,
            body,
            received: at(second),
            answered: at(second + 1),
        }
    }

    fn lease(holder: &str, second: i64) -> Write {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 10});
        write(
            "innkeeper/1",
            "leases.coordination.k8s.io",
            second,
            json!({"spec": spec}),
        )
    }

    fn child(holder: &str, second: i64) -> Write {
        let agent = format!("innkeeper/1 ({holder})");
        write(
            &agent,
            "configmaps",
            second,
            json!({"data": {"note": second.to_string()}}),
        )
    }

    #[test]
    fn finds_writes_outside_of_a_tenure() {
        let leases = [
            lease("a_1", 0),
            lease("a_1", 5),
            lease("", 9),
            lease("b_2", 20),
        ];
        let tenures = Tenures::new(&leases);
        for (holder, second, is_stray) in [
            ("a_1", 0, false),
            ("a_1", 8, false),
            ("a_1", 9, true),
            ("b_2", 8, true),
            ("b_2", 19, true),
            ("b_2", 20, false),
            ("b_1", 20, true),
            ("b_2", 30, false),
            // Not renewed.
            ("b_2", 31, true),
        ] {
            let strays = tenures.strays(&[child(holder, second)], |write| Some(write.name.clone()));
            assert_eq!(
                strays.len(),
                usize::from(is_stray),
                "{holder} at {second}: {strays:?}"
            );
        }
        let free = tenures.strays(&[child("b_2", 0)], |_| None);
        assert!(free.is_empty());
    }

    #[test]
    fn finds_moves_and_whether_the_holder_agreed() {
        let leases = [
            lease("a_1", 0),
            lease("", 9),
            lease("b_2", 11),
            lease("b_2", 12),
            lease("c_3", 30),
        ];
        let passage = |from: &str, to: &str, left, taken, is_released| Move {
            lease: "innkeeper.1".to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            left: at(left),
            taken: at(taken),
            is_released,
        };
        let expected = [
            passage("a", "b", 9, 11, true),
            passage("b", "c", 12, 30, false),
        ];
        assert_eq!(Tenures::new(&leases).moves(), expected);
    }

    #[test]
    fn an_edit_is_served_by_its_value_or_a_later_one() {
        let value =
            |write: &Write| Some((write.namespace.clone(), number(&write.body, "/data/note")?));
        let edit = |second: i64| {
            write(
                "kubectl",
                "moodies",
                second,
                json!({"data": {"note": second}}),
            )
        };
        let reaction = |value, seconds: Option<i64>| {
            (
                "one".to_owned(),
                value,
                seconds.map(SignedDuration::from_secs),
            )
        };
        let writes = [edit(1), edit(3), child("a_1", 5), edit(7)];
        let expected = [
            reaction(1, Some(4)),
            reaction(3, Some(2)),
            reaction(7, None),
        ];
        assert_eq!(reactions(&writes, value), expected);
    }
}
