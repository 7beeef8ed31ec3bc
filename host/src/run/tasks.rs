//! The tasks of the process, and their retries against the API server.

use std::{future::Future, time::Duration};

use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_model::{Backoff, error_chain};
use innkeeper_reconcile::lease::Election;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Error, Shutdown, random::random_u64};
use crate::{
    admin::Heartbeat,
    config::{Definitions, ScopeArgs},
};

/// The longest delay between two attempts at a step that the start of the host needs.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// All tasks of the process; aborted on drop.
#[derive(Default)]
pub(super) struct Tasks {
    /// Tasks that end only with an error, or with success if their work is done.
    background: JoinSet<Result<(), Error>>,
    /// Tasks that end after the request to stop.
    plugins: JoinSet<Result<(), Error>>,
}

impl Tasks {
    pub(super) fn background(
        &mut self,
        task: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) {
        self.background.spawn(task);
    }

    pub(super) fn plugin(
        &mut self,
        task: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) {
        self.plugins.spawn(task);
    }

    /// Creates the cache and starts its driver, with a client that nothing else uses.
    pub(super) fn read(
        &mut self,
        client: kube::Client,
        scope: &ScopeArgs,
        heartbeat: Heartbeat,
    ) -> Cluster {
        let ScopeArgs { namespaces, crds } = scope;
        let names = |names: &Vec<String>| names.iter().map(|name| name.as_str().into()).collect();
        let options = cluster::Options {
            namespaces: namespaces.as_ref().map(names),
            watch_definitions: *crds == Definitions::Install,
            ..cluster::Options::new(random_u64())
        };
        let (cluster, driver) = Cluster::new(client, options);
        self.background(async move {
            match driver.run(move || heartbeat.send()).await {
                Ok(never) => match never {},
                Err(error) => Err(Error::Cluster(Box::new(error))),
            }
        });
        cluster
    }

    /// Runs the freshness check of the cache in the background.
    pub(super) fn prove(&mut self, cluster: Cluster) {
        self.background(async move {
            cluster.check_freshness().await;
            Ok(())
        });
    }

    /// Waits for the first task that fails; fails as well once no plugin task is left.
    pub(super) async fn first_death(&mut self) -> Result<(), Error> {
        let plugins = self.plugins.len();
        loop {
            let ended = tokio::select! {
                Some(ended) = self.background.join_next() => ended,
                ended = self.plugins.join_next() => match ended {
                    Some(ended) => ended,
                    None => return Err(Error::NothingToServe(plugins)),
                },
            };
            ended.map_err(Error::Task)??;
        }
    }

    /// Waits for the request to stop; fails if a task fails before that.
    pub(super) async fn first_death_before(&mut self, stop: &Shutdown) -> Result<(), Error> {
        tokio::select! {
            // After the request to stop, idle plugin tasks end at once, and both branches can be ready together.
            // Only the order of the branches tells this from a failure.
            biased;
            () = stop.first() => Ok(()),
            ended = self.first_death() => ended,
        }
    }

    /// Waits until every plugin task has ended.
    pub(super) async fn all_plugins_ended(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.plugins.join_next().await {
            ended.map_err(Error::Task)??;
        }
        Ok(())
    }
}

/// The task that renews the lease; dropping it ends the task without releasing the lease.
pub(super) struct LeaseKeeper {
    task: JoinSet<()>,
    let_go: CancellationToken,
}

impl LeaseKeeper {
    /// Starts the election; without one there is no task.
    pub(super) fn start(election: Option<Election>) -> Self {
        let let_go = CancellationToken::new();
        let mut task = JoinSet::new();
        if let Some(election) = election {
            task.spawn(election.run(let_go.clone()));
        }
        Self { task, let_go }
    }

    /// Waits until the claim ends without a release by this process, or the task fails. Pending without an election.
    pub(super) async fn died(&mut self) -> Error {
        match self.task.join_next().await {
            Some(Ok(())) => Error::ClaimOver,
            Some(Err(error)) => Error::Task(error),
            None => std::future::pending().await,
        }
    }

    /// Releases the lease if this process holds it; the process must not write after that.
    pub(super) async fn let_go(mut self) -> Result<(), Error> {
        self.let_go.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.map_err(Error::Task)?;
        }
        Ok(())
    }
}

/// Returns the delays between attempts.
pub(super) fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(250), BACKOFF_MAX)
}

/// Retries with backoff until the attempt succeeds, or fails with an error that waiting cannot fix.
pub(super) async fn retry<T, E, F>(what: &str, mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: std::error::Error + MaybeTemporary + 'static,
{
    let mut backoff = backoff();
    loop {
        match attempt().await {
            Err(error) if error.is_temporary() => {
                let delay = backoff.delay();
                warn!(error = %error_chain(&error), again_in = ?delay, "failed to {what}");
                sleep(delay).await;
            }
            ended => return ended,
        }
    }
}

/// An error that may be temporary.
pub(super) trait MaybeTemporary {
    fn is_temporary(&self) -> bool;
}

impl MaybeTemporary for innkeeper_reconcile::InventoryError {
    fn is_temporary(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

/// Waits for the first discovery of the API server; the cache's driver logs failures in the meantime.
/// Fails if the API server refuses the credentials for longer than it does while it starts.
pub(super) async fn wait_for_api_server(cluster: &Cluster) -> Result<(), Error> {
    /// Longer than the discovery of a healthy API server takes.
    const PATIENCE: Duration = Duration::from_secs(2);

    while timeout(PATIENCE, cluster.wait_discovered()).await.is_err() {
        if cluster.status().unauthorized {
            return Err(Error::Unauthorized);
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
            let (mut tasks, stop) = (Tasks::default(), Shutdown::default());
            tasks.plugin(async { Ok(()) });
            tokio::task::yield_now().await;
            stop.ask();
            tasks.first_death_before(&stop).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_failed_task_ends_the_host() {
        let mut tasks = Tasks::default();
        tasks.background(pending());
        tasks.plugin(pending());
        tasks.background(async { Err(Error::Unauthorized) });
        assert!(matches!(
            tasks.first_death().await,
            Err(Error::Unauthorized)
        ));
    }

    #[tokio::test]
    async fn a_task_that_panics_ends_the_host() {
        let mut tasks = Tasks::default();
        tasks.plugin(pending());
        tasks.background(async { panic!("on purpose") });
        assert!(matches!(tasks.first_death().await, Err(Error::Task(_))));
    }

    #[tokio::test]
    async fn plugins_may_end_one_by_one_but_not_all() {
        let mut tasks = Tasks::default();
        tasks.background(pending());
        tasks.plugin(async { Ok(()) });
        tasks.plugin(async { Ok(()) });
        let ended = tasks.first_death().await;
        assert!(matches!(ended, Err(Error::NothingToServe(2))));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Attempt(io::ErrorKind);

    impl MaybeTemporary for Attempt {
        fn is_temporary(&self) -> bool {
            self.0 == io::ErrorKind::ConnectionRefused
        }
    }

    #[tokio::test]
    async fn retries_only_temporary_errors() {
        let mut attempts = 0;
        let ended = retry("connect", || {
            attempts += 1;
            let kind = match attempts {
                1 => io::ErrorKind::ConnectionRefused,
                _ => io::ErrorKind::InvalidData,
            };
            async move { Err::<(), _>(Attempt(kind)) }
        })
        .await;
        assert_eq!(ended.unwrap_err().0, io::ErrorKind::InvalidData);
        assert_eq!(attempts, 2);
    }
}
