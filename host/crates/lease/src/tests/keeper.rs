//! Keepers with a store in memory, on the real clock.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use innkeeper_model::{ResourceVersion, ShardSet, Shards};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Claims, KeeperParts, Lease, LeaseRecord, LeaseStore, ShardKeeper, ShardUser, Source, Times,
    WriteError, lease_name,
};

const GROUP: &str = "innkeeper";

/// Short, and yet longer than a busy machine stands still.
const TIMES: Times = Times {
    duration: Duration::from_secs(3),
    renew_deadline: Duration::from_secs(2),
    retry: Duration::from_millis(100),
};

const LONG: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
struct Server {
    leases: Arc<Mutex<BTreeMap<String, Lease>>>,
    lists: Arc<AtomicUsize>,
}

impl Server {
    fn edit(&self, name: &str, edit: impl FnOnce(&mut Lease)) {
        let mut leases = self.leases.lock();
        let lease = leases.get_mut(name).unwrap();
        edit(lease);
        lease.version.0 += 1;
    }

    fn holder(&self, name: &str) -> String {
        let leases = self.leases.lock();
        let lease = leases.get(name);
        lease.map_or_else(String::new, |lease| lease.record.holder.clone())
    }

    /// Starts a host in this namespace.
    fn start(&self, identity: &str, shards: u32) -> Host {
        let claims = Claims::awaited(Shards::new(shards).unwrap());
        let user = Arc::new(Mutex::new(ShardSet::new()));
        let parts = KeeperParts {
            store: Store {
                server: self.clone(),
                claims: claims.clone(),
                user: Arc::clone(&user),
            },
            user: User(Arc::clone(&user)),
            namespace: "demo".to_owned(),
            name: GROUP.to_owned(),
            identity: identity.to_owned(),
            times: TIMES,
            now: Timestamp::now,
            seed: 1,
            metrics: Arc::default(),
        };
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(ShardKeeper::new(parts, claims.clone()).run(stop.clone()));
        Host { claims, stop, task }
    }
}

struct Host {
    claims: Claims,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Host {
    /// Waits until it holds this many shards, and its user serves them.
    async fn holds(&self, count: usize) {
        let mut served = self.claims.changed();
        let waited = timeout(LONG, served.wait_for(|served| served.len() == count));
        waited.await.unwrap().unwrap();
    }

    async fn stop(mut self) {
        self.stop.cancel();
        timeout(LONG, self.task.join_next()).await.unwrap();
        assert!(self.claims.held().is_empty());
    }
}

struct User(Arc<Mutex<ShardSet>>);

impl ShardUser for User {
    async fn hold(&self, held: ShardSet) {
        // Takes its time, as a cache does.
        sleep(Duration::from_millis(20)).await;
        *self.0.lock() = held;
    }
}

struct Store {
    server: Server,
    claims: Claims,
    user: Arc<Mutex<ShardSet>>,
}

impl LeaseStore for Store {
    async fn read(&self, name: &str) -> Result<Option<Lease>, Source> {
        Ok(self.server.leases.lock().get(name).cloned())
    }

    async fn list(&self) -> Result<BTreeMap<String, Lease>, Source> {
        self.server.lists.fetch_add(1, Ordering::Relaxed);
        Ok(self.server.leases.lock().clone())
    }

    async fn write(
        &self,
        name: &str,
        replaces: Option<ResourceVersion>,
        record: &LeaseRecord,
    ) -> Result<ResourceVersion, WriteError> {
        if record.holder.is_empty() {
            let shards = self.claims.shards();
            for shard in shards
                .all()
                .filter(|shard| lease_name(GROUP, *shard) == name)
            {
                assert!(!self.claims.of(shard).is_held());
                // Unless the process ends.
                let is_over = timeout(Duration::ZERO, self.claims.of(shard).over())
                    .await
                    .is_ok();
                assert!(is_over || !self.user.lock().contains(&shard), "{name}");
            }
        }
        let mut leases = self.server.leases.lock();
        let version = leases.get(name).map(|lease| lease.version);
        if version != replaces {
            return Err(WriteError {
                is_outdated: true,
                source: "conflict".into(),
            });
        }
        let version = ResourceVersion(version.map_or(1, |version| version.0 + 1));
        let lease = Lease {
            version,
            record: record.clone(),
            shards: self.claims.shards(),
        };
        leases.insert(name.to_owned(), lease);
        Ok(version)
    }
}

#[tokio::test]
async fn hosts_share_the_shards_and_take_over_from_those_that_end() {
    let server = Server::default();
    let first = server.start("a", 4);
    first.holds(4).await;
    let second = server.start("b", 4);
    tokio::join!(first.holds(2), second.holds(2));
    assert!(first.claims.leader().is_held());
    let third = server.start("c", 4);
    third.holds(1).await;
    // A signal: the others need not wait until the Leases expire.
    let stopped = Instant::now();
    first.stop().await;
    tokio::join!(second.holds(2), third.holds(2));
    assert!(stopped.elapsed() < TIMES.duration);
    let killed = Instant::now();
    drop(second);
    third.holds(4).await;
    assert!(killed.elapsed() < TIMES.duration + Duration::from_secs(5));
    assert_eq!(server.holder("innkeeper.next"), "");
    third.stop().await;
    for lease in server.leases.lock().values() {
        assert_eq!(lease.record.holder, "");
    }
}

#[tokio::test]
async fn with_one_shard_there_is_one_lease_and_no_list() {
    let server = Server::default();
    let first = server.start("a", 1);
    first.holds(1).await;
    let second = server.start("b", 1);
    sleep(TIMES.duration / 2).await;
    assert!(second.claims.held().is_empty());
    first.stop().await;
    second.holds(1).await;
    assert_eq!(server.lists.load(Ordering::Relaxed), 0);
    assert_eq!(server.leases.lock().len(), 1);
    assert_eq!(server.holder(GROUP), "b");
}

#[tokio::test]
async fn a_lost_lease_ends_the_process_and_releases_the_other_leases() {
    let server = Server::default();
    let mut host = server.start("a", 2);
    host.holds(2).await;
    server.edit("innkeeper.1", |lease| {
        "x".clone_into(&mut lease.record.holder)
    });
    timeout(LONG, host.task.join_next()).await.unwrap();
    assert!(host.claims.held().is_empty());
    timeout(LONG, host.claims.leader().over()).await.unwrap();
    assert_eq!(server.holder(GROUP), "");
    assert_eq!(server.holder("innkeeper.1"), "x");
}

#[tokio::test]
async fn hosts_with_other_numbers_of_shards_stand_by_until_all_leases_are_free() {
    for (number, other) in [(2, 1), (1, 2), (2, 3)] {
        let server = Server::default();
        let first = server.start("a", number);
        first.holds(usize::try_from(number).unwrap()).await;
        let second = server.start("b", other);
        // Without a leader, the host with the other shards still writes.
        let is_alone = number == 1;
        if !is_alone {
            server.edit(GROUP, |lease| {
                lease.record.holder.clear();
                lease.record.duration_s = 1;
            });
        }
        sleep(TIMES.retry * 5).await;
        assert!(second.claims.held().is_empty());
        first.stop().await;
        second.holds(usize::try_from(other).unwrap()).await;
    }
}
