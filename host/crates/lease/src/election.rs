//! The election for one Lease: acquires it, renews it, and releases it.
//!
//! The rules are in `machine`. The rest of the host sees only the [`Claim`], which each renewal extends.
//! This module does not know the writes that the claim allows. The lease is no fence: an API server may delay a write
//! that was sent in time, so every write must be safe without the lease.
//!
//! Several clocks meet here, and only the first one decides:
//!
//! - This machine's monotonic clock that counts sleep, [`since_boot`]: the age of the claim and of the
//!   observed lease. With a clock that stands still during sleep, a holder that wakes up would still believe in its
//!   claim.
//! - This machine's wall clock, [`KeeperParts::now`](super::KeeperParts::now): only the times that a user reads in the
//!   lease. The wall clocks of two machines differ, so no host compares such a time with its own.
//! - The API server's clock: only in timestamps in the lease's metadata, which are not read. The server's order of
//!   writes counts instead: each write names the version that it replaces.
//!
//! Timers ([`sleep`], [`timeout`]) stand still during the machine's sleep. So they only end pauses and requests, and
//! the first clock is read afterwards.

use std::{sync::Arc, time::Duration};

use innkeeper_model::error_chain;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    Claim, Lease, LeaseStore, ShardUser, Source, WriteError,
    balance::Slot,
    clock::since_boot,
    group::Group,
    machine::{Decision, Machine, Write},
};

/// A failed read or write.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The Lease cannot be read, so the host cannot learn who holds it.
    #[error("failed to read the lease")]
    Read(#[source] Source),
    /// The Lease cannot be taken, renewed or released.
    #[error("failed to write the lease")]
    Write(#[source] Source),
}

/// How an election ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The process stops.
    Stopped,
    /// The Lease is given up for another host.
    GivenUp,
    /// The claim was never held: another host was faster, or has another number of shards.
    NotTaken,
    /// The claim is over: this process must not write any more.
    Lost,
}

/// An election for a Lease that seems to be free, until it ends.
pub(super) struct Election<S, U> {
    group: Arc<Group<S, U>>,
    slot: Slot,
    /// The Lease's name.
    name: String,
    claim: Claim,
    machine: Machine,
    /// True once the other Leases were read after this one was taken, and agree.
    is_confirmed: bool,
    /// True once a write was sent, so the lease may need a release.
    has_asked: bool,
    /// The last attempt's error, so that an error that repeats is logged once.
    failure: Option<String>,
}

impl<S: LeaseStore, U: ShardUser> Election<S, U> {
    /// Creates an election for an awaited claim, which it extends.
    pub(super) fn new(group: Arc<Group<S, U>>, slot: Slot) -> Self {
        // So that a Lease that has expired before this host's eyes need not expire again.
        let machine = group.observer.lock().machine(slot);
        let claim = match slot {
            Slot::Shard(shard) => group.claims.of(shard).clone(),
            // Nothing is written by it.
            Slot::Next => Claim::awaited(),
        };
        Self {
            slot,
            name: slot.lease_name(&group.parts.name),
            claim,
            machine,
            is_confirmed: false,
            has_asked: false,
            failure: None,
            group,
        }
    }

    /// Acquires the lease and renews it, until the claim is over, the process stops or the lease is given up; it is released
    /// then.
    pub(super) async fn run(mut self, stop: CancellationToken, give_up: CancellationToken) -> End {
        let claim = self.claim.clone();
        let group = Arc::clone(&self.group);
        let is_shard = self.slot != Slot::Next;
        let serve = async {
            claim.acquired().await;
            group.publish().await;
        };
        let end = tokio::select! {
            // In this order, so that no renewal begins after a stop.
            biased;
            () = stop.cancelled() => End::Stopped,
            () = claim.over() => End::Lost,
            () = give_up.cancelled() => End::GivenUp,
            end = self.keep() => end,
            // Never ends: the user only follows.
            () = async { serve.await; std::future::pending().await }, if is_shard => End::Stopped,
        };
        if end == End::Lost {
            return end;
        }
        // Before the release: once the lease is free, another process may write, so this one must not.
        if end == End::GivenUp && is_shard {
            let leave = async {
                claim.give_up().await;
                group.publish().await;
            };
            tokio::select! {
                () = leave => {}
                () = stop.cancelled() => {}
            }
        }
        if stop.is_cancelled() {
            claim.end();
        }
        if self.has_asked {
            self.release().await;
        }
        end
    }

    async fn keep(&mut self) -> End {
        loop {
            let failure = match self.renew_or_acquire().await {
                Ok(Some(end)) => return end,
                Ok(None) => None,
                Err(error) => Some(error_chain(&error).to_string()),
            };
            if let Some(error) = &failure
                && failure != self.failure
            {
                let lease = &self.name;
                warn!(
                    lease,
                    error, "failed to renew or acquire the lease, trying again"
                );
            }
            self.failure = failure;
            sleep(self.group.parts.times.retry).await;
        }
    }

    /// Renews or acquires the lease once; returns why the election ends, if it does.
    async fn renew_or_acquire(&mut self) -> Result<Option<End>, Error> {
        let wall = (self.group.parts.now)();
        if let Some(write) = self.machine.renewal(since_boot(), wall) {
            match self.write(write).await {
                // Another client has written the lease since, so the read below finds the reason.
                Err(error) if error.is_outdated => {}
                result => {
                    let since = result.map_err(|error| Error::Write(error.source))?;
                    return self.extend(since).await;
                }
            }
        }
        let lease = self.group.parts.store.read(&self.name).await;
        let lease = lease.map_err(Error::Read)?;
        let wall = (self.group.parts.now)();
        match self.machine.decide(lease, since_boot(), wall) {
            Decision::Write(write) => match self.write(write).await {
                Err(error) if error.is_outdated => {
                    debug!(
                        lease = self.name,
                        "another process has written the lease first"
                    );
                    // As the holder, it reads again: a changed label, for example, is no reason to give up.
                    let is_holder = self.machine.is_holder();
                    return Ok((!is_holder).then_some(End::NotTaken));
                }
                result => {
                    let since = result.map_err(|error| Error::Write(error.source))?;
                    return self.extend(since).await;
                }
            },
            Decision::Wait => return Ok(Some(End::NotTaken)),
            // The claim was never held.
            Decision::Yield { .. } | Decision::Lapse if !self.is_confirmed => {
                return Ok(Some(End::NotTaken));
            }
            Decision::Yield { holder } => {
                error!(
                    lease = self.name,
                    holder, "another process has taken the lease"
                );
            }
            Decision::Lapse => error!(lease = self.name, "the lease was not renewed in time"),
        }
        // Cuts off running writes, too: the other holder may already write.
        self.claim.end();
        Ok(Some(End::Lost))
    }

    /// Writes the lease. Returns the time from which the claim counts; none if the answer came too late.
    async fn write(&mut self, write: Write) -> Result<Option<Duration>, WriteError> {
        // Before the answer: if it is lost, this process may hold the lease nevertheless.
        self.has_asked = true;
        // Before the request: other processes count from the moment at which they see the write.
        let sent = since_boot();
        let Write { replaces, record } = write;
        let store = &self.group.parts.store;
        let version = store.write(&self.name, replaces, &record).await?;
        let lease = Lease {
            version,
            record,
            shards: self.group.claims.shards(),
        };
        Ok(self.machine.wrote(lease, sent, since_boot()))
    }

    /// Extends the claim after a write.
    async fn extend(&mut self, since: Option<Duration>) -> Result<Option<End>, Error> {
        let Some(since) = since else {
            return Ok(None);
        };
        if !self.is_confirmed {
            let confirms = self.group.confirms(self.slot).await;
            self.is_confirmed = confirms.map_err(Error::Read)?;
            if !self.is_confirmed {
                return Ok(Some(End::NotTaken));
            }
        }
        let deadline = self.group.parts.times.renew_deadline;
        let was_held = self.claim.is_held();
        // No write begins in the last fifth, 2 s by default: the writes under way get this time to end.
        let is_held = self.claim.hold(since + deadline / 5 * 4, since + deadline);
        if is_held && !was_held {
            self.log_acquired();
        }
        Ok(None)
    }

    fn log_acquired(&self) {
        let lease = &self.name;
        let identity = &self.group.parts.identity;
        match self.slot {
            Slot::Shard(_) => info!(lease, identity, "acquired the lease: this process writes"),
            Slot::Next => info!(lease, identity, "asking for a shard"),
        }
    }

    /// Releases the lease if this process holds it; if that fails, the other processes wait until the lease expires.
    async fn release(&self) {
        let lease = &self.name;
        let parts = &self.group.parts;
        let released = timeout(parts.times.retry, async {
            // A renewal that was cut off may have changed the version, so the lease is read again.
            let stored = parts.store.read(lease).await.map_err(Error::Read)?;
            let write = stored.and_then(|stored| self.machine.release(&stored, (parts.now)()));
            let Some(Write { replaces, record }) = write else {
                return Ok(());
            };
            let written = parts.store.write(lease, replaces, &record).await;
            written.map_err(|error| Error::Write(error.source))?;
            info!(lease, "released the lease");
            Ok::<(), Error>(())
        });
        match released.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(lease, error = %error_chain(&error), "failed to release the lease: other processes wait until it expires");
            }
            Err(_) => {
                warn!(
                    lease,
                    "failed to release the lease in time: other processes wait until it expires"
                );
            }
        }
    }
}
