//! The StatefulSet controller and the Job controller.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    container::list,
    pods::{Pod, name},
    world::World,
};

/// The pause between a Job's Pods. The Job controller waits 10, 20 and 40 seconds.
const RETRY: Duration = Duration::from_secs(3);

impl World {
    /// One step of the StatefulSet controller.
    pub(super) fn stateful_set(&mut self) {
        let Some(set) = self.child("StatefulSet").map(|child| child.object.clone()) else {
            let all: Vec<i64> = self.pods.keys().copied().collect();
            for ordinal in all {
                self.delete_pod(ordinal);
            }
            return;
        };
        let spec = &set["spec"];
        let replicas = spec["replicas"].as_i64().unwrap();
        let partition = spec["updateStrategy"]["rollingUpdate"]["partition"]
            .as_i64()
            .unwrap_or(0);
        let update = self.revision(&spec["template"]);
        for ordinal in 0..replicas {
            if !self.pods.contains_key(&ordinal) {
                let revision = if ordinal < partition {
                    self.current.clone()
                } else {
                    update.clone()
                };
                self.make_member(&set, ordinal, &revision);
            }
        }
        let above: Vec<i64> = self
            .pods
            .keys()
            .copied()
            .filter(|ordinal| *ordinal >= replicas)
            .collect();
        for ordinal in above {
            self.delete_pod(ordinal);
        }
        let is_new =
            |pod: &Pod| pod.object["metadata"]["labels"]["controller-revision-hash"] == *update;
        // The highest one first, and none after an unready one.
        let next = self
            .pods
            .range(partition..)
            .rev()
            .find(|(_, pod)| !is_new(pod) || !pod.is_ready);
        if let Some(ordinal) = next.filter(|(_, pod)| !is_new(pod)).map(|entry| *entry.0) {
            self.delete_pod(ordinal);
        }
        let updated = self.pods.values().filter(|pod| is_new(pod)).count();
        let ready = self.pods.values().filter(|pod| pod.is_ready).count();
        if updated == self.pods.len() && ready == self.pods.len() {
            self.current.clone_from(&update);
        }
        let status = json!({
            "observedGeneration": set["metadata"]["generation"], "replicas": self.pods.len(), "readyReplicas": ready,
            "updatedReplicas": updated, "currentRevision": self.current, "updateRevision": update,
        });
        let stored = self
            .children
            .values_mut()
            .find(|child| child.object["kind"] == "StatefulSet");
        stored.unwrap().object["status"] = status;
    }

    fn revision(&mut self, template: &Value) -> String {
        let stored = self
            .revisions
            .iter()
            .find(|(_, stored)| *stored == template);
        if let Some((revision, _)) = stored {
            return revision.clone();
        }
        let revision = format!("r{}", self.revisions.len());
        self.revisions.insert(revision.clone(), template.clone());
        if self.current.is_empty() {
            self.current.clone_from(&revision);
        }
        revision
    }

    fn make_member(&mut self, set: &Value, ordinal: i64, revision: &str) {
        let template = &self.revisions[revision];
        let mut labels = template["metadata"]["labels"].clone();
        labels["controller-revision-hash"] = json!(revision);
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
            "metadata": { "name": format!("{}-{ordinal}", name(&set["metadata"])), "labels": labels },
        });
        // Like the controller, for the StatefulSet's claims.
        let volumes: Vec<Value> = list(&set["spec"]["volumeClaimTemplates"])
            .map(|template| {
                let volume = name(&template["metadata"]);
                let claim = format!("{volume}-{}", name(&object["metadata"]));
                json!({ "name": volume, "persistentVolumeClaim": { "claimName": claim } })
            })
            .collect();
        object["spec"]["volumes"]
            .as_array_mut()
            .unwrap()
            .extend(volumes);
        let pod = self.pod(object);
        self.pods.insert(ordinal, pod);
    }

    /// Creates a Job from the CronJob, like the controller when the schedule is due.
    pub(super) fn inspect(&mut self) {
        let cron_job = self.child("CronJob").unwrap().object.clone();
        let template = &cron_job["spec"]["jobTemplate"];
        let number = self.number();
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "spec": template["spec"],
            "metadata": {
                "name": format!("{}-{number}", name(&cron_job["metadata"])), "uid": format!("uid-{number}"),
                "labels": template["metadata"]["labels"],
            },
        });
        self.inspections.push(job);
    }

    /// One step of the Job controller, and of the kubelet for Job Pods.
    pub(super) fn run_jobs(&mut self) {
        let jobs: Vec<Value> = self
            .children
            .values()
            .filter(|child| child.object["kind"] == "Job")
            .map(|child| child.object.clone())
            .chain(self.inspections.iter().cloned())
            .collect();
        let uids: BTreeSet<&str> = jobs
            .iter()
            .map(|job| job["metadata"]["uid"].as_str().unwrap())
            .collect();
        self.jobs.retain(|uid, job| {
            let stays = uids.contains(&**uid);
            if !stays {
                job.pods.iter_mut().for_each(Pod::stop);
            }
            stays
        });
        for job in &jobs {
            self.run_job(job);
        }
    }

    fn run_job(&mut self, job: &Value) {
        let uid = job["metadata"]["uid"].as_str().unwrap();
        let config = self.config();
        let now = self.now();
        let mut pods = self.jobs.remove(uid).unwrap_or_default();
        for pod in &mut pods.pods {
            pod.look(&self.images, &config, &now);
        }
        let codes: Vec<Option<i64>> = pods.pods.iter().map(Pod::exit_code).collect();
        let failed = codes
            .iter()
            .filter(|code| code.is_some_and(|code| code != 0))
            .count();
        let is_failed =
            failed > usize::try_from(job["spec"]["backoffLimit"].as_u64().unwrap()).unwrap();
        let is_over = is_failed || codes.contains(&Some(0));
        let rests = pods.last.is_some_and(|instant| instant.elapsed() < RETRY);
        if is_over && job["status"].is_null() {
            let kind = if is_failed { "Failed" } else { "Complete" };
            let condition = json!({ "type": kind, "status": "True", "lastTransitionTime": now });
            let stored = self
                .children
                .values_mut()
                .map(|child| &mut child.object)
                .chain(&mut self.inspections)
                .find(|object| object["metadata"]["uid"] == uid)
                .unwrap();
            stored["status"] = json!({ "conditions": [condition] });
        } else if !is_over && !rests && codes.iter().all(Option::is_some) {
            let template = &job["spec"]["template"];
            let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": name(&job["metadata"]), "uid": uid, "controller": true });
            let pod = self.pod(json!({
                "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
                "metadata": {
                    "name": format!("{}-{}", name(&job["metadata"]), codes.len()),
                    "labels": template["metadata"]["labels"], "ownerReferences": [owner],
                },
            }));
            pods.pods.push(pod);
            pods.last = Some(Instant::now());
        }
        self.jobs.insert(uid.to_owned(), pods);
    }
}
