//! The running host: starts all parts in order, owns every task, and stops them in order.
//!
//! Start; independent steps run concurrently:
//!
//! 1. the admin server, so that probes get an answer from the beginning,
//! 2. signals, so that none is missed,
//! 3. [`Host::connect`]: clients, cache, traces,
//! 4. [`Host::with_lease`]: the election, if it is on,
//! 5. [`LeasedHost::with_plugins`]: engine, guest threads and plugin files (read, compile, describe) beside discovery, which
//!    waits for the API server. A host without the lease stands by with running watches. Then the inventory and the hash
//!    key, and per plugin: CRDs, watches, one controller per parent kind. Plugin resources follow as they appear.
//!
//! [`ServingHost::run`] ends in this order:
//!
//! 1. The first signal stops triggers: no pass begins.
//! 2. Running passes finish, at most for `--drain-timeout`.
//! 3. The watches and all other tasks are dropped.
//! 4. The lease is released last, so that the next host takes over only after this one has stopped writing, and then
//!    without waiting for the lease to expire.
//! 5. A second signal aborts at any time, and so does the drain timeout; the next start converges.
//!
//! A task that ends early ends the process with its error. So does a lost lease: after its restart, the host stands by.

mod clients;
mod controllers;
mod files;
mod key;
mod lease;
mod other_hosts;
mod process;
mod read_only;
mod resources;
mod shards;
mod signals;
mod standby;
mod status_provider;
mod status_registry;
mod tasks;
mod traces;

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use innkeeper_apply::{Events, Writers};
use innkeeper_cluster::{Cluster, Reviewer};
use innkeeper_command::{Exit, Failure, LogControl, OrFail as _, runtime};
use innkeeper_lease::Claims;
use innkeeper_metrics::Metrics;
use innkeeper_model::{HashKey, Limits};
use innkeeper_plugin_controller::{self as plugins, Loaded, Warm};
use innkeeper_reconcile::{Inventory, NamespaceBudgets, PassFiles, Recordings, Shared};
use innkeeper_sandbox::{Engine, Pool};
use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{sync::Notify, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    admin::Admin,
    args::{PluginArgs, RunArgs},
};
use clients::Clients;
use files::LoadedFiles;
pub use read_only::{client, read_only};
use resources::PluginResources;
use shards::{HeldShards, Leadership};
pub use signals::{Shutdown, listen};
pub use status_registry::StatusRegistry;
use tasks::{LeaseKeeper, Tasks};
use traces::Traces;

/// Idle time after which a plugin's compiled code is unmapped. Passes that come every few seconds do not map it each time.
const CODE_IDLE_MAX: Duration = Duration::from_secs(30);

/// The time limit for a review request. A caller needs two of them within a scrape's timeout, 10 s.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(3);

const WITHOUT_LEASE: &str = "writing without a lease: a second host without one would undo the writes of this host, and neither would notice; run one host only, or omit --leader-elect=false";

const SANDBOX: &str = "failed to set up the sandbox";

/// Interval of checks for idle code.
const IDLE_CODE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Runs the command `run`: the host and its admin server, until a signal arrives or a task fails.
/// Blocks the calling thread and creates the runtime of all tasks.
pub fn serve(args: RunArgs, log: LogControl) -> Result<(), Failure> {
    raise_descriptor_limit();
    let status = Arc::new(StatusRegistry::for_admin(&args.admin));
    // Expected from now on, so a start that blocks the runtime fails /livez.
    let heartbeat = status.expect_heartbeat("runtime");
    let provider = status_provider::RunningHost::new(Arc::clone(&status), log);
    // Starts before all slow steps, so that probes see "not ready" instead of a refused connection. Dropped last.
    let admin = Admin::start(args.admin.clone(), Arc::new(provider))?
        .inspect(|admin| info!(address = %admin.address(), "answering for health and metrics"));
    runtime::block_on_all_threads(async {
        let stop = Shutdown::default();
        let signals =
            listen(stop.clone()).or_fail(Exit::Failure, "failed to listen for signals")?;
        let host = async {
            tokio::select! {
                result = Box::pin(serve_until(args, stop, status)) => result,
                never = signals => match never {},
                never = status_provider::send_heartbeats(heartbeat) => match never {},
            }
        };
        match &admin {
            Some(admin) => admin.run_host(host).await,
            None => host.await,
        }
    })
}

/// Runs a host until `stop` is requested or a task fails; `dev` observes it through `status`.
pub async fn serve_until(
    args: RunArgs,
    stop: Shutdown,
    status: Arc<StatusRegistry>,
) -> Result<(), Failure> {
    Host::connect(args, status)
        .await?
        .with_lease()?
        .with_plugins(&stop)
        .await?
        .run(&stop)
        .await
}

/// A host that reads the cluster. Owns all tasks except lease renewal.
struct Host {
    args: RunArgs,
    clients: Clients,
    cluster: Cluster,
    traces: Traces,
    tasks: Tasks,
    status: Arc<StatusRegistry>,
}

/// A host that may write while it holds claims.
struct LeasedHost {
    host: Host,
    claims: Claims,
    lease: LeaseKeeper,
    /// Cancelled once the host is ready to hold shards.
    ready: CancellationToken,
}

/// A host that serves plugins.
struct ServingHost(LeasedHost);

impl Host {
    /// Creates the clients and starts the cache.
    async fn connect(args: RunArgs, status: Arc<StatusRegistry>) -> Result<Self, Failure> {
        let clients = Clients::for_host(&args, Arc::clone(&status.metrics)).await?;
        if !args.elects_leader() {
            // Only now: a host that finds no cluster writes nothing.
            warn!("{WITHOUT_LEASE}");
        }
        let traces = Traces::start(&args, &status.metrics).await?;
        let mut tasks = Tasks::default();
        let cluster = tasks.read(
            clients.client()?,
            &args.scope,
            args.lease.shards,
            status.expect_heartbeat("watches"),
        );
        let reviewer = if args.admin.tls {
            Some(Arc::new(Reviewer::new(clients.client()?, REVIEW_TIMEOUT)))
        } else {
            None
        };
        status.connected(cluster.clone(), reviewer);
        Ok(Self {
            args,
            clients,
            cluster,
            traces,
            tasks,
            status,
        })
    }

    /// Prepares the election; without one, the claim is unlimited.
    fn with_lease(mut self) -> Result<LeasedHost, Failure> {
        let (user, checks) = HeldShards::new(self.cluster.clone(), Arc::clone(&self.status));
        let (claims, election) = self.clients.claims(&self.args, user)?;
        let ready = CancellationToken::new();
        if self.is_sharded() {
            self.tasks.background.spawn(checks);
        } else {
            // The only host's start needs the claim.
            ready.cancel();
        }
        Ok(LeasedHost {
            lease: LeaseKeeper::start(election, ready.clone()),
            claims,
            ready,
            host: self,
        })
    }

    fn is_sharded(&self) -> bool {
        !self.args.lease.shards.is_one()
    }

    /// Loads the plugin files, waits for the claim unless the host has shards, and starts the tasks of all plugins.
    async fn start_plugins(&mut self, claims: &Claims, stop: &Shutdown) -> Result<(), Failure> {
        let shards = self.args.lease.shards;
        let writers = Writers::new(self.clients.client()?, shards, |shard| {
            claims.of(shard).clone()
        });
        // Returns the first failure: a host without a usable plugin does not wait for the API server.
        let (files, prepared) =
            tokio::try_join!(files::load_all(&self.args), self.prepare(claims, &writers))?;
        let LoadedFiles {
            pool,
            context,
            plugins,
        } = files;
        self.tasks
            .background
            .spawn(unmap_idle_code(context.engine.clone()));
        let namespace = &self.args.cluster.host_namespace;
        let resources = self
            .args
            .serves_resources()
            .then(|| PluginResources::new(&self.args.sources, &self.cluster, context, namespace))
            .transpose()?;
        let (warm, (inventory, hash_key)) = if let Some(prepared) = prepared {
            (Warm::new(), prepared)
        } else {
            let waiting = (&*plugins, resources.as_ref());
            let Self {
                cluster, status, ..
            } = &*self;
            let warm = standby::wait(cluster, claims.leader(), namespace, waiting, status).await?;
            let cache = cluster.clone();
            // The last holder wrote until just now: passes wait until the cache includes those writes.
            self.tasks.check_freshness(cache);
            let prepared = key::prepare(&self.cluster, writers.leader(), namespace).await?;
            (warm, prepared)
        };
        let args = &self.args;
        let shared = Arc::new(Shared {
            host_namespaces: args.cluster.host_namespaces(),
            tracer: self.traces.tracer(),
            remember_passes: !args.plugins.forget_passes,
            check_predictions: args.plugins.check_predictions,
            pass_files: pass_files(&args.plugins).await,
            resync_period: args.plugins.resync_period,
            ..shared(
                self.cluster.clone(),
                writers,
                pool,
                inventory,
                &self.status.metrics,
            )
        });
        self.tasks.watch_threads(&shared);
        key::set_or_wait(&shared, hash_key, namespace, &mut self.tasks);
        // Before the tasks, which count their first installations down from this number.
        self.status
            .serving(args.plugins.files().len(), plugins.len(), &shared);
        let leadership = self.leadership(&shared, claims);
        self.spawn_plugins(&shared, plugins, resources, warm, &leadership, stop);
        Ok(())
    }

    /// Reads the inventory and the hash key; none for a host that has to wait for its claim first.
    async fn prepare(
        &self,
        claims: &Claims,
        writers: &Writers,
    ) -> Result<Option<(Inventory, Option<HashKey>)>, Failure> {
        let Self { args, cluster, .. } = self;
        let namespace = &args.cluster.host_namespace;
        tasks::wait_for_namespaces(cluster).await?;
        if !args.elects_leader() {
            // Before `prepare`, which may already write.
            other_hosts::check(self.clients.client()?, args).await?;
        }
        if self.is_sharded() {
            key::prepare_follower(cluster, namespace).await.map(Some)
        } else if claims.leader().is_held() {
            // Only the holder may create the key; the others prepare after standby.
            key::prepare(cluster, writers.leader(), namespace)
                .await
                .map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns the leadership, for which a host with shards waits while it serves.
    fn leadership(&mut self, shared: &Arc<Shared>, claims: &Claims) -> Leadership {
        if !self.is_sharded() {
            return Leadership::begun();
        }
        let leadership = Leadership::default();
        self.tasks.background.spawn(shards::lead(
            Arc::clone(shared),
            claims.leader().clone(),
            leadership.clone(),
        ));
        leadership
    }

    /// Starts a task for each plugin file and one for the Plugin resources. The plugins take over their watches from
    /// standby, `warm`.
    fn spawn_plugins(
        &mut self,
        shared: &Arc<Shared>,
        loaded: Vec<Loaded>,
        resources: Option<PluginResources>,
        mut warm: Warm,
        leadership: &Leadership,
        stop: &Shutdown,
    ) {
        let Tasks {
            background,
            plugins,
        } = &mut self.tasks;
        let status = &self.status;
        // All plugin files have the same limits.
        let limits = Arc::<Limits>::default();
        let claims = loaded.iter().map(Loaded::claims).collect();
        for file in loaded {
            let warm = warm.remove(&file.name).unwrap_or_default();
            plugins.spawn(files::serve(
                Arc::clone(shared),
                file,
                Arc::clone(&limits),
                warm,
                leadership.clone(),
                stop.clone(),
                Arc::clone(status),
            ));
        }
        let shared = Arc::clone(shared);
        let status = Arc::clone(status);
        let leadership = leadership.clone();
        if let Some(resources) = resources {
            plugins.spawn(resources.serve(shared, claims, warm, leadership, stop, status));
            return;
        }
        if shared.cluster.served(&plugins::plugin_kind()).is_some() {
            info!(
                "not serving the Plugin resources of the cluster: add --plugin-resources to serve them beside plugin files"
            );
        }
        // With Plugin resources, their manager releases orphans.
        background.spawn(async move {
            match plugins::tend_orphans(&shared, |name| status.is_active(name)).await {}
        });
    }
}

impl LeasedHost {
    /// Starts the plugins, unless `stop` is requested or the lease is lost before.
    async fn with_plugins(mut self, stop: &Shutdown) -> Result<ServingHost, Failure> {
        let begin = Instant::now();
        let Self {
            host,
            claims,
            lease,
            ready,
        } = &mut self;
        let started = tokio::select! {
            started = Box::pin(host.start_plugins(claims, stop)) => {
                started.inspect(|()| info!(elapsed = ?begin.elapsed(), "started"))
            }
            // `ServingHost::run` then ends in the same order as after a later signal.
            () = stop.first() => Ok(()),
            failure = lease.failed() => Err(failure),
        };
        match started {
            Ok(()) => {
                // Not earlier, so that no shard is held while plugins are compiled.
                ready.cancel();
                Ok(ServingHost(self))
            }
            Err(failure) => {
                // The first failure is the cause.
                drop(self.release().await);
                Err(failure)
            }
        }
    }

    /// Ends all tasks, then releases the lease, then sends the last traces.
    async fn release(self) -> Result<(), Failure> {
        let Self { host, lease, .. } = self;
        // First, so that no task writes after the release.
        drop(host.tasks);
        let released = lease.release().await;
        // Last, so that a silent collector does not delay the next host.
        host.traces.flush().await;
        released
    }
}

impl ServingHost {
    /// Serves until `stop` is requested or a task fails, then ends in order.
    async fn run(mut self, stop: &Shutdown) -> Result<(), Failure> {
        let LeasedHost { host, lease, .. } = &mut self.0;
        let drain = host.args.plugins.drain;
        let result = tokio::select! {
            result = host.tasks.run(stop, drain) => result,
            failure = lease.failed() => Err(failure),
        };
        match result {
            // A write may still be in flight, so the lease expires instead of being released.
            Err(failure) if matches!(failure.exit(), Exit::Signal(_)) => Err(failure),
            result => result.and(self.0.release().await),
        }
    }
}

/// Returns the context that all passes share, without traces and remembered passes.
fn shared(
    cluster: Cluster,
    writers: Writers,
    pool: Pool,
    inventory: Inventory,
    metrics: &Arc<Metrics>,
) -> Shared {
    Shared {
        cluster,
        writers,
        pool,
        inventory,
        host_namespaces: Vec::new(),
        metrics: Arc::clone(metrics),
        events: Events::default(),
        tracer: None,
        namespace_budgets: NamespaceBudgets::default(),
        hash_key: OnceLock::new(),
        recordings: Recordings::default(),
        analyses: Notify::new(),
        remember_passes: false,
        check_predictions: false,
        pass_files: None,
        resync_period: Duration::MAX,
        now: Timestamp::now,
        random: fill_random,
    }
}

/// Opens the files that remember passes; none with `--forget-passes`, or on failure.
async fn pass_files(args: &PluginArgs) -> Option<PassFiles> {
    if args.forget_passes {
        return None;
    }
    let directory = args.cache_dir.clone();
    let opened = spawn_blocking(move || PassFiles::open(&directory))
        .await
        .ok()?;
    opened
        .inspect_err(|error| {
            let directory = args.cache_dir.display();
            warn!(%error, %directory, "failed to open the files that remember passes: each start calls the guests for all parents");
        })
        .ok()
}

/// Raises the soft limit of open files to the hard limit: each watch and each plugin's compiled code needs a descriptor.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    // Shells often start programs with a soft limit of 1,024. The host may still work without more.
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        debug!(%error, "failed to raise the limit for open files");
    }
}

/// Unmaps idle plugins' compiled code.
async fn unmap_idle_code(engine: Engine) -> Result<(), Failure> {
    loop {
        sleep(IDLE_CODE_CHECK_INTERVAL).await;
        let count = engine.unmap_idle(CODE_IDLE_MAX);
        if count > 0 {
            debug!(count, "unmapped idle plugins' code");
        }
    }
}

/// Fills a buffer with cryptographically secure random bytes. The only source of randomness; tests replace it.
fn fill_random(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("the kernel should have random bytes once it runs processes");
}

/// Returns a cryptographically secure random number.
fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}
