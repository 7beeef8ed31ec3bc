//! A model of etcd's membership under the decisions of the plugin: Pods, disks, Jobs and the record, with faults between
//! any two steps.
//!
//! The plugin decides; Job scripts, the kubelet and etcd are reimplemented here, with the
//! conditions under which etcd accepts a change. A plugin keeps nothing between two passes, so hosts may be away or replaced
//! at any time.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_sdk::testing::TestRequest;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use proptest::prelude::*;

use super::article;
use crate::{
    cluster::{Cluster, quorum},
    config::Config,
    record::Record,
    replace::{self, End, Next, Operation, Seen, SeenJob, SeenPod},
};

/// Time that a Pod waits until it is known to be empty.
const EMPTY_AFTER: i64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The init container waits since this time.
    Waiting(i64),
    /// etcd runs.
    Running,
    /// etcd does not run, temporarily or because it is no member anymore.
    Down,
}

#[derive(Clone, Debug)]
struct Pod {
    uid: u64,
    state: State,
}

#[derive(Clone, Debug)]
struct Job {
    operation: Operation,
    end: Option<End>,
}

#[derive(Clone, Debug)]
struct World {
    size: i32,
    is_volatile: bool,
    now: i64,
    last: u64,
    /// etcd's members: each ID's ordinal, and whether it has been started.
    members: BTreeMap<u64, (i32, bool)>,
    /// The IDs in the data directories.
    disks: BTreeMap<i32, u64>,
    pods: BTreeMap<i32, Pod>,
    jobs: BTreeMap<u64, Job>,
    /// Pods of deleted Jobs: they may still do their work.
    leftovers: Vec<Operation>,
    record: Option<Record>,
    /// The parent's status says that the cluster is formed.
    status: bool,
    /// The StatefulSet has the mark of a formed cluster.
    mark: bool,
    /// The record as the kubelet shows it to Pods, possibly late.
    mounted: Option<Record>,
}

/// The record that a pass reads from another pass's ConfigMap.
fn stored(record: &Record) -> Record {
    let parent = article();
    let request = TestRequest::new(&parent).build();
    let config = Config::default();
    let cluster = Cluster::new(&request, &parent.spec, &config);
    let config_map = ConfigMap {
        metadata: ObjectMeta {
            annotations: Some(record.annotations()),
            ..Default::default()
        },
        data: Some(record.data(&cluster)),
        ..Default::default()
    };
    Record::parse(&cluster, &config_map).unwrap()
}

impl World {
    fn new(size: i32, is_volatile: bool) -> Self {
        let ordinals = || 0..size;
        let id = |ordinal: i32| u64::try_from(ordinal).unwrap() + 1;
        let pod = |ordinal| {
            let pod = Pod {
                uid: id(ordinal),
                state: State::Running,
            };
            (ordinal, pod)
        };
        let mut world = Self {
            size,
            is_volatile,
            now: 1000,
            last: 100,
            members: ordinals()
                .map(|ordinal| (id(ordinal), (ordinal, true)))
                .collect(),
            disks: ordinals().map(|ordinal| (ordinal, id(ordinal))).collect(),
            pods: ordinals().map(pod).collect(),
            jobs: BTreeMap::new(),
            leftovers: Vec::new(),
            record: None,
            status: true,
            mark: true,
            mounted: None,
        };
        world.record = Some(world.reconstructed());
        world
    }

    fn fresh(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The record that the plugin restores: all replicas, with unused Job names.
    fn reconstructed(&self) -> Record {
        Record {
            members: (0..self.size).collect(),
            formed: self.status || self.mark || self.running() > 0,
            token: String::new(),
            sequence: self.jobs.keys().next_back().copied().unwrap_or_default() + 1,
            admitted: BTreeMap::new(),
            replacing: BTreeMap::new(),
            version: None,
        }
    }

    fn is_running(&self, id: u64) -> bool {
        let Some((ordinal, _)) = self.members.get(&id) else {
            return false;
        };
        self.disks.get(ordinal) == Some(&id)
            && self
                .pods
                .get(ordinal)
                .is_some_and(|pod| pod.state == State::Running)
    }

    fn running(&self) -> usize {
        self.members
            .keys()
            .filter(|id| self.is_running(**id))
            .count()
    }

    fn has_quorum(&self) -> bool {
        self.running() >= quorum(self.members.len())
    }

    /// The members that run, or can run again with their data, except for this one.
    fn survivors_without(&self, lost: i32) -> usize {
        let survives = |(id, (ordinal, _)): (&u64, &(i32, bool))| {
            *ordinal != lost && self.disks.get(ordinal) == Some(id)
        };
        self.members
            .iter()
            .filter(|member| survives(*member))
            .count()
    }

    fn seen(&self, record: &Record) -> Seen {
        let pod = |(ordinal, pod): (&i32, &Pod)| {
            let observed = SeenPod {
                uid: pod.uid.to_string(),
                is_ready: pod.state == State::Running && self.has_quorum(),
                is_empty: matches!(pod.state, State::Waiting(since) if self.now - since >= EMPTY_AFTER),
            };
            (*ordinal, observed)
        };
        let job = self.jobs.get(&record.sequence).map(|job| SeenJob {
            operation: job.operation.clone(),
            end: job.end.clone(),
        });
        Seen {
            pods: self.pods.iter().map(pod).collect(),
            job,
            is_pausing: false,
            is_surveyed: false,
        }
    }

    /// A plugin pass with all writes.
    fn pass(&mut self) {
        let Some(record) = self.record.clone() else {
            self.record = Some(self.reconstructed());
            return;
        };
        let observed = self.seen(&record);
        let record = replace::without_used_admissions(record, |ordinal| {
            let pod = observed.pods.get(&ordinal)?;
            Some((&*pod.uid, pod.is_ready))
        });
        let after = match replace::next(&record, &observed) {
            Next::Idle => {
                self.jobs.clear();
                record
            }
            Next::Wait(_) => record,
            Next::Write(after) => after,
            Next::Run(operation) => {
                let new = Job {
                    operation,
                    end: None,
                };
                self.jobs.entry(record.sequence).or_insert(new);
                record
            }
        };
        let first = after.sequence.saturating_sub(1);
        self.jobs.retain(|sequence, _| *sequence >= first);
        self.status = after.formed;
        self.mark |= after.formed;
        self.record = Some(after);
    }

    /// What a Job's Pod does.
    fn work(&mut self, operation: &Operation) -> Result<End, TestCaseError> {
        if !self.has_quorum() {
            return Ok(End::Failed);
        }
        match operation {
            Operation::Survey => {
                let id = |(id, (ordinal, _)): (&u64, &(i32, bool))| (*ordinal, format!("{id:x}"));
                return Ok(End::Succeeded(self.members.iter().map(id).collect()));
            }
            Operation::Remove { id, .. } => {
                let id = u64::from_str_radix(id, 16).unwrap_or_default();
                if self.members.contains_key(&id) {
                    if self.is_running(id) {
                        return Ok(End::Failed);
                    }
                    self.members.remove(&id);
                }
            }
            Operation::Add { ordinal } => {
                let mut members = self.members.values();
                match members.find(|(its, _)| its == ordinal) {
                    Some((_, true)) => return Ok(End::Failed),
                    Some(_) => {}
                    // etcd adds none while another one is down.
                    None if self.running() < self.members.len() => return Ok(End::Failed),
                    None => {
                        let id = self.fresh();
                        self.members.insert(id, (*ordinal, false));
                    }
                }
            }
        }
        prop_assert!(self.has_quorum(), "{operation:?} cost the quorum: {self:?}");
        Ok(End::Succeeded(BTreeMap::new()))
    }

    fn run_job(&mut self) -> Result<(), TestCaseError> {
        let due = self.jobs.iter().find(|(_, job)| job.end.is_none());
        if let Some((sequence, job)) = due.map(|(sequence, job)| (*sequence, job.clone())) {
            let end = self.work(&job.operation)?;
            self.jobs.insert(
                sequence,
                Job {
                    end: Some(end),
                    ..job
                },
            );
        }
        Ok(())
    }

    fn delete_pod(&mut self, ordinal: i32) {
        if self.is_volatile {
            self.lose_disk(ordinal);
        } else {
            self.pods.remove(&ordinal);
        }
    }

    /// Deletes a member's data and Pod, unless too few others would be left: no etcd survives that.
    fn lose_disk(&mut self, ordinal: i32) {
        if self.survivors_without(ordinal) >= quorum(self.members.len()) {
            self.pods.remove(&ordinal);
            self.disks.remove(&ordinal);
        }
    }

    /// One step of the kubelet and the StatefulSet controller for a member.
    fn kubelet(&mut self, ordinal: i32) -> Result<(), TestCaseError> {
        let Some(pod) = self.pods.get(&ordinal).cloned() else {
            let pod = Pod {
                uid: self.fresh(),
                state: State::Waiting(self.now),
            };
            self.pods.insert(ordinal, pod);
            return Ok(());
        };
        let state = match pod.state {
            State::Running => return Ok(()),
            State::Down | State::Waiting(_) if self.disks.contains_key(&ordinal) => {
                let id = self.disks[&ordinal];
                if self.members.contains_key(&id) {
                    State::Running
                } else {
                    State::Down
                }
            }
            State::Down | State::Waiting(_) => {
                let mounted = self.mounted.as_ref();
                prop_assert!(
                    mounted.is_none_or(|mounted| mounted.formed),
                    "{ordinal} would form a second cluster: {self:?}"
                );
                let admitted = mounted.and_then(|mounted| mounted.admitted.get(&ordinal));
                if admitted != Some(&pod.uid.to_string()) || !self.join(ordinal)? {
                    return Ok(());
                }
                State::Running
            }
        };
        self.pods.insert(ordinal, Pod { state, ..pod });
        Ok(())
    }

    /// Starts a member without data; false if it cannot join yet.
    fn join(&mut self, ordinal: i32) -> Result<bool, TestCaseError> {
        let listed = self
            .mounted
            .as_ref()
            .map(Record::registered)
            .unwrap_or_default();
        let ids: BTreeSet<i32> = self.members.values().map(|member| member.0).collect();
        let own = self
            .members
            .iter_mut()
            .find(|(_, (its, _))| *its == ordinal);
        let Some((id, (_, is_started))) = own.filter(|_| listed == ids) else {
            return Ok(false);
        };
        prop_assert!(
            !*is_started,
            "{ordinal} starts without data under an identity that was used"
        );
        *is_started = true;
        self.disks.insert(ordinal, *id);
        Ok(true)
    }

    fn event(&mut self, what: u8, which: i32) -> Result<(), TestCaseError> {
        let ordinal = which % self.size;
        match what {
            0..=5 => self.pass(),
            6..=9 => self.kubelet(ordinal)?,
            10..=12 => self.run_job()?,
            13..=14 => self.now += 20,
            15 => self.mounted.clone_from(&self.record),
            16 => self.delete_pod(ordinal),
            17 => self.lose_disk(ordinal),
            18 => {
                // A Job is deleted, and the Pod may do the work later.
                let last = self.jobs.pop_last();
                self.leftovers.extend(last.map(|(_, job)| job.operation));
            }
            19 => {
                if let Some(operation) = self.leftovers.pop() {
                    self.work(&operation)?;
                }
            }
            20 => self.record = None,
            21 => self.now -= 50,
            22 => self.status = false,
            23 => {
                // Another host, or another plugin version, continues from the ConfigMap.
                let stored = self.record.as_ref().map(stored);
                prop_assert_eq!(&self.record, &stored);
                self.record = stored;
            }
            _ => {
                // A member fails, but keeps the data.
                if let Some(pod) = self.pods.get_mut(&ordinal)
                    && pod.state == State::Running
                {
                    pod.state = State::Down;
                }
            }
        }
        Ok(())
    }

    /// The faults end, and a user deletes the data of members that etcd does not know.
    fn recover(&mut self) -> Result<(), TestCaseError> {
        for operation in std::mem::take(&mut self.leftovers) {
            self.work(&operation)?;
        }
        for _ in 0..20 * self.size {
            for ordinal in 0..self.size {
                self.kubelet(ordinal)?;
                let id = self.disks.get(&ordinal);
                if id.is_some_and(|id| !self.members.contains_key(id)) {
                    self.disks.remove(&ordinal);
                    self.pods.remove(&ordinal);
                }
            }
            self.now += 60;
            self.pass();
            self.run_job()?;
            self.pass();
            self.mounted.clone_from(&self.record);
        }
        Ok(())
    }
}

/// This number of schedules; 100,000 in a full run, which sets 10,000 cases for all properties.
pub(super) fn cases(short: u32) -> u32 {
    let stated = ProptestConfig::default().cases;
    if stated > 256 {
        stated.saturating_mul(10)
    } else {
        short
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(5000)))]

    /// No change costs the quorum, no identity is used twice, and in the end all members are in their places.
    #[test]
    fn members_that_lose_their_data_are_replaced_in_any_schedule(
        size in 1_i32..8,
        is_volatile in any::<bool>(),
        schedule in prop::collection::vec((0_u8..26, 0_i32..8), 1..120),
    ) {
        let mut world = World::new(size, is_volatile);
        for (what, which) in schedule {
            world.event(what, which)?;
        }
        world.recover()?;
        prop_assert_eq!(world.running(), usize::try_from(size).unwrap(), "{:?}", world);
        prop_assert_eq!(world.members.len(), world.running(), "{:?}", world);
        let record = world.record.clone().unwrap();
        prop_assert!(record.formed && record.replacing.is_empty() && record.admitted.is_empty(), "{:?}", world);
        prop_assert!(world.jobs.is_empty(), "{:?}", world);
    }
}
