//! The tasks of the process, and how they wait for the API server.

use std::{future::Future, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_model::error_chain;
use innkeeper_reconcile::lease::Election;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Error, Stop, random::random_u64};
use crate::{
    admin::Beat,
    config::{Definitions, ScopeSettings},
};

/// The longest delay between two attempts at something that the host cannot start without.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Every task of the process; dropping it ends them.
#[derive(Default)]
pub(super) struct Tasks {
    /// Never end by themselves but by an error.
    background: JoinSet<Result<(), Error>>,
    /// End when told to stop.
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

    /// Begins to read by a client that nothing else uses.
    pub(super) fn read(
        &mut self,
        client: kube::Client,
        scope: &ScopeSettings,
        beat: Beat,
    ) -> Cluster {
        let ScopeSettings { namespaces, crds } = scope;
        let names = |names: &Vec<String>| names.iter().map(|name| name.as_str().into()).collect();
        let options = cluster::Options {
            namespaces: namespaces.as_ref().map(names),
            watch_definitions: *crds == Definitions::Install,
            ..cluster::Options::new(random_u64())
        };
        let (cluster, driver) = Cluster::new(client, options);
        self.background(async move {
            match driver.run(move || beat.beat()).await {
                Ok(never) => match never {},
                Err(error) => Err(Error::Cluster(Box::new(error))),
            }
        });
        cluster
    }

    /// Proves what is cached, beside everything else.
    pub(super) fn prove(&mut self, cluster: Cluster) {
        self.background(async move {
            cluster.prove().await;
            Ok(())
        });
    }

    /// Waits for the first task that ends with an error, or for the last plugin.
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

    /// Waits until the host is to stop; fails when a task ends before that.
    pub(super) async fn first_death_before(&mut self, stop: &Stop) -> Result<(), Error> {
        tokio::select! {
            // Told to stop, idle plugins may all have ended before this is looked at: only the order tells that from a death.
            biased;
            () = stop.first() => Ok(()),
            ended = self.first_death() => ended,
        }
    }

    /// Waits until every plugin has ended.
    pub(super) async fn all_plugins_ended(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.plugins.join_next().await {
            ended.map_err(Error::Task)??;
        }
        Ok(())
    }
}

/// The task that keeps the lease; dropping it ends it without letting go.
pub(super) struct Keeper {
    task: JoinSet<()>,
    let_go: CancellationToken,
}

impl Keeper {
    /// Begins to ask for the lease; without an election there is nothing to keep.
    pub(super) fn start(election: Option<Election>) -> Self {
        let let_go = CancellationToken::new();
        let mut task = JoinSet::new();
        if let Some(election) = election {
            task.spawn(election.run(let_go.clone()));
        }
        Self { task, let_go }
    }

    /// Waits until the claim is over although nobody let go of it.
    pub(super) async fn died(&mut self) -> Error {
        match self.task.join_next().await {
            Some(Ok(())) => Error::ClaimOver,
            Some(Err(error)) => Error::Task(error),
            None => std::future::pending().await,
        }
    }

    /// Lets go of the lease, if this process holds it; from then on it writes nothing.
    pub(super) async fn let_go(mut self) -> Result<(), Error> {
        self.let_go.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.map_err(Error::Task)?;
        }
        Ok(())
    }
}

/// The delays between attempts.
pub(super) fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(BACKOFF_MAX)
        .without_max_times()
        .build()
}

/// Tries until it works, or until waiting cannot help.
pub(super) async fn patiently<T, E, F>(what: &str, mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: std::error::Error + MayPass + 'static,
{
    let mut backoff = backoff();
    loop {
        match attempt().await {
            Err(error) if error.may_pass() => {
                let delay = backoff.next().unwrap_or(BACKOFF_MAX);
                warn!(error = %error_chain(&error), again_in = ?delay, "failed to {what}");
                sleep(delay).await;
            }
            ended => return ended,
        }
    }
}

/// Whether waiting may help.
pub(super) trait MayPass {
    fn may_pass(&self) -> bool;
}

impl MayPass for innkeeper_reconcile::InventoryError {
    fn may_pass(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

/// Waits until the API server has said what it serves; the cache's driver says so while it does not.
/// Fails if it refuses the credentials for longer than an API server that is just starting does.
pub(super) async fn wait_for_api_server(cluster: &Cluster) -> Result<(), Error> {
    /// Longer than a healthy API server ever takes.
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
    async fn plugins_that_end_because_the_host_stops_are_no_death() {
        // Often, because an order that is left to chance is right every other time.
        for _ in 0..64 {
            let (mut tasks, stop) = (Tasks::default(), Stop::default());
            tasks.plugin(async { Ok(()) });
            tokio::task::yield_now().await;
            stop.ask();
            tasks.first_death_before(&stop).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_task_that_dies_ends_the_host() {
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

    impl MayPass for Attempt {
        fn may_pass(&self) -> bool {
            self.0 == io::ErrorKind::ConnectionRefused
        }
    }

    #[tokio::test]
    async fn waits_for_what_may_pass_and_for_nothing_else() {
        let mut attempts = 0;
        let ended = patiently("connect", || {
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
