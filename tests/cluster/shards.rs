//! Hosts that share the parents of a cluster by shards: each parent has one writer at any time, also while shards move.
//!
//! The oracle is the API server's audit log: the Leases say who may write for a shard, and the user agents who wrote.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

use innkeeper_model::Shards;
use innkeeper_tests::{
    Host, Write, admin, eventually, eventually_for,
    tenure::{Tenures, number, reactions, short},
    user::Kind,
};
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    moody::{API, good, guest, guest_file},
    namespaces::{ACCOUNT, account_kubeconfig, apply_manifests},
    plugins::{PLUGIN, marked, plugin_from_file, replace_file},
    stage::{Stage, finalizers, is_applied, lines, wait_logged},
    status::{FINDING, document, run},
};

const HOST_NAMESPACE: &str = "innkeeper-system";
const LEASES: Kind<'static> = Kind {
    api_version: "coordination.k8s.io/v1",
    kind: "Lease",
    namespace: Some(HOST_NAMESPACE),
};
/// The name of the leader's Lease, with which those of other shards begin.
const LEASE: &str = "innkeeper";

/// A fast lease; a takeover takes a quarter of a minute with the default one.
const FAST: [&str; 6] = [
    "--lease-duration",
    "6",
    "--lease-renew-deadline",
    "4",
    "--lease-retry",
    "1",
];
const FAST_DURATION: Duration = Duration::from_secs(6);

/// The promise: an edit is served this long after the Lease of a dead host has expired.
const SERVED_WITHIN: Duration = Duration::from_secs(5);

/// Namespaces, each with one parent, for each shard.
const NAMESPACES_PER_SHARD: usize = 2;
const PARENT: &str = "parent";

/// Starts the API server with its own selection of shards, which is off by default.
const SELECTS: &str = "--apiserver-arg=--feature-gates=ShardedListAndWatch=true";

/// A control plane with a Plugin, hosts that share its parents, and one namespace after the other for each shard.
struct Fleet {
    // Dropped first: hosts end before their control plane.
    hosts: BTreeMap<&'static str, Host>,
    stage: Stage,
    sources: TempDir,
    /// The hosts' credentials; the administrator's if none.
    kubeconfig: Option<PathBuf>,
    shards: Shards,
    namespaces: Vec<String>,
    /// The last edit's number.
    note: u64,
}

impl Fleet {
    /// Without hosts; the Plugin exists, and the plugin's component.
    fn new(shards: u32, selects: bool) -> Self {
        let selects: &[&str] = if selects { &[SELECTS] } else { &[] };
        Self::on(&[&["--api-only"], selects].concat(), shards)
    }

    /// Like `new`, on a control plane with these arguments.
    fn on(arguments: &[&str], shards: u32) -> Self {
        let fleet = Self {
            hosts: BTreeMap::new(),
            stage: Stage::with(Vec::new(), arguments),
            kubeconfig: None,
            sources: tempfile::tempdir().unwrap(),
            shards: Shards::new(shards).unwrap(),
            namespaces: Vec::new(),
            note: 0,
        };
        fleet.stage.install_plugin_crd();
        fleet.put(&guest("moody"));
        fleet.apply("moody", "Moody", &good("one"));
        fleet
    }

    /// With these hosts, of which the first is the leader, and a parent in every namespace.
    fn started(shards: u32, selects: bool, hosts: &[&'static str]) -> Self {
        let mut fleet = Self::new(shards, selects);
        let [first, more @ ..] = hosts else {
            panic!("a fleet needs a host")
        };
        fleet.start(first);
        fleet.wait_served("moodies.test.innkeeper.dev");
        fleet.make_namespaces(NAMESPACES_PER_SHARD);
        fleet.make_parents();
        for host in more {
            fleet.start(host);
        }
        fleet.wait_shared();
        fleet
    }

    fn put(&self, component: &[u8]) {
        replace_file(&self.sources.path().join("plugin.wasm"), component);
    }

    /// Applies the Plugin for a test guest's parent kind, with these fields in addition.
    fn apply(&self, name: &str, kind: &str, more: &Value) {
        let kinds = json!([{"group": "test.innkeeper.dev", "kind": kind}]);
        let grants = json!({"parents": kinds, "children": [{"kind": "ConfigMap"}], "crds": kinds});
        let plugin = plugin_from_file(name, &grants, more);
        self.stage.apply_new("", &plugin);
    }

    fn start(&mut self, identity: &'static str) {
        self.start_with(identity, self.shards.get().into(), &[]);
    }

    fn start_with(&mut self, identity: &'static str, shards: u32, more: &[&str]) {
        let host = self.host(identity, shards, more);
        self.hosts.insert(identity, host);
    }

    fn host(&self, identity: &str, shards: u32, more: &[&str]) -> Host {
        let (shards, sources) = (shards.to_string(), self.sources.path());
        let own = ["--lease-identity", identity, "--shards", &shards];
        let sources = ["--source-dir", sources.to_str().unwrap()];
        let arguments = [&own[..], &sources, &FAST, &admin::ARGUMENTS, more].concat();
        let mut options = self.stage.options.clone();
        options.arguments = arguments.into_iter().map(str::to_owned).collect();
        let own = self.kubeconfig.clone();
        let kubeconfig = own.unwrap_or_else(|| self.stage.plane.kubeconfig());
        Host::start(&kubeconfig, &options).unwrap()
    }

    #[track_caller]
    fn wait_served(&self, crd: &str) {
        let (_, host) = self.hosts.first_key_value().unwrap();
        self.stage.wait_served(host, &[crd]);
    }

    #[track_caller]
    fn stop(&mut self, identity: &str) {
        Stage::stop(self.hosts.remove(identity).unwrap());
    }

    fn kill(&mut self, identity: &str) {
        Stage::kill(self.hosts.remove(identity).unwrap());
    }

    /// The last lines of all hosts' logs.
    fn logs(&self) -> String {
        let tail = |(identity, host): (&&str, &Host)| {
            let log = host.log().unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(15)..];
            format!("{identity} logged\n{}\n", last.join("\n"))
        };
        self.hosts.iter().map(tail).collect()
    }

    /// The name of the Lease for parents in a namespace.
    fn lease_of(&self, namespace: Option<&str>) -> String {
        match self.shards.of(namespace).index() {
            0 => LEASE.to_owned(),
            index => format!("{LEASE}.{index}"),
        }
    }

    /// The Leases' holders by shard; empty for a free one.
    fn holders(&self) -> Vec<String> {
        let holder = |lease: &str| {
            let lease = self.stage.plane.user().get(LEASES, lease).unwrap();
            let lease = lease.unwrap_or_default();
            short(lease["spec"]["holderIdentity"].as_str().unwrap_or_default()).to_owned()
        };
        (0..self.shards.get())
            .map(|index| match index {
                0 => holder(LEASE),
                index => holder(&format!("{LEASE}.{index}")),
            })
            .collect()
    }

    fn leader(&self) -> String {
        self.holders().remove(0)
    }

    /// Waits until the running hosts hold all shards, and none has two more than another.
    #[track_caller]
    fn wait_shared(&self) {
        self.wait_shared_within(Duration::from_mins(3));
    }

    #[track_caller]
    fn wait_shared_within(&self, deadline: Duration) {
        eventually_for(deadline, "the hosts share the shards evenly", || {
            let holders = self.holders();
            let count = |host: &&str| holders.iter().filter(|holder| holder == host).count();
            let counts: Vec<usize> = self.hosts.keys().map(count).collect();
            let (least, most) = (counts.iter().min(), counts.iter().max());
            let is_even = least
                .zip(most)
                .is_some_and(|(least, most)| most - least <= 1);
            if is_even && counts.iter().sum::<usize>() == holders.len() {
                return Ok(());
            }
            Err(format!("{holders:?}\n{}", self.logs()))
        });
    }

    /// Creates as many namespaces for each shard.
    fn make_namespaces(&mut self, per_shard: usize) {
        for shard in self.shards.all() {
            // The number comes first, because names that differ only in the last characters share a shard.
            let names = (0..).map(|number| format!("{number}-shared"));
            let of_shard = names.filter(|name| self.shards.of(Some(name)) == shard);
            self.namespaces.extend(of_shard.take(per_shard));
        }
        for namespace in &self.namespaces {
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
            });
            self.stage.apply_new("", &object);
        }
    }

    /// Creates a parent in each namespace, and waits until all are served.
    #[track_caller]
    fn make_parents(&self) {
        for namespace in &self.namespaces {
            let parent = json!({
                "apiVersion": API, "kind": "Moody", "metadata": {"name": PARENT}, "spec": {"note": "0"},
            });
            self.stage.apply_new(namespace, &parent);
        }
        self.wait_children("note", "0");
    }

    /// Edits the parent in the next namespace.
    fn edit(&mut self) {
        self.note += 1;
        let at = usize::try_from(self.note).unwrap() % self.namespaces.len();
        let kind = Kind::new(API, "Moody", &self.namespaces[at]);
        let note = json!({"spec": {"note": self.note.to_string()}});
        let user = self.stage.plane.user();
        user.merge(kind, PARENT, &note).unwrap();
    }

    /// Edits parents for a time, twenty per second.
    fn edit_for(&mut self, time: Duration) {
        const PAUSE: Duration = Duration::from_millis(50);
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.edit();
            sleep(PAUSE);
        }
    }

    /// Edits every parent once, and waits until all are served.
    #[track_caller]
    fn check_served(&mut self) {
        let mark = self.stage.mark();
        for _ in 0..self.namespaces.len() {
            self.edit();
        }
        self.wait_edits(mark);
    }

    /// Waits until a host has served every edit after a mark; returns the longest time from an edit to the write for it.
    #[track_caller]
    fn wait_edits(&self, mark: usize) -> Duration {
        eventually("every edit is served", || {
            let writes = self.stage.plane.audit().since(mark).unwrap();
            let reactions = reactions(&writes, value_of);
            let lost: Vec<_> = reactions
                .iter()
                .filter(|(.., time)| time.is_none())
                .collect();
            if !lost.is_empty() || reactions.is_empty() {
                let holders = self.holders();
                return Err(format!(
                    "{lost:?} are not served, {holders:?}\n{}",
                    self.logs()
                ));
            }
            let longest = reactions.iter().filter_map(|(.., time)| *time).max();
            Ok(longest.unwrap().try_into().unwrap_or_default())
        })
    }

    /// Waits until the child in every namespace has this data.
    #[track_caller]
    fn wait_children(&self, field: &str, value: &str) {
        for namespace in &self.namespaces {
            eventually(&format!("{field} is {value} in {namespace}"), || {
                let child = self.stage.find(namespace, ("v1", "ConfigMap", PARENT));
                let child = child.unwrap_or_default();
                if child["data"][field] == value {
                    return Ok(());
                }
                Err(format!("{:#}\n{}", child["data"], self.logs()))
            });
        }
    }

    fn all_writes(&self) -> Vec<Write> {
        self.stage.plane.audit().since(0).unwrap()
    }

    /// Checks that only the holder of a shard's Lease has written for its parents, and only the leader for all others.
    #[track_caller]
    fn check_writers(&self) {
        let of_leader = [
            "plugins.innkeeper.dev",
            "customresourcedefinitions.",
            "takeovers.",
        ];
        let lease_of = |write: &Write| {
            if self.namespaces.contains(&write.namespace) {
                return Some(self.lease_of(Some(&write.namespace)));
            }
            let is_of_leader = of_leader
                .iter()
                .any(|kind| write.resource.starts_with(kind));
            is_of_leader.then(|| LEASE.to_owned())
        };
        let writes = self.all_writes();
        let strays = Tenures::new(&writes).strays(&writes, lease_of);
        assert!(strays.is_empty(), "{strays:#?}\n{}", self.logs());
        let of_parents = writes
            .iter()
            .filter(|write| write.is_by_host() && self.namespaces.contains(&write.namespace));
        assert!(of_parents.count() >= self.namespaces.len());
    }

    /// Checks that each shard that moved after a time was given up, and moved before the next one was given up.
    #[track_caller]
    fn check_one_at_a_time(&self, since: Timestamp) {
        let mut moves = Tenures::new(&self.all_writes()).moves();
        moves.retain(|passage| passage.left >= since && passage.is_of_shard());
        assert!(!moves.is_empty());
        assert!(
            moves.iter().all(|passage| passage.is_released),
            "{moves:#?}"
        );
        let overlap = moves.windows(2).find(|pair| pair[1].left < pair[0].taken);
        assert_eq!(overlap, None, "{moves:#?}");
    }

    /// Checks that the hosts write nothing for parents while nobody edits.
    #[track_caller]
    fn check_quiet_since(&self, mark: usize) {
        self.stage.settle(Duration::from_secs(1));
        let mut writes = self.stage.writes_since(mark);
        writes.retain(|write| self.namespaces.contains(&write.namespace));
        assert_eq!(lines(&writes), [""; 0]);
    }

    fn metrics(&self, identity: &str) -> String {
        admin::scrape(&admin::address(&self.hosts[identity])).unwrap()
    }

    /// `innkeeper status` as JSON, and its exit code.
    fn status(&self) -> (Value, Option<i32>) {
        let kubeconfig = self.stage.plane.kubeconfig();
        let output = run(&[
            "status",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "-o",
            "json",
        ]);
        (document(&output), output.status.code())
    }
}

/// The namespace and the number of an edit, or of the child that a host has written for it.
fn value_of(write: &Write) -> Option<(String, u64)> {
    let pointer = match &*write.resource {
        "moodies.test.innkeeper.dev" => "/spec/note",
        "configmaps" => "/data/note",
        _ => return None,
    };
    Some((write.namespace.clone(), number(&write.body, pointer)?))
}

/// Reads a metric without labels.
fn gauge(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.parse().ok()
}

/// One host takes everything, each that joins gets its share, and one that leaves returns it at once. Moves alone cause no
/// write for any parent.
#[test]
fn hosts_share_the_shards_and_one_moves_at_a_time() {
    let mut fleet = Fleet::started(6, true, &["a"]);
    assert_eq!(fleet.holders(), ["a"; 6]);
    for joining in ["b", "c"] {
        fleet.stage.settle(Duration::from_secs(1));
        let (mark, since) = (fleet.stage.mark(), Timestamp::now());
        fleet.start(joining);
        fleet.wait_shared();
        fleet.check_one_at_a_time(since);
        fleet.check_quiet_since(mark);
        fleet.check_served();
    }
    assert_eq!(fleet.leader(), "a");

    let stopping = Instant::now();
    fleet.stop("b");
    fleet.wait_shared_within(FAST_DURATION);
    assert!(
        stopping.elapsed() < FAST_DURATION,
        "nobody waited for an expiry"
    );
    fleet.check_served();
    fleet.check_writers();
}

/// Edits go on while a host is killed: none is lost, and only those of its shards wait, for a Lease and a little more. So
/// it is with the leader; the next one serves Plugins and swaps them on every host.
#[test]
fn a_killed_host_delays_the_edits_of_its_shards_alone() {
    let mut fleet = Fleet::started(6, true, &["a", "b", "c"]);
    for (victim, joining) in [("c", "d"), ("a", "e")] {
        let holders = fleet.holders();
        let mark = fleet.stage.mark();
        fleet.edit_for(Duration::from_secs(2));
        fleet.kill(victim);
        fleet.edit_for(FAST_DURATION + Duration::from_secs(3));
        let longest = fleet.wait_edits(mark);
        assert!(longest < FAST_DURATION + SERVED_WITHIN, "{longest:?}");

        let is_lost = |namespace: &str| holders[fleet.shards.of(Some(namespace)).index()] == victim;
        let writes = fleet.stage.plane.audit().since(mark).unwrap();
        let delayed =
            reactions(&writes, value_of)
                .into_iter()
                .filter_map(|(namespace, _, time)| {
                    let time: Duration = time?.try_into().unwrap_or_default();
                    (time > FAST_DURATION / 2).then_some(namespace)
                });
        let mut others: Vec<String> = delayed.collect();
        others.retain(|namespace| !is_lost(namespace));
        assert_eq!(others, [""; 0], "{holders:?}");
        fleet.wait_shared();
        fleet.start(joining);
        fleet.wait_shared();
    }
    assert_ne!(fleet.leader(), "a");
    fleet.apply("moody", "Moody", &good("two"));
    fleet.wait_children("says", "two");
    fleet.check_served();
    fleet.check_writers();
}

/// A swap and another component reach the hosts that are not the leader, and so do a suspension and its end.
#[test]
fn every_host_follows_what_the_leader_serves() {
    let mut fleet = Fleet::started(4, false, &["a", "b"]);
    for says in ["two", "three"] {
        fleet.apply("moody", "Moody", &good(says));
        fleet.wait_children("says", says);
    }
    fleet.put(&marked(&guest("moody")));
    let mut more = good("four");
    more["source"] = json!({"file": {"path": "plugin.wasm"}, "pullPolicy": "Always"});
    fleet.apply("moody", "Moody", &more);
    fleet.wait_children("says", "four");
    fleet.check_served();

    more["suspend"] = json!(true);
    fleet.apply("moody", "Moody", &more);
    wait_logged(
        &fleet.hosts["b"],
        "the other host stops the plugin",
        "as its leader did",
    );
    let mark = fleet.stage.settle(Duration::from_secs(2));
    for _ in 0..fleet.namespaces.len() {
        fleet.edit();
    }
    fleet.check_quiet_since(mark);
    more["suspend"] = json!(false);
    fleet.apply("moody", "Moody", &more);
    fleet.wait_edits(mark);
    fleet.check_writers();
}

/// Hosts select objects like the API server, so a host caches the parents of its shards alone, whoever selects. Metrics and
/// `innkeeper status` say who does.
#[test]
fn a_host_caches_only_its_shards_whether_or_not_the_api_server_selects() {
    for selects in [true, false] {
        let fleet = Fleet::started(4, selects, &["a", "b"]);
        for identity in ["a", "b"] {
            let holders = fleet.holders();
            let is_held =
                |namespace: &&String| holders[fleet.shards.of(Some(namespace)).index()] == identity;
            let expected = fleet.namespaces.iter().filter(is_held).count();
            eventually(&format!("{identity} caches {expected} parents"), || {
                let metrics = fleet.metrics(identity);
                let cached = admin::sum(&metrics, "innkeeper_watch_objects", "kind=\"Moody\"");
                let honoured = gauge(&metrics, "innkeeper_shard_selector_honoured");
                let shards = gauge(&metrics, "innkeeper_shards");
                let held = admin::sum(&metrics, "innkeeper_shard_held", "shard=");
                let expected = (
                    f64::from(u32::try_from(expected).unwrap()),
                    Some(f64::from(u8::from(selects))),
                    Some(4.0),
                    2.0,
                );
                if (cached, honoured, shards, held) == expected {
                    return Ok(());
                }
                Err(format!("{metrics}\n{}", fleet.logs()))
            });
        }
        let (status, _) = fleet.status();
        assert_eq!(status["shardsSelectedByServer"], selects, "{status:#}");
        fleet.check_writers();
    }
}

/// Cluster-scoped parents have no shard, so the leader serves them, and then the next leader.
#[test]
fn cluster_scoped_parents_belong_to_the_leader() {
    const TAKEOVER: &str = "test.innkeeper.dev/v1";

    let mut fleet = Fleet::started(2, true, &["a", "b"]);
    let file = fleet.sources.path().join("takeover.wasm");
    fs::write(file, guest("takeover")).unwrap();
    let source = json!({"source": {"file": {"path": "takeover.wasm"}}});
    fleet.apply("takeover", "Takeover", &source);
    fleet.wait_served("takeovers.test.innkeeper.dev");
    let put = |fleet: &Fleet, name: &str| {
        let parent = json!({
            "apiVersion": TAKEOVER, "kind": "Takeover", "metadata": {"name": name},
            "spec": {"behaviour": "good", "namespace": "default"},
        });
        fleet.stage.apply_new("", &parent);
        let (_, host) = fleet.hosts.last_key_value().unwrap();
        fleet
            .stage
            .wait(host, "", (TAKEOVER, "Takeover", name), is_applied);
    };
    put(&fleet, "first");
    fleet.kill("a");
    fleet.wait_shared();
    put(&fleet, "second");
    fleet.check_served();
    fleet.check_writers();
}

/// Hosts with different numbers of shards would divide parents differently, so the second one waits, says so, and is ready
/// to take over: otherwise an upgrade that changes the number would wait for ever.
#[test]
fn a_host_with_another_number_of_shards_waits_for_the_others() {
    let mut fleet = Fleet::started(4, false, &["a"]);
    let mark = fleet.stage.settle(Duration::from_secs(1));
    fleet.start_with("b", 2, &[]);
    wait_logged(
        &fleet.hosts["b"],
        "the second host says why it waits",
        "start all hosts with the same --shards",
    );
    let address = admin::address(&fleet.hosts["b"]);
    eventually("the second host is ready", || {
        let (code, body) = admin::ask(&address, "GET", "/readyz", "").unwrap();
        if code == 200 { Ok(()) } else { Err(body) }
    });
    sleep(FAST_DURATION);
    assert_eq!(lines(&fleet.stage.writes_since(mark)), [""; 0]);
    assert_eq!(fleet.holders(), ["a"; 4]);

    fleet.stop("a");
    fleet.shards = Shards::new(2).unwrap();
    fleet.wait_shared();
    let mark = fleet.stage.mark();
    fleet.check_served();
    let writes = fleet.stage.writes_since(mark);
    assert!(writes.iter().all(|write| write.user_agent.contains("(b_")));
}

/// `innkeeper status` shows every shard's holder, and fails while one has none.
#[test]
fn status_shows_the_holder_of_each_shard() {
    let mut fleet = Fleet::started(3, true, &["a", "b"]);
    let shown = |status: &Value| -> Vec<String> {
        let shards = status["shards"].as_array().cloned().unwrap_or_default();
        let holder = |shard: &Value| short(shard["holder"].as_str().unwrap_or_default()).to_owned();
        shards.iter().map(holder).collect()
    };
    eventually("status shows the holders", || {
        let (status, code) = fleet.status();
        if shown(&status) == fleet.holders() && code == Some(0) {
            return Ok(());
        }
        Err(format!("{code:?} {status:#}"))
    });
    fleet.kill("a");
    fleet.kill("b");
    eventually("status shows that the shards are free", || {
        let (status, code) = fleet.status();
        let problems = status["problems"].to_string();
        if code == Some(FINDING) && problems.contains("shard") {
            return Ok(());
        }
        Err(format!("{code:?} {status:#}"))
    });
}

/// A finalizer of a deleted Plugin would block its parents for ever, whichever host holds their shard.
#[test]
fn a_deleted_plugin_releases_the_parents_of_all_shards() {
    const NAME: &str = "farewell";

    let mut fleet = Fleet::started(4, false, &["a", "b"]);
    fs::write(fleet.sources.path().join("farewell.wasm"), guest(NAME)).unwrap();
    let source = json!({"source": {"file": {"path": "farewell.wasm"}}});
    fleet.apply(NAME, "Farewell", &source);
    fleet.wait_served("farewells.test.innkeeper.dev");
    let parent = json!({
        "apiVersion": API, "kind": "Farewell", "metadata": {"name": PARENT}, "spec": {"end": "trap"},
    });
    let target = (API, "Farewell", PARENT);
    for namespace in &fleet.namespaces {
        fleet.stage.apply_new(namespace, &parent);
    }
    for namespace in &fleet.namespaces {
        let applied = fleet
            .stage
            .wait(&fleet.hosts["b"], namespace, target, is_applied);
        assert_eq!(finalizers(&applied), ["innkeeper.dev/farewell"]);
    }
    fleet.stage.plane.user().delete(PLUGIN, NAME).unwrap();
    for namespace in &fleet.namespaces {
        let is_free = |parent: &Value| finalizers(parent).is_empty();
        fleet
            .stage
            .wait(&fleet.hosts["a"], namespace, target, is_free);
    }
    eventually("the Plugin is gone", || {
        let plugin = fleet.stage.plane.user().get(PLUGIN, NAME).unwrap();
        plugin.map_or(Ok(()), |plugin| {
            Err(format!("{plugin:#}\n{}", fleet.logs()))
        })
    });
    fleet.check_served();
    fleet.check_writers();
}

/// A host that froze for longer than its Leases finds its shards taken: it writes nothing and exits, and its edits are
/// served by the others.
#[test]
fn a_host_frozen_for_longer_than_its_leases_writes_nothing_afterwards() {
    let mut fleet = Fleet::started(4, true, &["a", "b"]);
    let mark = fleet.stage.mark();
    let mut frozen = fleet.hosts.remove("b").unwrap();
    fleet.edit_for(Duration::from_millis(500));
    frozen.process().signal(Signal::STOP).unwrap();
    fleet.edit_for(Duration::from_millis(500));
    fleet.wait_shared_within(FAST_DURATION + SERVED_WITHIN);
    frozen.process().signal(Signal::CONT).unwrap();
    let (status, log) = frozen.wait_exit(FAST_DURATION).unwrap();
    assert!(!status.success(), "{status}:\n{log}");
    assert!(log.contains("lost the lease"), "{log}");
    fleet.wait_edits(mark);
    fleet.check_writers();
}

/// With a list of namespaces, a host watches those of its shards, and needs no selection by the API server.
#[test]
fn shards_also_divide_a_list_of_namespaces() {
    let mut fleet = Fleet::new(2, false);
    fleet.make_namespaces(1);
    let listed = fleet.namespaces.join(",");
    let limited = ["--lease-name", LEASE, "--namespaces", &listed];
    for host in ["a", "b"] {
        fleet.start_with(host, 2, &limited);
    }
    fleet.wait_served("moodies.test.innkeeper.dev");
    fleet.wait_shared();
    fleet.make_parents();
    fleet.check_served();
    fleet.check_writers();
}

/// The chart's roles for shards name each Lease, so a missing one would show as a refused request.
#[test]
fn the_roles_of_the_chart_are_enough_for_shards() {
    let mut fleet = Fleet::on(&[SELECTS], 3);
    fleet.stage.options.plugins.push(guest_file("moody"));
    apply_manifests(&fleet.stage, &["--set", "shards=3"], &[]);
    fleet.stage.options.plugins.clear();
    fleet.kubeconfig = Some(account_kubeconfig(&fleet.stage, HOST_NAMESPACE));
    fleet.start("a");
    fleet.wait_served("moodies.test.innkeeper.dev");
    fleet.make_namespaces(1);
    fleet.make_parents();
    fleet.start("b");
    fleet.wait_shared();
    fleet.check_served();
    fleet.stop("a");
    fleet.wait_shared();
    fleet.check_served();
    fleet.check_writers();
    let mut requests = fleet.stage.plane.audit().all_requests_since(0).unwrap();
    requests.retain(|request| request.user == ACCOUNT && request.code == 403);
    assert!(requests.is_empty(), "{requests:#?}");
}
