//! A cluster around the plugin: stores each answer's children and acts as the controllers and the kubelet.
//!
//! Nothing here knows etcd: the answers contain everything that members and Jobs do. Claims are bound at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::{self, Command},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use innkeeper_crd::Schema;
use innkeeper_model::ObjectId;
use innkeeper_tests::eventually_for;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    container::{Images, Place, list},
    passes::PLUGIN,
    pods::{ConfigMaps, Pod, name},
};

/// The longest wait for a goal: a rollout of five members with elections on a loaded machine.
const DEADLINE: Duration = Duration::from_mins(4);

/// The longest time to skip when nothing else happens: a plugin that waits for a Pod or after a Job.
const SKIPPED_MAX: Duration = Duration::from_mins(1);

/// Idle time after which time is skipped. A member needs less to find the data.
const QUIET: Duration = Duration::from_secs(2);

/// A child in the cluster.
pub(super) struct Stored {
    pub(super) key: String,
    pub(super) retained: bool,
    pub(super) object: Value,
}

/// A Job's Pods.
#[derive(Default)]
pub(super) struct JobPods {
    pub(super) pods: Vec<Pod>,
    pub(super) last: Option<Instant>,
}

pub(super) struct World {
    pub(super) directory: TempDir,
    pub(super) images: Images,
    pub(super) schema: Schema,
    pub(super) parent: Value,
    pub(super) children: BTreeMap<ObjectId, Stored>,
    /// The user's Secrets by name.
    pub(super) secrets: ConfigMaps,
    pub(super) pods: BTreeMap<i64, Pod>,
    pub(super) jobs: BTreeMap<String, JobPods>,
    /// The CronJob's Jobs.
    pub(super) inspections: Vec<Value>,
    /// The names of all other Jobs so far.
    pub(super) operations: Vec<String>,
    /// The Pod templates by revision, and the last complete rollout's revision.
    pub(super) revisions: BTreeMap<String, Value>,
    pub(super) current: String,
    /// The ordinals of Pods whose node is down.
    pub(super) away: BTreeSet<i64>,
    /// The first three numbers of the Pods' addresses.
    pub(super) network: String,
    pub(super) last: usize,
    pub(super) begin: Instant,
    /// The skipped time.
    pub(super) skipped: Duration,
    pub(super) quiet: Instant,
    pub(super) shown: Value,
}

/// The strings in a JSON object.
pub(super) fn texts(object: &Value) -> BTreeMap<String, String> {
    let members = object.as_object().into_iter().flatten();
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    members.filter_map(text).collect()
}

impl World {
    pub(super) fn new(spec: Value) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let directory = tempfile::tempdir().unwrap();
        // The Pods run as another user.
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), mode).unwrap();
        let pid = usize::try_from(process::id()).unwrap();
        let number = pid + 40_000 * NUMBER.fetch_add(1, Ordering::Relaxed);
        let crds = &PLUGIN.manifest().crds;
        let mut world = Self {
            images: Images::new(directory.path().join("images")),
            directory,
            schema: Schema::new(&crds[0], "v1alpha1").unwrap(),
            parent: json!({
                "apiVersion": "etcd.ydzs.io/v1alpha1", "kind": "EtcdCluster",
                "metadata": { "name": "demo", "namespace": "default", "uid": "parent", "generation": 0 },
            }),
            children: BTreeMap::new(),
            secrets: ConfigMaps::new(),
            pods: BTreeMap::new(),
            jobs: BTreeMap::new(),
            inspections: Vec::new(),
            operations: Vec::new(),
            revisions: BTreeMap::new(),
            current: String::new(),
            away: BTreeSet::new(),
            network: format!("127.{}.{}", 1 + number / 256 % 254, number % 256),
            last: 0,
            begin: Instant::now(),
            skipped: Duration::ZERO,
            quiet: Instant::now(),
            shown: Value::Null,
        };
        world.edit(spec);
        world
    }

    /// Replaces the spec, as a user does.
    pub(super) fn edit(&mut self, spec: Value) {
        self.parent["spec"] = spec;
        let generation = self.parent["metadata"]["generation"].as_i64().unwrap();
        self.parent["metadata"]["generation"] = json!(generation + 1);
        let admitted = self.schema.admit(self.parent.as_object().unwrap().clone());
        self.parent = Value::Object(admitted.unwrap().object);
    }

    pub(super) fn now_ms(&self) -> u64 {
        let passed = self.begin.elapsed() + self.skipped;
        1_790_000_000_000 + u64::try_from(passed.as_millis()).unwrap()
    }

    pub(super) fn now(&self) -> String {
        Timestamp::from_millisecond(self.now_ms().try_into().unwrap())
            .unwrap()
            .to_string()
    }

    pub(super) fn number(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    /// Skips time.
    pub(super) fn skip(&mut self, time: Duration) {
        self.skipped += time;
        self.quiet = Instant::now();
    }

    /// Runs the cluster until `check` holds.
    #[track_caller]
    pub(super) fn until(&mut self, goal: &str, check: impl Fn(&Self) -> bool) {
        eventually_for(DEADLINE, goal, || {
            self.step();
            if check(self) {
                Ok(())
            } else {
                Err(self.explained())
            }
        });
    }

    #[track_caller]
    pub(super) fn until_ready(&mut self) {
        self.until("the cluster is Ready", |world| {
            let generation = &world.parent["metadata"]["generation"];
            world.condition("Ready").0 == "True"
                && world.parent["status"]["observedGeneration"] == *generation
        });
    }

    /// A condition's status, reason and message, as the plugin reports them.
    pub(super) fn condition(&self, kind: &str) -> (&str, &str, &str) {
        let condition =
            list(&self.parent["status"]["conditions"]).find(|condition| condition["type"] == kind);
        let text = |field: &str| {
            condition
                .and_then(|condition| condition[field].as_str())
                .unwrap_or_default()
        };
        (text("status"), text("reason"), text("message"))
    }

    fn explained(&self) -> String {
        let logs: String = self
            .pods
            .values()
            .chain(self.jobs.values().flat_map(|job| &job.pods))
            .map(Pod::logs)
            .collect();
        format!("{:#}\n{:?}\n{logs}", self.parent["status"], self.operations)
    }

    pub(super) fn step(&mut self) {
        let requeue = self.pass();
        self.stateful_set();
        self.run_jobs();
        self.write_names();
        let config = self.config();
        let now = self.now();
        for (ordinal, pod) in &mut self.pods {
            if !self.away.contains(ordinal) {
                pod.look(&self.images, &config, &now);
            }
        }
        let shown = json!([self.parent["status"], self.objects()]);
        if shown != self.shown {
            self.shown = shown;
            self.quiet = Instant::now();
        }
        let works = self
            .jobs
            .values()
            .any(|job| job.pods.iter().any(|pod| !pod.is_over()));
        let skipped =
            requeue.filter(|delay| *delay <= SKIPPED_MAX && !works && self.quiet.elapsed() > QUIET);
        if let Some(time) = skipped {
            self.skip(time);
        }
    }

    /// The Pods of members and Jobs.
    pub(super) fn objects(&self) -> Vec<Value> {
        let jobs = self.jobs.values().flat_map(|job| &job.pods);
        self.pods.values().chain(jobs).map(Pod::shown).collect()
    }

    pub(super) fn child(&self, kind: &str) -> Option<&Stored> {
        self.children
            .values()
            .find(|child| child.object["kind"] == kind)
    }

    /// A Pod with directory, address and volumes.
    pub(super) fn pod(&mut self, mut object: Value) -> Pod {
        let number = self.number();
        let uid = format!("pod-{number}");
        let directory = self.directory.path().join(&uid);
        fs::create_dir(&directory).unwrap();
        symlink(self.names(), directory.join("hosts")).unwrap();
        let metadata = &mut object["metadata"];
        metadata["namespace"] = json!("default");
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = json!(self.now());
        let fields = [
            ("metadata.name", name(metadata).to_owned()),
            ("metadata.namespace", "default".to_owned()),
            ("metadata.uid", uid),
        ];
        let volumes = list(&object["spec"]["volumes"]).map(|volume| {
            let path = match volume["persistentVolumeClaim"]["claimName"].as_str() {
                Some(claim) => self.volume(claim),
                None => directory.join("volumes").join(name(volume)),
            };
            (name(volume).to_owned(), path)
        });
        // Only root can start another user's processes.
        let user = object["spec"]["securityContext"]["runAsUser"]
            .as_u64()
            .filter(|_| rustix::process::geteuid().is_root());
        let place = Place {
            user: user.map(|user| user.try_into().unwrap()),
            volumes: volumes.collect(),
            directory,
            address: format!("{}.{}", self.network, 1 + number % 250),
            fields: fields.into(),
        };
        Pod::new(object, place)
    }

    /// A claim's volume directory.
    fn volume(&self, claim: &str) -> PathBuf {
        let child = self
            .children
            .values()
            .filter(|child| child.object["kind"] == "PersistentVolumeClaim")
            .find(|child| name(&child.object["metadata"]) == claim)
            .unwrap();
        let uid = child.object["metadata"]["uid"].as_str().unwrap();
        self.directory.path().join("volumes").join(uid)
    }

    /// Deletes a member's Pod and emptyDir.
    pub(super) fn delete_pod(&mut self, ordinal: i64) {
        if let Some(mut pod) = self.pods.remove(&ordinal) {
            pod.stop();
        }
    }

    /// Deletes a member's claim with the volume, and the Pod.
    pub(super) fn lose_disk(&mut self, ordinal: i64) {
        self.pods.get_mut(&ordinal).unwrap().crash();
        let claim = format!("data-demo-{ordinal}");
        fs::remove_dir_all(self.volume(&claim)).unwrap();
        self.children.retain(|id, _| *id.name != *claim);
        self.delete_pod(ordinal);
    }

    /// Deletes the parent and all children, and creates another one with the same name.
    pub(super) fn replace_parent(&mut self) {
        self.children.retain(|_, child| child.retained);
        self.stateful_set();
        let uid = format!("parent-{}", self.number());
        self.parent["metadata"] =
            json!({ "name": "demo", "namespace": "default", "uid": uid, "generation": 0 });
        self.parent["status"] = json!({});
    }

    pub(super) fn lose_record(&mut self) {
        self.children
            .retain(|_, child| child.object["kind"] != "ConfigMap");
    }

    /// A member's data directory.
    pub(super) fn data(&self, ordinal: i64) -> PathBuf {
        self.volume(&format!("data-demo-{ordinal}"))
            .join("default.etcd/member")
    }

    pub(super) fn config(&self) -> ConfigMaps {
        self.children
            .values()
            .filter(|child| child.object["kind"] == "ConfigMap")
            .map(|map| {
                (
                    name(&map.object["metadata"]).to_owned(),
                    texts(&map.object["data"]),
                )
            })
            .chain(self.secrets.clone())
            .collect()
    }

    fn names(&self) -> PathBuf {
        self.directory.path().join("hosts")
    }

    /// Writes the hosts file with the Services' names.
    fn write_names(&self) {
        let mut lines = vec!["127.0.0.1 localhost".to_owned()];
        for service in self
            .children
            .values()
            .filter(|child| child.object["kind"] == "Service")
        {
            let spec = &service.object["spec"];
            let service = name(&service.object["metadata"]);
            let selector = texts(&spec["selector"]);
            for pod in self
                .pods
                .values()
                .filter(|pod| pod.is_ready || spec["publishNotReadyAddresses"] == true)
            {
                let metadata = &pod.object["metadata"];
                let labels = texts(&metadata["labels"]);
                if !selector
                    .iter()
                    .all(|(key, value)| labels.get(key) == Some(value))
                {
                    continue;
                }
                let prefix = if spec["clusterIP"] == "None" {
                    format!("{}.", name(metadata))
                } else {
                    String::new()
                };
                lines.push(format!(
                    "{} {prefix}{service}.default.svc",
                    pod.place.address
                ));
            }
        }
        let text = lines.join("\n") + "\n";
        if fs::read_to_string(self.names()).ok().as_ref() != Some(&text) {
            let new = self.directory.path().join("hosts.new");
            fs::write(&new, text).unwrap();
            fs::rename(new, self.names()).unwrap();
        }
    }

    /// The client URL of a Service or a member.
    pub(super) fn url(&self, name: &str) -> String {
        let is_secured = self.parent["spec"]["tls"]["client"].is_object();
        let scheme = if is_secured { "https" } else { "http" };
        format!("{scheme}://{name}.default.svc:2379")
    }

    /// Runs etcdctl like a client of the client Service.
    pub(super) fn etcdctl(&self, arguments: &[&str]) -> Result<String, String> {
        self.etcdctl_at(&self.url("demo-client"), arguments)
    }

    /// Runs etcdctl with one endpoint.
    pub(super) fn etcdctl_at(&self, endpoint: &str, arguments: &[&str]) -> Result<String, String> {
        let program = self.images.programs("etcd:v3.6.0").join("etcdctl");
        let mut command = Command::new(program);
        command
            .args(["--command-timeout=10s", "--endpoints", endpoint])
            .args(self.presented("client"))
            .args(arguments);
        text(command.current_dir(self.directory.path())).map(|output| output.trim().to_owned())
    }
}

/// A command's output, or the error output if it fails.
fn text(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(read(&output.stdout))
    } else {
        Err(read(&output.stderr))
    }
}
