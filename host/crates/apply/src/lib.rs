//! Writing: the only module that changes anything in the cluster.
//!
//! It writes only a plan's operations. Each write is bound to the observed version, so that it is safe even when
//! the observation is stale or another client writes at the same time.
//! It writes only while the process holds the claim.
//! It never reads, never retries, and never decides: every answer from the API server becomes an [`ErrorKind`]
//! that says who is at fault and when to retry.
#![expect(
    clippy::disallowed_methods,
    reason = "the only module that writes to the API server"
)]

mod absence;
mod error;
mod events;
mod execute;
mod lease;
mod objects;
mod request;
mod target;
#[cfg(test)]
mod tests;
mod writers;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use innkeeper_lease::Claim;
use kube::client::Body;
use tokio::{sync::Semaphore, time::timeout};

pub use error::{Error, ErrorKind, Refused};
pub use events::{EventWrite, Events};
pub use execute::{Execution, Session};
pub use objects::MANAGER;
pub use target::{Target, Written};
pub use writers::Writers;

use request::WriteRequest;

/// The largest answer that is read: as large as the objects that the host reads.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The time limit for one write, including the wait for a free permit.
///
/// The API server itself gives up on a request after 60 s, and on a webhook after at most 30 s.
const DEADLINE: Duration = Duration::from_secs(35);

/// The most concurrent writes; each holds a connection.
///
/// A fair share, because an API server takes 200 changing requests at a time by default.
const CONCURRENCY_MAX: usize = 16;

/// Writes to the API server.
pub struct Writer {
    client: kube::Client,
    claim: Claim,
    /// Shared with the writers for other claims of the process.
    permits: Arc<Semaphore>,
    deadline: Duration,
}

impl Writer {
    /// Takes a client that must not retry by itself (`default_retry` off): a write that is repeated blindly is not
    /// bound to the observed version.
    pub fn new(client: kube::Client, claim: Claim) -> Self {
        Self {
            client,
            claim,
            permits: Arc::new(Semaphore::new(CONCURRENCY_MAX)),
            deadline: DEADLINE,
        }
    }

    /// Returns true if the process holds the claim, so that its writes may be under way.
    pub fn has_claim(&self) -> bool {
        self.claim.is_held()
    }

    /// Returns true if a write may begin now.
    pub fn may_begin(&self) -> bool {
        self.claim.may_begin()
    }

    /// Sets the time limit for one write; by default 35 s.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns a writer that needs another claim, and shares client and permits.
    #[must_use]
    pub fn with_claim(&self, claim: Claim) -> Self {
        Self {
            client: self.client.clone(),
            claim,
            permits: Arc::clone(&self.permits),
            deadline: self.deadline,
        }
    }

    /// Sends a write if the process holds the claim, and returns the answer's body.
    async fn send(&self, request: WriteRequest<'_>) -> Result<Bytes, Error> {
        let WriteRequest {
            verb, what, http, ..
        } = request;
        let http = match http {
            Ok(http) => http,
            Err(source) => {
                return Err(ErrorKind::Unbuildable.because(what, source));
            }
        };
        // Outside of the future, which a deadline or a lost claim may drop at any await.
        let sent = AtomicBool::new(false);
        let exchange = async {
            // The semaphore is never closed, so this only waits.
            let _permit = self.permits.acquire().await;
            // Checked after the wait for a permit, which may be long, and right before the request is sent.
            if !self.claim.may_begin() {
                return Ok(None);
            }
            #[cfg(feature = "failpoints")]
            fail::fail_point!("before-write", |_| std::process::abort());
            // From here on the API server may have done the write, whatever answer this process gets.
            sent.store(true, Ordering::Relaxed);
            let answer = self.client.send(http.map(Body::from)).await?;
            let (parts, body) = answer.into_parts();
            // Not more than the reader accepts: a proxy that answers without end must not fill the host's memory.
            let body = Limited::new(body, ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(kube::Error::Service)?
                .to_bytes();
            #[cfg(feature = "failpoints")]
            fail::fail_point!("after-write", |_| std::process::abort());
            Ok::<_, kube::Error>(Some((parts, body)))
        };
        let outcome = self.claim.bound(timeout(self.deadline, exchange)).await;
        let sent = sent.load(Ordering::Relaxed);
        let deadline = self.deadline;
        match outcome {
            Some(Ok(Ok(Some((parts, body))))) if parts.status.is_success() => Ok(body),
            Some(Ok(Ok(Some((parts, body))))) => Err(error::refused(verb, what, &parts, &body)),
            Some(Ok(Err(source))) => Err(error::broken(what, source)),
            Some(Err(_)) if sent => Err(ErrorKind::TimedOut { deadline }.without_source(what)),
            Some(Err(_)) => Err(ErrorKind::NoPermit { deadline }.without_source(what)),
            None if sent => Err(ErrorKind::CutOff.without_source(what)),
            None | Some(Ok(Ok(None))) => Err(ErrorKind::NoClaim.without_source(what)),
        }
    }
}
