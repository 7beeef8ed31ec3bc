//! Signals: the first one starts the drain, the second one aborts it.

use std::{convert::Infallible, future::Future, io, sync::Arc};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::SetOnce,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// A request to stop the host; clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    first: CancellationToken,
    /// The second signal's number.
    second: Arc<SetOnce<u8>>,
}

impl Shutdown {
    /// Requests a drain.
    pub fn request(&self) {
        self.first.cancel();
    }

    /// Handles a signal: the first one requests a drain, the second one an abort.
    fn signal(&self, number: u8) {
        if self.first.is_cancelled() {
            // A third signal changes nothing.
            drop(self.second.set(number));
        } else {
            self.first.cancel();
        }
    }

    /// Waits for the request to drain.
    pub async fn first(&self) {
        self.first.cancelled().await;
    }

    /// Waits for the request to abort; returns the second signal's number.
    pub async fn second(&self) -> u8 {
        *self.second.wait().await
    }

    /// A token that is cancelled by the request to drain.
    pub fn first_token(&self) -> CancellationToken {
        self.first.clone()
    }
}

/// Installs the signal handlers; the returned future handles signals and never ends.
pub fn listen(stop: Shutdown) -> io::Result<impl Future<Output = Infallible>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // SIGXFSZ would end the process. With a handler, a write above the file size limit fails with an error instead;
    // child processes do not inherit the handler.
    let too_large = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    Ok(async move {
        let _too_large = too_large;
        loop {
            let (name, kind) = next(&mut terminate, &mut interrupt).await;
            warn!(signal = name, "received a signal to stop");
            stop.signal(u8::try_from(kind.as_raw_value()).unwrap_or_default());
        }
    })
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> (&'static str, SignalKind) {
    tokio::select! {
        Some(()) = terminate.recv() => ("SIGTERM", SignalKind::terminate()),
        Some(()) = interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
        else => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L3: the first signal drains, the second one aborts.
    #[tokio::test]
    async fn the_second_signal_aborts() {
        let stop = Shutdown::default();
        let other = stop.clone();
        stop.signal(15);
        assert!(other.first.is_cancelled() && other.second.get().is_none());
        other.signal(2);
        other.signal(15);
        assert_eq!(stop.second().await, 2);
    }
}
