//! The election: acquires it, renews it, and releases it when the host stops.
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
//! - This machine's wall clock, [`ElectionParts::now`]: only the times that a user reads in the lease. The wall
//!   clocks of two machines differ, so no host compares such a time with its own.
//! - The API server's clock: only in timestamps in the lease's metadata, which are not read. The server's order of
//!   writes counts instead: each write names the version that it replaces.
//!
//! Timers ([`sleep`], [`timeout`]) stand still during the machine's sleep. So they only end pauses and requests, and
//! the first clock is read afterwards.
//!
//! ```no_run
//! use std::{sync::Arc, time::Duration};
//!
//! use innkeeper_lease::{Claim, Election, ElectionParts, LeaseStore, Times};
//!
//! # async fn lead(store: impl LeaseStore, stop: tokio_util::sync::CancellationToken) {
//! let claim = Claim::awaited();
//! let parts = ElectionParts {
//!     store,
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
//!     claim.acquired().await;
//!     // This process may write until `claim.over()`.
//! };
//! tokio::join!(Election::new(parts, claim.clone()).run(stop), work);
//! # }
//! ```

use std::{convert::Infallible, sync::Arc, time::Duration};

use fastrand::Rng;
use innkeeper_metrics::Metrics;
use innkeeper_model::{ResourceVersion, error_chain};
use jiff::Timestamp;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    Claim, Lease, LeaseRecord,
    clock::since_boot,
    machine::{Decision, Machine, Write},
};

/// Reads by a waiting process in the time between two renewals.
///
/// With the default, 2 s between two renewals, it finds a released lease within 0.5 s, jitter included, so it
/// takes over within a second from a host that stops. client-go reads once in this time.
const LOOKS_PER_RETRY: u32 = 5;

/// Lease times: `duration` > `renew_deadline`, and four fifths of `renew_deadline` > `retry`.
///
/// The host has client-go's defaults: 15 s, 10 s and 2 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The time without a renewal after which the lease is free, in whole seconds.
    pub duration: Duration,
    /// The time without a renewal after which the holder gives up.
    pub renew_deadline: Duration,
    /// The time between two renewals.
    pub retry: Duration,
}

impl Times {
    /// Returns the duration in seconds, as in the lease.
    pub fn duration_s(&self) -> u32 {
        self.duration.as_secs().try_into().unwrap_or(u32::MAX)
    }
}

/// A failed request's cause.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// The stored Lease, with separate clients: renewals must not queue behind other requests.
///
/// The writes need no claim, because the claim follows from them.
pub trait LeaseStore: Send + Sync {
    /// Reads the Lease from a quorum; none if it does not exist.
    fn read(&self) -> impl Future<Output = Result<Option<Lease>, Source>> + Send;

    /// Replaces exactly this version; creates the Lease if there is none to replace.
    fn write(
        &self,
        replaces: Option<ResourceVersion>,
        record: &LeaseRecord,
    ) -> impl Future<Output = Result<ResourceVersion, WriteError>> + Send;
}

/// A failed write.
#[derive(Debug)]
pub struct WriteError {
    /// True if another client has created, written or deleted the Lease since it was read.
    pub is_outdated: bool,
    /// The cause.
    pub source: Source,
}

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

/// An election's parts.
pub struct ElectionParts<S> {
    /// The stored Lease.
    pub store: S,
    /// The Lease's namespace, for the log.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// This process's identity, unique among all candidates.
    pub identity: String,
    /// The lease's times.
    pub times: Times,
    /// The wall clock, for the times in the lease; they inform the user and decide nothing.
    pub now: fn() -> Timestamp,
    /// Seeds the jitter.
    pub seed: u64,
    /// One metric shows the leader.
    pub metrics: Arc<Metrics>,
}

/// Leader election as one process sees it.
pub struct Election<S> {
    parts: ElectionParts<S>,
    claim: Claim,
    machine: Machine,
    rng: Rng,
    /// True once a write was sent, so the lease may need a release.
    has_asked: bool,
    /// The last attempt's error, so that an error that repeats is logged once.
    failure: Option<String>,
    /// The other holder and the stated duration as they were logged last.
    logged_holder: Option<(String, u64)>,
}

impl<S: LeaseStore> Election<S> {
    /// Creates an election for an awaited claim, which it extends.
    pub fn new(parts: ElectionParts<S>, claim: Claim) -> Self {
        Self {
            machine: Machine::new(parts.identity.clone(), parts.times),
            rng: Rng::with_seed(parts.seed),
            parts,
            claim,
            has_asked: false,
            failure: None,
            logged_holder: None,
        }
    }

    /// Acquires the lease and renews it: until `stop`, and then releases it, or until the claim is over.
    pub async fn run(mut self, stop: CancellationToken) {
        let claim = self.claim.clone();
        self.show(false);
        let lost = tokio::select! {
            // In this order, so that no renewal begins after a stop.
            biased;
            () = stop.cancelled() => false,
            () = claim.over() => true,
            never = self.keep() => match never {},
        };
        self.show(false);
        if lost {
            return;
        }
        // Before the release: once the lease is free, another process may write, so this one must not.
        self.claim.end();
        if self.has_asked {
            self.release().await;
        }
    }

    async fn keep(&mut self) -> Infallible {
        loop {
            let pause = self.attempt().await;
            sleep(pause).await;
        }
    }

    /// Renews or acquires the lease once, and returns the time until the next attempt.
    async fn attempt(&mut self) -> Duration {
        let retry = self.parts.times.retry;
        let failure = match self.renew_or_acquire().await {
            Ok(()) => None,
            Err(error) => Some(error_chain(&error).to_string()),
        };
        if let Some(error) = &failure
            && failure != self.failure
        {
            warn!(error, "failed to renew or acquire the lease, trying again");
        }
        self.failure = failure;
        // Without jitter, as in client-go: only candidates compete.
        if self.machine.is_holder() {
            return retry;
        }
        // 20 % up or down: waiting processes that started together should not send their requests together.
        let jitter = 0.8 + 0.4 * self.rng.f64();
        match &self.failure {
            // The quick reads only shorten a takeover, and requests that fail find no released lease.
            Some(_) => retry.mul_f64(jitter),
            None => (retry / LOOKS_PER_RETRY).mul_f64(jitter),
        }
    }

    async fn renew_or_acquire(&mut self) -> Result<(), Error> {
        let wall = (self.parts.now)();
        if let Some(write) = self.machine.renewal(since_boot(), wall) {
            match self.write(write).await {
                // Another client has written the lease since, so the read below finds the reason.
                Err(error) if error.is_outdated => {}
                result => return result.map_err(|error| Error::Write(error.source)),
            }
        }
        let lease = self.parts.store.read().await.map_err(Error::Read)?;
        match self.machine.decide(lease, since_boot(), (self.parts.now)()) {
            Decision::Write(write) => {
                return match self.write(write).await {
                    Err(error) if error.is_outdated => {
                        debug!("another process has written the lease first");
                        Ok(())
                    }
                    result => result.map_err(|error| Error::Write(error.source)),
                };
            }
            Decision::Wait => {
                self.log_holder();
                return Ok(());
            }
            Decision::Yield { holder } => error!(holder, "another process has taken the lease"),
            Decision::Lapse => error!("the lease was not renewed in time"),
        }
        // Cuts off running writes, too: the other holder may already write.
        self.claim.end();
        Ok(())
    }

    /// Logs the holder that this process waits for, once.
    fn log_holder(&mut self) {
        let other = self
            .machine
            .other_holder()
            .map(|(holder, duration_s)| (holder.to_owned(), duration_s));
        if let Some((holder, duration_s)) = &other
            && other != self.logged_holder
        {
            let holder = if holder.is_empty() { "unknown" } else { holder };
            info!(
                lease = format!("{}/{}", self.parts.namespace, self.parts.name),
                holder,
                duration_s,
                "waiting for the lease: it is free when its holder releases it or does not renew it for this duration; \
                or delete the Lease if the holder does not exist"
            );
        }
        self.logged_holder = other;
    }

    /// Writes the lease, and extends the claim.
    async fn write(&mut self, write: Write) -> Result<(), WriteError> {
        let was_holder = self.machine.is_holder();
        // Before the answer: if it is lost, this process may hold the lease nevertheless.
        self.has_asked = true;
        // Before the request: other processes count from the moment at which they see the write.
        let sent = since_boot();
        let Write { replaces, record } = write;
        let version = self.parts.store.write(replaces, &record).await?;
        let transitions = record.transitions;
        let lease = Lease { version, record };
        let Some(from) = self.machine.wrote(lease, sent, since_boot()) else {
            return Ok(());
        };
        let deadline = self.parts.times.renew_deadline;
        // No write begins in the last fifth, 2 s by default: the writes under way get this time to end.
        let is_held = self.claim.hold(from + deadline / 5 * 4, from + deadline);
        if is_held && !was_holder {
            self.show(true);
            let identity = &self.parts.identity;
            info!(
                identity,
                transitions, "acquired the lease: this process writes"
            );
        }
        Ok(())
    }

    /// Releases the lease if this process holds it; if that fails, the other processes wait until the lease expires.
    async fn release(&self) {
        let released = timeout(self.parts.times.retry, async {
            // A renewal that was cut off may have changed the version, so the lease is read again.
            let lease = self.parts.store.read().await.map_err(Error::Read)?;
            let wall = (self.parts.now)();
            match lease.and_then(|lease| self.machine.release(&lease, wall)) {
                Some(Write { replaces, record }) => self
                    .parts
                    .store
                    .write(replaces, &record)
                    .await
                    .map(drop)
                    .map_err(|error| Error::Write(error.source)),
                None => Ok(()),
            }
        });
        match released.await {
            Ok(Ok(())) => info!("released the lease"),
            Ok(Err(error)) => {
                warn!(error = %error_chain(&error), "failed to release the lease: other processes wait until it expires");
            }
            Err(_) => {
                warn!("failed to release the lease in time: other processes wait until it expires")
            }
        }
    }

    fn show(&self, leads: bool) {
        self.parts.metrics.leads(&self.parts.name, leads);
    }
}
