//! Plugin resources: the task of their manager, and the tasks of the plugins that it has served.

use std::sync::Arc;

use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{Error, Gallery, Stop, controllers};
use crate::{
    config::SourceSettings,
    controller::{self, Bounds},
    model::PluginName,
    plugins::{
        Workshop,
        manager::{Manager, Parts, Start},
    },
    reconcile::Shared,
    source::{self, Fetcher},
};

/// Under which the manager watches Plugins.
const NAME: &str = "innkeeper";

/// How many Plugins have their pass at the same time; a pass may wait for a registry or a compiler.
const PLACES: usize = 4;

/// How many plugins may wait until their controllers are started.
const STARTS_MAX: usize = PLACES;

/// Passes that begin in a second at most.
const PASSES_PER_SECOND_MAX: u32 = 100;

/// Serves Plugins until told to stop, and then until all passes have ended.
///
/// Fails if nothing can be fetched; begins to watch before the future is polled.
pub(super) fn serve(
    settings: &SourceSettings,
    shared: Arc<Shared>,
    workshop: Arc<Workshop>,
    namespace: String,
    stop: &Stop,
    gallery: Arc<Gallery>,
) -> Result<impl Future<Output = Result<(), Error>> + use<>, Error> {
    let fetcher = Fetcher::new(source_settings(settings));
    let fetcher = fetcher.map_err(|error| Error::Sources(Box::new(error)))?;
    let name = PluginName::new(NAME).map_err(Error::Name)?;
    let (sender, starts) = mpsc::channel(STARTS_MAX);
    let parts = Parts {
        shared: Arc::clone(&shared),
        workshop,
        fetcher,
        selector: settings.selector.clone(),
        namespace,
        starts: sender,
        stop: stop.first_token(),
    };
    let manager = Manager::new(parts, name);
    Ok(manage(shared, manager, starts, stop.first_token(), gallery))
}

/// How sources are reached; what bounds a fetch is the same for all hosts.
fn source_settings(settings: &SourceSettings) -> source::Settings {
    let SourceSettings {
        dir,
        allow_local,
        certificates_pem,
        proxies,
        mirrors,
        selector: _,
    } = settings.clone();
    source::Settings {
        source_dir: dir,
        allow_local,
        certificates_pem,
        proxies: proxies.into(),
        mirrors,
        ..source::Settings::default()
    }
}

async fn manage(
    shared: Arc<Shared>,
    manager: Manager,
    mut starts: mpsc::Receiver<Start>,
    stop: CancellationToken,
    gallery: Arc<Gallery>,
) -> Result<(), Error> {
    let bounds = Bounds {
        places: Arc::new(Semaphore::new(PLACES)),
        passes_per_second_max: PASSES_PER_SECOND_MAX,
        queue: controllers::queue_options(),
    };
    let witness = gallery.witness_of("innkeeper/plugin", PLACES);
    let manager = Arc::new(manager);
    let managing = controller::run(Arc::clone(&manager), bounds, witness, stop.clone());
    let mut managing = Box::pin(managing);
    let mut orphans = Box::pin(manager.tend_orphans());
    let mut serving: JoinSet<Result<(), Error>> = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            ended = &mut managing => return ended.map_err(Error::Manager),
            never = &mut orphans => match never {},
            Some(start) = starts.recv() => {
                let (shared, gallery) = (Arc::clone(&shared), Arc::clone(&gallery));
                serving.spawn(async move { run(&shared, start, &gallery).await });
            }
            Some(ended) = serving.join_next() => ended.map_err(Error::Task)??,
        }
    }
    // Nobody waits for a registry or a compiler; what was begun is done again after the next start.
    drop(managing);
    drop(orphans);
    while let Some(ended) = serving.join_next().await {
        ended.map_err(Error::Task)??;
    }
    Ok(())
}

async fn run(shared: &Shared, start: Start, gallery: &Gallery) -> Result<(), Error> {
    let Start {
        served,
        limits,
        stop,
        ended,
    } = start;
    let end = controllers::run(shared, &served, &limits, stop, gallery).await;
    gallery.hide(&served);
    drop(ended);
    end
}
