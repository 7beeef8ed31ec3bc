//! Oracles that judge a plan: the API servers' audit logs, the requests that the relay saw, and the
//! process. None relies on the host's own view.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::Write;
use jiff::{SignedDuration, Timestamp};

use super::{
    driver::Run,
    plan::{Child, Desired, Parent, Step, crowd},
};
use crate::relay::{
    Seen,
    rules::{Action, is_write},
};

/// Limit for the host's resident memory, under every fault.
const RESIDENT_KIB_MAX: u64 = 512 * 1024;

/// Limit for the host's threads: the engine's and runtime's pools, and a few more.
const THREADS_MAX: u64 = 64;

/// Limit for equal requests within a second; a client that backs off stays well below.
const SAME_PER_SECOND_MAX: usize = 25;

/// How long a pass that began before the parent's deletion may continue to create children.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(2);

/// What a plan's steps allow the host to write.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// UIDs of all parents so far.
    pub(super) uids: BTreeSet<String>,
    /// When parents were deleted, by UID.
    pub(super) deleted: BTreeMap<String, Timestamp>,
    /// How often each parent was applied.
    puts: BTreeMap<Parent, usize>,
    /// Foreign edits to each parent's children.
    foreign_edits: BTreeMap<Parent, usize>,
    /// All desired states per parent.
    desired_parents: BTreeMap<Parent, Vec<Desired>>,
    restores: usize,
    /// True if a fault may have hidden changes from the host.
    is_blind: bool,
}

impl Evidence {
    pub(super) fn take(&mut self, step: &Step) {
        match step {
            Step::Put(parent, desired) => self.put(*parent, *desired),
            Step::Crowd(count) => {
                crowd(*count).for_each(|(parent, desired)| self.put(parent, desired))
            }
            Step::Misbehave(parent, _) => *self.puts.entry(*parent).or_default() += 1,
            Step::EditChild(parent, _) | Step::OccupyName(parent) => {
                *self.foreign_edits.entry(*parent).or_default() += 1;
            }
            Step::Restore => self.restores += 1,
            Step::Rule(_)
            | Step::CloseConnections(..)
            | Step::RefuseConnections
            | Step::Server(_) => self.is_blind = true,
            // The inner step is recorded when it is executed.
            Step::KillAt(..) | Step::Restart(_) | Step::Starve(..) | Step::Freeze => {
                self.is_blind = true;
            }
            _ => {}
        }
    }

    fn put(&mut self, parent: Parent, desired: Desired) {
        *self.puts.entry(parent).or_default() += 1;
        self.desired_parents
            .entry(parent)
            .or_default()
            .push(desired);
    }

    /// The child's parent, and true if every desired state of that parent includes the child.
    fn owner(&self, resource: &str, name: &str) -> Option<(Parent, bool)> {
        let is_same = |child: &Child| child.resource == resource && child.name == name;
        self.desired_parents
            .iter()
            .find_map(|(parent, desired_parents)| {
                let has = |desired: &Desired| parent.children(*desired).iter().any(is_same);
                let had: Vec<bool> = desired_parents.iter().map(has).collect();
                let is_always = had.iter().all(|had| *had);
                had.contains(&true).then_some((*parent, is_always))
            })
    }
}

/// All clients' writes, in order.
fn all_writes(run: &Run<'_>, marks: [usize; 2]) -> Result<Vec<Write>> {
    let [first, second] = run.cluster.audits();
    let mut writes = first.since(marks[0])?;
    // The second API server may be missing.
    writes.extend(second.since(marks[1]).unwrap_or_default());
    writes.sort_by_key(|write| write.received);
    Ok(writes)
}

/// All clients' writes in a plan's namespace, in order.
fn plan_writes(run: &Run<'_>, marks: [usize; 2]) -> Result<Vec<Write>> {
    Ok(all_writes(run, marks)?
        .into_iter()
        .filter(|write| write.namespace == run.namespace)
        .collect())
}

/// The host's writes in a plan's namespace.
pub(super) fn writes(run: &Run<'_>, marks: [usize; 2]) -> Result<Vec<Write>> {
    Ok(plan_writes(run, marks)?
        .into_iter()
        .filter(Write::is_by_host)
        .collect())
}

/// The host's violations.
pub(super) fn judge(run: &mut Run<'_>, marks: [usize; 2]) -> Result<Vec<String>> {
    let writes = plan_writes(run, marks)?;
    let mut violations = [
        counts(&run.evidence, &writes),
        owners(&run.evidence, &writes),
        order(&run.evidence, &writes),
        lead(&all_writes(run, marks)?),
        pace(&run.cluster.relay.seen()),
        process(run.pid()?)?,
    ]
    .concat();
    violations.extend(check_log(&run.log()).err().map(|error| error.to_string()));
    Ok(violations)
}

fn is_child(write: &Write) -> bool {
    [
        "deployments.apps",
        "services",
        "configmaps",
        "poddisruptionbudgets.policy",
    ]
    .contains(&&*write.resource)
}

fn has_landed(write: &Write) -> bool {
    (200..300).contains(&write.code)
}

/// O-sum: no child is created twice, updated without a reason, or deleted while it is desired.
fn counts(evidence: &Evidence, writes: &[Write]) -> Vec<String> {
    #[derive(Default)]
    struct Sum {
        creates: usize,
        updates: usize,
        deletes: usize,
        own_deletes: usize,
    }
    let mut sums: BTreeMap<(&str, &str), Sum> = BTreeMap::new();
    for write in writes
        .iter()
        .filter(|write| is_child(write) && has_landed(write))
    {
        let sum = sums.entry((&write.resource, &write.name)).or_default();
        match (&*write.verb, write.is_by_host()) {
            ("patch", true) if write.code == 201 => sum.creates += 1,
            ("patch", true) => sum.updates += 1,
            ("delete", by_host) => {
                sum.deletes += 1;
                sum.own_deletes += usize::from(by_host);
            }
            _ => {}
        }
    }
    let mut violations = Vec::new();
    for ((resource, name), sum) in sums {
        let Some((parent, is_always)) = evidence.owner(resource, name) else {
            continue;
        };
        let parent_count =
            |counts: &BTreeMap<Parent, usize>| counts.get(&parent).copied().unwrap_or_default();
        let creates_max = 1 + sum.deletes + evidence.restores;
        if sum.creates > creates_max {
            violations.push(format!(
                "O-sum: {resource} {name} was made {} times and deleted {} times",
                sum.creates, sum.deletes
            ));
        }
        let updates_max = parent_count(&evidence.puts)
            + 2 * parent_count(&evidence.foreign_edits)
            + 2 * evidence.restores;
        if sum.updates > updates_max {
            violations.push(format!(
                "O-sum: {resource} {name} was updated {} times, with {updates_max} reasons",
                sum.updates
            ));
        }
        if is_always && sum.own_deletes > 0 {
            violations.push(format!(
                "O-sum: the host deleted {resource} {name}, which every desired had"
            ));
        }
    }
    violations
}

/// O-own: every write goes to a child of a parent in the plan, and is bound to it by UID.
fn owners(evidence: &Evidence, writes: &[Write]) -> Vec<String> {
    writes
        .iter()
        .filter(|write| write.is_by_host() && is_child(write) && has_landed(write))
        .filter(|write| {
            let body = &write.body;
            let is_bound = if write.verb == "delete" {
                let conditions = &body["preconditions"];
                !conditions["uid"].is_null() && !conditions["resourceVersion"].is_null()
            } else {
                body["metadata"]["ownerReferences"][0]["uid"]
                    .as_str()
                    .is_some_and(|owner| evidence.uids.contains(owner))
            };
            !is_bound
        })
        .map(|write| {
            format!(
                "O-own: {} is bound to no parent: {}",
                write.line(),
                write.body
            )
        })
        .collect()
}

/// O-order: no child is created for a deleted parent, unless a fault may have hidden the deletion.
fn order(evidence: &Evidence, writes: &[Write]) -> Vec<String> {
    if evidence.is_blind {
        return Vec::new();
    }
    writes
        .iter()
        .filter(|write| write.is_by_host() && is_child(write) && write.code == 201)
        // `farewell` may create children while the parent is being deleted.
        .filter(|write| !write.name.starts_with("farewell"))
        .filter(|write| {
            write.body["metadata"]["ownerReferences"][0]["uid"]
                .as_str()
                .and_then(|owner| evidence.deleted.get(owner))
                .is_some_and(|since| write.received > *since + UNDER_WAY)
        })
        .map(|write| format!("O-order: {} for a parent that is gone", write.line()))
        .collect()
}

/// O-lead: every writer holds the lease, if there is one.
fn lead(writes: &[Write]) -> Vec<String> {
    let leases: Vec<&Write> = writes
        .iter()
        .filter(|write| write.is_of_lease() && write.is_by_host() && has_landed(write))
        .collect();
    let holder = |at: Timestamp| {
        let last = leases
            .iter()
            .filter(|lease| lease.answered <= at)
            .max_by_key(|lease| lease.answered)?;
        last.body["spec"]["holderIdentity"].as_str()
    };
    let wrong = writes.iter().filter(|write| {
        let agent = write.user_agent.split(['(', ')']).nth(1);
        let is_others = holder(write.received)
            .filter(|holder| !holder.is_empty())
            .is_some_and(|holder| agent.is_some_and(|agent| agent != holder));
        write.is_by_host() && !write.is_of_lease() && has_landed(write) && is_others
    });
    wrong
        .map(|write| {
            let line = write.line();
            let agent = &write.user_agent;
            format!("O-lead: {line} by {agent}, which does not hold the lease")
        })
        .collect()
}

/// O-live: a repeated request waits first, at least as long as the previous answer demands.
fn pace(seen: &[Seen]) -> Vec<String> {
    let mut violations = BTreeSet::new();
    let mut by_line: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    for request in seen {
        by_line.entry(&request.line).or_default().push(request);
    }
    for (line, requests) in by_line {
        let within = |from: Instant| {
            let second = from + Duration::from_secs(1);
            requests
                .iter()
                .filter(|other| (from..second).contains(&other.at))
                .count()
        };
        let most = requests.iter().map(|request| within(request.at)).max();
        // Creates share one path, because the name is in the body or the API server generates it,
        // as for a crowd's events.
        let is_same = !line.starts_with("POST ");
        if is_same && most.is_some_and(|most| most > SAME_PER_SECOND_MAX) {
            violations.insert(format!("O-live: {most:?} times within a second: {line}"));
        }
        for pair in requests.windows(2) {
            let Some(Action::Answer {
                retry_after: Some(seconds),
                ..
            }) = pair[0].action
            else {
                continue;
            };
            let waited = pair[1].at - pair[0].at;
            // A pass after a user's edit may write at once; watches and lists must wait.
            if !is_write(line) && waited < Duration::from_secs(seconds.into()) {
                violations.insert(format!(
                    "O-live: again after {waited:?} instead of {seconds} s: {line}"
                ));
            }
        }
    }
    violations.into_iter().collect()
}

/// O-proc: the process stays within the limits.
fn process(pid: i32) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let value = |name: &str| -> Result<u64> {
        Ok(status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|line| line.split_whitespace().next())
            .with_context(|| format!("no {name} in {path}"))?
            .parse()?)
    };
    let mut violations = Vec::new();
    for (name, max) in [("VmHWM:", RESIDENT_KIB_MAX), ("Threads:", THREADS_MAX)] {
        let value = value(name)?;
        if value > max {
            violations.push(format!("O-proc: {name} {value} is over {max}"));
        }
    }
    Ok(violations)
}

/// O-proc: the host does not panic. A guest's panic looks different in the log and is no violation.
pub(super) fn check_log(log: &str) -> Result<()> {
    let is_panic = |line: &&str| line.starts_with("thread '") && line.contains("panicked at");
    let panic = log.lines().find(is_panic);
    ensure!(panic.is_none(), "O-proc: {}", panic.unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::plan::{Propagation, Sort},
        *,
    };

    const CACHE: Parent = Parent {
        sort: Sort::Cache,
        number: 0,
    };

    fn write(verb: &str, resource: &str, code: u16, by_host: bool, body: Value) -> Write {
        Write {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: "plan".to_owned(),
            name: "cache-0".to_owned(),
            user: String::new(),
            user_agent: if by_host { "innkeeper/1" } else { "kubectl" }.to_owned(),
            uri: String::new(),
            code,
            body,
            received: "2026-01-01T00:00:10Z".parse().unwrap(),
            answered: "2026-01-01T00:00:10Z".parse().unwrap(),
        }
    }

    fn apply(code: u16) -> Write {
        let body = json!({ "metadata": { "ownerReferences": [{ "uid": "u" }] } });
        write("patch", "deployments.apps", code, true, body)
    }

    fn evidence(extras: &[bool]) -> Evidence {
        let mut evidence = Evidence::default();
        for extra in extras {
            let desired = Desired {
                size: 1,
                extra: *extra,
            };
            evidence.take(&Step::Put(CACHE, desired));
        }
        evidence.uids.insert("u".to_owned());
        evidence
    }

    #[test]
    fn repeated_creates_and_unfounded_updates_are_found() {
        let once = evidence(&[false]);
        assert_eq!(
            counts(&once, &[apply(201), apply(200)]),
            Vec::<String>::new()
        );
        let twice = counts(&once, &[apply(201), apply(201)]);
        assert!(twice[0].contains("was made 2 times"), "{twice:?}");
        let deletion = write("delete", "deployments.apps", 200, false, Value::Null);
        assert_eq!(
            counts(&once, &[apply(201), deletion, apply(201)]),
            Vec::<String>::new()
        );
        let idle = counts(&once, &[apply(201), apply(200), apply(200)]);
        assert!(idle[0].contains("updated 2 times"), "{idle:?}");
        // A refused write has no effect.
        assert_eq!(
            counts(&once, &[apply(201), apply(409), apply(500)]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn deletes_of_desired_children_and_unbound_deletes_are_found() {
        let bound = json!({ "preconditions": { "uid": "c", "resourceVersion": "1" } });
        let delete = |resource, body| write("delete", resource, 200, true, body);
        let budget = delete("poddisruptionbudgets.policy", bound.clone());
        assert_eq!(
            counts(&evidence(&[true, false]), std::slice::from_ref(&budget)),
            Vec::<String>::new()
        );
        assert_eq!(counts(&evidence(&[true]), &[budget]).len(), 1);
        let deployment = delete("deployments.apps", bound);
        assert_eq!(
            counts(&evidence(&[true, false]), std::slice::from_ref(&deployment)).len(),
            1
        );
        assert_eq!(owners(&evidence(&[]), &[deployment]), Vec::<String>::new());
        let loose = delete("deployments.apps", Value::Null);
        assert_eq!(owners(&evidence(&[]), &[loose]).len(), 1);
    }

    #[test]
    fn writes_for_unknown_and_deleted_parents_are_found() {
        let mut evidence = evidence(&[false]);
        assert_eq!(owners(&evidence, &[apply(201)]), Vec::<String>::new());
        assert_eq!(owners(&Evidence::default(), &[apply(201)]).len(), 1);
        evidence.take(&Step::Delete(CACHE, Propagation::Background));
        for (since, count) in [("2026-01-01T00:00:09Z", 0), ("2026-01-01T00:00:01Z", 1)] {
            evidence
                .deleted
                .insert("u".to_owned(), since.parse().unwrap());
            assert_eq!(order(&evidence, &[apply(201)]).len(), count);
        }
        evidence.take(&Step::RefuseConnections);
        assert_eq!(order(&evidence, &[apply(201)]), Vec::<String>::new());
    }

    #[test]
    fn a_write_without_the_lease_is_found() {
        let lease = |holder: &str, at: &str| {
            let body = json!({ "spec": { "holderIdentity": holder } });
            let mut lease = write("patch", "leases.coordination.k8s.io", 200, true, body);
            lease.answered = at.parse().unwrap();
            lease
        };
        let mut creation = apply(201);
        assert_eq!(lead(&[creation.clone()]), Vec::<String>::new());
        creation.user_agent = "innkeeper/1 (a_1)".to_owned();
        let [early, late] = ["2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z"];
        let own = [
            lease("a_1", early),
            creation.clone(),
            lease("b_1", "2026-01-01T00:00:11Z"),
        ];
        assert_eq!(lead(&own), Vec::<String>::new());
        let lost = [lease("a_1", early), lease("b_1", late), creation];
        assert_eq!(lead(&lost).len(), 1);
    }

    #[test]
    fn requests_without_a_wait_are_found() {
        let begun = Instant::now();
        let request = |milliseconds, retry_after| Seen {
            at: begun + Duration::from_millis(milliseconds),
            line: "GET /api/v1/services?watch=true HTTP/1.1".to_owned(),
            action: retry_after,
        };
        let busy = Some(Action::Answer {
            code: 429,
            retry_after: Some(1),
        });
        assert_eq!(
            pace(&[request(0, busy), request(1000, None)]),
            Vec::<String>::new()
        );
        assert_eq!(pace(&[request(0, busy), request(900, None)]).len(), 1);
        let many: Vec<_> = (0..30).map(|number| request(number * 30, None)).collect();
        assert_eq!(pace(&many).len(), 1);
        let events = many.into_iter().map(|request| Seen {
            line: "POST /apis/events.k8s.io/v1/namespaces/a/events HTTP/1.1".to_owned(),
            ..request
        });
        assert_eq!(pace(&events.collect::<Vec<_>>()), Vec::<String>::new());
        let slow: Vec<_> = (0..30).map(|number| request(number * 50, None)).collect();
        assert_eq!(pace(&slow), Vec::<String>::new());
    }

    #[test]
    fn a_panic_is_found() {
        assert!(check_log("thread 'main' panicked at x.rs:1:1:").is_err());
        assert!(check_log("all is well").is_ok());
        let guest = r#"{"level":"ERROR","message":"panicked at lib.rs:1:1","target":"guest"}"#;
        assert!(check_log(guest).is_ok());
    }
}
