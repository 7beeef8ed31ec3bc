//! One control plane and one host with the shipped guests, which the tests of the suite share, and
//! a namespace for each test.

use std::{process::Command, sync::OnceLock, time::Duration};

use innkeeper_tests::{
    ControlPlane, Host, HostOptions, Write, eventually,
    manifest::{self, condition, is_ready},
    process::path_from_env,
    user::Kind,
};
use serde_json::{Value, json};

use crate::stage::{SETTLED_WITHIN, restart_collector, wait_served};

/// The guests that ship with the product.
pub(crate) const GUESTS: [&str; 4] = ["memcached", "wordpress", "etcd", "backup"];

/// The CRDs of their parents.
pub(crate) const PARENT_CRDS: [&str; 7] = [
    "memcacheds.cache.example.com",
    "wordpresses.example.com",
    "etcdclusters.etcd.ydzs.io",
    "backups.gobackup.io",
    "cronbackups.gobackup.io",
    "restores.gobackup.io",
    "storages.gobackup.io",
];

/// The kinds of cert-manager and of the Prometheus operator that examples need: group, plural and kind.
const FOREIGN_KINDS: [(&str, &str, &str); 3] = [
    ("cert-manager.io", "issuers", "Issuer"),
    ("cert-manager.io", "certificates", "Certificate"),
    ("monitoring.coreos.com", "servicemonitors", "ServiceMonitor"),
];

/// After this long without a write, the host has finished: well above the time of a pass and its
/// watch events.
const QUIET: Duration = Duration::from_millis(1500);

/// The shared control plane with a host on it.
struct Shared {
    plane: &'static ControlPlane,
    host: Host,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let plane = ControlPlane::shared();
        for (group, plural, kind) in FOREIGN_KINDS {
            let definition = definition(group, plural, kind);
            plane
                .user()
                .apply(&definition)
                .expect("a CRD can be applied");
        }
        let mut options = HostOptions::with_guests(&GUESTS).expect("the guests should be built");
        let config = manifest::root().join("tests/cluster/backup.yaml");
        let config = format!("backup={}", config.display());
        options.arguments.extend(["--config".to_owned(), config]);
        let host = Host::start(&plane.kubeconfig(), &options).expect("the host should start");
        prepare(plane, &host);
        Shared { plane, host }
    })
}

/// The definition of a kind of other software, without the schema.
fn definition(group: &str, plural: &str, kind: &str) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} }, "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

/// Waits for the CRDs, and lets the garbage collector learn of them at once instead of within half
/// a minute.
pub(crate) fn prepare(plane: &ControlPlane, host: &Host) {
    wait_served(plane, host, &PARENT_CRDS);
    restart_collector(plane);
}

/// A namespace of the shared control plane for one test.
pub(crate) struct Site {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) namespace: String,
}

impl Site {
    /// A new namespace whose name starts with `prefix`.
    pub(crate) fn new(prefix: &str) -> Self {
        let plane = shared().plane;
        let namespace = plane.namespace(prefix).expect("a namespace can be made");
        Self { plane, namespace }
    }

    /// Applies every object of an example in this namespace.
    pub(crate) fn apply_example(&self, path: &str) -> Vec<Value> {
        self.plane
            .apply_example(&self.namespace, path)
            .expect("an example can be applied")
    }

    /// The command `innkeeper render` for a guest; later calls reuse its compiled code.
    pub(crate) fn render(&self, guest: &str) -> Command {
        let guests = path_from_env("INNKEEPER_GUESTS").expect("the guests are built");
        let mut command = Command::new(path_from_env("INNKEEPER_BIN").expect("the host is built"));
        command.args(["render", "-o", "json", "--plugin"]);
        command.arg(guests.join(format!("{guest}.wasm")));
        command.arg("--cache-dir");
        command.arg(self.plane.directory().join("render-cache"));
        command
    }

    /// A kind in this namespace.
    pub(crate) fn kind<'a>(&'a self, api_version: &'a str, kind: &'a str) -> Kind<'a> {
        Kind::new(api_version, kind, &self.namespace)
    }

    /// An object, or none if it does not exist.
    pub(crate) fn find(&self, (api_version, kind, name): Target<'_>) -> Option<Value> {
        let kind = self.kind(api_version, kind);
        self.plane
            .user()
            .get(kind, name)
            .expect("an object can be read")
    }

    /// An object, which has to exist.
    #[track_caller]
    pub(crate) fn get(&self, target: Target<'_>) -> Value {
        let found = self.find(target);
        assert!(found.is_some(), "{target:?} does not exist");
        found.expect("its presence was just checked")
    }

    /// Merges a patch into an object.
    pub(crate) fn merge(&self, (api_version, kind, name): Target<'_>, patch: &Value) -> Value {
        let kind = self.kind(api_version, kind);
        self.plane
            .user()
            .merge(kind, name, patch)
            .expect("an object can be patched")
    }

    /// Deletes an object.
    pub(crate) fn delete(&self, (api_version, kind, name): Target<'_>) {
        let kind = self.kind(api_version, kind);
        self.plane
            .user()
            .delete(kind, name)
            .expect("an object can be deleted");
    }

    /// Waits until `check` holds for an object.
    #[track_caller]
    pub(crate) fn wait(
        &self,
        goal: &str,
        target: Target<'_>,
        check: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(goal, || {
            let object = self
                .find(target)
                .ok_or_else(|| Self::explain(target, &Value::Null))?;
            if check(&object) {
                Ok(object)
            } else {
                Err(Self::explain(target, &object))
            }
        })
    }

    /// Waits until an object is deleted.
    #[track_caller]
    pub(crate) fn wait_gone(&self, target: Target<'_>) {
        eventually("an object is deleted", || match self.find(target) {
            None => Ok(()),
            Some(object) => Err(Self::explain(target, &object)),
        });
    }

    /// Waits until a parent is Synced and Ready for its current generation.
    #[track_caller]
    pub(crate) fn wait_ready(&self, target: Target<'_>) -> Value {
        self.wait("a parent becomes Ready", target, is_ready)
    }

    /// Waits until the host has written nothing in this namespace for a while; returns the end of
    /// the audit log.
    #[track_caller]
    pub(crate) fn settle(&self) -> usize {
        let since = |mark| Ok(self.writes_since(mark));
        self.plane
            .audit()
            .settle(QUIET, SETTLED_WITHIN, since)
            .expect("the host stops writing")
    }

    /// The host's writes in this namespace after a mark.
    pub(crate) fn writes_since(&self, mark: usize) -> Vec<Write> {
        let audit = self.plane.audit();
        audit
            .in_namespace_since(mark, &self.namespace)
            .expect("the audit log can be read")
    }

    /// The host's writes to children in this namespace after a mark, as lines, without status and
    /// events.
    ///
    /// An update or delete that its own precondition refused is left out as well: a controller was
    /// faster, nothing was written, and the host observes again. That depends on chance. A refused
    /// create stays in.
    pub(crate) fn child_writes_since(&self, mark: usize) -> Vec<String> {
        let writes = self.writes_since(mark);
        let is_child = |write: &&Write| {
            !write.resource.ends_with("/status") && !write.resource.starts_with("events.")
        };
        let is_conditional = |body: &Value| {
            !body["metadata"]["uid"].is_null() || !body["preconditions"]["uid"].is_null()
        };
        let has_landed = |write: &&Write| write.code != 409 || !is_conditional(&write.body);
        writes
            .iter()
            .filter(is_child)
            .filter(has_landed)
            .map(Write::line)
            .collect()
    }

    /// Waits until the host is quiet, and checks its writes to children after a mark.
    #[track_caller]
    pub(crate) fn check_child_writes(&self, mark: usize, expected: &[&str]) {
        self.settle();
        assert_eq!(self.child_writes_since(mark), expected);
    }

    fn explain(target: Target<'_>, object: &Value) -> String {
        let log = shared().host.log().unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(15)..];
        format!(
            "{target:?} is {:#}\nthe host logged\n{}",
            object["status"],
            last.join("\n")
        )
    }
}

/// `apiVersion`, `kind`, name.
pub(crate) type Target<'a> = (&'a str, &'a str, &'a str);

/// The identity of the parent for which a child is retained, without the proof of the host; empty if
/// it is not retained.
pub(crate) fn retained_for(metadata: &Value) -> &str {
    let mark = metadata["annotations"]["innkeeper.dev/retained-for"].as_str();
    mark.and_then(|mark| mark.split(' ').next())
        .unwrap_or_default()
}

/// The reason of a parent's condition.
pub(crate) fn reason(parent: &Value, kind: &str) -> String {
    let text = condition(parent, kind).unwrap_or_default();
    let (_, rest) = text.split_once('/').unwrap_or_default();
    rest.split(':').next().unwrap_or_default().to_owned()
}
