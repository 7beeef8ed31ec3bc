//! Tests on a real Node: kubelet, container runtime and images. They need root and `tests/setup --only node`.

#![expect(
    clippy::unwrap_used,
    reason = "a failed expectation of a test is a panic"
)]

mod cleanup;
mod memcached;
mod network;
mod volumes;

use std::{
    process::{Command, Output},
    sync::OnceLock,
};

use innkeeper_tests::{
    ControlPlane, Host, HostOptions, eventually,
    manifest::{at, condition_status, is_ready},
    process::path_from_env,
    user::Kind,
};
use serde_json::{Value, json};

/// A cluster with one real Node and no imitated one, and a host with the plugins.
struct Shared {
    plane: ControlPlane,
    host: Host,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let plane = ControlPlane::start_with(&["--real-nodes", "1"]).unwrap();
        let options = HostOptions::with_guests(&["memcached"]).unwrap();
        let host = Host::start(&plane.kubeconfig(), &options).unwrap();
        Shared { plane, host }
    })
}

/// One test's namespace on the shared cluster, which admits only restricted Pods.
struct Site {
    plane: &'static ControlPlane,
    host: &'static Host,
    namespace: String,
}

impl Site {
    fn new(prefix: &str) -> Self {
        let Shared { plane, host } = shared();
        let namespace = plane.namespace(prefix).unwrap();
        let labels = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
        let kind = Kind::cluster("v1", "Namespace");
        plane.user().merge(kind, &namespace, &labels).unwrap();
        Self {
            plane,
            host,
            namespace,
        }
    }

    fn kind<'a>(&'a self, api_version: &'a str, kind: &'a str) -> Kind<'a> {
        Kind::new(api_version, kind, &self.namespace)
    }

    /// Waits until a parent is Synced and Ready.
    #[track_caller]
    fn wait_ready(&self, api_version: &str, kind: &str, name: &str) -> Value {
        eventually("a parent becomes Ready", || {
            let kind = self.kind(api_version, kind);
            let parent = self.plane.user().get(kind, name);
            let parent = parent.map_err(|error| error.to_string())?;
            parent.filter(is_ready).ok_or_else(|| self.explain())
        })
    }

    /// Creates a Pod with a shell in the image of memcached.
    fn create_shell(&self, name: &str, script: &str, spec: &Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "securityContext": {
                    "runAsUser": 11211, "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": "shell", "image": "memcached:1.6", "command": ["bash", "-c", script],
                    "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                }],
            },
        });
        merge(&mut pod["spec"], spec);
        self.plane.user().apply(&pod).unwrap();
    }

    /// Waits until a Pod has ended, and returns the message that its container left.
    #[track_caller]
    fn wait_message(&self, name: &str) -> String {
        eventually("a Pod ends", || {
            let pod = self.plane.user().get(self.kind("v1", "Pod"), name);
            let pod = pod.map_err(|error| error.to_string())?.unwrap_or_default();
            let ended = at(&pod, "/status/containerStatuses/0/state/terminated");
            let message = ended["message"].as_str().map(ToOwned::to_owned);
            message.ok_or_else(|| self.explain())
        })
    }

    /// Waits until a Pod is ready.
    #[track_caller]
    fn wait_pod(&self, name: &str) {
        eventually("a Pod becomes ready", || {
            let pod = self.plane.user().get(self.kind("v1", "Pod"), name);
            let pod = pod.map_err(|error| error.to_string())?.unwrap_or_default();
            if condition_status(&pod, "Ready") == "True" {
                Ok(())
            } else {
                Err(self.explain())
            }
        });
    }

    /// Runs `kubectl` in the namespace.
    fn kubectl(&self, arguments: &[&str]) -> Output {
        Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
            .args(["kubectl", "--kubeconfig"])
            .arg(self.plane.kubeconfig())
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Runs a script in a Pod, and returns its output if it succeeds.
    fn run(&self, pod: &str, script: &str) -> Result<String, String> {
        let output = self.kubectl(&["exec", pod, "--", "bash", "-c", script]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(text)
        } else {
            Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        }
    }

    /// The warnings about objects in the namespace.
    fn warnings(&self) -> Vec<String> {
        let events = self.plane.user().list(self.kind("v1", "Event"), "");
        events
            .unwrap()
            .iter()
            .filter(|event| event["type"] == "Warning")
            .map(|event| format!("{}: {}", event["reason"], event["message"]))
            .collect()
    }

    /// The state of the namespace, for failure messages.
    fn explain(&self) -> String {
        let pods = self.kubectl(&["get", "pods", "--output", "wide"]);
        format!(
            "{}{:?}\nthe host logged\n{}",
            String::from_utf8_lossy(&pods.stdout),
            self.warnings(),
            self.host.log().unwrap_or_default()
        )
    }
}

/// Merges objects; other values are replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
