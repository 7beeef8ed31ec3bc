//! Hosts that share a fleet by shards: what several cost together, what the loss of one costs users, and what a join moves.
//!
//! Parents are spread evenly over namespaces, whose names begin with a number: the hash puts names that differ only at the
//! end into one shard. Every run has a control plane of its own, with or without selection by the API server, and the
//! default Lease times. Bytes are those that the API server counts for all clients, so they are measured while the hosts
//! are the only ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    pin::pin,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use innkeeper_model::Shards;
use innkeeper_tests::{
    ControlPlane, HostOptions, Write, eventually, host,
    tenure::{Move, Tenures, short},
    user::Kind,
};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde::Serialize;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{
    api::{GROUP, Memcached, parents_in},
    contender::{Contender, Started, start_host},
    parents::is_final,
    server::Served,
};

/// The fleet's size, if the argument does not state another.
pub(crate) const PARENTS: usize = 20_000;
pub(crate) const NAMESPACES: usize = 500;
/// Hosts, and whether the API server selects. One host needs no shards.
pub(crate) const RUNS: [(usize, bool); 5] =
    [(1, false), (2, true), (4, true), (2, false), (4, false)];
/// Shards of several hosts: four per host in the largest run.
const SHARDS: u32 = 16;
/// The API server's arguments for its own selection.
const SELECTS: [&str; 2] = [
    "--apiserver-arg",
    "--feature-gates=ShardedListAndWatch=true",
];

/// Concurrent requests while parents are created, and edits in flight.
const MAKERS: usize = 16;
const EDITORS: usize = 64;
const EDITS_PER_SECOND: u32 = 50;
/// Edits before the kill or the join, and after it: longer than a Lease and the promise.
const BEFORE: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_secs(25);
/// The default of `--lease-duration`, and the promise: an edit is served this long after the Lease has expired.
const LEASE: Duration = Duration::from_secs(15);
const SERVED_WITHIN: Duration = Duration::from_secs(5);

/// The longest time without a change to any parent; only a failing run waits that long.
const PATIENCE: Duration = Duration::from_mins(3);
/// Hosts without a request for this long, other than for Leases, have finished their work.
const QUIET: Duration = Duration::from_secs(3);

/// Parents in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) parents: usize,
    pub(crate) namespaces: usize,
}

/// The measurements of one number of hosts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shared {
    pub(crate) hosts: usize,
    /// The API server selects the objects of a shard.
    pub(crate) selects: bool,
    pub(crate) parents: usize,
    pub(crate) namespaces: usize,
    pub(crate) from_empty: Phase,
    pub(crate) restart: Phase,
    pub(crate) loss: Option<Loss>,
    pub(crate) join: Option<Join>,
}

/// All hosts together, from their start until they are idle.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    /// Until every parent has its final status, or until the hosts are idle if it has that already.
    pub(crate) wall_s: f64,
    /// CPU time of all hosts.
    pub(crate) cpu_s: f64,
    pub(crate) api_server_cpu_s: f64,
    /// Peak resident memory of each host.
    pub(crate) resident_max_bytes: Vec<u64>,
    /// Requests by verb and kind, without watches and Leases.
    pub(crate) requests: BTreeMap<String, usize>,
    pub(crate) writes: usize,
    /// Bytes of list responses, and of watch events; none while the bench itself reads.
    pub(crate) list_bytes: Option<f64>,
    pub(crate) watch_bytes: Option<f64>,
}

/// One of the hosts is killed while users edit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Loss {
    pub(crate) edits: usize,
    /// Edits without a write.
    pub(crate) lost: usize,
    /// Writes by a host without the parent's shard.
    pub(crate) strays: usize,
    /// From the kill until the last shard of the host was taken.
    pub(crate) taken_s: f64,
    /// The longest time from an edit to its write.
    pub(crate) longest_s: f64,
    /// The same, for parents in shards of the other hosts.
    pub(crate) longest_of_others_s: f64,
}

/// A host joins while users edit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Join {
    pub(crate) edits: usize,
    pub(crate) lost: usize,
    pub(crate) strays: usize,
    /// Shards that moved.
    pub(crate) moves: usize,
    /// The most shards that were given up and not yet taken at the same time.
    pub(crate) moving_max: usize,
    /// From the start of the host until the shards are shared out.
    pub(crate) shared_s: f64,
    pub(crate) longest_s: f64,
}

/// A fleet on its control plane.
struct Fleet<'a> {
    plane: &'a ControlPlane,
    cache: &'a Path,
    shards: Shards,
    resource: ApiResource,
    /// Namespace and name of each parent; neighbours are in different namespaces.
    parents: Vec<(String, String)>,
}

/// Runs one number of hosts; the largest also loses one and gets another.
pub(crate) fn run(cache: &Path, size: Size, (hosts, selects): (usize, bool)) -> Result<Shared> {
    let gate: &[&str] = if selects { &SELECTS } else { &[] };
    let plane = ControlPlane::start_with(&[&["--api-only"], gate].concat())?;
    let count = if hosts == 1 { 1 } else { SHARDS };
    let fleet = Fleet {
        plane: &plane,
        cache,
        shards: Shards::new(count).context("the number of shards is valid")?,
        resource: parents_in(GROUP),
        parents: size.parents(),
    };
    fleet.make()?;
    let (from_empty, started) = fleet.phase(hosts, true)?;
    stop(started)?;
    let (restart, mut started) = fleet.phase(hosts, false)?;
    let is_largest = RUNS.iter().all(|(other, _)| *other <= hosts);
    let (mut loss, mut join) = (None, None);
    if is_largest {
        loss = Some(fleet.lose(&mut started)?);
        join = Some(fleet.join(&mut started)?);
    }
    stop(started)?;
    Ok(Shared {
        hosts,
        selects,
        parents: size.parents,
        namespaces: size.namespaces,
        from_empty,
        restart,
        loss,
        join,
    })
}

impl Size {
    /// Reads `PARENTSxNAMESPACES`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (parents, namespaces) = text.split_once('x')?;
        let size = Self {
            parents: parents.parse().ok()?,
            namespaces: namespaces.parse().ok()?,
        };
        (size.namespaces > 0 && size.parents >= size.namespaces).then_some(size)
    }

    fn parents(self) -> Vec<(String, String)> {
        let place = |number| {
            let namespace = format!("{}-tenant", number % self.namespaces);
            (namespace, format!("cache-{:05}", number / self.namespaces))
        };
        (0..self.parents).map(place).collect()
    }
}

fn stop(hosts: BTreeMap<String, Started>) -> Result<()> {
    hosts
        .into_values()
        .try_for_each(|host| host.stop().map(drop))
}

impl Fleet<'_> {
    #[expect(clippy::disallowed_methods, reason = "the bench acts as the user")]
    fn make(&self) -> Result<()> {
        let user = self.plane.user();
        for object in host::manifests(&HostOptions::with_guests(&["memcached"])?.plugins, &[])? {
            if object["kind"] == "CustomResourceDefinition" {
                user.apply(&object)?;
            }
        }
        let kind = Kind::cluster(&self.resource.api_version, &self.resource.kind);
        eventually("parents are served", || user.list(kind, ""));
        let namespaces: BTreeSet<&String> = self.parents.iter().map(|(name, _)| name).collect();
        for name in namespaces {
            user.apply(&json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            }))?;
        }
        user.block_on(
            stream::iter(&self.parents)
                .map(async |(namespace, name)| {
                    let parent = DynamicObject::new(name, &self.resource)
                        .data(json!({ "spec": { "size": 0 } }));
                    let api = self.api(user.client(), namespace);
                    api.create(&PostParams::default(), &parent).await.map(drop)
                })
                .buffer_unordered(MAKERS)
                .try_collect::<()>(),
        )?;
        Ok(())
    }

    fn api(&self, client: Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client, namespace, &self.resource)
    }

    fn start(&self, identity: &str) -> Result<Started> {
        let shards = self.shards.to_string();
        let arguments = [
            "--leader-elect",
            "--lease-identity",
            identity,
            "--shards",
            &shards,
        ];
        start_host(
            self.plane,
            &HostOptions {
                cache: Some(self.cache.to_owned()),
                arguments: arguments.map(str::to_owned).into(),
                ..HostOptions::with_guests(&["memcached"])?
            },
        )
    }

    /// Starts the hosts, and measures them until they are idle. If parents have no children yet, it also waits for their
    /// final status.
    fn phase(&self, hosts: usize, is_empty: bool) -> Result<(Phase, BTreeMap<String, Started>)> {
        let mark = self.plane.audit().mark()?;
        let begin = Instant::now();
        let before = (
            self.plane.usage("apiserver")?.cpu,
            Served::read(self.plane)?,
        );
        let names = (0..hosts).map(|number| format!("host-{number}"));
        let mut started = names
            .map(|name| Ok((name.clone(), self.start(&name)?)))
            .collect::<Result<BTreeMap<_, _>>>()?;
        if is_empty {
            self.wait_final()?;
        } else {
            self.wait_shared(&started)?;
        }
        let final_s = begin.elapsed().as_secs_f64();
        let idle_s = self.settle(begin)?;
        let mut cpu_s = 0.0;
        let mut resident_max_bytes = Vec::new();
        for host in started.values_mut() {
            let usage = host.usage()?;
            cpu_s += usage.cpu.as_secs_f64();
            resident_max_bytes.push(usage.resident_max_bytes);
        }
        let api_server = self.plane.usage("apiserver")?.cpu;
        let served = Served::read(self.plane)?.since(&before.1);
        let all = self.requests(mark)?;
        let writes = all.iter().filter(|request| is_write(request)).count();
        let mut requests = BTreeMap::new();
        for request in all {
            let key = format!("{} {}", request.verb, request.resource);
            *requests.entry(key).or_default() += 1;
        }
        let bytes = |rows: &str| (!is_empty).then(|| served.sum(rows));
        let phase = Phase {
            wall_s: if is_empty { final_s } else { idle_s },
            cpu_s,
            api_server_cpu_s: api_server.saturating_sub(before.0).as_secs_f64(),
            resident_max_bytes,
            requests,
            writes,
            list_bytes: bytes("response bytes: LIST "),
            watch_bytes: bytes("watch bytes: "),
        };
        Ok((phase, started))
    }

    /// The hosts' answered requests after a mark, without watches and Leases.
    fn requests(&self, mark: usize) -> Result<Vec<Write>> {
        let mut requests = self.plane.audit().requests_since(mark)?;
        requests.retain(|request| {
            request.is_by_host() && !request.is_of_lease() && request.verb != "watch"
        });
        Ok(requests)
    }

    /// Waits until no host sends a request; returns the time from `begin` until the last one.
    fn settle(&self, begin: Instant) -> Result<f64> {
        let requests = |mark| self.requests(mark);
        self.plane.audit().settle(QUIET, PATIENCE, requests)?;
        Ok(begin.elapsed().saturating_sub(QUIET).as_secs_f64())
    }

    /// Waits until every parent has its final status.
    fn wait_final(&self) -> Result<()> {
        let user = self.plane.user();
        let mut remaining: BTreeSet<(String, String)> = self.parents.iter().cloned().collect();
        user.block_on(async {
            let api: Api<DynamicObject> = Api::all_with(user.client(), &self.resource);
            let mut changes = pin!(watcher(api, watcher::Config::default()).default_backoff());
            while !remaining.is_empty() {
                let Ok(change) = timeout(PATIENCE, changes.try_next()).await else {
                    bail!("{} parents have no final status", remaining.len());
                };
                let change = change?.context("the watch has ended")?;
                if let watcher::Event::Apply(parent) | watcher::Event::InitApply(parent) = change {
                    let key = (parent.namespace().unwrap_or_default(), parent.name_any());
                    let parent: Memcached = serde_json::from_value(serde_json::to_value(parent)?)?;
                    if is_final(&parent, Contender::Innkeeper) {
                        remaining.remove(&key);
                    }
                }
            }
            Ok(())
        })
    }

    /// The Leases' holders by shard; empty for a free one.
    fn holders(&self) -> Result<Vec<String>> {
        let leases = Kind::new("coordination.k8s.io/v1", "Lease", "innkeeper-system");
        let user = self.plane.user();
        self.shards
            .all()
            .map(|shard| {
                let lease = user
                    .get(leases, &lease_name(shard.index()))?
                    .unwrap_or_default();
                let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
                Ok(short(holder).to_owned())
            })
            .collect()
    }

    /// Waits until these hosts hold all shards, and none has two more than another.
    fn wait_shared(&self, hosts: &BTreeMap<String, Started>) -> Result<()> {
        let begin = Instant::now();
        loop {
            let holders = self.holders()?;
            let count = |host| holders.iter().filter(|holder| *holder == host).count();
            let counts: Vec<usize> = hosts.keys().map(count).collect();
            let spread = counts.iter().max().zip(counts.iter().min());
            let is_even = spread.is_some_and(|(most, least)| most - least <= 1);
            if is_even && counts.iter().sum::<usize>() == holders.len() {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "the shards are not shared out: {holders:?}"
            );
            sleep(Duration::from_millis(100));
        }
    }

    /// Kills a host that is not the leader while users edit.
    fn lose(&self, started: &mut BTreeMap<String, Started>) -> Result<Loss> {
        let mark = self.plane.audit().mark()?;
        let holders = self.holders()?;
        let leader = &holders[0];
        let victim = started.keys().find(|name| *name != leader);
        let victim = victim.context("there are several hosts")?.clone();
        let mut host = started.remove(&victim);
        let mut killed = None;
        let edits = self.edit_during((0, 128), |elapsed| {
            if elapsed >= BEFORE
                && let Some(host) = host.take()
            {
                host.kill()?;
                killed = Some(Timestamp::now());
            }
            Ok(())
        })?;
        self.wait_shared(started)?;
        self.settle(Instant::now())?;
        let killed = killed.context("the host has been killed")?;
        let outcome = self.outcome(mark, edits)?;
        let taken = outcome.tenures.moves().into_iter().filter(|passage| {
            passage.from == victim && passage.taken > killed && passage.is_of_shard()
        });
        let taken = taken.map(|passage| passage.taken).max();
        let is_of_others =
            |namespace: &str| holders[self.shards.of(Some(namespace)).index()] != victim;
        let of_others = outcome
            .reactions
            .iter()
            .filter(|(namespace, _)| is_of_others(namespace));
        Ok(Loss {
            edits,
            lost: edits - outcome.reactions.len(),
            strays: outcome.strays,
            taken_s: taken.map_or(f64::NAN, |taken| taken.duration_since(killed).as_secs_f64()),
            longest_s: longest(outcome.reactions.iter()),
            longest_of_others_s: longest(of_others),
        })
    }

    /// Starts as many hosts as were lost and one more, while users edit.
    fn join(&self, started: &mut BTreeMap<String, Started>) -> Result<Join> {
        let again = self.start("host-again")?;
        started.insert("host-again".to_owned(), again);
        self.wait_shared(started)?;
        self.settle(Instant::now())?;
        let mark = self.plane.audit().mark()?;
        let begin = Timestamp::now();
        let mut is_started = false;
        // Later parents than those of the edits before.
        let edits = self.edit_during((self.parents.len() / 2, 129), |elapsed| {
            if elapsed >= BEFORE && !is_started {
                is_started = true;
                started.insert("host-more".to_owned(), self.start("host-more")?);
            }
            Ok(())
        })?;
        self.wait_shared(started)?;
        self.settle(Instant::now())?;
        let outcome = self.outcome(mark, edits)?;
        let mut moves = outcome.tenures.moves();
        moves.retain(|passage| passage.left >= begin && passage.is_of_shard());
        let moving = |at: Timestamp| {
            let is_moving = |passage: &&Move| passage.left <= at && at < passage.taken;
            moves.iter().filter(is_moving).count()
        };
        let last = moves.iter().map(|passage| passage.taken).max();
        let joined_at = begin + BEFORE;
        Ok(Join {
            edits,
            lost: edits - outcome.reactions.len(),
            strays: outcome.strays,
            moving_max: moves
                .iter()
                .map(|passage| moving(passage.left))
                .max()
                .unwrap_or(0),
            shared_s: last.map_or(f64::NAN, |last| {
                last.duration_since(joined_at).as_secs_f64()
            }),
            longest_s: longest(outcome.reactions.iter()),
            moves: moves.len(),
        })
    }

    /// Edits one parent after the other to this value, from the parent with this index on and each once, at a fixed rate,
    /// and calls `meanwhile` with the elapsed time after each; returns the number of edits.
    #[expect(clippy::disallowed_methods, reason = "the bench acts as the user")]
    fn edit_during(
        &self,
        (first, value): (usize, u32),
        mut meanwhile: impl FnMut(Duration) -> Result<()>,
    ) -> Result<usize> {
        let user = self.plane.user();
        let seconds = usize::try_from((BEFORE + AFTER).as_secs())?;
        let parents = self.parents.iter().skip(first);
        let parents: Vec<_> = parents
            .take(seconds * usize::try_from(EDITS_PER_SECOND)?)
            .collect();
        let edits = parents.len();
        let begin = Instant::now();
        let params = PatchParams::default();
        user.block_on(async {
            let mut clock = interval(Duration::from_secs(1) / EDITS_PER_SECOND);
            clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let due = stream::unfold(clock, async |mut clock| {
                clock.tick().await;
                Some(((), clock))
            });
            let answers = due
                .zip(stream::iter(parents))
                .map(async |((), (namespace, name))| {
                    let patch = json!({"spec": {"memcached": {"maxMemoryMB": value}}});
                    let api = self.api(user.client(), namespace);
                    api.patch(name, &params, &Patch::Merge(patch))
                        .await
                        .map(drop)
                })
                .buffer_unordered(EDITORS);
            let mut answers = pin!(answers);
            while let Some(answer) = answers.next().await {
                answer?;
                meanwhile(begin.elapsed())?;
            }
            anyhow::Ok(())
        })?;
        Ok(edits)
    }

    /// Reads what became of edits after a mark.
    fn outcome(&self, mark: usize, edits: usize) -> Result<Outcome> {
        let writes = self.plane.audit().since(0)?;
        let tenures = Tenures::new(&writes);
        let lease_of = |write: &Write| {
            let is_tenant = write.namespace.ends_with("-tenant");
            is_tenant.then(|| lease_name(self.shards.of(Some(&write.namespace)).index()))
        };
        let strays = tenures.strays(&writes, lease_of);
        for stray in strays.iter().take(5) {
            crate::report::say(&format!("stray: {stray}"));
        }
        let writes = self.plane.audit().since(mark)?;
        let is_done = |write: &&Write| write.code < 300;
        let mut edited = BTreeMap::new();
        for edit in writes.iter().filter(is_done) {
            if edit.resource == "memcacheds.cache.example.com" && !edit.is_by_host() {
                edited.insert((&edit.namespace, &edit.name), edit.answered);
            }
        }
        ensure!(
            edited.len() == edits,
            "the audit log has {} of {edits} edits",
            edited.len()
        );
        let mut reactions = Vec::new();
        for write in writes.iter().filter(is_done) {
            if write.resource == "deployments.apps"
                && write.is_by_host()
                && let Some(at) = edited.remove(&(&write.namespace, &write.name))
            {
                let time = write.answered.duration_since(at).as_secs_f64();
                reactions.push((write.namespace.clone(), time));
            }
        }
        Ok(Outcome {
            tenures,
            strays: strays.len(),
            reactions,
        })
    }
}

/// What became of edits.
struct Outcome {
    tenures: Tenures,
    strays: usize,
    /// The namespace, and the seconds until the write, of each edit that was followed by one.
    reactions: Vec<(String, f64)>,
}

fn lease_name(shard: usize) -> String {
    match shard {
        0 => "innkeeper".to_owned(),
        shard => format!("innkeeper.{shard}"),
    }
}

fn longest<'a>(reactions: impl Iterator<Item = &'a (String, f64)>) -> f64 {
    reactions.map(|(_, time)| *time).fold(f64::NAN, f64::max)
}

fn is_write(request: &Write) -> bool {
    !["get", "list", "watch"].contains(&&*request.verb)
}

/// Checks the promises that do not depend on the machine.
pub(crate) fn check(run: &Shared) -> Result<()> {
    let what = format!("{} hosts, API server selects: {}", run.hosts, run.selects);
    ensure!(
        run.restart.writes == 0,
        "{what}: a restart wrote {} times",
        run.restart.writes
    );
    if let Some(loss) = &run.loss {
        let limit = (LEASE + SERVED_WITHIN).as_secs_f64();
        ensure!(
            loss.lost == 0 && loss.strays == 0 && loss.longest_s <= limit,
            "{what}: after a kill, {} edits were lost, {} writes had no right, and the longest wait was {} s",
            loss.lost,
            loss.strays,
            loss.longest_s
        );
    }
    if let Some(join) = &run.join {
        ensure!(
            join.lost == 0 && join.strays == 0 && join.moving_max <= 1,
            "{what}: during a join, {} edits were lost, {} writes had no right, and {} shards moved at the same time",
            join.lost,
            join.strays,
            join.moving_max
        );
    }
    Ok(())
}
