//! User and administrator actions in a plan. They retry while the API server is unavailable, as
//! people do.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::user::Kind;
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};

use super::{
    driver::{INTERVAL, Run},
    foreign_edits,
    plan::{self, Desired, Parent, Propagation, Tampering},
};

/// Time limit for the API server to accept an action.
const RETRY_MAX: Duration = Duration::from_secs(40);

/// The CRD that plans delete.
const DEFINITION: &str = "unrulies.test.innkeeper.dev";

const DEFINITIONS: Kind<'static> = Kind {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    namespace: None,
};

/// The hosts' lease.
const LEASE: &str = "innkeeper";

const LEASES: Kind<'static> = Kind {
    api_version: "coordination.k8s.io/v1",
    kind: "Lease",
    namespace: Some("innkeeper-system"),
};

/// Repeats an action until the API server accepts it.
pub(super) fn retry<T>(action: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if begun.elapsed() > RETRY_MAX => {
                return Err(error.context(format!("failed to {action} within {RETRY_MAX:?}")));
            }
            Err(_) => thread::sleep(INTERVAL),
        }
    }
}

impl Run<'_> {
    pub(super) fn put(&mut self, parent: Parent, object: &Value) -> Result<()> {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(self.namespace);
        let user = self.cluster.user();
        let applied = retry("apply a parent", || {
            // A parent that is being deleted would take the new one with it.
            if let Some(current) = user.get(self.kind(parent.kind()), &parent.name())? {
                let is_going = !current["metadata"]["deletionTimestamp"].is_null();
                ensure!(!is_going, "{} is still being deleted", parent.name());
            }
            user.apply(&object)
        })?;
        let uid = applied["metadata"]["uid"].as_str().unwrap_or_default();
        self.evidence.uids.insert(uid.to_owned());
        Ok(())
    }

    pub(super) fn delete(&mut self, parent: Parent, propagation: Propagation) -> Result<()> {
        let params = DeleteParams {
            propagation_policy: Some(match propagation {
                Propagation::Background => PropagationPolicy::Background,
                Propagation::Foreground => PropagationPolicy::Foreground,
                Propagation::Orphan => PropagationPolicy::Orphan,
            }),
            ..DeleteParams::default()
        };
        let user = self.cluster.user();
        let object = retry("read a parent", || {
            user.get(self.kind(parent.kind()), &parent.name())
        })?;
        if let Some(uid) =
            object.and_then(|object| object["metadata"]["uid"].as_str().map(str::to_owned))
        {
            self.evidence.deleted.insert(uid, Timestamp::now());
        }
        retry("delete a parent", || {
            user.delete_with(self.kind(parent.kind()), &parent.name(), &params)
        })
    }

    pub(super) fn sweep(&mut self, parent: Parent) -> Result<()> {
        let user = self.cluster.user();
        retry("delete leftover children", || {
            let leftover = match user.get(self.kind(parent.kind()), &parent.name()) {
                // The kind may be deleted, too.
                Ok(None) | Err(_) => None,
                Ok(object) => object,
            };
            ensure!(leftover.is_none(), "the parent is still there");
            let all = parent.children(Desired {
                size: 1,
                extra: true,
            });
            for child in &all {
                user.delete(self.kind((child.api_version, child.kind)), &child.name)?;
            }
            for child in &all {
                let leftover = user.get(self.kind((child.api_version, child.kind)), &child.name)?;
                ensure!(leftover.is_none(), "{} is still there", child.name);
            }
            Ok(())
        })
    }

    pub(super) fn occupy_name(&mut self, parent: Parent) -> Result<()> {
        self.sweep(parent)?;
        let object = retry("make an object", || foreign_edits::foreign(self, parent))?;
        self.foreign.insert(parent, object);
        Ok(())
    }

    pub(super) fn free_name(&mut self, parent: Parent) -> Result<()> {
        let child = parent.first_child();
        let before = self.foreign.remove(&parent);
        let kind = self.kind((child.api_version, child.kind));
        let user = self.cluster.user();
        let after = retry("read a foreign object", || user.get(kind, &child.name))?;
        // Controllers write the status of a foreign Deployment, so the comparison covers only
        // fields that no controller may change.
        let essence = |object: &Option<Value>| {
            let object = object.clone().unwrap_or_default();
            let metadata = &object["metadata"];
            json!([
                metadata["uid"],
                metadata["labels"],
                metadata["ownerReferences"],
                metadata["generation"],
                object["data"],
                object["spec"],
            ])
        };
        ensure!(
            essence(&after) == essence(&before),
            "O-own: a foreign object has changed: {after:?} was {before:?}"
        );
        retry("delete a foreign object", || user.delete(kind, &child.name))
    }

    pub(super) fn advance_versions(&self, count: u32) -> Result<()> {
        let user = self.cluster.user();
        for number in 0..count {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "burn", "namespace": "default" },
                "data": { "number": number.to_string() },
            });
            retry("write a ConfigMap", || user.apply(&object))?;
        }
        // A watch is only as recent as its last event, not as the cluster: each kind needs an
        // event.
        let touched = json!({ "metadata": { "annotations": { "test.example/burn": "" } } });
        for kind in plan::KINDS.map(|kind| self.kind(kind)) {
            for object in retry("list a kind", || user.list(kind, ""))? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                retry("annotate an object", || user.merge(kind, name, &touched))?;
            }
        }
        Ok(())
    }

    pub(super) fn restore(&self) -> Result<()> {
        let plane = &self.cluster.stage.plane;
        plane.control(&["restore", "plan"])?;
        // The restored leases belong to a kubelet that is gone; the next one would wait until they
        // expire.
        let user = self.cluster.user();
        let leases = Kind::new("coordination.k8s.io/v1", "Lease", "kube-node-lease");
        for lease in retry("list the nodes' leases", || user.list(leases, ""))? {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default();
            retry("delete a node's lease", || user.delete(leases, name))?;
        }
        plane.control(&["restart", "kwok"]).map(drop)
    }

    pub(super) fn tamper(&self, tampering: Tampering) -> Result<()> {
        let user = self.cluster.user();
        let merge = |spec: Value| {
            retry("edit the lease", || {
                let patch = json!({ "spec": spec });
                user.merge(LEASES, LEASE, &patch).map(drop)
            })
        };
        match tampering {
            Tampering::Skew(seconds) => {
                let lease = retry("read the lease", || user.get(LEASES, LEASE))?
                    .context("there is no lease")?;
                let renew_time: Timestamp = lease["spec"]["renewTime"]
                    .as_str()
                    .context("the lease has no time")?
                    .parse()?;
                let skewed = renew_time + SignedDuration::from_secs(seconds);
                merge(json!({ "renewTime": format!("{skewed:.6}") }))
            }
            Tampering::Remove => retry("delete the lease", || user.delete(LEASES, LEASE)),
            Tampering::Give => merge(json!({ "holderIdentity": "another-host" })),
        }
    }

    pub(super) fn delete_crd(&self) -> Result<()> {
        let user = self.cluster.user();
        retry("delete a CRD", || {
            user.delete(DEFINITIONS, DEFINITION)?;
            ensure!(
                user.get(DEFINITIONS, DEFINITION)?.is_none(),
                "it is still there"
            );
            Ok(())
        })
    }

    pub(super) fn apply_crd(&self) -> Result<()> {
        let user = self.cluster.user();
        if retry("read a CRD", || user.get(DEFINITIONS, DEFINITION))?.is_some() {
            return Ok(());
        }
        let all = self.cluster.stage.manifests(&[]);
        let definition = all
            .iter()
            .find(|object| object["metadata"]["name"] == DEFINITION)
            .context("the product has no such CRD")?;
        retry("apply a CRD", || user.apply(definition))?;
        let kind = self.kind(plan::KINDS[1]);
        retry("list a kind", || user.list(kind, "").map(drop))
    }
}
