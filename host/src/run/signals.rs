//! Signals: the first asks to stop, the second insists.

use std::{
    convert::Infallible,
    future::Future,
    io,
    sync::{Arc, OnceLock},
};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Whether the host is to stop; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    first: CancellationToken,
    second: CancellationToken,
    /// The signal that insisted.
    insisted: Arc<OnceLock<u8>>,
}

impl Stop {
    /// Asks to drain.
    pub fn ask(&self) {
        self.first.cancel();
    }

    /// Passes a signal on: the first one asks to drain, the second one to abort.
    fn signal(&self, number: u8) {
        if self.first.is_cancelled() {
            self.insisted.get_or_init(|| number);
            self.second.cancel();
        } else {
            self.first.cancel();
        }
    }

    /// Waits until the host is to drain.
    pub async fn first(&self) {
        self.first.cancelled().await;
    }

    /// Waits until the host is to abort; answers with the number of the signal that said so.
    pub async fn second(&self) -> u8 {
        self.second.cancelled().await;
        self.insisted.get().copied().unwrap_or_default()
    }

    /// The token of the first request, for those who stop by it.
    pub fn first_token(&self) -> CancellationToken {
        self.first.clone()
    }
}

/// Listens from now on; the future passes signals on for ever.
///
/// Of a file that may not become larger the write itself tells: the signal of it, which would end the process, is taken
/// and not passed on. Processes that the host starts do not inherit that.
pub fn listen(stop: Stop) -> io::Result<impl Future<Output = Infallible>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let too_large = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    Ok(async move {
        let _too_large = too_large;
        loop {
            let (name, kind) = next(&mut terminate, &mut interrupt).await;
            warn!(signal = name, "asked to stop");
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

    /// L3: the first one drains, the second one aborts.
    #[tokio::test]
    async fn the_second_signal_is_another_one() {
        let stop = Stop::default();
        let other = stop.clone();
        stop.signal(15);
        assert!(other.first.is_cancelled() && !other.second.is_cancelled());
        other.signal(2);
        other.signal(15);
        assert_eq!(stop.second().await, 2);
    }
}
