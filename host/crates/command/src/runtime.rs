//! The tokio runtimes of the commands.

use std::{future::Future, io, num::NonZeroUsize, thread, time::Duration};

use tokio::runtime::{Builder, Runtime};

use crate::{Exit, Failure, OrFail as _};

/// Runs a future to its end on this thread, for a command that sends a few requests.
pub fn block_on<T, E: Into<Failure>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    let runtime = started(Builder::new_current_thread().enable_all().build())?;
    runtime.block_on(work).map_err(Into::into)
}

/// Runs the host to its end on one thread for two processors; the guests have threads of their own.
pub fn block_on_all_threads<T>(
    host: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    /// After the drain, only file access or a guest call can still block a thread, and the deadline ends the call.
    const BLOCKED_MAX: Duration = Duration::from_secs(1);

    // The threads of a runtime wake each other up for every piece of work, and the guests need processors, too.
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = processors.div_ceil(2);
    let mut builder = Builder::new_multi_thread();
    let runtime = started(builder.worker_threads(threads).enable_all().build())?;
    let ended = runtime.block_on(host);
    runtime.shutdown_timeout(BLOCKED_MAX);
    ended
}

fn started(runtime: io::Result<Runtime>) -> Result<Runtime, Failure> {
    runtime.or_fail(Exit::Failure, "failed to start the runtime")
}
