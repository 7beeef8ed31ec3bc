//! The process's tasks, and retries against the API server.

use std::{future::Future, sync::Arc, time::Duration};

use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_command::{Definitions, Exit, Failure, OrFail as _};
use innkeeper_model::{Backoff, Gvk, Shards, error_chain};
use innkeeper_reconcile::Shared;
use tokio::{
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Shutdown, lease::HostElection, random_u64};
use crate::{admin::Heartbeat, args::ScopeArgs};

/// The maximum delay between attempts during the start, as for watches.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

pub(super) const TASK_ENDED: &str = "a task of the host ended";

/// The host's tasks; aborted on drop.
#[derive(Default)]
pub(super) struct Tasks {
    /// Tasks that may end when their work is done.
    pub(super) background: JoinSet<Result<(), Failure>>,
    /// Tasks that serve plugins until the request to stop.
    pub(super) plugins: JoinSet<Result<(), Failure>>,
}

impl Tasks {
    /// Creates the cache and starts its driver, with a client for it alone.
    pub(super) fn read(
        &mut self,
        client: kube::Client,
        scope: &ScopeArgs,
        shards: Shards,
        heartbeat: Heartbeat,
    ) -> Cluster {
        let ScopeArgs { namespaces, crds } = scope;
        let shared = |names: &Vec<String>| names.iter().map(|name| name.as_str().into()).collect();
        let options = cluster::Options {
            namespaces: namespaces.as_ref().map(shared),
            watch_definitions: *crds == Definitions::Install,
            shards,
            ..cluster::Options::new(random_u64())
        };
        let (cluster, driver) = Cluster::new(client, options);
        self.background.spawn(async move {
            match driver.run(move || heartbeat.send()).await {
                Ok(never) => match never {},
                Err(error) => Err(error).or_fail(Exit::Failure, "the cache ended"),
            }
        });
        cluster
    }

    /// Starts a task that compares the cache with the cluster.
    pub(super) fn check_freshness(&mut self, cluster: Cluster) {
        self.background.spawn(async move {
            cluster.check_freshness().await;
            Ok(())
        });
    }

    /// Starts a task that fails when the guest threads end.
    pub(super) fn watch_threads(&mut self, shared: &Arc<Shared>) {
        let shared = Arc::clone(shared);
        self.background.spawn(async move {
            Err(shared.pool.panicked().await)
                .or_fail(Exit::Failure, "the threads that run plugins ended")
        });
    }

    /// Runs the tasks until `stop` is requested, and then until the passes have ended, at most for `drain`.
    pub(super) async fn run(&mut self, stop: &Shutdown, drain: Duration) -> Result<(), Failure> {
        const ABORTED: &str =
            "stopped by a second signal before all passes had ended; the next start completes them";

        self.first_failure_before(stop).await?;
        info!(bound = ?drain, "stopping: waiting for running passes, a second signal aborts them");
        tokio::select! {
            result = self.all_plugins_ended() => result?,
            // No error: the next start repeats these passes.
            () = sleep(drain) => warn!("drain timeout reached: aborting the remaining passes"),
            signal = stop.second() => return Err(Failure::new(Exit::Signal(signal), ABORTED)),
        }
        info!("stopped");
        Ok(())
    }

    /// Waits for the first task that fails. Also fails once no plugin task is left.
    async fn first_failure(&mut self) -> Result<(), Failure> {
        let plugins = self.plugins.len();
        loop {
            let result = tokio::select! {
                Some(result) = self.background.join_next() => result,
                result = self.plugins.join_next() => match result {
                    Some(result) => result,
                    None => return Err(nothing_to_serve(Exit::Failure, plugins)),
                },
            };
            joined(result)?;
        }
    }

    /// Waits for the request to stop; fails if a task fails before that.
    async fn first_failure_before(&mut self, stop: &Shutdown) -> Result<(), Failure> {
        tokio::select! {
            // After the request to stop, idle plugin tasks end immediately, so both branches can be ready. Only their order
            // distinguishes this from a failure.
            biased;
            () = stop.first() => Ok(()),
            result = self.first_failure() => result,
        }
    }

    /// Waits until every plugin task has ended.
    async fn all_plugins_ended(&mut self) -> Result<(), Failure> {
        while let Some(result) = self.plugins.join_next().await {
            joined(result)?;
        }
        Ok(())
    }
}

/// Renews the lease. Dropping it stops renewals without releasing the lease.
pub(super) struct LeaseKeeper {
    // At most one task. A `JoinSet` aborts it on drop; a `JoinHandle` would leave it running.
    task: JoinSet<()>,
    release: CancellationToken,
}

impl LeaseKeeper {
    /// Starts the election, if there is one, once this process is ready to serve.
    pub(super) fn start(election: Option<HostElection>, ready: CancellationToken) -> Self {
        let release = CancellationToken::new();
        let mut task = JoinSet::new();
        if let Some(election) = election {
            let release = release.clone();
            task.spawn(async move {
                tokio::select! {
                    () = ready.cancelled() => election.run(release).await,
                    () = release.cancelled() => {}
                }
            });
        }
        Self { task, release }
    }

    /// Waits until the lease is lost, or the task fails. Never returns without an election.
    pub(super) async fn failed(&mut self) -> Failure {
        const LOST: &str = "lost the lease, so another process may write now: restart this process (a Deployment does it) to stand by";

        let lost = || Failure::new(Exit::Failure, LOST);
        match self.task.join_next().await {
            Some(result) => joined(result.map(Ok)).err().unwrap_or_else(lost),
            None => std::future::pending().await,
        }
    }

    /// Releases the lease if this process holds it; the process must not write after that.
    pub(super) async fn release(mut self) -> Result<(), Failure> {
        self.release.cancel();
        while let Some(result) = self.task.join_next().await {
            joined(result.map(Ok))?;
        }
        Ok(())
    }
}

/// Returns a task's result; fails if it panicked.
pub(super) fn joined<T>(result: Result<Result<T, Failure>, JoinError>) -> Result<T, Failure> {
    result.or_fail(Exit::Failure, TASK_ENDED)?
}

pub(super) fn nothing_to_serve(exit: Exit, count: usize) -> Failure {
    let message = format!("none of the {count} plugins can be served: see the log for each reason");
    Failure::new(exit, message)
}

/// Returns the delays between attempts during the start.
pub(super) fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(250), BACKOFF_MAX)
}

/// Retries temporary errors with backoff.
pub(super) async fn retry<T, E, F>(
    what: &str,
    is_temporary: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: std::error::Error + 'static,
{
    let mut backoff = backoff();
    loop {
        match attempt().await {
            Err(error) if is_temporary(&error) => {
                let delay = backoff.delay();
                warn!(error = %error_chain(&error), again_in = ?delay, "failed to {what}");
                sleep(delay).await;
            }
            result => return result,
        }
    }
}

/// Waits for the first discovery; the cache's driver logs failures meanwhile.
async fn wait_for_api_server(cluster: &Cluster) -> Result<(), Failure> {
    const UNAUTHORIZED: &str = "the API server refuses the credentials (401 Unauthorized): use a kubeconfig or a --context with valid credentials";
    /// Longer than discovery takes on a healthy API server, but short, because it delays the error.
    const INTERVAL: Duration = Duration::from_secs(2);

    while timeout(INTERVAL, cluster.wait_discovered()).await.is_err() {
        // Only after an interval: a starting API server may refuse valid credentials.
        if cluster.is_unauthorized() {
            return Err(Failure::new(Exit::Failure, UNAUTHORIZED));
        }
    }
    Ok(())
}

/// Waits until the API server answers, and fails unless every namespace of `--namespaces` exists. One that is deleted
/// later counts as empty.
pub(super) async fn wait_for_namespaces(cluster: &Cluster) -> Result<(), Failure> {
    wait_for_api_server(cluster).await?;
    // A usage error needs the user.
    let is_temporary = |failure: &Failure| failure.exit() != Exit::Usage;
    retry("read the namespaces", is_temporary, || {
        check_namespaces(cluster)
    })
    .await
}

async fn check_namespaces(cluster: &Cluster) -> Result<(), Failure> {
    let kind = Gvk::new("", "v1", "Namespace");
    for name in cluster.namespaces().unwrap_or_default() {
        match cluster.live_get(&kind, None, name).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                let message = format!(
                    "there is no namespace {name}, which --namespaces names: create it with its roles (the chart's value namespaces, and innkeeper manifests --namespaces for plugins), or remove it from the flag"
                );
                return Err(Failure::new(Exit::Usage, message));
            }
            // A namespace that does not exist has no Roles either, so the API server answers 403 instead of 404.
            Err(error) if error.is_forbidden() => {
                let message = format!(
                    "the host may not read the namespace {name}, which --namespaces names: create it with its roles (the chart's value namespaces, and innkeeper manifests --namespaces for plugins), or remove it from the flag"
                );
                return Err(error).or_fail(Exit::Usage, message);
            }
            Err(error) => {
                let message =
                    format!("failed to read the namespace {name}, which --namespaces names");
                return Err(error).or_fail(Exit::Failure, message);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{future::pending, io};

    use super::*;

    #[tokio::test]
    async fn plugins_that_end_during_a_stop_are_no_failure() {
        // Repeated, because a random order of the branches is right every other time.
        for _ in 0..64 {
            let mut tasks = Tasks::default();
            let stop = Shutdown::default();
            tasks.plugins.spawn(async { Ok(()) });
            tokio::task::yield_now().await;
            stop.request();
            tasks.first_failure_before(&stop).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_failed_task_ends_the_host() {
        let mut tasks = Tasks::default();
        tasks.background.spawn(pending());
        tasks.plugins.spawn(pending());
        tasks
            .background
            .spawn(async { Err(Failure::new(Exit::Failure, "on purpose")) });
        let result = tasks.first_failure().await;
        assert_eq!(result.unwrap_err().to_string(), "on purpose");
    }

    #[tokio::test]
    async fn a_task_that_panics_ends_the_host() {
        let mut tasks = Tasks::default();
        tasks.plugins.spawn(pending());
        tasks.background.spawn(async { panic!("on purpose") });
        let result = tasks.first_failure().await;
        assert_eq!(result.unwrap_err().to_string(), TASK_ENDED);
    }

    #[tokio::test]
    async fn plugins_may_end_one_by_one_but_not_all() {
        let mut tasks = Tasks::default();
        tasks.background.spawn(pending());
        tasks.plugins.spawn(async { Ok(()) });
        tasks.plugins.spawn(async { Ok(()) });
        let result = tasks.first_failure().await;
        let none = nothing_to_serve(Exit::Failure, 2).to_string();
        assert_eq!(result.unwrap_err().to_string(), none);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Attempt(io::ErrorKind);

    #[tokio::test]
    async fn retries_only_temporary_errors() {
        let mut attempts = 0;
        let is_temporary = |error: &Attempt| error.0 == io::ErrorKind::ConnectionRefused;
        let result = retry("connect", is_temporary, || {
            attempts += 1;
            let kind = match attempts {
                1 => io::ErrorKind::ConnectionRefused,
                _ => io::ErrorKind::InvalidData,
            };
            async move { Err::<(), _>(Attempt(kind)) }
        })
        .await;
        assert_eq!(result.unwrap_err().0, io::ErrorKind::InvalidData);
        assert_eq!(attempts, 2);
    }
}
