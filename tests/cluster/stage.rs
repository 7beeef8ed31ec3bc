//! A control plane for one test, which starts, stops and restarts hosts on it.
//!
//! For tests that count every write or break something; the others share `suite`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use innkeeper_tests::{
    ControlPlane, Host, HostOptions, Write, eventually, host,
    manifest::{self, condition, condition_status, is_condition_current},
    user::Kind,
};
use serde_json::{Value, json};

pub(crate) use innkeeper_tests::host::{wait_logged, wait_logged_for};

use crate::{compiled::CacheDirectory, suite::Target};

/// How long a host may take until it writes nothing more. No test causes that much work.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_mins(1);

/// A control plane, and the options for every host on it.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) options: HostOptions,
    // The hosts share one cache, as a restarted host would.
    _cache: CacheDirectory,
}

impl Stage {
    /// A control plane with all controllers that make parents Ready.
    pub(crate) fn full(plugins: Vec<PathBuf>) -> Self {
        Self::with(plugins, &[])
    }

    /// A control plane with an API server and no controllers.
    pub(crate) fn api_only(plugins: Vec<PathBuf>) -> Self {
        Self::with(plugins, &["--api-only"])
    }

    pub(crate) fn with(plugins: Vec<PathBuf>, arguments: &[&str]) -> Self {
        let plane = ControlPlane::take(arguments).expect("the control plane starts");
        let cache = CacheDirectory::warm();
        let options = HostOptions {
            plugins,
            cache: Some(cache.path().to_owned()),
            ..HostOptions::default()
        };
        Self {
            plane,
            options,
            _cache: cache,
        }
    }

    /// A control plane without controllers, and a host that serves these CRDs.
    pub(crate) fn serving(plugins: Vec<PathBuf>, crds: &[&str]) -> (Self, Host) {
        let stage = Self::api_only(plugins);
        let host = stage.host_serving(crds);
        (stage, host)
    }

    /// Returns the objects that `innkeeper manifests` prints, without the Plugins.
    pub(crate) fn manifests(&self, arguments: &[&str]) -> Vec<Value> {
        host::manifests(&self.options.plugins, arguments)
            .unwrap()
            .into_iter()
            .filter(|object| object["kind"] != "Plugin")
            .collect()
    }

    /// Starts a host as administrator.
    pub(crate) fn host(&self) -> Host {
        Host::start(&self.plane.kubeconfig(), &self.options).expect("the host starts")
    }

    /// Starts a host, and waits until these CRDs are served.
    #[track_caller]
    pub(crate) fn host_serving(&self, crds: &[&str]) -> Host {
        let host = self.host();
        self.wait_served(&host, crds);
        host
    }

    /// Stops a host as users do, and checks that it exits with success.
    #[track_caller]
    pub(crate) fn stop(mut host: Host) {
        let status = host.stop().expect("the host ends");
        assert!(status.success(), "{status}:\n{}", host.log().unwrap());
    }

    /// Kills a host.
    pub(crate) fn kill(mut host: Host) {
        host.process().kill().expect("the host can be killed");
    }

    /// Waits until CRDs are served.
    #[track_caller]
    pub(crate) fn wait_served(&self, host: &Host, crds: &[&str]) {
        wait_served(&self.plane, host, crds);
    }

    pub(crate) fn install_plugin_crd(&self) {
        for object in manifest::load("deploy/crds/plugins.innkeeper.dev.yaml").unwrap() {
            self.plane.user().apply(&object).unwrap();
        }
    }

    /// Applies the CRDs of the plugins.
    pub(crate) fn install_crds(&self) {
        for object in self.manifests(&[]) {
            if object["kind"] == "CustomResourceDefinition" {
                self.plane.user().apply(&object).unwrap();
            }
        }
    }

    /// Restarts the garbage collector, so that it finds new kinds at once instead of after half a
    /// minute.
    pub(crate) fn restart_collector(&self) {
        restart_collector(&self.plane);
    }

    /// Grants all permissions without the group `system:masters`, which the API server exempts from
    /// limits.
    pub(crate) fn allow_all(&self, name: &str, subject: &Value) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
            },
            "subjects": [subject],
        });
        self.plane
            .user()
            .apply(&binding)
            .expect("a role can be bound");
    }

    pub(crate) fn namespace(&self, prefix: &str) -> String {
        self.plane
            .namespace(prefix)
            .expect("a namespace can be made")
    }

    /// Applies an object in a namespace.
    pub(crate) fn apply(&self, namespace: &str, object: &Value) -> Value {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        self.plane
            .user()
            .apply(&object)
            .expect("an object can be applied")
    }

    /// Applies an object, without a namespace if the name is empty. Retries, because the API server
    /// may report a CRD as established before it serves the kind.
    #[track_caller]
    pub(crate) fn apply_new(&self, namespace: &str, object: &Value) {
        let mut object = object.clone();
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        eventually("an object can be applied", || {
            self.plane.user().apply(&object).map(drop)
        });
    }

    /// Applies all objects from an example in a namespace.
    pub(crate) fn apply_example(&self, namespace: &str, path: &str) {
        for object in manifest::load(path).expect("an example can be read") {
            self.apply_new(namespace, &object);
        }
    }

    /// Returns an object, or `None` if it does not exist.
    pub(crate) fn find(
        &self,
        namespace: &str,
        (api_version, kind, name): Target<'_>,
    ) -> Option<Value> {
        let kind = Kind::new(api_version, kind, namespace);
        self.plane
            .user()
            .get(kind, name)
            .expect("an object can be read")
    }

    /// Returns an object that must exist.
    #[track_caller]
    pub(crate) fn get(&self, namespace: &str, target: Target<'_>) -> Value {
        self.find(namespace, target)
            .unwrap_or_else(|| panic!("{target:?} does not exist in {namespace}"))
    }

    pub(crate) fn merge(
        &self,
        namespace: &str,
        (api_version, kind, name): Target<'_>,
        patch: &Value,
    ) {
        let kind = Kind::new(api_version, kind, namespace);
        self.plane
            .user()
            .merge(kind, name, patch)
            .expect("an object can be patched");
    }

    pub(crate) fn delete(&self, namespace: &str, (api_version, kind, name): Target<'_>) {
        let kind = Kind::new(api_version, kind, namespace);
        self.plane
            .user()
            .delete(kind, name)
            .expect("an object can be deleted");
    }

    /// Waits until `check` holds for an object.
    #[track_caller]
    pub(crate) fn wait(
        &self,
        host: &Host,
        namespace: &str,
        target: Target<'_>,
        check: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(&format!("{target:?} in {namespace}"), || {
            let object = self.find(namespace, target).unwrap_or_default();
            if check(&object) {
                return Ok(object);
            }
            let log = host.log().unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(15)..];
            Err(format!(
                "it is {:#}\nthe host logged\n{}",
                object["status"],
                last.join("\n")
            ))
        })
    }

    /// Returns the current end of the audit log.
    pub(crate) fn mark(&self) -> usize {
        self.plane
            .audit()
            .mark()
            .expect("the audit log can be read")
    }

    /// Returns the host's writes after a mark.
    pub(crate) fn writes_since(&self, mark: usize) -> Vec<Write> {
        self.plane
            .audit()
            .by_host_since(mark)
            .expect("the audit log can be read")
    }

    /// Waits until the host has written nothing for this time, and returns the end of the audit log.
    #[track_caller]
    pub(crate) fn settle(&self, quiet: Duration) -> usize {
        self.settle_within(quiet, SETTLED_WITHIN)
    }

    /// Like `settle`, with a time limit.
    #[track_caller]
    pub(crate) fn settle_within(&self, quiet: Duration, patience: Duration) -> usize {
        let audit = self.plane.audit();
        audit
            .settle(quiet, patience, |mark| audit.by_host_since(mark))
            .expect("the host stops writing")
    }
}

/// Waits until CRDs are served; a failure shows the host's log.
#[track_caller]
pub(crate) fn wait_served(plane: &ControlPlane, host: &Host, crds: &[&str]) {
    let kind = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    for name in crds {
        eventually(&format!("the CRD {name} is served"), || -> Result<()> {
            let crd = plane
                .user()
                .get(kind, name)?
                .with_context(|| host.log().unwrap_or_default())?;
            if condition_status(&crd, "Established") != "True" {
                bail!("{}", crd["status"]);
            }
            // The API server may report a CRD as established before it serves the objects.
            let spec = &crd["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let version = text(&spec["versions"][0]["name"]);
            let api_version = format!("{}/{version}", text(&spec["group"]));
            let parents = Kind::cluster(&api_version, spec["names"]["kind"].as_str().unwrap_or(""));
            plane.user().list(parents, "").map(drop)
        });
    }
}

/// Restarts the garbage collector, so that it finds new kinds at once instead of after half a
/// minute.
pub(crate) fn restart_collector(plane: &ControlPlane) {
    for verb in ["restart", "wait"] {
        plane
            .control(&[verb, "controller-manager"])
            .expect("the controller manager restarts");
    }
}

/// Formats writes as short lines.
pub(crate) fn lines(writes: &[Write]) -> Vec<String> {
    writes.iter().map(Write::line).collect()
}

/// Returns true if a parent's current generation is applied.
pub(crate) fn is_applied(parent: &Value) -> bool {
    is_synced(parent, "True", "Applied")
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Returns true if a parent's condition `Synced` has this status and reason for the current
/// generation.
pub(crate) fn is_synced(parent: &Value, status: &str, reason: &str) -> bool {
    let start = format!("{status}/{reason}:");
    condition(parent, "Synced").is_some_and(|text| text.starts_with(&start))
        && is_condition_current(parent, "Synced")
}
