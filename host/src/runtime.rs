//! The tokio runtimes of the commands.

use std::{future::Future, io, time::Duration};

use tokio::runtime::Builder;

/// Runs a future to its end on this thread, for a command that sends a few requests.
pub fn block_on<F: Future>(work: F) -> io::Result<F::Output> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

/// Runs the host to its end on one thread per processor.
pub fn block_on_all_threads<F: Future>(host: F) -> io::Result<F::Output> {
    /// After the drain, only file access or a guest call can still block a thread, and the deadline ends the call.
    const BLOCKED_MAX: Duration = Duration::from_secs(1);

    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(host);
    runtime.shutdown_timeout(BLOCKED_MAX);
    Ok(ended)
}
