//! Serves Plugin resources: runs their manager, and the controllers of the plugins that it activates.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use innkeeper_cluster::Cluster;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::{GroupKind, PluginName, Selector};
use innkeeper_plugin_controller::{
    self as plugins, Follower, FollowerContext, Loader, LoaderContext, Manager, ManagerContext,
    OnceMade, Start, Warm, Warmer,
};
use innkeeper_reconcile::{
    Shared,
    controller::{self, Bounds},
};
use innkeeper_source::Fetcher;
use jiff::Timestamp;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    Shutdown, StatusRegistry, controllers::run_controllers, random_u64, shards::Leadership,
    tasks::joined,
};
use crate::args::SourceArgs;

/// The manager's subscriber name for the watch on Plugins.
const NAME: &str = "innkeeper";

const ENDED: &str = "the controller for Plugin resources ended";

/// Concurrent passes over Plugins: a pass may wait for the API server or a dry run, but not for a registry or a compiler.
const PASSES_MAX: usize = 4;

/// The channel's capacity for starting plugins: one per concurrent pass.
const STARTS_MAX: usize = PASSES_MAX;

/// How long watches from standby wait for their Plugins. Fetching and compiling takes less.
const WARM_FOR: Duration = Duration::from_mins(1);

/// The rate limit for passes over Plugins: a fleet of a hundred starts within a second.
const PASSES_PER_SECOND_MAX: u32 = 100;

/// Loads Plugin resources.
pub(super) struct PluginResources {
    name: PluginName,
    loader: Arc<Loader>,
    selector: Option<Selector>,
}

impl PluginResources {
    /// Creates the fetcher and the loader.
    pub(super) fn new(
        args: &SourceArgs,
        cluster: &Cluster,
        context: Arc<LoaderContext>,
        namespace: &str,
    ) -> Result<Self, Failure> {
        let fetcher = Fetcher::new(args.settings())
            .or_fail(Exit::Failure, "failed to prepare for Plugin resources")?;
        let namespace = namespace.to_owned();
        let loader = Loader::new(cluster.clone(), context, fetcher, namespace, Timestamp::now);
        Ok(Self {
            name: PluginName::new(NAME).or_fail(
                Exit::Failure,
                "failed to name the watch of Plugin resources",
            )?,
            loader: Arc::new(loader),
            selector: args.selector.clone(),
        })
    }

    /// Loads Plugins and runs their watches without activating them, while the future is polled.
    pub(super) fn warm(
        &self,
        once_made: OnceMade,
        status: &StatusRegistry,
    ) -> (
        Arc<Warmer>,
        impl Future<Output = Result<(), Failure>> + use<>,
    ) {
        let warmer = Arc::new(Warmer::new(
            Arc::clone(&self.loader),
            self.name.clone(),
            self.selector.clone(),
            once_made,
        ));
        let telemetry = status.observe_named("innkeeper/standby", PASSES_MAX);
        // Standby ends by dropping the future.
        let never = CancellationToken::new();
        let warming = controller::run(Arc::clone(&warmer), bounds(), telemetry, never);
        (warmer, async {
            warming.await.or_fail(Exit::Failure, ENDED)
        })
    }

    /// Serves Plugins until `stop` is requested, and then until their passes have ended: as a follower, until this host
    /// is the leader.
    ///
    /// `files` has the plugin files' parent kinds, `warm` the watches from standby by plugin.
    /// A leader's watch on Plugins begins with this call, before the future is polled.
    pub(super) fn serve(
        self,
        shared: Arc<Shared>,
        files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
        warm: Warm,
        leadership: Leadership,
        stop: &Shutdown,
        status: Arc<StatusRegistry>,
    ) -> impl Future<Output = Result<(), Failure>> + use<> {
        let stop = stop.first_token();
        let manager = leadership
            .has_begun()
            .then(|| self.manager(&shared, files.clone(), &stop, &status));
        async move {
            if let Some((manager, starts)) = manager {
                return manage(shared, manager, starts, warm, stop, status).await;
            }
            let follower = self
                .follow(&shared, files.clone(), &leadership, &stop, &status)
                .await?;
            if !leadership.has_begun() {
                return Ok(());
            }
            // Before the follower is dropped, so that the watch on Plugins goes on.
            let (manager, starts) = self.manager(&shared, files, &stop, &status);
            let warm = follower.take();
            drop(follower);
            manage(shared, manager, starts, warm, stop, status).await
        }
    }

    fn manager(
        &self,
        shared: &Arc<Shared>,
        files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
        stop: &CancellationToken,
        status: &StatusRegistry,
    ) -> (Arc<Manager>, mpsc::Receiver<Start>) {
        let (sender, starts) = mpsc::channel(STARTS_MAX);
        let context = ManagerContext {
            shared: Arc::clone(shared),
            loader: Arc::clone(&self.loader),
            files,
            selector: self.selector.clone(),
            definition: Arc::clone(&status.definition),
            plans: status.plans.clone(),
            starts: sender,
            stop: stop.clone(),
        };
        (Arc::new(Manager::new(context, self.name.clone())), starts)
    }

    /// Serves what the leader has published, until this host is the leader or `stop` is requested, and then until the
    /// passes have ended.
    async fn follow(
        &self,
        shared: &Arc<Shared>,
        files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
        leadership: &Leadership,
        stop: &CancellationToken,
        status: &Arc<StatusRegistry>,
    ) -> Result<Arc<Follower>, Failure> {
        let (sender, mut starts) = mpsc::channel(STARTS_MAX);
        let stop = stop.child_token();
        let context = FollowerContext {
            shared: Arc::clone(shared),
            loader: Arc::clone(&self.loader),
            files,
            selector: self.selector.clone(),
            starts: sender,
            stop: stop.clone(),
        };
        let follower = Arc::new(Follower::new(context, self.name.clone()));
        let telemetry = status.observe_named("innkeeper/follower", PASSES_MAX);
        let following = controller::run(Arc::clone(&follower), bounds(), telemetry, stop.clone());
        let mut following = Box::pin(following);
        let mut orphans = Box::pin(plugins::tend_orphans(shared, |name| {
            status.is_active(name) || !follower.may_be_own(name)
        }));
        let mut telling = Box::pin(follower.tell_parents_of_gone());
        let mut serving: JoinSet<Result<(), Failure>> = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = leadership.begins() => break,
                result = &mut following => {
                    result.or_fail(Exit::Failure, ENDED)?;
                    break;
                }
                never = &mut orphans => match never {},
                never = &mut telling => match never {},
                Some(start) = starts.recv() => {
                    let shared = Arc::clone(shared);
                    let status = Arc::clone(status);
                    serving.spawn(async move { serve_plugin(&shared, start, &status).await });
                }
                Some(result) = serving.join_next() => joined(result)?,
            }
        }
        stop.cancel();
        drop(following);
        drop(orphans);
        drop(telling);
        while let Some(result) = serving.join_next().await {
            joined(result)?;
        }
        Ok(follower)
    }
}

fn bounds() -> Bounds {
    Bounds {
        permits: Arc::new(Semaphore::new(PASSES_MAX)),
        passes_per_second_max: PASSES_PER_SECOND_MAX,
        // Passes over active Plugins requeue themselves.
        resync_period: None,
        seed: random_u64(),
    }
}

async fn manage(
    shared: Arc<Shared>,
    manager: Arc<Manager>,
    mut starts: mpsc::Receiver<Start>,
    mut warm: Warm,
    stop: CancellationToken,
    status: Arc<StatusRegistry>,
) -> Result<(), Failure> {
    let telemetry = status.observe_named("innkeeper/plugin", PASSES_MAX);
    let managing = controller::run(Arc::clone(&manager), bounds(), telemetry, stop.clone());
    let cold = Instant::now() + WARM_FOR;
    let mut managing = Box::pin(managing);
    let mut orphans = Box::pin(plugins::tend_orphans(&shared, |name| {
        status.is_active(name) || !manager.may_be_own(name)
    }));
    let mut telling = Box::pin(manager.tell_parents_of_gone());
    let noticing = Arc::clone(&manager);
    let mut noticing = Box::pin(noticing.notice_absence());
    let mut checking = Box::pin(status.definition.run(&shared.cluster));
    let mut serving: JoinSet<Result<(), Failure>> = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // First, because the same token ends `managing`, whose branch would skip the drain.
            () = stop.cancelled() => break,
            result = &mut managing => return result.or_fail(Exit::Failure, ENDED),
            never = &mut orphans => match never {},
            never = &mut telling => match never {},
            never = &mut checking => match never {},
            never = &mut noticing => match never {},
            () = sleep_until(cold), if !warm.is_empty() => warm.clear(),
            Some(start) = starts.recv() => {
                // Only now, because the plugin's registrations keep the same watches alive.
                warm.remove(&start.served.name);
                let shared = Arc::clone(&shared);
                let status = Arc::clone(&status);
                serving.spawn(async move { serve_plugin(&shared, start, &status).await });
            }
            Some(result) = serving.join_next() => joined(result)?,
        }
    }
    // The drain does not wait for registries or compilers; the next start repeats their work.
    drop(managing);
    drop(orphans);
    drop(telling);
    drop(checking);
    drop(noticing);
    drop(manager);
    while let Some(result) = serving.join_next().await {
        joined(result)?;
    }
    Ok(())
}

async fn serve_plugin(
    shared: &Shared,
    start: Start,
    status: &StatusRegistry,
) -> Result<(), Failure> {
    let result = run_controllers(shared, &start.served, &start.limits, start.stop, status).await;
    status.remove(&start.served);
    // Last: the manager may start the same plugin again from now on.
    drop(start.ended);
    result
}
