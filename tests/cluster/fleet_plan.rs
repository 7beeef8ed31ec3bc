//! `innkeeper plan` and `innkeeper dump` for the shipped plugins, compared with the writes by real
//! swaps.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use innkeeper_tests::{
    Host, Write, eventually, eventually_for,
    manifest::{self, root},
    process::{is_full, path_from_env},
    user::Kind,
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::stage::{Stage, is_synced};

/// Long enough for a host to continue unfinished work.
const QUIET: Duration = Duration::from_secs(3);

/// Time limit for all first passes, and for all writes during the swaps.
const SYNCED_WITHIN: Duration = Duration::from_mins(20);

/// Concurrent users who create parents: a single one would mostly wait for answers.
const USERS: usize = 8;

/// A shipped plugin with parents of one kind.
struct Fleet {
    plugin: &'static str,
    definition: &'static str,
    kind: (&'static str, &'static str),
    /// A parent's fields, except the metadata.
    parent: Value,
    /// A configuration that changes children.
    config: Value,
    /// Number of parents in `tests/full`.
    many: usize,
}

/// Limit for planning 10,000 parents, without reading them.
const PLANNED_WITHIN_S: f64 = 2.0;

fn fleets() -> [Fleet; 4] {
    let mut backup = manifest::load("examples/backup/03-scheduled.yaml")
        .unwrap()
        .pop()
        .unwrap();
    for field in ["apiVersion", "kind", "metadata"] {
        backup.as_object_mut().unwrap().remove(field);
    }
    [
        Fleet {
            plugin: "memcached",
            definition: "memcacheds.cache.example.com",
            kind: ("cache.example.com/v1", "Memcached"),
            parent: json!({"spec": {"size": 2}}),
            config: json!({"images": {"memcached": "memcached:planned"}}),
            many: 10_000,
        },
        Fleet {
            plugin: "wordpress",
            definition: "wordpresses.example.com",
            kind: ("example.com/v1", "Wordpress"),
            parent: json!({"spec": {"sqlrootpassword": "abc"}}),
            config: json!({"images": {"mysql": "mysql:planned"}}),
            many: 500,
        },
        Fleet {
            plugin: "etcd",
            definition: "etcdclusters.etcd.ydzs.io",
            kind: ("etcd.ydzs.io/v1alpha1", "EtcdCluster"),
            parent: json!({"spec": {"size": 1}}),
            // No parent names a version, so this changes none. Another image would recreate a
            // cluster that has not started, in two passes.
            config: json!({"imageRepository": "registry.example/etcd"}),
            many: 500,
        },
        Fleet {
            plugin: "backup",
            definition: "backups.gobackup.io",
            kind: ("gobackup.io/v1", "Backup"),
            parent: backup,
            config: json!({"images": {"gobackup": "gobackup:planned"}}),
            many: 500,
        },
    ]
}

impl Fleet {
    /// Applies the Plugin as shipped, with a configuration.
    fn declare(&self, stage: &Stage, config: &Value) {
        let objects = manifest::load(&format!("examples/plugins/{}.yaml", self.plugin)).unwrap();
        let is_plugin = |object: &Value| object["kind"] == "Plugin";
        let mut plugin = objects.into_iter().find(is_plugin).unwrap();
        plugin["spec"]["config"] = config.clone();
        stage.apply_new("", &plugin);
    }

    /// Number of parents.
    fn number(&self) -> usize {
        if is_full() { self.many } else { 3 }
    }

    fn apply(&self, stage: &Stage, namespace: &str) {
        let apply = |index: usize| {
            let mut parent = self.parent.clone();
            parent["apiVersion"] = self.kind.0.into();
            parent["kind"] = self.kind.1.into();
            parent["metadata"]["name"] = format!("{}-{index}", self.plugin).into();
            stage.apply_new(namespace, &parent);
        };
        thread::scope(|scope| {
            for first in 0..USERS {
                let mut mine = (first..self.number()).step_by(USERS);
                scope.spawn(move || mine.by_ref().for_each(apply));
            }
        });
    }

    /// Runs `innkeeper plan` or `innkeeper dump` with the other configuration.
    fn run(&self, stage: &Stage, command: &str, arguments: &[&str]) -> Output {
        let config = stage.plane.directory().join("planned.json");
        fs::write(&config, self.config.to_string()).unwrap();
        let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
        Command::new(path_from_env("INNKEEPER_BIN").unwrap())
            .arg(command)
            .arg(guests.join(format!("{}.wasm", self.plugin)))
            .arg("--cache-dir")
            .arg(stage.plane.directory().join("plan-cache"))
            .arg("--config")
            .arg(config)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .env("INNKEEPER_LOG", "warn,innkeeper=debug")
            .env("INNKEEPER_LOG_FORMAT", "json")
            .output()
            .unwrap()
    }

    /// The plan with the first parent's differences, from a cluster or a dump; and the seconds that
    /// it took without reading.
    #[track_caller]
    #[expect(clippy::print_stdout, reason = "the time of a plan is worth a line")]
    fn plan(&self, stage: &Stage, namespace: &str, from: &[&str]) -> (Value, f64) {
        let parent = format!("{namespace}/{}-0", self.plugin);
        let flags = ["--output", "json", "--parent", &parent];
        let output = self.run(stage, "plan", &[&flags[..], from].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        // 3 if the plan deletes children.
        let is_planned = matches!(output.status.code(), Some(0 | 3));
        assert!(is_planned, "{}: {error}", self.plugin);
        let mut all = 0.0;
        for line in error
            .lines()
            .filter(|line| line.contains("planned all parents"))
        {
            let line: Value = serde_json::from_str(line).unwrap();
            let parents = &line["parents"];
            let seconds = line["seconds"].as_f64().unwrap();
            println!(
                "plan for {parents} parents of {} with {}: {seconds:.3} s",
                self.plugin, from[0]
            );
            all += seconds;
        }
        (serde_json::from_slice(&output.stdout).unwrap(), all)
    }
}

/// Waits for a check that reads all fleet objects: without a pause, the check would slow down the
/// host.
#[track_caller]
fn patiently<T>(goal: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let pause = Duration::from_secs(if is_full() { 5 } else { 0 });
    eventually_for(SYNCED_WITHIN, goal, || {
        check().inspect_err(|_| thread::sleep(pause))
    })
}

/// Counts creates, updates and deletes of children in the audit log.
fn count_writes(fleets: &[Fleet], writes: &[Write]) -> [usize; 3] {
    let is_of_child = |write: &&Write| {
        let resource = write.resource.as_str();
        let is_parent = fleets.iter().any(|fleet| fleet.definition == resource);
        let is_report = resource.contains('/') || resource.starts_with("events");
        !is_parent && !is_report && !resource.ends_with("innkeeper.dev")
    };
    let count = |verb: &str, code: u16| {
        writes
            .iter()
            .filter(is_of_child)
            .filter(|write| write.verb == verb && write.code == code)
            .count()
    };
    [
        count("patch", 201),
        count("patch", 200),
        count("delete", 200),
    ]
}

/// Starts a host with a Plugin and parents for every fleet, and waits until each parent has had a
/// pass. Also returns the namespace.
fn serve(fleets: &[Fleet]) -> (Stage, Host, String) {
    let mut stage = Stage::api_only(Vec::new());
    let guests = path_from_env("INNKEEPER_GUESTS")
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    stage.options.arguments = vec!["--source-dir".to_owned(), guests];
    let host = stage.host();
    stage.install_plugin_crd();
    stage.wait_served(&host, &["plugins.innkeeper.dev"]);
    let namespace = stage.namespace("fleets");
    for fleet in fleets {
        fleet.declare(&stage, &json!({}));
        stage.wait_served(&host, &[fleet.definition]);
    }
    stage.apply_example(&namespace, "examples/backup/03-scheduled.yaml");
    for fleet in fleets {
        fleet.apply(&stage, &namespace);
    }
    for fleet in fleets {
        let kind = Kind::new(fleet.kind.0, fleet.kind.1, &namespace);
        patiently("all parents have had a pass", || {
            let parents = stage.plane.user().list(kind, "").unwrap();
            let without = parents
                .iter()
                .find(|parent| !is_synced(parent, "True", "Applied"));
            without.map_or(Ok(()), |parent| Err(format!("{:#}", parent["status"])))
        });
    }
    (stage, host, namespace)
}

#[test]
fn the_counts_of_plans_are_the_writes_of_the_swaps_of_all_shipped_plugins() {
    let fleets = fleets();
    let (stage, host, namespace) = serve(&fleets);
    let mark = stage.settle_within(QUIET, SYNCED_WITHIN);

    let kubeconfig = stage.plane.kubeconfig();
    let cluster = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let dump = stage.plane.directory().join("dump");
    let mut planned = [0; 3];
    let mut slow = Vec::new();
    for fleet in &fleets {
        let (plan, first) = fleet.plan(&stage, &namespace, &cluster);
        let counts = &plan["counts"];
        let at_least = counts["parents"].as_u64() >= u64::try_from(fleet.number()).ok();
        assert!(at_least && counts["faults"] == 0, "{plan:#}");
        let is_same = counts["unchanged"] == counts["parents"];
        assert_eq!(is_same, fleet.plugin == "etcd", "{plan:#}");
        for (sum, count) in planned.iter_mut().zip(["creates", "updates", "deletes"]) {
            *sum += usize::try_from(counts[count].as_u64().unwrap()).unwrap();
        }

        let output = fleet.run(
            &stage,
            "dump",
            &["--to", dump.to_str().unwrap(), cluster[0], cluster[1]],
        );
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert!(errors.contains("protect it like a Secret"), "{errors}");
        let from = ["--from", dump.to_str().unwrap()];
        let (again, second) = fleet.plan(&stage, &namespace, &from);
        assert_eq!(again, plan, "{}", fleet.plugin);
        // Compared with the active revision, which itself would change nothing.
        let active = path_from_env("INNKEEPER_GUESTS")
            .unwrap()
            .join(format!("{}.wasm", fleet.plugin));
        let beside = ["--against", active.to_str().unwrap(), from[0], from[1]];
        let (beside, _) = fleet.plan(&stage, &namespace, &beside);
        assert_eq!(beside["counts"], plan["counts"], "{}", fleet.plugin);
        check_dump(&dump);
        fs::remove_file(&dump).unwrap();
        // Other load on the machine can only add time.
        let seconds = first.min(second);
        if is_full() && seconds > PLANNED_WITHIN_S {
            slow.push(format!("{} took {seconds:.1} s", fleet.plugin));
        }
    }
    assert_eq!(count_writes(&fleets, &stage.writes_since(mark)), [0; 3]);

    for fleet in &fleets {
        fleet.declare(&stage, &fleet.config);
    }
    patiently("the swaps have made all writes", || {
        match count_writes(&fleets, &stage.writes_since(mark)) {
            counts if counts.iter().sum::<usize>() >= planned.iter().sum() => Ok(()),
            counts => Err(format!("{counts:?} of {planned:?}")),
        }
    });
    stage.settle_within(QUIET, SYNCED_WITHIN);
    assert_eq!(count_writes(&fleets, &stage.writes_since(mark)), planned);
    Stage::stop(host);
    // Checked after the counts, which a slow machine does not change.
    assert!(slow.is_empty(), "{slow:?}");
}

/// A dump's answers, which can be thousands of objects.
#[derive(Deserialize)]
struct Dump {
    answers: BTreeMap<String, Box<RawValue>>,
}

/// Checks that only the owner can read a dump, and that it contains no Secret values from the
/// examples.
fn check_dump(path: &Path) {
    let mode = fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(path).unwrap();
    // A password from the example, base64-encoded as in a Secret.
    assert!(!text.contains("Y2hhbmdlLW1l"), "{text}");
    let dump: Dump = serde_json::from_str(&text).unwrap();
    for (request, answer) in dump.answers {
        if !request.contains("/secrets") || request.contains("innkeeper-hash-key") {
            continue;
        }
        let answer: Value = serde_json::from_str(answer.get()).unwrap();
        let items = answer["body"]["items"].as_array();
        for item in items.into_iter().flatten() {
            let values = item["data"].as_object().into_iter().flatten();
            for (key, value) in values {
                let is_hash = value
                    .as_str()
                    .is_some_and(|hash| hash.starts_with("hmac-sha256:"));
                assert!(is_hash, "{request}: {key}");
            }
        }
    }
}

#[test]
fn plugins_that_may_read_the_values_of_secrets_get_no_dump_and_no_plan_from_one() {
    let plugin = path_from_env("INNKEEPER_TEST_GUESTS")
        .unwrap()
        .join("nosy.wasm");
    let stage = Stage::api_only(vec![plugin.clone()]);
    stage.install_crds();
    let parents = Kind::cluster("test.innkeeper.dev/v1", "Nosy");
    eventually("the parents are served", || {
        stage.plane.user().list(parents, "").map(drop)
    });
    let kubeconfig = stage.plane.kubeconfig();
    let dump = stage.plane.directory().join("dump");
    let hashes = root().join("tests/guests/nosy/grants.yaml");
    let values = stage.plane.directory().join("values.yaml");
    let text = fs::read_to_string(&hashes).unwrap();
    fs::write(&values, text.replace("access: hash", "access: full")).unwrap();
    let [kubeconfig, dump, hashes, values] =
        [&kubeconfig, &dump, &hashes, &values].map(|path| path.to_str().unwrap());
    let cluster = ["--kubeconfig", kubeconfig, "--to", dump];
    let from = ["--from", dump];
    let refused = "error: plugin nosy may read Secret values, which a dump never contains: plan it against the cluster, or give --grants without them";
    let rows: [(&str, &[&str], &str, i32, &str); 4] = [
        ("dump", &cluster, values, 2, refused),
        ("dump", &cluster, hashes, 0, "protect it like a Secret"),
        ("plan", &from, values, 2, refused),
        ("plan", &from, hashes, 0, ""),
    ];
    for (command, arguments, grants, exit, message) in rows {
        let is_made = Path::new(dump).exists();
        let output = Command::new(path_from_env("INNKEEPER_BIN").unwrap())
            .arg(command)
            .arg(&plugin)
            .args(arguments)
            .args(["--grants", grants])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let case = format!("{command} {grants}: {error}");
        assert_eq!(output.status.code(), Some(exit), "{case}");
        assert!(error.contains(message), "{case}");
        let makes = command == "dump" && exit == 0;
        assert_eq!(Path::new(dump).exists(), is_made || makes, "{case}");
    }
}

#[test]
fn unusable_dumps_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let missing = path("missing");
    let foreign = path("foreign");
    let empty = path("empty");
    fs::write(&foreign, "{}").unwrap();
    let text = json!({
        "format": "innkeeper dump v1", "hostNamespace": "hosts", "namespaces": null, "answers": {},
    });
    fs::write(&empty, text.to_string()).unwrap();
    let plugin = path_from_env("INNKEEPER_GUESTS")
        .unwrap()
        .join("memcached.wasm");
    let rows: [(&str, &[&str], i32, &str); 6] = [
        ("plan", &["--from", &missing], 2, "failed to read the dump"),
        (
            "plan",
            &["--from", &foreign],
            2,
            "is not a dump of this version",
        ),
        (
            "plan",
            &["--from", &empty],
            2,
            "the dump has no answer to /api",
        ),
        (
            "plan",
            &["--from", &empty, "--context", "a"],
            2,
            "cannot be used with",
        ),
        (
            "dump",
            &["--to", &foreign],
            2,
            "give --to a file that does not exist",
        ),
        (
            "dump",
            &["--to", &missing, "--kubeconfig", "/none"],
            2,
            "failed to use the kubeconfig /none",
        ),
    ];
    for (command, arguments, exit, message) in rows {
        let output = Command::new(path_from_env("INNKEEPER_BIN").unwrap())
            .arg(command)
            .arg(&plugin)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
}
