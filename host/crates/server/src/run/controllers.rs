//! An active plugin's controllers.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{self, join_all},
};
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::Limits;
use innkeeper_plugin_controller::{self as plugins, PluginControllers};
use innkeeper_reconcile::{
    Reconciler, Shared,
    controller::{self, Bounds},
};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{StatusRegistry, random_u64, tasks::joined};

/// Runs a plugin's passes until `stop` is cancelled, and then until running passes have ended and their events are
/// written.
pub(super) async fn run_controllers(
    shared: &Shared,
    served: &Arc<PluginControllers>,
    limits: &Limits,
    stop: CancellationToken,
    status: &StatusRegistry,
) -> Result<(), Failure> {
    // First, so that the plugin's finalizers do not count as orphaned.
    status.add(served);
    // Shared by all controllers: the limit is the plugin's.
    let permits = Arc::new(Semaphore::new(limits.concurrency_max));
    let mut controllers = JoinSet::new();
    let reconcilers = &served.reconcilers;
    let events = join_all(
        reconcilers
            .iter()
            .map(|reconciler| reconciler.write_events()),
    );
    for reconciler in reconcilers {
        let bounds = Bounds {
            permits: Arc::clone(&permits),
            passes_per_second_max: limits.passes_per_second_max,
            resync_period: Some(shared.resync_period),
            seed: random_u64(),
        };
        let work = Arc::clone(reconciler);
        let telemetry = status.observe(reconciler, limits.concurrency_max);
        controllers.spawn(controller::run(work, bounds, telemetry, stop.clone()));
    }
    let all_ended = async {
        while let Some(result) = controllers.join_next().await {
            joined(result.map(|result| {
                let message = format!("the controller of plugin {} ended", served.name);
                result.or_fail(Exit::Failure, message)
            }))?;
        }
        // Only now, because the last passes may still have added events.
        for reconciler in reconcilers {
            reconciler.end_events();
        }
        // The file from the last period lacks the latest passes.
        write_pass_files(reconcilers).await;
        Ok(())
    };
    tokio::select! {
        result = future::try_join(all_ended, events.map(Ok)) => result.map(drop),
        never = prune_inventory(shared, served) => match never {},
        never = keep_passes(reconcilers) => match never {},
    }
}

/// Saves remembered passes regularly, in case this process is killed.
async fn keep_passes(reconcilers: &[Arc<Reconciler>]) -> Infallible {
    /// A minute's passes are cheap to repeat, and a file for 10,000 parents has 2 MB.
    const PERIOD: Duration = Duration::from_mins(1);

    loop {
        sleep(PERIOD).await;
        write_pass_files(reconcilers).await;
    }
}

async fn write_pass_files(reconcilers: &[Arc<Reconciler>]) {
    let reconcilers = reconcilers.to_vec();
    let write = move || {
        for reconciler in reconcilers {
            if let Err(error) = reconciler.keep_passes() {
                warn!(%error, "failed to save remembered passes in the cache directory: until it succeeds, the next start calls the guests for all parents");
            }
        }
    };
    // Fails only while the host ends.
    drop(spawn_blocking(write).await);
}

/// Removes kinds from the inventory that the plugin no longer creates, once their last object is gone.
async fn prune_inventory(shared: &Shared, served: &PluginControllers) -> Infallible {
    /// An unused kind costs a watch this much longer.
    const PERIOD: Duration = Duration::from_secs(30);

    loop {
        sleep(PERIOD).await;
        plugins::forget_unused_kinds(shared, served).await;
    }
}
