//! The keeper: runs an election for each Lease that this process should have.
//!
//! With one shard it waits until the Lease is free, and then runs its election until the process stops. With several it
//! also lists the group's Leases in each round, and takes, gives up and asks for shards as `balance` decides.
//!
//! ```no_run
//! use std::{sync::Arc, time::Duration};
//!
//! use innkeeper_lease::{Claims, KeeperParts, LeaseStore, ShardKeeper, Times};
//! use innkeeper_model::Shards;
//!
//! # async fn lead(store: impl LeaseStore, stop: tokio_util::sync::CancellationToken) {
//! let claims = Claims::awaited(Shards::ONE);
//! let parts = KeeperParts {
//!     store,
//!     user: (),
//!     namespace: "demo".to_owned(),
//!     name: "innkeeper".to_owned(),
//!     identity: "host-1".to_owned(),
//!     times: Times {
//!         duration: Duration::from_secs(15),
//!         renew_deadline: Duration::from_secs(10),
//!         retry: Duration::from_secs(2),
//!     },
//!     now: jiff::Timestamp::now,
//!     seed: 1,
//!     metrics: Arc::default(),
//! };
//! let work = async {
//!     claims.leader().acquired().await;
//!     // This process may write until `claims.leader().over()`.
//! };
//! tokio::join!(ShardKeeper::new(parts, claims.clone()).run(stop), work);
//! # }
//! ```

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fastrand::Rng;
use innkeeper_model::{Shard, ShardSet, error_chain};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Claims, KeeperParts, LeaseStore, ShardUser,
    balance::{Action, Holder, Share, Slot, View},
    election::{Election, End},
    group::Group,
};

/// Reads by a waiting process in the time between two renewals.
///
/// With the default, 2 s between two renewals, it finds a released lease within 0.5 s, jitter included, so it
/// takes over within a second from a host that stops. client-go reads once in this time.
const LOOKS_PER_RETRY: u32 = 5;

/// Keeps this process's shards.
pub struct ShardKeeper<S, U> {
    group: Arc<Group<S, U>>,
    /// The running elections. Dropping them stops the renewals without a release.
    elections: JoinSet<(Slot, End)>,
    /// Tells each running election to give up its Lease.
    running: BTreeMap<Slot, CancellationToken>,
    stop: CancellationToken,
    rng: Rng,
    /// What was logged last, so that each reason to wait is logged once.
    logged: Option<String>,
}

impl<S: LeaseStore, U: ShardUser> ShardKeeper<S, U> {
    /// Creates a keeper for awaited claims, which it extends.
    pub fn new(parts: KeeperParts<S, U>, claims: Claims) -> Self {
        Self {
            rng: Rng::with_seed(parts.seed),
            group: Arc::new(Group::new(parts, claims)),
            elections: JoinSet::new(),
            running: BTreeMap::new(),
            stop: CancellationToken::new(),
            logged: None,
        }
    }

    /// Acquires and renews Leases: until `stop`, or until a claim was lost. Then it ends all claims for ever, and releases
    /// the Leases that it still holds.
    pub async fn run(mut self, stop: CancellationToken) {
        self.group.show(&ShardSet::new());
        tokio::select! {
            // In this order, so that no election begins after a stop.
            biased;
            () = stop.cancelled() => {}
            () = self.keep() => {}
        }
        // Each election ends its claim before it releases its Lease.
        self.stop.cancel();
        while self.elections.join_next().await.is_some() {}
        self.group.claims.end();
        self.group.show(&ShardSet::new());
    }

    /// Returns when a claim was lost.
    async fn keep(&mut self) {
        let mut next = Some(Instant::now());
        loop {
            let round = async move {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = self.elections.join_next() => {
                    let Ok((slot, end)) = ended else {
                        error!("an election panicked");
                        return;
                    };
                    self.running.remove(&slot);
                    if end == End::Lost {
                        return;
                    }
                    next = next.or_else(|| Some(Instant::now() + self.look()));
                }
                () = round => next = self.round().await.map(|pause| Instant::now() + pause),
            }
        }
    }

    /// Reads the Leases and acts on them; returns the time until the next round, if there is one.
    async fn round(&mut self) -> Option<Duration> {
        let retry = self.group.parts.times.retry;
        let view = match self.group.view().await {
            Ok(view) => view,
            Err(error) => {
                let error = error_chain(&*error).to_string();
                if self.logs(&error) {
                    warn!(error, "failed to read the leases, trying again");
                }
                // The quick reads only shorten a takeover, and requests that fail find no released lease.
                return Some(self.jitter(retry));
            }
        };
        self.log_wait(&view);
        let own: ShardSet = self.running.keys().copied().filter_map(shard).collect();
        let leaving = self
            .running
            .iter()
            .find_map(|(slot, give_up)| shard(*slot).filter(|_| give_up.is_cancelled()));
        let part = Share {
            identity: &self.group.parts.identity,
            own: &own,
            leaving,
            reserved: self.group.parts.times.duration,
        };
        for action in part.actions(&view) {
            match action {
                Action::Take(shard) => self.begin(Slot::Shard(shard)),
                Action::Ask => self.begin(Slot::Next),
                Action::GiveUp(shard) => self.give_up(Slot::Shard(shard)),
                Action::StopAsking => self.give_up(Slot::Next),
            }
        }
        if self.group.claims.shards().is_one() && self.running.contains_key(&Slot::LEADER) {
            // The election does the rest, and no other host has a part in it.
            return None;
        }
        let is_free =
            |(slot, holder): (&Slot, &Holder)| shard(*slot).is_some() && holder.host().is_none();
        let look = self.look();
        if view.conflict.is_some() {
            Some(self.jitter(retry))
        } else if self.group.claims.shards().is_one() || view.holders.iter().any(is_free) {
            Some(look)
        } else {
            let expires_in = view.expires_in.unwrap_or(retry);
            Some(self.jitter(retry).min(expires_in).max(look))
        }
    }

    fn begin(&mut self, slot: Slot) {
        if self.running.contains_key(&slot) {
            return;
        }
        let give_up = CancellationToken::new();
        self.running.insert(slot, give_up.clone());
        let election = Election::new(Arc::clone(&self.group), slot);
        let stop = self.stop.clone();
        self.elections
            .spawn(async move { (slot, election.run(stop, give_up).await) });
    }

    fn give_up(&self, slot: Slot) {
        if let Some(give_up) = self.running.get(&slot) {
            if let Slot::Shard(shard) = slot {
                info!(%shard, "giving up a shard for a host that has fewer");
            }
            give_up.cancel();
        }
    }

    /// Returns the time until a waiting process reads again.
    fn look(&mut self) -> Duration {
        let look = self.group.parts.times.retry / LOOKS_PER_RETRY;
        self.jitter(look)
    }

    /// 20 % up or down: waiting processes that started together should not send their requests together.
    fn jitter(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(0.8 + 0.4 * self.rng.f64())
    }

    /// Logs the host that this process waits for.
    fn log_wait(&mut self, view: &View) {
        if let Some((holder, shards)) = &view.conflict {
            let own = self.group.claims.shards();
            if self.logs(&format!("{holder} {shards}")) {
                warn!(
                    holder,
                    "standing by: the host has {shards} shards and this one {own}, so they must not write beside each other; \
                    start all hosts with the same --shards"
                );
            }
            return;
        }
        let leader = view.holders.get(&Slot::LEADER).and_then(Holder::host);
        if leader.is_none() || self.running.contains_key(&Slot::LEADER) {
            self.logged = None;
            return;
        }
        let machine = self.group.observer.lock().machine(Slot::LEADER);
        let Some((holder, duration_s)) = machine.other_holder() else {
            return;
        };
        if self.logs(&format!("{holder} {duration_s}")) {
            let KeeperParts {
                namespace, name, ..
            } = &self.group.parts;
            let holder = if holder.is_empty() { "unknown" } else { holder };
            info!(
                lease = format!("{namespace}/{name}"),
                holder,
                duration_s,
                "waiting for the lease: it is free when its holder releases it or does not renew it for this duration; \
                or delete the Lease if the holder does not exist"
            );
        }
    }

    /// Returns true if this was not logged last.
    fn logs(&mut self, reason: &str) -> bool {
        let is_new = self.logged.as_deref() != Some(reason);
        self.logged = Some(reason.to_owned());
        is_new
    }
}

fn shard(slot: Slot) -> Option<Shard> {
    match slot {
        Slot::Shard(shard) => Some(shard),
        Slot::Next => None,
    }
}
