//! Member and Job Pods, run like a kubelet does.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown},
    time::{Duration, Instant},
};

use innkeeper_tests::process::Running;
use serde_json::{Value, json};

use super::container::{Images, Place, list, stop};

/// The ConfigMaps' and Secrets' data by name.
pub(super) type ConfigMaps = BTreeMap<String, BTreeMap<String, String>>;

/// A Pod whose init container or container is a process.
pub(super) struct Pod {
    pub(super) object: Value,
    pub(super) place: Place,
    /// The states of exited containers by name.
    ended: BTreeMap<String, Value>,
    running: Option<(Value, Running)>,
    started: String,
    restarts: i32,
    not_before: Instant,
    /// The liveness probe's last success since the container started.
    live: Option<Instant>,
    /// The startup probe has succeeded since then.
    is_started: bool,
    pub(super) is_ready: bool,
}

impl Pod {
    pub(super) fn new(object: Value, place: Place) -> Self {
        Self {
            object,
            place,
            ended: BTreeMap::new(),
            running: None,
            started: String::new(),
            restarts: 0,
            not_before: Instant::now(),
            live: None,
            is_started: false,
            is_ready: false,
        }
    }

    /// The containers in start order.
    fn containers(&self) -> impl Iterator<Item = &Value> {
        let spec = &self.object["spec"];
        list(&spec["initContainers"]).chain(list(&spec["containers"]))
    }

    /// True if the container has succeeded and does not start again.
    fn is_done(&self, container: &Value) -> bool {
        let is_once = self.is_once() || self.is_init(container);
        let terminated = self.ended.get(name(container));
        is_once && terminated.is_some_and(|state| state["exitCode"] == 0)
    }

    fn is_once(&self) -> bool {
        self.object["spec"]["restartPolicy"] == "Never"
    }

    fn is_init(&self, container: &Value) -> bool {
        list(&self.object["spec"]["initContainers"]).any(|init| init == container)
    }

    /// One kubelet sync at `now`.
    pub(super) fn look(&mut self, images: &Images, config: &ConfigMaps, now: &str) {
        self.show(config);
        if let Some((container, process)) = &mut self.running
            && let Some(status) = process.try_wait().unwrap()
        {
            let code = status.code().unwrap_or(137);
            let container = container.clone();
            self.end(&container, code, now);
        }
        if self.running.is_none() && self.not_before <= Instant::now() {
            let next = self
                .containers()
                .find(|container| !self.is_done(container))
                .cloned();
            if let Some(container) = next.filter(|_| !self.is_over()) {
                let process = self.place.start(images, &container, config);
                self.running = Some((container, process));
                now.clone_into(&mut self.started);
                self.live = None;
                self.is_started = false;
            }
        }
        self.probe(images, config);
    }

    /// Shows the ConfigMaps and Secrets in their volumes.
    fn show(&self, config: &ConfigMaps) {
        for volume in list(&self.object["spec"]["volumes"]) {
            let directory = &self.place.volumes[name(volume)];
            if !directory.exists() {
                fs::create_dir_all(directory).unwrap();
                // Like the kubelet for the Pod's group.
                let group = self.object["spec"]["securityContext"]["fsGroup"].as_u64();
                if let (Some(_), Some(group)) = (self.place.user, group) {
                    chown(directory, None, Some(group.try_into().unwrap())).unwrap();
                    let mode = Permissions::from_mode(0o2775);
                    fs::set_permissions(directory, mode).unwrap();
                }
            }
            let map = &volume["configMap"]["name"];
            let secret = &volume["secret"]["secretName"];
            let mounted = map.as_str().or(secret.as_str());
            let Some(data) = mounted.and_then(|name| config.get(name)) else {
                continue;
            };
            let items: Vec<&Value> = list(&volume["secret"]["items"]).collect();
            let is_shown =
                |key: &str| items.is_empty() || items.iter().any(|item| item["key"] == *key);
            for file in fs::read_dir(directory).unwrap() {
                let file = file.unwrap();
                let name = file.file_name().into_string().unwrap();
                if !data.contains_key(&name) || !is_shown(&name) {
                    fs::remove_file(file.path()).unwrap();
                }
            }
            for (key, value) in data.iter().filter(|entry| is_shown(entry.0)) {
                if fs::read_to_string(directory.join(key)).ok().as_ref() != Some(value) {
                    let new = self.place.directory.join("new");
                    fs::write(&new, value).unwrap();
                    fs::rename(new, directory.join(key)).unwrap();
                }
            }
        }
    }

    fn end(&mut self, container: &Value, code: i32, now: &str) {
        self.running = None;
        self.is_ready = false;
        let reason = if code == 0 { "Completed" } else { "Error" };
        let message = self.place.ended(container, code);
        let state =
            json!({ "exitCode": code, "reason": reason, "message": message, "finishedAt": now });
        self.ended.insert(name(container).to_owned(), state);
        if !self.is_once() && !self.is_done(container) {
            self.restarts += 1;
            // The kubelet waits ten times as long.
            let wait = Duration::from_secs(1 << self.restarts.clamp(0, 3));
            self.not_before = Instant::now() + wait;
        }
    }

    /// True if a Pod that does not restart has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_once() && self.exit_code().is_some()
    }

    /// Such a Pod's exit code: the failed container's, or the last one's.
    pub(super) fn exit_code(&self) -> Option<i64> {
        let codes = self
            .containers()
            .map(|container| self.ended.get(name(container))?["exitCode"].as_i64());
        let mut last = None;
        for code in codes {
            last = code;
            if code != Some(0) {
                return code;
            }
        }
        last
    }

    fn probe(&mut self, images: &Images, config: &ConfigMaps) {
        let Some((container, _)) = &self.running else {
            return;
        };
        if self.is_init(container) || container["readinessProbe"].is_null() {
            return;
        }
        if !self.is_started {
            let startup = &container["startupProbe"];
            self.is_started = match &startup["exec"]["command"] {
                Value::Null => self.place.probe(startup),
                command => self.place.succeeds(images, container, command, config),
            };
            if !self.is_started {
                return;
            }
        }
        self.is_ready = self.place.probe(&container["readinessProbe"]);
        if self.place.probe(&container["livenessProbe"]) {
            self.live = Some(Instant::now());
        }
        // Three failures five seconds apart, once the startup probe has succeeded.
        let is_dead = self
            .live
            .is_some_and(|instant| instant.elapsed() > Duration::from_secs(15));
        if let Some((_, process)) = self.running.as_mut().filter(|_| is_dead) {
            stop(process);
        }
    }

    /// Kills the processes at once, as when a node is lost.
    pub(super) fn crash(&mut self) {
        if let Some((_, mut process)) = self.running.take() {
            process.kill().unwrap();
        }
        self.is_ready = false;
        self.ended.clear();
    }

    /// Stops the processes as a deletion does.
    pub(super) fn stop(&mut self) {
        if let Some((_, process)) = &mut self.running {
            stop(process);
        }
        self.running = None;
    }

    /// The Pod with the status, as the API server shows it.
    pub(super) fn shown(&self) -> Value {
        let state = |container: &Value| {
            let terminated = self.ended.get(name(container));
            let running = self.running.as_ref().filter(|(name, _)| name == container);
            let state = match (running, terminated) {
                (Some(_), _) => json!({ "running": { "startedAt": self.started } }),
                (None, Some(terminated)) => json!({ "terminated": terminated }),
                (None, None) => json!({ "waiting": { "reason": "PodInitializing" } }),
            };
            let last = terminated
                .filter(|_| running.is_some())
                .map(|state| json!({ "terminated": state }));
            json!({
                "name": name(container), "ready": running.is_some() && self.is_ready,
                "restartCount": if self.is_init(container) { 0 } else { self.restarts },
                "state": state, "lastState": last.unwrap_or_else(|| json!({})),
            })
        };
        let spec = &self.object["spec"];
        let mut shown = self.object.clone();
        shown["status"] = json!({
            "conditions": [{ "type": "Ready", "status": if self.is_ready { "True" } else { "False" } }],
            "initContainerStatuses": list(&spec["initContainers"]).map(state).collect::<Vec<_>>(),
            "containerStatuses": list(&spec["containers"]).map(state).collect::<Vec<_>>(),
        });
        shown
    }

    /// The end of all containers' logs.
    pub(super) fn logs(&self) -> String {
        let tail = |container: &Value| {
            let log = fs::read_to_string(self.place.log(container)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(60)..].join("\n");
            format!(
                "{} {}:\n{last}\n",
                name(&self.object["metadata"]),
                name(container)
            )
        };
        self.containers().map(tail).collect()
    }
}

pub(super) fn name(object: &Value) -> &str {
    object["name"].as_str().unwrap()
}
