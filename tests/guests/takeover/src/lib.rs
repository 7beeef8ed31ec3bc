//! A plugin that tries to take over the cluster; the cluster-scoped parent selects how.

use innkeeper_sdk::prelude::*;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The reconciler.
#[derive(Debug)]
pub(crate) struct Takeovers;

/// A parent whose spec decides on the children.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "test.innkeeper.dev",
    version = "v1",
    kind = "Takeover",
    plural = "takeovers"
)]
pub(crate) struct TakeoverSpec {
    /// Behaviour of the guest.
    behaviour: Behaviour,
    /// Namespace of the child.
    namespace: String,
}

/// Behaviour of the guest.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Behaviour {
    /// Answers with a ConfigMap.
    Good,
    /// Runs a privileged Pod in the network of the node.
    PrivilegedPod,
    /// Runs a hardened Pod as the service account `admin`.
    PodOfAdmin,
    /// Makes a token of the service account `innkeeper`.
    AccountToken,
    /// Makes a bootstrap token with a known value.
    BootstrapToken,
}

impl Reconciler for Takeovers {
    type Parent = Takeover;
    type Children = ();
    type Config = NoConfig;

    fn describe() -> Manifest {
        Manifest::new("takeover", env!("CARGO_PKG_VERSION"))
            .parent::<Takeover>()
            .untyped_child(ChildKind::new("v1", "ConfigMap"))
            .untyped_child(ChildKind::new("v1", "Secret").optional())
            .untyped_child(ChildKind::new("v1", "Pod").optional())
    }

    fn reconcile(parent: &Takeover, cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        let mut child = match parent.spec.behaviour {
            Behaviour::Good => json!({"kind": "ConfigMap", "data": {"said": "nothing"}}),
            Behaviour::PrivilegedPod => pod(&json!({
                "hostNetwork": true,
                "containers": [
                    {"name": "c", "image": "i", "securityContext": {"privileged": true}},
                ],
            })),
            Behaviour::PodOfAdmin => pod(&json!({
                "serviceAccountName": "admin",
                "securityContext": {
                    "runAsNonRoot": true,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "c",
                    "image": "i",
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }],
            })),
            Behaviour::AccountToken => json!({
                "kind": "Secret",
                "type": "kubernetes.io/service-account-token",
                "metadata": {"annotations": {"kubernetes.io/service-account.name": "innkeeper"}},
            }),
            Behaviour::BootstrapToken => json!({
                "kind": "Secret",
                "type": "bootstrap.kubernetes.io/token",
                "metadata": {"name": "bootstrap-token-abcdef"},
                "stringData": {
                    "token-id": "abcdef",
                    "token-secret": "0123456789abcdef",
                    "usage-bootstrap-authentication": "true",
                    "auth-extra-groups": "system:bootstrappers:admins",
                },
            }),
        };
        child["apiVersion"] = "v1".into();
        child["metadata"]["namespace"] = (&*parent.spec.namespace).into();
        if child["metadata"]["name"].is_null() {
            child["metadata"]["name"] = format!("{}-child", cx.name()).into();
        }
        Ok(Desired::new().child(Child::untyped("child", &child)).into())
    }
}

fn pod(spec: &Value) -> Value {
    json!({"kind": "Pod", "spec": spec})
}

innkeeper_sdk::export!(Takeovers);
