//! Messages with remedies.

use std::collections::BTreeSet;

use super::View;
use crate::{certificates::Certificate, cluster::quorum, jobs, observe::Obstacle, tls};

/// The message for a parent that has never started.
pub(super) const NOT_STARTED: &str =
    "nothing starts until the spec is valid, see the condition Synced";

pub(super) const NO_SPACE: &str = "alarm NOSPACE at the last inspection: a database has reached its quota, and etcd rejects \
    writes; remove keys, compact and defragment, or raise quotaBackendBytes, then run etcdctl alarm disarm";

pub(super) const CORRUPT: &str = "alarm CORRUPT at the last inspection: the data of members differ, and etcd serves none; find \
    the member with etcdctl endpoint hashkv --cluster, run etcdctl alarm disarm, then delete the PersistentVolumeClaim and the \
    Pod of that member: it is replaced with the data of the others";

pub(super) const NEAR_DISK: &str = "the database quota is 95 % of a volume smaller than 4Gi, so the log or a defragmentation's copy can fill the volume before etcd rejects writes: set quotaBackendBytes to about half of \
    storage.size, or storage.size to 4Gi or more";

pub(super) const UNSAFE_ROLLOUT: &str = "the annotation etcd.ydzs.io/allow-unsafe-rollout is set: roll-outs replace members while \
    others are down, which can cost the quorum; remove it as soon as all members are ready";

impl View<'_> {
    /// The number of ready members, and what blocks the first of the others.
    pub(super) fn counts(&self) -> String {
        let counts = format!("{} of {} members are ready", self.ready, self.members);
        match self.trouble() {
            Some(trouble) => format!("{counts}; {trouble}"),
            None => counts,
        }
    }

    /// Why a member has no Pod or the Pod does not start, with the remedy.
    fn trouble(&self) -> Option<String> {
        self.step.record.as_ref()?.members.iter().copied().find_map(|ordinal| {
            let pod = self.observation.pods.get(&ordinal);
            if pod.is_some_and(|pod| pod.is_ready) {
                return None;
            }
            let name = self.cluster.member(ordinal);
            match pod.and_then(|pod| pod.obstacle.as_ref()) {
                Some(Obstacle::Waiting(reason)) => Some(format!("Pod {name}: {reason}")),
                Some(Obstacle::Unschedulable(words)) => {
                    let remedy = self.placing(ordinal, words);
                    Some(format!("Pod {name} has no node: {words}: {remedy}"))
                }
                None => {
                    let leaving = self.observation.leaving.get(&ordinal)?;
                    let node = leaving.node.as_deref().unwrap_or("unknown");
                    leaving.left.is_zero().then(|| {
                        format!(
                            "Pod {name} on node {node} should have ended at {}: bring the node back; if it is gone for good, \
                             delete the Node, or run kubectl delete pod {name} --force",
                            leaving.until.0
                        )
                    })
                }
            }
        })
    }

    /// The remedy for a Pod without a node. Suggests giving up a member's data only if a quorum is left without it.
    fn placing(&self, ordinal: i32, words: &str) -> String {
        let words = words.to_lowercase();
        let claim = self.cluster.claim(ordinal);
        let pod = self.cluster.member(ordinal);
        if words.contains("volume") && words.contains("affinity") {
            let remedy =
                format!("bring back the node with the volume of PersistentVolumeClaim {claim}");
            if self.ready < quorum(self.members) {
                return remedy;
            }
            return format!(
                "{remedy}; if it is gone for good, delete that claim and Pod {pod}: the member is then replaced with the data \
                 of the others"
            );
        }
        if words.contains("persistentvolumeclaim") {
            return format!("see the events of PersistentVolumeClaim {claim}");
        }
        "add nodes, or change resources, podTemplate or antiAffinity".to_owned()
    }

    /// A way to continue a blocked rollout, if a quorum survives it.
    pub(super) fn way_past(&self) -> &'static str {
        if self.ready > quorum(self.members) {
            "; a quorum survives the loss of one more: annotate the EtcdCluster with etcd.ydzs.io/allow-unsafe-rollout: \"true\" to \
             go on, and remove the annotation afterwards"
        } else {
            "; bring it back first: the loss of one more would cost the quorum"
        }
    }

    /// The Pods that use some claims, with a remedy that keeps the data; `None` without such Pods.
    fn users(&self, claims: &[String]) -> Option<String> {
        let users: Vec<String> = self
            .observation
            .pods
            .keys()
            .chain(self.observation.leaving.keys())
            .filter(|ordinal| claims.contains(&self.cluster.claim(**ordinal)))
            .map(|ordinal| self.cluster.member(*ordinal))
            .collect();
        (!users.is_empty()).then(|| format!("in use by Pods {}", users.join(", ")))
    }

    /// An earlier cluster's claims, and the remedy.
    pub(super) fn stale(&self, claims: &[String]) -> String {
        let names = claims.join(", ");
        match self.users(claims) {
            None => format!(
                "claims of an earlier cluster exist: {names}; delete them, or set storage.existingClaims to Adopt"
            ),
            Some(users) => format!(
                "claims of an earlier cluster exist: {names}, {users}; do not delete them: set storage.existingClaims to Adopt \
                 and the annotation innkeeper.dev/adopt to \"true\" to continue with these members"
            ),
        }
    }

    /// Missing claims of a cluster to adopt, and the remedy.
    pub(super) fn missing(&self, claims: &[String]) -> String {
        let existing: Vec<String> = self
            .observation
            .claims
            .keys()
            .map(|ordinal| self.cluster.claim(*ordinal))
            .collect();
        let remedy = match self.users(&existing) {
            None => "or delete the others and set storage.existingClaims to Refuse".to_owned(),
            Some(users) => format!("and keep the others, {users}"),
        };
        let names = claims.join(", ");
        format!("claims of the cluster to adopt are missing: {names}; restore them, {remedy}")
    }

    /// A problem with certificate Secrets: a code and a sentence.
    pub(super) fn certificates(&self) -> Option<(&'static str, String)> {
        let named = &self.observation.certificates;
        let issued = &self.observation.issued;
        let remedy = self.remedy_of_issued();
        let missing: Vec<&str> = named
            .missing_secrets()
            .chain(issued.missing_secrets())
            .collect();
        if !missing.is_empty() {
            let waiting = self.waiting_for(&missing);
            let missing = missing.join(", ");
            let problem =
                format!("Secret not found: {missing}: no {waiting} starts until it exists{remedy}");
            return Some(("SecretNotFound", problem));
        }
        if self.observation.secrets().any(tls::is_hidden) {
            return None;
        }
        let mut keys = named.missing_keys().chain(issued.missing_keys());
        let (name, key) = keys.next()?;
        let waiting = self.waiting_for(&[name]);
        let problem = format!(
            "Secret {name} lacks the key {key}: no {waiting} starts until it has it{remedy}"
        );
        Some(("SecretIncomplete", problem))
    }

    /// The remedy for a Secret that cert-manager should write, as part of a sentence.
    fn remedy_of_issued(&self) -> String {
        let services = self.observation.missing_services.join(", ");
        if !self.observation.waits_for_certificates() {
            String::new()
        } else if services.is_empty() {
            "; cert-manager writes it: see the Certificate of that name, and the condition Synced"
                .to_owned()
        } else {
            format!(
                "; cert-manager writes it after Service {services} belongs to this EtcdCluster: see the condition Synced"
            )
        }
    }

    /// A problem with Services that this cluster does not own.
    pub(super) fn lost_services(&self) -> Option<String> {
        let services = &self.observation.missing_services;
        // Each cluster's first pass creates them.
        let is_lost = !services.is_empty() && self.observation.record.is_some();
        is_lost.then(|| {
            let certificates = if Certificate::all(self.cluster).next().is_some() {
                "certificates stay as they are, and "
            } else {
                ""
            };
            format!(
                "Service {} is missing or belongs to another owner: {certificates}status.endpoints omits it, see the \
                 condition Synced",
                services.join(", ")
            )
        })
    }

    /// The noun for what cannot start without these Secrets.
    fn waiting_for(&self, secrets: &[&str]) -> &'static str {
        let is_of_jobs = |name: &&str| tls::is_of_jobs_only(self.cluster, name);
        if secrets.iter().all(is_of_jobs) {
            "Job"
        } else {
            "member"
        }
    }

    /// The state of a cluster that has not started because cert-manager has not written all Secrets.
    pub(super) fn awaited(&self) -> (bool, &'static str, String) {
        let (reason, message) = self.certificates().unwrap_or_default();
        (false, reason, message)
    }

    /// Why a rollout is stuck.
    pub(super) fn stuck(&self) -> String {
        format!(
            "a member with the new template did not become ready within {} s, and no other one is replaced: see its log, \
             and correct or revert the last change; {}{}",
            self.cluster.spec.progress_deadline_seconds,
            self.counts(),
            self.last_words()
        )
    }

    /// The log's end for the first member that keeps exiting, as part of a sentence.
    pub(super) fn last_words(&self) -> String {
        let words = self
            .observation
            .pods
            .iter()
            .find_map(|(ordinal, pod)| Some((ordinal, pod.last_words.as_ref()?)));
        words.map_or_else(String::new, |(ordinal, words)| {
            format!(
                "; the log of {} ends: {words}",
                self.cluster.member(*ordinal)
            )
        })
    }

    pub(super) fn preparing(&self) -> String {
        let version = self.cluster.version().map(|version| version.to_string());
        format!(
            "members restart one by one and write a snapshot with version {}, because etcd 3.7 cannot read log entries of 3.5: \
             {}",
            version.unwrap_or_default(),
            self.counts()
        )
    }

    pub(super) fn complete(&self) -> String {
        let version = self
            .current_version()
            .map_or_else(|| "unknown".to_owned(), |version| version.to_string());
        format!("{} members, version {version}", self.members)
    }

    pub(super) fn paused(&self) -> String {
        let claims: Vec<String> = self
            .observation
            .claims
            .keys()
            .map(|ordinal| self.cluster.claim(*ordinal))
            .collect();
        if claims.is_empty() {
            "paused; nothing has been written yet".to_owned()
        } else {
            format!("paused; data is kept on claims {}", claims.join(", "))
        }
    }

    /// The names of members that are without data or not registered in etcd.
    pub(super) fn replaced(&self) -> String {
        let begun = self
            .step
            .record
            .as_ref()
            .into_iter()
            .flat_map(|record| record.replacing.keys());
        let waiting = self
            .observation
            .pods
            .iter()
            .filter(|(_, pod)| pod.waiting_since_ms.is_some());
        let ordinals: BTreeSet<i32> = begun.chain(waiting.map(|entry| entry.0)).copied().collect();
        let names: Vec<String> = ordinals
            .iter()
            .map(|ordinal| self.cluster.member(*ordinal))
            .collect();
        names.join(", ")
    }

    /// Why the quorum is lost and the remedy, if members lost their data.
    pub(super) fn loss(&self) -> String {
        let replaced = self.replaced();
        if replaced.is_empty() {
            return String::new();
        }
        format!(
            "; without data: {replaced}; if the other members do not come back, restore a snapshot into a new cluster"
        )
    }

    /// The claims that a formed cluster lacks, and the remedy.
    pub(super) fn lost(&self, claims: &[String]) -> String {
        format!(
            "{} of {} members have their claims, quorum is {}; missing: {}; restore them with their data, or restore a snapshot \
             into a new cluster",
            self.members - claims.len(),
            self.members,
            quorum(self.members),
            claims.join(", ")
        )
    }

    pub(super) fn failure(&self) -> String {
        let record = self.observation.record.as_ref();
        record
            .and_then(|record| jobs::failure(&self.observation.jobs, record))
            .unwrap_or_else(|| "a Job failed".to_owned())
    }

    /// Members whose data or volume only a user can give up.
    pub(super) fn broken(&self) -> Vec<i32> {
        let members = self.step.record.as_ref().map(|record| &record.members);
        let is_broken = |ordinal: &&i32| {
            let pod = self.observation.pods.get(ordinal);
            let claim = self.observation.claims.get(ordinal);
            // A ready member is needed, whatever is wrong with the claim.
            pod.is_none_or(|pod| !pod.is_ready)
                && (pod.is_some_and(|pod| pod.is_broken)
                    || claim.is_some_and(|claim| claim.is_lost))
        };
        members
            .into_iter()
            .flatten()
            .filter(is_broken)
            .copied()
            .collect()
    }

    /// The steps to repair broken members, one at a time.
    pub(super) fn repair(&self) -> String {
        let broken = self.broken();
        let names: Vec<String> = broken
            .iter()
            .map(|ordinal| self.cluster.member(*ordinal))
            .collect();
        let first = broken.first().copied().unwrap_or_default();
        let pod = self.cluster.member(first);
        let remedy = if self.cluster.is_persistent() {
            let claim = self.cluster.claim(first);
            format!("delete PersistentVolumeClaim {claim} and Pod {pod}")
        } else {
            format!("delete Pod {pod}")
        };
        format!(
            "{} does not start, see the log; if the data is damaged or the volume gone, {remedy}: the member is then \
             replaced with the data of the others{}",
            names.join(", "),
            self.last_words()
        )
    }
}
