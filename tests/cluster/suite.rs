//! One control plane and one host with the shipped guests, shared by many tests, and a namespace for
//! each test.

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

/// The parents' CRDs.
pub(crate) const PARENT_CRDS: [&str; 7] = [
    "memcacheds.cache.example.com",
    "wordpresses.example.com",
    "etcdclusters.etcd.ydzs.io",
    "backups.gobackup.io",
    "cronbackups.gobackup.io",
    "restores.gobackup.io",
    "storages.gobackup.io",
];

/// The kinds from cert-manager and the Prometheus operator that examples use: group, plural and kind.
const FOREIGN_KINDS: [(&str, &str, &str); 3] = [
    ("cert-manager.io", "issuers", "Issuer"),
    ("cert-manager.io", "certificates", "Certificate"),
    ("monitoring.coreos.com", "servicemonitors", "ServiceMonitor"),
];

/// After this time without a write, the host has finished: it is well above the time for a pass and
/// the watch events after it.
const QUIET: Duration = Duration::from_millis(1500);

struct Shared {
    plane: &'static ControlPlane,
    host: Host,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let plane = ControlPlane::shared();
        for (group, plural, kind) in FOREIGN_KINDS {
            plane
                .user()
                .apply(&definition(group, plural, kind))
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

/// A CRD for other software's kind, without the schema.
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

/// Waits for the CRDs, and restarts the garbage collector so that it finds them at once.
pub(crate) fn prepare(plane: &ControlPlane, host: &Host) {
    wait_served(plane, host, &PARENT_CRDS);
    restart_collector(plane);
}

/// One test's namespace on the shared control plane.
pub(crate) struct Site {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) namespace: String,
}

impl Site {
    /// Creates a namespace whose name starts with `prefix`.
    pub(crate) fn new(prefix: &str) -> Self {
        let plane = shared().plane;
        let namespace = plane.namespace(prefix).expect("a namespace can be made");
        Self { plane, namespace }
    }

    /// Creates a namespace with the objects of an example.
    pub(crate) fn with_example(prefix: &str, path: &str) -> Self {
        let site = Self::new(prefix);
        site.apply_example(path);
        site
    }

    /// Creates a namespace with the objects of an example, and waits until this parent is ready.
    #[track_caller]
    pub(crate) fn with_ready_example(
        prefix: &str,
        path: &str,
        parent: Target<'_>,
    ) -> (Self, Value) {
        let site = Self::with_example(prefix, path);
        let parent = site.wait_ready(parent);
        (site, parent)
    }

    /// Applies all objects from an example in this namespace.
    pub(crate) fn apply_example(&self, path: &str) -> Vec<Value> {
        self.plane
            .apply_example(&self.namespace, path)
            .expect("an example can be applied")
    }

    /// Returns the command `innkeeper render` for a guest. The calls share a code cache.
    pub(crate) fn render(&self, guest: &str) -> Command {
        let guests = path_from_env("INNKEEPER_GUESTS").expect("the guests are built");
        let program = path_from_env("INNKEEPER_BIN").expect("the host is built");
        let file = guests.join(format!("{guest}.wasm"));
        let cache = self.plane.directory().join("render-cache");
        let mut command = Command::new(program);
        command
            .args(["render", "-o", "json", "--plugin"])
            .arg(file)
            .arg("--cache-dir")
            .arg(cache);
        command
    }

    pub(crate) fn kind<'a>(&'a self, api_version: &'a str, kind: &'a str) -> Kind<'a> {
        Kind::new(api_version, kind, &self.namespace)
    }

    /// Returns an object, or `None` if it does not exist.
    pub(crate) fn find(&self, (api_version, kind, name): Target<'_>) -> Option<Value> {
        let kind = self.kind(api_version, kind);
        self.plane
            .user()
            .get(kind, name)
            .expect("an object can be read")
    }

    /// Returns an object that must exist.
    #[track_caller]
    pub(crate) fn get(&self, target: Target<'_>) -> Value {
        let object = self.find(target);
        assert!(object.is_some(), "{target:?} does not exist");
        object.expect("its presence was just checked")
    }

    pub(crate) fn merge(&self, (api_version, kind, name): Target<'_>, patch: &Value) -> Value {
        let kind = self.kind(api_version, kind);
        self.plane
            .user()
            .merge(kind, name, patch)
            .expect("an object can be patched")
    }

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

    /// Waits until a parent is Synced and Ready for the current generation.
    #[track_caller]
    pub(crate) fn wait_ready(&self, target: Target<'_>) -> Value {
        self.wait("a parent becomes Ready", target, is_ready)
    }

    /// Waits until the host has written nothing in this namespace for a while, and returns the end of
    /// the audit log.
    #[track_caller]
    pub(crate) fn settle(&self) -> usize {
        let since = |mark| Ok(self.writes_since(mark));
        self.plane
            .audit()
            .settle(QUIET, SETTLED_WITHIN, since)
            .expect("the host stops writing")
    }

    /// Returns the host's writes in this namespace after a mark.
    pub(crate) fn writes_since(&self, mark: usize) -> Vec<Write> {
        self.plane
            .audit()
            .in_namespace_since(mark, &self.namespace)
            .expect("the audit log can be read")
    }

    /// Returns the host's writes to children in this namespace after a mark, as lines.
    ///
    /// Leaves out updates and deletes with a failed precondition: a controller was faster by chance,
    /// nothing was written, and the host observes again. Refused creates count.
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

    /// Waits until the host is quiet, and checks the writes to children after a mark.
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

/// Returns the parent for which a child is retained, without the host's proof; empty if the child is
/// not retained.
pub(crate) fn retained_for(metadata: &Value) -> &str {
    metadata["annotations"]["innkeeper.dev/retained-for"]
        .as_str()
        .and_then(|mark| mark.split(' ').next())
        .unwrap_or_default()
}

/// Returns the reason in a parent's condition.
pub(crate) fn reason(parent: &Value, kind: &str) -> String {
    let text = condition(parent, kind).unwrap_or_default();
    let (_, rest) = text.split_once('/').unwrap_or_default();
    rest.split(':').next().unwrap_or_default().to_owned()
}
