//! The running host: starts all parts in order, owns every task, and stops them in order.
//!
//! Order of the start; independent steps run concurrently:
//!
//! 1. signals, so that none is missed,
//! 2. the client of the API server beside the engine, the guest threads and the plugins (read, compile, describe),
//! 3. discovery, which waits for the API server,
//! 4. the lease, if leader election is on: a host that waits for it already runs the watches of its plugins,
//! 5. the host's namespace, the hash key, the inventory,
//! 6. per plugin: CRDs, watches, one controller per parent kind; the same for each Plugin resource as it appears, if
//!    the host serves Plugin resources.
//!
//! Order of the end:
//!
//! 1. the first signal stops the intake: no trigger is taken, no pass begins,
//! 2. running passes finish, at most for `--drain-timeout`,
//! 3. the watches and all other tasks are dropped,
//! 4. the lease is released last, so that the next host takes over only after this one has stopped writing, and then
//!    without waiting for the lease to expire,
//! 5. a second signal aborts at any time, and so does the end of the drain timeout; the next start converges.
//!
//! A task that ends early ends the process with its error. A lost lease ends the process as well: after its restart,
//! the host stands by.

mod beside;
mod clients;
mod controllers;
mod counted;
mod key;
mod lease;
mod load;
mod namespaces;
mod process;
mod random;
mod read_only;
mod resources;
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

use innkeeper_apply::{Events, Writer};
use innkeeper_cluster::{Cluster, Registration, Reviewer};
use innkeeper_command::{Exit, Failure, LogControl, OrFail as _, runtime};
use innkeeper_lease::Claim;
use innkeeper_model::{HashKey, Limits, Retry, error_chain};
use innkeeper_plugin_controller::{self as plugins, Loaded, Served, Warm};
use innkeeper_reconcile::{
    Inventory, InventoryError, NamespaceBudgets, PassFiles, Recordings, Shared,
};
use innkeeper_sandbox::{Engine, Pool};
use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{task::spawn_blocking, time::sleep};
use tracing::{debug, error, info, warn};

use crate::{
    admin::Admin,
    args::{PluginArgs, RunArgs},
};
use clients::Clients;
use random::fill_random;
pub use read_only::{ReadOnlyHost, client};
use resources::PluginResources;
pub use signals::{Shutdown, listen};
pub use status_registry::StatusRegistry;
use tasks::{LeaseKeeper, Tasks};
use traces::Traces;

/// Idle time after which the compiled code of a plugin is unmapped.
/// Long enough that passes which come every few seconds do not map the code each time.
const CODE_IDLE_MAX: Duration = Duration::from_secs(30);

/// The time limit of a request about a caller of the admin server; both together end before the timeout of a scrape, 10 s.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(3);

/// The danger of a host without a lease: two of them would undo each other's writes for ever, and neither could tell.
const WITHOUT_LEASE: &str = "writing without a lease: a second host without one would undo the writes of this host, and neither would notice; run one host only, or omit --leader-elect=false";

/// The failure to create the engine or the guest threads.
const SANDBOX: &str = "failed to set up the sandbox";

/// Interval of the search for idle code.
const IDLE_CODE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Runs the host until a signal arrives or a task fails.
/// Blocks the calling thread and creates the runtime of all tasks.
pub fn run(args: RunArgs, log: LogControl) -> Result<(), Failure> {
    take_all_descriptors();
    let status = Arc::new(StatusRegistry::default());
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
                ended = serve(args, stop, status) => ended,
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

/// Runs the host until `stop` is requested; `dev` observes it through `status`.
pub async fn serve(
    args: RunArgs,
    stop: Shutdown,
    status: Arc<StatusRegistry>,
) -> Result<(), Failure> {
    let metrics = Arc::clone(&status.metrics);
    let clients = Clients::find(&args, metrics).await?;
    if args.admin.tls {
        let reviewer = Reviewer::new(clients.client()?, REVIEW_TIMEOUT);
        status.reviewer.get_or_init(|| Arc::new(reviewer));
    }
    if args.admin.debug {
        status.plans.get_or_init(Arc::default);
    }
    if !args.elects_leader() {
        warn!("{WITHOUT_LEASE}");
    }
    let traces = Traces::start(&args, &status.metrics).await?;
    if let Some(tracer) = traces.tracer() {
        status.tracer.get_or_init(|| tracer);
    }
    let (claim, election) = clients.claim(&args)?;
    let mut keeper = LeaseKeeper::start(election);
    let mut tasks = Tasks::default();
    let ended = tokio::select! {
        ended = serve_with(args, clients, claim, &mut tasks, &stop, &status) => ended,
        error = keeper.died() => Err(error),
    };
    if matches!(&ended, Err(failure) if matches!(failure.exit(), Exit::Signal(_))) {
        return ended;
    }
    let ended = ended.and(keeper.let_go().await);
    traces.flush().await;
    ended
}

async fn serve_with(
    args: RunArgs,
    clients: Clients,
    claim: Claim,
    tasks: &mut Tasks,
    stop: &Shutdown,
    status: &Arc<StatusRegistry>,
) -> Result<(), Failure> {
    let begin = Instant::now();
    let drain = args.plugins.drain;
    tokio::select! {
        started = Box::pin(start(args, clients, claim, tasks, stop, status)) => started?,
        () = stop.first() => return Ok(()),
    }
    info!(elapsed = ?begin.elapsed(), "started");
    tasks.first_death_before(stop).await?;
    info!(bound = ?drain, "stopping: passes that run are finished, a second signal aborts them");
    tokio::select! {
        ended = tasks.all_plugins_ended() => ended?,
        () = sleep(drain) => warn!("drain timeout reached: some passes are cut off"),
        signal = stop.second() => return Err(aborted(signal)),
    }
    info!("stopped");
    Ok(())
}

fn aborted(signal: u8) -> Failure {
    let message =
        "stopped by a second signal before all passes had ended; the next start completes them";
    Failure::new(Exit::Signal(signal), message)
}

async fn start(
    args: RunArgs,
    clients: Clients,
    claim: Claim,
    tasks: &mut Tasks,
    stop: &Shutdown,
    status: &Arc<StatusRegistry>,
) -> Result<(), Failure> {
    let host_namespace = &args.cluster.host_namespace;
    let cluster = tasks.read(
        clients.client()?,
        &args.scope,
        status.expect_heartbeat("watches"),
    );
    status.cluster.get_or_init(|| cluster.clone());
    let writer = Arc::new(Writer::new(clients.client()?, claim.clone()));

    let lookout = clients.client()?;
    // `try_join!` returns the first failure: a host without a usable plugin ends without waiting for the API server.
    let prepare = || prepare_cluster(&cluster, &writer, host_namespace);
    let ((pool, context, loaded), prepared) = tokio::try_join!(load::load_all(&args), async {
        namespaces::wait_for_all(&cluster).await?;
        if !args.elects_leader() {
            beside::check(lookout, &args).await?;
        }
        if claim.is_held() {
            prepare().await.map(Some)
        } else {
            Ok(None)
        }
    })?;
    tasks
        .background
        .spawn(unmap_idle_code(context.engine.clone()));
    let resources = args
        .serves_resources()
        .then(|| PluginResources::new(&args.sources, &cluster, context, host_namespace))
        .transpose()?;
    let (warm, prepared) = if let Some(prepared) = prepared {
        (Warm::new(), prepared)
    } else {
        let plugins = (&*loaded, resources.as_ref());
        let warm =
            standby::wait(&cluster, &writer, &claim, host_namespace, plugins, status).await?;
        let fresh = cluster.clone();
        tasks.background.spawn(async move {
            fresh.check_freshness().await;
            Ok(())
        });
        (warm, prepare().await?)
    };
    let (inventory, hash_key) = prepared;
    let pass_files = pass_files(&args.plugins).await;
    let shared = share(&args, cluster, writer, pool, inventory, pass_files, status);
    watch_over(&shared, hash_key, host_namespace, tasks);
    status.begin(args.plugins.files().len(), loaded.len(), &shared);
    offer(loaded, resources, warm, &shared, tasks, stop, status);
    Ok(())
}

/// Opens the files that keep the memory of passes; none if passes are forgotten, or if they cannot be opened.
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
            warn!(%error, %directory, "failed to open the memory of passes: every start calls the guests for all parents");
        })
        .ok()
}

/// Returns the context that the passes of all plugins share.
fn share(
    args: &RunArgs,
    cluster: Cluster,
    writer: Arc<Writer>,
    pool: Pool,
    inventory: Inventory,
    pass_files: Option<PassFiles>,
    status: &StatusRegistry,
) -> Arc<Shared> {
    Arc::new(Shared {
        cluster,
        writer,
        pool,
        inventory,
        host_namespaces: args.cluster.host_namespaces(),
        metrics: Arc::clone(&status.metrics),
        events: Events::default(),
        tracer: status.tracer.get().cloned(),
        namespace_budgets: NamespaceBudgets::default(),
        hash_key: OnceLock::new(),
        recordings: Recordings::default(),
        analyses: tokio::sync::Notify::new(),
        remember_passes: !args.plugins.forget_passes,
        pass_files,
        resync_period: args.plugins.resync_period,
        now: Timestamp::now,
        random: fill_random,
    })
}

/// Serves plugins, with the watches that run since standby, by plugin. Without `resources` the host does not serve Plugin
/// resources.
fn offer(
    loaded: Vec<Loaded>,
    resources: Option<PluginResources>,
    mut warm: Warm,
    shared: &Arc<Shared>,
    tasks: &mut Tasks,
    stop: &Shutdown,
    status: &Arc<StatusRegistry>,
) {
    // The limits of every plugin that is given as a file.
    let limits = Arc::<Limits>::default();
    let files = loaded.iter().map(Loaded::claims).collect();
    for loaded in loaded {
        let (shared, limits) = (Arc::clone(shared), Arc::clone(&limits));
        let warm = warm.remove(&loaded.name).unwrap_or_default();
        let (stop, status) = (stop.clone(), Arc::clone(status));
        tasks
            .plugins
            .spawn(serve_plugin(shared, loaded, limits, warm, stop, status));
    }
    let (shared, status) = (Arc::clone(shared), Arc::clone(status));
    if let Some(resources) = resources {
        tasks
            .plugins
            .spawn(resources.serve(shared, files, warm, stop, status));
    } else {
        if shared.cluster.served(&plugins::plugin_kind()).is_some() {
            info!(
                "not serving the Plugin resources of the cluster: add --plugin-resources to serve them beside plugin files"
            );
        }
        tasks.background.spawn(async move {
            match plugins::tend_orphans(&shared, |name| status.is_active(name)).await {}
        });
    }
}

/// Ends the process when the guest threads have died, and waits for a lost hash key to be restored in `namespace`.
fn watch_over(shared: &Arc<Shared>, hash_key: Option<HashKey>, namespace: &str, tasks: &mut Tasks) {
    let watched = Arc::clone(shared);
    tasks.background.spawn(async move {
        let died = Err(watched.pool.died().await);
        died.or_fail(Exit::Failure, "the threads that run plugins ended")
    });
    if let Some(hash_key) = hash_key {
        key::set(shared, hash_key);
    } else {
        let (shared, namespace) = (Arc::clone(shared), namespace.to_owned());
        tasks.background.spawn(async move {
            let hash_key = key::wait(&shared.cluster, &namespace).await;
            info!("the hash key was restored");
            key::set(&shared, hash_key);
            Ok(())
        });
    }
}

/// Raises the soft limit of open files to the hard limit: every watch needs a descriptor, and so does the compiled code
/// of every plugin.
fn take_all_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        debug!(%error, "failed to raise the limit of open files");
    }
}

/// Unmaps the compiled code of idle plugins.
async fn unmap_idle_code(engine: Engine) -> Result<(), Failure> {
    loop {
        sleep(IDLE_CODE_CHECK_INTERVAL).await;
        let count = engine.unmap_idle(CODE_IDLE_MAX);
        if count > 0 {
            debug!(count, "unmapped the code of idle plugins");
        }
    }
}

/// Reads the host's own objects, the inventory and the hash key, and creates the missing ones.
async fn prepare_cluster(
    cluster: &Cluster,
    writer: &Arc<Writer>,
    namespace: &str,
) -> Result<(Inventory, Option<HashKey>), Failure> {
    let inventory = tasks::retry(
        "read the inventory",
        |error| matches!(error, InventoryError::Read { .. }),
        || Inventory::read(cluster, Arc::clone(writer), namespace),
    )
    .await
    .or_fail(
        Exit::Failure,
        "failed to read the inventory of kinds that plugins have created",
    )?;
    let may_create = inventory.is_empty();
    let hash_key = tasks::retry(
        "get the hash key",
        |error| !matches!(error, key::Error::Malformed { .. }),
        || key::obtain(cluster, writer, namespace, may_create, fill_random),
    )
    .await
    .or_fail(Exit::Failure, "failed to get the cluster's hash key")?;
    Ok((inventory, hash_key))
}

/// Serves one plugin until `stop` is requested; retries the installation while its failure may be temporary.
async fn serve_plugin(
    shared: Arc<Shared>,
    loaded: Loaded,
    limits: Arc<Limits>,
    warm: Vec<Registration>,
    stop: Shutdown,
    status: Arc<StatusRegistry>,
) -> Result<(), Failure> {
    let served = tokio::select! {
        served = install(&shared, &loaded, &limits, &status) => served,
        never = standby::idle(&warm) => match never {},
        () = stop.first() => return Ok(()),
    };
    // Only now: the plugin's own registrations keep the same watches alive.
    drop(warm);
    let Some(served) = served.map(Arc::new) else {
        return Ok(());
    };
    let token = stop.first_token();
    let report = |problem| status.report_definitions(&served.name, problem);
    tokio::select! {
        ended = controllers::run(&shared, &served, &limits, token, &status) => ended,
        never = plugins::keep_definitions(&shared, &loaded, &limits, report) => match never {},
    }
}

/// Installs and registers a plugin; retries with backoff while the failure may be temporary.
async fn install(
    shared: &Arc<Shared>,
    loaded: &Loaded,
    limits: &Arc<Limits>,
    status: &StatusRegistry,
) -> Option<Served> {
    let mut backoff = tasks::backoff();
    // The last reported error; empty before the first failure.
    let mut said = String::new();
    loop {
        let error = match plugins::serve(shared, loaded, limits).await {
            Ok(served) => {
                if said.is_empty() {
                    status.note_tried();
                } else {
                    status.uncount_inactive();
                }
                return Some(served);
            }
            Err(error) => error,
        };
        if said.is_empty() {
            status.count_inactive();
            status.note_tried();
        }
        let file = loaded.path.display();
        let delay = backoff.delay();
        let delay = match error.retry() {
            Retry::Never | Retry::OnChange => {
                error!(%file, error = %error_chain(&error), "plugin is not served");
                return None;
            }
            Retry::At(least) => delay.max(least),
            Retry::Backoff => delay,
        };
        let error = error_chain(&error).to_string();
        if said == error {
            debug!(%file, error, again_in = ?delay, "plugin is still not served");
        } else {
            error!(%file, error, "plugin is not served, retrying until it is");
            said = error;
        }
        sleep(delay).await;
    }
}
