//! Properties that hold for each parent the CRD admits.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_guest_testing::stored_conditions;
use innkeeper_sdk::{
    host::{Denied, ListSelector, LogLevel, ObjectRef},
    prelude::*,
    testing::{TestRequest, reduced, with_defaults as complete},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PLUGIN, claim, host, parents::admitted, secret};
use crate::Plugin;

/// A host with every Secret, ConfigMap and claim that a parent can reference, except the site's own.
struct Everything;

impl Host for Everything {
    fn log(&self, _: LogLevel, _: &str) {}

    fn now_ms(&self) -> u64 {
        0
    }

    fn zone_offset(&self, _: &str, _: u64) -> Option<i32> {
        None
    }

    fn random(&self, length: u32) -> Vec<u8> {
        (0..length).map(|_| 0).collect()
    }

    fn get_json(&self, object: &ObjectRef) -> Result<Option<String>, Denied> {
        let name = &*object.name;
        if name.starts_with("shop-") {
            return Ok(None);
        }
        let mut answer = match &*object.kind {
            "PersistentVolumeClaim" => claim(name, "1Gi", &["ReadWriteMany"]),
            kind => {
                let mut fields = secret(name, &["root-password", "username", "password"]);
                fields["kind"] = json!(kind);
                reduced(&fields, Access::Hash)
            }
        };
        answer["metadata"]["uid"] = json!("another");
        Ok(Some(answer.to_string()))
    }

    fn list_json(&self, _: &ListSelector) -> Result<Vec<String>, Denied> {
        Ok(Vec::new())
    }
}

/// A child in the cluster.
#[derive(Clone, Debug, PartialEq)]
struct Present {
    key: String,
    is_retained: bool,
    object: Value,
}

/// One parent's children by kind and name, and the status, as a host keeps them.
#[derive(Clone, Debug, Default)]
struct Cluster {
    children: BTreeMap<(String, String), Present>,
    status: Value,
}

impl Cluster {
    /// The next request, with settings under which the plugin accepts most parents.
    fn request(&self, parent: &Value) -> TestRequest {
        let keys = json!(["cpu", "memory", "a", "a/"]);
        let tenants = json!({
            "references": "namespace", "scripts": true, "serviceTypes": ["NodePort", "LoadBalancer"],
            "serviceAnnotations": keys, "ingressAnnotations": keys,
            "podMetadata": { "labels": keys, "annotations": keys },
        });
        let request = TestRequest::new(parent).config(&json!({ "tenants": tenants }));
        self.children
            .values()
            .fold(request.status(&self.status), |request, child| {
                request.observed(Some(&child.key), child.is_retained, &child.object)
            })
    }

    fn pass(&mut self, parent: &Value) -> Result<Answer, Fault> {
        let answer = Plugin::reconcile(&self.request(parent).build(), &Everything);
        let report = match &answer {
            Ok(outcome) => Some(outcome.report()),
            Err(fault) => fault.report.as_deref(),
        };
        if let Some(report) = report {
            self.status = report.status.clone().unwrap_or_default();
            self.status["conditions"] = stored_conditions(report);
        }
        if let Ok(Answer::Desired(desired)) = &answer {
            self.apply(&desired.children);
        }
        answer
    }

    /// The answer after which no pass changes a child anymore.
    fn settle(&mut self, parent: &Value) -> Result<Answer, Fault> {
        for _ in 0..3 {
            self.pass(parent)?;
        }
        self.pass(parent)
    }

    fn apply(&mut self, stated: &[Child]) {
        let identity = |child: &Child| (child.kind().to_owned(), child.name().to_owned());
        let stays: BTreeSet<_> = stated.iter().map(identity).collect();
        self.children
            .retain(|identity, child| child.is_retained || stays.contains(identity));
        for child in stated {
            let is_retained = child.removal == RemovalPolicy::Retain;
            match self.children.get_mut(&identity(child)) {
                Some(present) if child.apply != ApplyPolicy::Always => {
                    present.is_retained = is_retained;
                }
                None if child.apply == ApplyPolicy::Hold => {}
                _ => {
                    let key = child.key.clone();
                    let object = with_defaults(child);
                    let present = Present {
                        key,
                        is_retained,
                        object,
                    };
                    self.children.insert(identity(child), present);
                }
            }
        }
    }

    /// The children without claim sizes, which never shrink.
    fn without_sizes(&self) -> BTreeMap<(String, String), Present> {
        let mut children = self.children.clone();
        for ((kind, _), child) in &mut children {
            if kind == "PersistentVolumeClaim" {
                child.object["spec"]["resources"].take();
            }
        }
        children
    }
}

fn is_data(kind: &str) -> bool {
    ["Secret", "PersistentVolumeClaim"].contains(&kind)
}

/// A child as the API server stores it, with defaults and metadata, and with all Pods ready.
fn with_defaults(child: &Child) -> Value {
    let probe = json!({ "successThreshold": 1, "timeoutSeconds": 1, "periodSeconds": 10 });
    let container = json!({
        "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "livenessProbe": probe, "readinessProbe": probe,
        "startupProbe": probe,
    });
    let template = json!({ "metadata": { "creationTimestamp": null }, "spec": {
        "containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
        "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
    } });
    let spec = match child.kind() {
        "Deployment" => json!({
            "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10, "template": template,
        }),
        "StatefulSet" => json!({
            "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
            "template": template,
        }),
        "Service" => json!({
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.1",
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
        }),
        "PersistentVolumeClaim" => json!({
            "volumeMode": "Filesystem", "volumeName": "pv", "storageClassName": "standard",
        }),
        _ => Value::Null,
    };
    let mut object = Value::from(child.object.clone());
    for generated in &child.generate {
        object["data"][&generated.key] = json!("Z2VuZXJhdGVk");
    }
    let metadata = json!({
        "namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { "innkeeper.dev/key": child.key },
    });
    complete(&mut object, &json!({ "metadata": metadata, "spec": spec }));
    if let Some(replicas) = object["spec"].get("replicas").cloned() {
        object["status"] = json!({
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas,
        });
    }
    object
}

fn shop() -> impl Strategy<Value = Value> {
    admitted(Just("shop".to_owned()))
}

/// Valid names that look like each other's children.
fn name() -> impl Strategy<Value = String> {
    "(a|shop)(-(a|wp|php|code|mysql-code|mysql-wp)){0,2}"
}

/// Every selector in an answer.
fn selectors(outcome: &Answer) -> impl Iterator<Item = &Value> {
    outcome.children().iter().filter_map(|child| {
        let selector = child.object["spec"].get("selector")?;
        Some(selector.get("matchLabels").unwrap_or(selector))
    })
}

fn is_matched(selector: &Value, labels: &Value) -> bool {
    selector
        .as_object()
        .unwrap()
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

proptest! {
    #[test]
    fn an_answer_is_a_fixed_point(parent in shop()) {
        let mut cluster = Cluster::default();
        let Ok(once) = cluster.settle(&parent) else {
            return Ok(());
        };
        let before = cluster.clone();
        let twice = cluster.pass(&parent).unwrap();
        prop_assert_eq!(once.children(), twice.children());
        prop_assert_eq!(&before.children, &cluster.children);
        prop_assert_eq!(&before.status, &cluster.status);
        prop_assert_eq!(&twice.report().events, &[]);
        // All Pods are ready and have the desired templates.
        let is_wanted = parent["spec"]["replicas"] != 0;
        prop_assert_eq!(twice.report().find_condition("Ready").unwrap().is_true(), is_wanted);
    }

    #[test]
    fn a_reverted_edit_restores_the_children(parent in shop(), edited in shop()) {
        let mut cluster = Cluster::default();
        if cluster.settle(&parent).is_err() {
            return Ok(());
        }
        let before = cluster.without_sizes();
        // An invalid edit changes only the deletion policy.
        cluster.settle(&edited).ok();
        if cluster.settle(&parent).is_err() {
            return Ok(());
        }
        let mut after = cluster.without_sizes();
        // Data that the edit requested stays.
        after.retain(|identity, _| before.contains_key(identity) || !is_data(&identity.0));
        prop_assert_eq!(before, after);
    }

    #[test]
    fn no_answer_leaves_out_data(before in shop(), after in shop()) {
        let mut cluster = Cluster::default();
        cluster.settle(&before).ok();
        for (kind, name) in cluster.children.clone().into_keys().filter(|identity| is_data(&identity.0)) {
            // An invalid parent changes no child.
            if let Ok(Answer::Desired(answer)) = cluster.pass(&after) {
                let is_stated = answer.children.iter().any(|child| (child.kind(), child.name()) == (&*kind, &*name));
                prop_assert!(is_stated, "{kind} {name} is left out");
            }
        }
    }

    #[test]
    fn the_order_of_members_and_children_does_not_matter(parent in shop()) {
        let mut cluster = Cluster::default();
        for _ in 0..2 {
            PLUGIN.check_order(&cluster.request(&parent).build(), || Everything);
            cluster.settle(&parent).ok();
        }
    }

    #[test]
    fn every_admitted_parent_has_an_answer(parent in shop()) {
        let permissive = Cluster::default().request(&parent);
        // Nothing that the parent references exists, and the configuration is empty.
        let strict = TestRequest::new(&parent);
        for answer in [
            Plugin::reconcile(&permissive.build(), &Everything),
            Plugin::reconcile(&strict.build(), &host()),
        ] {
            if let Err(fault) = answer {
                prop_assert_eq!(fault.kind, FaultKind::Invalid);
                let is_placed = fault.message.starts_with("spec.") || fault.message.starts_with("dataSource: ");
                prop_assert!(is_placed, "{}", fault.message);
            }
        }
    }

    #[test]
    fn two_parents_share_nothing(left in admitted(name()), right in admitted(name())) {
        prop_assume!(left["metadata"]["name"] != right["metadata"]["name"]);
        let answer = |parent| Cluster::default().pass(parent);
        let (Ok(left), Ok(right)) = (answer(&left), answer(&right)) else {
            return Ok(());
        };
        let identities = |outcome: &Answer| -> BTreeSet<String> {
            outcome.children().iter().map(Child::kind_and_name).collect()
        };
        prop_assert!(identities(&left).is_disjoint(&identities(&right)));
        for (mine, theirs) in [(&left, &right), (&right, &left)] {
            for child in ["web", "db"].into_iter().filter_map(|key| theirs.child(key)) {
                let labels = &child.object["spec"]["template"]["metadata"]["labels"];
                prop_assert!(selectors(mine).all(|selector| !is_matched(selector, labels)));
            }
        }
    }

    #[test]
    fn keys_are_unique_and_name_only_what_is_there(parent in shop()) {
        let mut cluster = Cluster::default();
        for _ in 0..2 {
            let Ok(outcome) = cluster.pass(&parent) else {
                return Ok(());
            };
            let keys: BTreeSet<&str> = outcome.children().iter().map(|child| child.key.as_str()).collect();
            prop_assert_eq!(keys.len(), outcome.children().len());
            for child in outcome.children() {
                prop_assert!(child.after.iter().all(|key| keys.contains(key.as_str())));
            }
        }
    }
}
