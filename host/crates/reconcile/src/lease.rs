//! Who may write: asks for the lease, keeps it, and lets go of it last.
//!
//! The rules are in `machine`, what they are worth to the rest of the host is in the [`Claim`] that this prolongs.
//! It knows nothing about what is written, and the lease is no fence: an API server may be slow with a write that was
//! sent in time, so that every write has to be safe by itself.

mod machine;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, sync::Arc, time::Duration};

use fastrand::Rng;
use innkeeper_apply::{self as apply, Claim, ErrorKind, Writer, clock::since_boot};
use innkeeper_cluster::{self as cluster, LeaseReader};
use innkeeper_metrics::Metrics;
use innkeeper_model::{Lease, error_chain};
use jiff::Timestamp;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use machine::{Decision, Machine, Write};

/// A process that waits looks so often in the time between two renewals, so that it takes over from one that ended
/// cleanly within a second; client-go looks once.
const LOOKS_PER_RETRY: u32 = 5;

/// The times of a lease: `duration` > `renew_deadline`, four fifths of which > `retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Without a renewal for so long it is free; whole seconds.
    pub duration: Duration,
    /// Without a renewal for so long the holder gives up.
    pub renew_deadline: Duration,
    /// Between two renewals.
    pub retry: Duration,
}

impl Times {
    /// The duration as it is written in the lease.
    pub fn duration_s(&self) -> u32 {
        self.duration.as_secs().try_into().unwrap_or(u32::MAX)
    }
}

/// Why the lease was not read or written this time.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to read the lease")]
    Read(#[source] cluster::Error),
    #[error("failed to write the lease")]
    Write(#[source] apply::Error),
}

/// What an election works with.
pub struct ElectionParts {
    /// Reads the lease; nothing else goes through its client.
    pub reader: LeaseReader,
    /// Writes the lease without a claim; nothing else goes through its client but what [`LeaseReader`] reads.
    pub writer: Writer,
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name.
    pub name: String,
    /// What nobody else calls itself.
    pub identity: String,
    /// How fast the lease changes hands.
    pub times: Times,
    /// The clock, for the times that people read in the lease.
    pub now: fn() -> Timestamp,
    /// Where jitter begins.
    pub seed: u64,
    /// Where it is shown who leads.
    pub metrics: Arc<Metrics>,
}

/// One process's part in who may write.
pub struct Election {
    parts: ElectionParts,
    claim: Claim,
    machine: Machine,
    rng: Rng,
    /// Whether the lease may be this process's, known or not.
    has_asked: bool,
    /// Why the last turn failed, so that a failure that goes on is told once.
    failure: Option<String>,
}

impl Election {
    /// Prepares to prolong a claim that is awaited.
    pub fn new(parts: ElectionParts, claim: Claim) -> Self {
        Self {
            machine: Machine::new(parts.identity.clone(), parts.times),
            rng: Rng::with_seed(parts.seed),
            parts,
            claim,
            has_asked: false,
            failure: None,
        }
    }

    /// Asks for the lease and keeps it, until told to let go of it or until the claim is over.
    pub async fn run(mut self, let_go: CancellationToken) {
        let claim = self.claim.clone();
        self.show(false);
        let lost = tokio::select! {
            biased;
            () = let_go.cancelled() => false,
            () = claim.over() => true,
            never = self.keep() => match never {},
        };
        self.show(false);
        if lost {
            return;
        }
        // From here on nothing is written that the lease would have to cover.
        self.claim.end();
        if self.has_asked {
            self.release().await;
        }
    }

    async fn keep(&mut self) -> Infallible {
        loop {
            let pause = self.turn().await;
            sleep(pause).await;
        }
    }

    /// Looks at the lease once and does what is to be done; answers with when to look again.
    async fn turn(&mut self) -> Duration {
        let retry = self.parts.times.retry;
        let failure = match self.try_turn().await {
            Ok(()) => None,
            Err(error) => Some(error_chain(&error).to_string()),
        };
        if let Some(error) = &failure
            && failure != self.failure
        {
            warn!(error, "failed to ask for the lease, trying again");
        }
        self.failure = failure;
        if self.machine.is_holder() {
            return retry;
        }
        // Those who wait should not all come at once.
        let jitter = 0.8 + 0.4 * self.rng.f64();
        match &self.failure {
            Some(_) => retry.mul_f64(jitter),
            None => (retry / LOOKS_PER_RETRY).mul_f64(jitter),
        }
    }

    async fn try_turn(&mut self) -> Result<(), Error> {
        let wall = (self.parts.now)();
        if let Some(write) = self.machine.renewal(since_boot(), wall) {
            match self.write(write).await {
                // Somebody else has written it: what, is to be looked at.
                Err(error) if error.is_stale() => {}
                written => return written.map_err(Error::Write),
            }
        }
        let lease = self.parts.reader.read().await.map_err(Error::Read)?;
        match self.machine.decide(lease, since_boot(), (self.parts.now)()) {
            Decision::Write(write) => match self.write(write).await {
                Err(error) if matches!(error.kind, ErrorKind::Conflict | ErrorKind::Exists) => {
                    debug!("another process was faster with the lease");
                    Ok(())
                }
                written => written.map_err(Error::Write),
            },
            Decision::Wait => Ok(()),
            Decision::Yield { holder } => {
                error!(holder, "another process has taken the lease");
                self.claim.end();
                Ok(())
            }
            Decision::Lapse => {
                error!("the lease was not renewed in time");
                self.claim.end();
                Ok(())
            }
        }
    }

    /// Writes the lease; a claim counts from before the write was sent.
    async fn write(&mut self, write: Write) -> Result<(), apply::Error> {
        let was_holder = self.machine.is_holder();
        self.has_asked = true;
        let sent = since_boot();
        let version = self.send(&write).await?;
        let Write { record, .. } = write;
        let transitions = record.transitions;
        let lease = Lease { version, record };
        let Some(from) = self.machine.wrote(lease, sent, since_boot()) else {
            return Ok(());
        };
        let deadline = self.parts.times.renew_deadline;
        // The last fifth is for writes that are under way.
        let held = self.claim.hold(from + deadline / 5 * 4, from + deadline);
        if held && !was_holder {
            self.show(true);
            let identity = &self.parts.identity;
            info!(
                identity,
                transitions, "acquired the lease: this process writes"
            );
        }
        Ok(())
    }

    async fn send(&self, write: &Write) -> Result<innkeeper_model::ResourceVersion, apply::Error> {
        let ElectionParts {
            writer,
            namespace,
            name,
            ..
        } = &self.parts;
        match write.replaces {
            Some(version) => {
                let update = writer.update_lease(namespace, name, version, &write.record);
                update.await
            }
            None => writer.create_lease(namespace, name, &write.record).await,
        }
    }

    /// Lets go of the lease if it is still this process's; others find out by themselves if that fails.
    async fn release(&self) {
        let released = timeout(self.parts.times.retry, async {
            // A renewal that was cut off may have changed the version.
            let lease = self.parts.reader.read().await.map_err(Error::Read)?;
            let wall = (self.parts.now)();
            match lease.and_then(|lease| self.machine.release(&lease, wall)) {
                Some(write) => self.send(&write).await.map(drop).map_err(Error::Write),
                None => Ok(()),
            }
        });
        match released.await {
            Ok(Ok(())) => info!("let go of the lease"),
            Ok(Err(error)) => {
                warn!(error = %error_chain(&error), "failed to let go of the lease: others wait until it has lapsed");
            }
            Err(_) => {
                warn!("failed to let go of the lease in time: others wait until it has lapsed")
            }
        }
    }

    fn show(&self, leads: bool) {
        self.parts.metrics.leads(&self.parts.name, leads);
    }
}
