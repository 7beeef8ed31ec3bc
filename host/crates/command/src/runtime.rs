//! Tokio runtimes for commands.

use std::{future::Future, io, num::NonZeroUsize, thread, time::Duration};

use tokio::runtime::{Builder, Runtime};

use crate::{Exit, Failure, OrFail as _};

/// Runs a future on this thread, for commands that send a few requests.
pub fn block_on<T, E: Into<Failure>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    or_fail(Builder::new_current_thread().enable_all().build())?
        .block_on(work)
        .map_err(Into::into)
}

/// Runs the host on one thread per two processors; guests have other threads.
pub fn block_on_all_threads<T>(
    host: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    /// After the drain, only file access or a guest call can block a thread, and a guest call has a deadline.
    const BLOCKED_MAX: Duration = Duration::from_secs(1);

    // More threads only wake each other up, and the guests need processors too.
    let threads = thread::available_parallelism()
        .map_or(1, NonZeroUsize::get)
        .div_ceil(2);
    let runtime = or_fail(
        Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build(),
    )?;
    let result = runtime.block_on(host);
    runtime.shutdown_timeout(BLOCKED_MAX);
    result
}

fn or_fail(runtime: io::Result<Runtime>) -> Result<Runtime, Failure> {
    runtime.or_fail(Exit::Failure, "failed to start the runtime")
}
