//! Requests that a plan's administrator forbids in the namespace and later allows again.

use std::net::TcpListener;

use anyhow::{Result, ensure};
use innkeeper_tests::user::Kind;
use serde_json::{Value, json};

use super::{acts::retry, driver::Run, foreign_edits, plan::Refusal};

/// Name for every object that forbids requests.
const NAME: &str = "deny";

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// Cluster-scoped kinds that forbid requests.
const KINDS: [&str; 3] = [
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingWebhookConfiguration",
];

impl Run<'_> {
    /// Forbids writes to a plural; returns once the API server enforces it.
    pub(super) fn deny(&mut self, refusal: Refusal, plural: &str) -> Result<()> {
        let (objects, code) = match refusal {
            Refusal::Policy => (self.policy(plural), 422),
            Refusal::Quota => (self.quota(plural), 403),
            Refusal::Webhook => (self.webhook(plural)?, 500),
        };
        let user = self.cluster.user();
        for object in &objects {
            retry("forbid writes", || user.apply(object))?;
        }
        // The API server enforces it only after a moment.
        retry("observe a refused create", || {
            let probe = foreign_edits::probe(plural, &self.namespace);
            let text = |field: &str| probe[field].as_str().unwrap_or_default();
            let kind = self.kind((text("apiVersion"), text("kind")));
            let trial = user.try_create(kind, &probe)?;
            ensure!(trial.code == code, "{trial:?}");
            Ok(())
        })
    }

    pub(super) fn allow(&mut self) -> Result<()> {
        let user = self.cluster.user();
        for kind in KINDS {
            let kind = Kind::cluster(ADMISSION, kind);
            retry("allow writes", || user.delete(kind, NAME))?;
        }
        let quota = self.kind(("v1", "ResourceQuota"));
        retry("lift a quota", || user.delete(quota, NAME))?;
        self.silent = None;
        Ok(())
    }

    fn rules(plural: &str) -> Value {
        json!([{
            "apiGroups": [if plural == "deployments" { "apps" } else { "" }], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": [plural],
        }])
    }

    fn selector(&self) -> Value {
        json!({ "matchLabels": { "kubernetes.io/metadata.name": self.namespace } })
    }

    fn policy(&self, plural: &str) -> Vec<Value> {
        let policy = json!({
            "apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": NAME },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": { "resourceRules": Self::rules(plural) },
                "validations": [{ "expression": "false", "message": "not in this namespace" }],
            },
        });
        let binding = json!({
            "apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": NAME },
            "spec": {
                "policyName": NAME, "validationActions": ["Deny"],
                "matchResources": { "namespaceSelector": self.selector() },
            },
        });
        vec![policy, binding]
    }

    /// A zero quota, which refuses every further object.
    fn quota(&self, plural: &str) -> Vec<Value> {
        let resource = if plural == "deployments" {
            "count/deployments.apps"
        } else {
            "count/services"
        };
        vec![json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": NAME, "namespace": self.namespace },
            "spec": { "hard": { resource: "0" } },
        })]
    }

    /// A webhook whose server accepts connections and then sends nothing, not even a certificate.
    fn webhook(&mut self, plural: &str) -> Result<Vec<Value>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("https://{}/", listener.local_addr()?);
        self.silent = Some(listener);
        Ok(vec![json!({
            "apiVersion": ADMISSION, "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": NAME },
            "webhooks": [{
                "name": "deny.test.example", "clientConfig": { "url": url },
                "rules": Self::rules(plural), "namespaceSelector": self.selector(),
                "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"],
            }],
        })])
    }
}
