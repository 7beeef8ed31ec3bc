//! A model of user deletions: the record, the StatefulSet, the status and claims, between any two passes.
//!
//! The passes are the plugin's; the model decides when Pods become ready.

#![expect(
    clippy::unwrap_in_result,
    reason = "a model that cannot read its own objects is a panic"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use innkeeper_guest_testing::stored_status;

use super::{membership::cases, *};

const FORMED: &str = "etcd.ydzs.io/formed";

/// One cluster's objects.
#[derive(Clone, Debug, Default)]
struct World {
    size: i32,
    record: Option<Value>,
    stateful_set: Option<Value>,
    claims: BTreeMap<i32, Value>,
    /// The members, and whether their Pods are ready.
    ready: BTreeMap<i32, bool>,
    status: Option<Value>,
    /// The number of members, once there is a record.
    members: Option<i32>,
    /// The cluster was formed while all of this existed.
    is_formed: bool,
    /// The cluster is paused, or was paused until the last pass.
    was_paused: bool,
}

impl World {
    fn parent(&self) -> EtcdCluster {
        parent(json!({ "size": self.size, "image": IMAGE }))
    }

    fn replicas(&self) -> Option<i64> {
        self.stateful_set.as_ref()?["spec"]["replicas"].as_i64()
    }

    fn has_evidence(&self) -> bool {
        self.record.is_some()
            || self.stateful_set.is_some()
            || self
                .status
                .as_ref()
                .is_some_and(|status| status["clusterFormed"] == true)
            || !self.claims.is_empty()
    }

    fn pass(&mut self) -> Result<(), TestCaseError> {
        let parent = self.parent();
        let mut request = TestRequest::new(&parent);
        if let Some(record) = &self.record {
            request = request.child("state", record);
        }
        if let Some(stateful_set) = &self.stateful_set {
            request = request.child("members", stateful_set);
        }
        for (ordinal, claim) in &self.claims {
            request = request.retained(&format!("claim-{ordinal}"), claim);
        }
        if let Some(status) = &self.status {
            request = request.status(status);
        }
        let pods = self
            .ready
            .iter()
            .map(|(ordinal, is_ready)| pod(*ordinal, *is_ready, IMAGE));
        let outcome = answer(request, &host().objects(pods));
        self.was_paused = self.size == 0 || self.replicas() == Some(0);
        self.stateful_set = None;
        for (key, object) in settled(&outcome, self.members.unwrap_or(self.size)) {
            if key == "state" {
                self.record = Some(object);
            } else if key == "members" {
                self.stateful_set = Some(object);
            } else if let Some(ordinal) = key.strip_prefix("claim-") {
                self.claims.insert(ordinal.parse().unwrap(), object);
            }
        }
        if self.stateful_set.is_none() {
            self.ready.clear();
        }
        self.status = Some(stored_status(&outcome));
        self.check(&outcome)
    }

    /// Checks the number of members in all places that have it.
    fn check(&mut self, outcome: &Answer) -> Result<(), TestCaseError> {
        let Some(record) = &self.record else {
            return Ok(());
        };
        let data = &record["data"];
        let listed = data["ETCD_INITIAL_CLUSTER"].as_str().unwrap();
        let listed = i32::try_from(listed.split(',').count()).unwrap();
        let members = *self.members.get_or_insert(listed);
        prop_assert_eq!(listed, members, "{:?}", self);
        for claim in self.claims.values() {
            let label = &claim["metadata"]["labels"]["etcd.ydzs.io/members"];
            prop_assert_eq!(label, &json!(members.to_string()), "{:?}", self);
        }
        if let Some(replicas) = self.replicas() {
            // The pass that restores a lost record leaves a paused StatefulSet unchanged.
            let is_paused = self.was_paused && replicas == 0;
            prop_assert!(is_paused || replicas == i64::from(members), "{self:?}");
        }
        let is_formed = data["ETCD_INITIAL_CLUSTER_STATE"] == "existing";
        prop_assert!(
            is_formed || !self.is_formed,
            "a second cluster begins: {self:?}"
        );
        self.is_formed = is_formed;
        let available = outcome.report().find_condition("Available").unwrap();
        let remaining = self.claims.len();
        let quorum = usize::try_from(members).unwrap() / 2 + 1;
        let is_stopped = is_formed && self.size > 0 && remaining < quorum;
        if is_stopped {
            prop_assert_eq!(&*available.reason, "QuorumLost", "{:?}", self);
            for ordinal in (0..members).filter(|ordinal| !self.claims.contains_key(ordinal)) {
                let claim = format!("data-demo-{ordinal}");
                prop_assert!(available.message.contains(&claim), "{}", available.message);
            }
        }
        Ok(())
    }

    fn delete_claim(&mut self, ordinal: i32) {
        self.claims.remove(&ordinal);
        self.ready.remove(&ordinal);
    }

    fn event(&mut self, what: u8, ordinal: i32) -> Result<(), TestCaseError> {
        match what {
            0..=4 => return self.pass(),
            5..=9 => {
                let is_running = self.stateful_set.is_some() && self.size > 0;
                if is_running && self.claims.contains_key(&ordinal) {
                    self.ready.insert(ordinal, what < 9);
                }
            }
            10 => self.record = None,
            11 => {
                self.stateful_set = None;
                self.ready.clear();
            }
            12 => self.status = None,
            13 | 14 => self.delete_claim(ordinal),
            15 => {
                // All at once, as after an incomplete restore of a namespace.
                self.record = None;
                self.stateful_set = None;
                self.ready.clear();
                self.status = None;
            }
            16 => {
                if let Some(record) = self.record.as_mut().filter(|_| !self.claims.is_empty()) {
                    let one = "demo-0=https://demo-0.demo.default.svc:2380";
                    record["data"]["ETCD_INITIAL_CLUSTER"] = json!(one);
                    return self.pass();
                }
            }
            _ => self.size = if self.size == 0 { 3 } else { ordinal },
        }
        if !self.has_evidence() {
            self.members = None;
            self.is_formed = false;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(500)))]

    /// As long as a claim, the StatefulSet, the record or the status exists, the cluster keeps the number of members,
    /// and a formed cluster is never formed again.
    #[test]
    fn no_deletion_changes_the_number_of_members(
        size in 1_i32..6,
        schedule in prop::collection::vec((0_u8..18, 0_i32..6), 1..40),
    ) {
        let mut world = World { size, ..World::default() };
        for (what, ordinal) in schedule {
            world.event(what, ordinal)?;
        }
        world.pass()?;
    }
}

/// A member's claim from this parent, in a cluster of three.
fn claim(ordinal: i32) -> Value {
    let mut claim = retained_claims().remove(usize::try_from(ordinal).unwrap());
    claim["metadata"]["labels"] =
        json!({ "etcd.ydzs.io/cluster-uid": "u1", "etcd.ydzs.io/members": "3" });
    claim
}

/// A pass that only sees claims, and perhaps the status.
fn left(claims: &[Value], status: Option<&Value>) -> Answer {
    let parent = article();
    let request = TestRequest::new(&parent);
    let request = claims.iter().fold(request, |request, claim| {
        let name = claim["metadata"]["name"].as_str().unwrap();
        request.retained(&name.replace("data-demo", "claim"), claim)
    });
    let request = status.into_iter().fold(request, TestRequest::status);
    answer(request, &host())
}

#[test]
fn the_claims_that_are_left_tell_the_members() {
    const THREE: &str = "demo-0=https://demo-0.demo.default.svc:2380,\
         demo-1=https://demo-1.demo.default.svc:2380,demo-2=https://demo-2.demo.default.svc:2380";
    let formed = json!({ "clusterFormed": true });
    let marked = |ordinal: i32| {
        let mut claim = claim(ordinal);
        claim["metadata"]["annotations"] = json!({ FORMED: "true" });
        claim
    };
    for (claims, status, state, reason) in [
        (vec![claim(0), claim(2)], None, "new", "Bootstrapping"),
        (vec![claim(1)], None, "new", "Bootstrapping"),
        (vec![claim(0)], Some(&formed), "existing", "QuorumLost"),
        (vec![marked(2)], None, "existing", "QuorumLost"),
        (vec![claim(0), marked(2)], None, "existing", "QuorumLost"),
        (vec![], Some(&formed), "existing", "QuorumLost"),
    ] {
        let outcome = left(&claims, status);
        let record = &outcome.child("state").unwrap().object["data"];
        assert_eq!(record["ETCD_INITIAL_CLUSTER"], THREE, "{claims:?}");
        assert_eq!(record["ETCD_INITIAL_CLUSTER_STATE"], state, "{claims:?}");
        assert_eq!(super::reason(&outcome, "Available"), reason, "{claims:?}");
    }
}

#[test]
fn a_formed_cluster_without_a_quorum_of_claims_waits_for_them() {
    let formed = json!({ "clusterFormed": true });
    let first = left(&[claim(0)], Some(&formed));
    let message = "1 of 3 members have their claims, quorum is 2; missing: data-demo-1, data-demo-2; restore them with \
                   their data, or restore a snapshot into a new cluster";
    let available = first.report().find_condition("Available").unwrap();
    assert_eq!(available.message, message);
    // The next pass creates neither new claims, which would block a restore, nor Pods.
    let state = &settled(&first, 0)[2].1;
    let parent = article();
    let request = TestRequest::new(&parent)
        .status(&formed)
        .child("state", state)
        .retained("claim-0", &claim(0));
    let second = answer(request, &host());
    assert_eq!(
        keys(&second),
        ["headless", "client", "state", "claim-0", "pdb"]
    );
    let labels = &second.child("claim-0").unwrap().object["metadata"]["labels"];
    assert_eq!(labels["etcd.ydzs.io/members"], "3");
    let available = second.report().find_condition("Available").unwrap();
    assert_eq!(available.message, message);
}
