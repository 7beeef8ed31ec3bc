//! Loads the plugin files of the command line, and serves each in a separate task.

use std::{num::NonZeroU32, path::PathBuf, sync::Arc, thread, time::Duration};

use futures::future::join_all;
use innkeeper_cluster::Registration;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::{Limits, Retry, error_chain};
use innkeeper_plugin_controller::{self as plugins, Loaded, LoaderContext, PluginControllers};
use innkeeper_reconcile::Shared;
use innkeeper_sandbox::{
    self as plugin, Engine, EngineSettings, Pool,
    artifact::{self, CompileBounds, Compiler, ConfigChecker, Program},
};
use tokio::{task::spawn_blocking, time::sleep};
use tracing::{debug, error, info};

use super::{SANDBOX, Shutdown, StatusRegistry, controllers, shards::Leadership, standby, tasks};
use crate::args::RunArgs;

/// The pause until a follower looks again whether the leader has installed a plugin.
const LEADER_RECHECK: Duration = Duration::from_secs(1);

/// The loaded plugin files, with the parts that run them and Plugin resources.
pub(super) struct LoadedFiles {
    pub(super) pool: Pool,
    pub(super) context: Arc<LoaderContext>,
    pub(super) plugins: Vec<Loaded>,
}

/// Returns the limits for compiling a plugin on this machine.
fn compile_bounds() -> CompileBounds {
    let processors = thread::available_parallelism()
        .ok()
        .and_then(|count| NonZeroU32::try_from(count).ok());
    CompileBounds::on(
        processors.unwrap_or(NonZeroU32::MIN),
        plugin::memory_bytes_max(),
    )
}

/// The default guest memory: half of the container's limit, because the cache needs the rest. None without a limit.
fn half_the_memory() -> Option<usize> {
    let bytes = plugin::memory_bytes_max()? / 2;
    Some(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Loads the plugins concurrently; logs and skips those that cannot be served.
pub(super) async fn load_all(args: &RunArgs) -> Result<LoadedFiles, Failure> {
    let settings = &args.plugins;
    let workers = settings.workers;
    let files = settings.files();
    // First: the admin port answers already, and idle clients there could use up the descriptors meanwhile.
    let cache = artifact::Cache::open(&settings.cache_dir)
        .or_fail(
            Exit::Usage,
            "failed to open the cache of compiled plugins; set another --cache-dir",
        )?
        .with_bytes_max(settings.cache_bytes_max);
    let engine = Engine::new(&EngineSettings {
        memory_together_bytes_max: settings.guest_memory_bytes_max.or_else(half_the_memory),
        // The scan does not find pages in swap, so the next instance could read them.
        pagemap_scan: plugin::swap_is_off(),
        ..EngineSettings::new(NonZeroU32::try_from(workers).unwrap_or(NonZeroU32::MAX))
    })
    .or_fail(Exit::Failure, SANDBOX)?;
    let pool = Pool::start(workers).or_fail(Exit::Failure, SANDBOX)?;
    let context = Arc::new(LoaderContext {
        engine,
        cache: cache.clone(),
        compiler: Compiler::new(cache.clone(), Program::current(), compile_bounds()),
        config_checker: ConfigChecker::new(Program::current()),
        artifact_limits: artifact::Limits::default(),
        limits: Limits::default(),
        configs: settings.configs(),
        grants: settings.grants(),
        usual_grants: settings.default_grants(),
    });
    let loading = files.iter().cloned().map(|path| {
        let context = Arc::clone(&context);
        spawn_blocking(move || plugins::load(&context, &path))
    });
    let mut loaded = Vec::new();
    let mut refused = Vec::new();
    // In command line order, which decides between plugins with the same parent kind.
    for (file, result) in files.iter().zip(join_all(loading).await) {
        match result.or_fail(Exit::Failure, tasks::TASK_ENDED)? {
            Ok(plugin) => loaded.push(plugin),
            Err(error) => refused.push((file.clone(), error)),
        }
    }
    let names: Vec<String> = loaded
        .iter()
        .map(|plugin| plugin.name.to_string())
        .collect();
    let (admitted, not_admitted) = plugins::admit(loaded);
    refused.extend(not_admitted);
    for (path, error) in &refused {
        error!(file = %path.display(), error = %error_chain(error), "plugin is not served");
    }
    // Otherwise an unknown name may be that of a refused file.
    if refused.is_empty() {
        check_configured(&context, &names)?;
    }
    if !args.serves_resources() {
        // Plugins would add theirs later.
        cache.know_all_needs();
    }
    if admitted.is_empty() && !args.serves_resources() {
        let exit = refusal_exit(&refused);
        return Err(tasks::nothing_to_serve(exit, files.len()));
    }
    Ok(LoadedFiles {
        pool,
        context,
        plugins: admitted,
    })
}

/// Fails if `--config` or `--grants` names an unknown plugin.
fn check_configured(context: &LoaderContext, names: &[String]) -> Result<(), Failure> {
    let mut configured = context.configs.keys().chain(context.grants.keys());
    match configured.find(|name| !names.contains(name)) {
        Some(unused) => Err(Failure::new(
            Exit::Usage,
            format!(
                "--config or --grants names plugin {unused}, which is not among the given plugins"
            ),
        )),
        None => Ok(()),
    }
}

/// Returns the exit code when every plugin file was refused. A full disk, for example, is not a usage error.
fn refusal_exit(refused: &[(PathBuf, plugins::Error)]) -> Exit {
    let mut errors = refused.iter().map(|(_, error)| error.retry());
    if errors.any(|retry| retry == Retry::Backoff) {
        Exit::Failure
    } else {
        Exit::Usage
    }
}

/// Serves one plugin until `stop` is requested.
pub(super) async fn serve(
    shared: Arc<Shared>,
    loaded: Loaded,
    limits: Arc<Limits>,
    warm: Vec<Registration>,
    leadership: Leadership,
    stop: Shutdown,
    status: Arc<StatusRegistry>,
) -> Result<(), Failure> {
    let served = tokio::select! {
        served = install(&shared, &loaded, &limits, &status) => served,
        // No controller takes the triggers of these watches yet.
        never = standby::idle(&warm) => match never {},
        () = stop.first() => return Ok(()),
    };
    // Only now, because the plugin's registrations keep the same watches alive.
    drop(warm);
    let Some(served) = served.map(Arc::new) else {
        return Ok(());
    };
    let token = stop.first_token();
    let report = |problem| status.report_definitions(&served.name, problem);
    let keep_definitions = async {
        leadership.begins().await;
        plugins::keep_definitions(&shared, &loaded, &limits, report).await
    };
    tokio::select! {
        result = controllers::run_controllers(&shared, &served, &limits, token, &status) => result,
        never = keep_definitions => match never {},
    }
}

/// Installs and registers a plugin; retries temporary failures with backoff.
async fn install(
    shared: &Arc<Shared>,
    loaded: &Loaded,
    limits: &Arc<Limits>,
    status: &StatusRegistry,
) -> Option<PluginControllers> {
    let mut backoff = tasks::backoff();
    let mut last_error = None;
    loop {
        let result = plugins::serve(shared, loaded, limits).await;
        if last_error.is_none() {
            // Later attempts do not count: the host has started once every file was tried.
            status.file_done(result.is_ok());
        }
        let error = match result {
            Ok(served) => {
                if last_error.is_some() {
                    status.file_recovered();
                }
                return Some(served);
            }
            Err(error) => error,
        };
        let file = loaded.path.display();
        let backoff_delay = backoff.delay();
        let delay = match error.retry() {
            _ if error.awaits_leader() => LEADER_RECHECK,
            Retry::Never | Retry::OnChange => {
                error!(%file, error = %error_chain(&error), "plugin is not served");
                return None;
            }
            Retry::At(least) => backoff_delay.max(least),
            Retry::Backoff => backoff_delay,
        };
        let awaits_leader = error.awaits_leader();
        let error = error_chain(&error).to_string();
        // Logs each cause once, because the attempts have no end.
        if last_error.as_ref() == Some(&error) {
            debug!(%file, error, again_in = ?delay, "plugin is still not served");
        } else if awaits_leader {
            info!(%file, why = error, "waiting for the leader");
            last_error = Some(error);
        } else {
            error!(%file, error, "plugin is not served, retrying until it is");
            last_error = Some(error);
        }
        sleep(delay).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use innkeeper_model::PluginName;

    use super::*;

    #[test]
    fn unusable_plugin_files_are_a_usage_error_unless_a_retry_may_succeed() {
        let load = |source: artifact::Error| plugins::Error::Load {
            path: "a.wasm".into(),
            source: Box::new(source),
        };
        let missing = || {
            load(artifact::Error::NotFound {
                path: "a.wasm".to_owned(),
            })
        };
        let taken = || plugins::Error::NotGranted {
            plugin: PluginName::new("a").unwrap(),
            missing: Vec::new(),
        };
        let full = || {
            load(artifact::Error::Keep {
                path: "/var/cache".to_owned(),
                source: io::ErrorKind::StorageFull.into(),
            })
        };
        for (errors, exit) in [
            (vec![missing()], Exit::Usage),
            (vec![missing(), taken()], Exit::Usage),
            (vec![missing(), full()], Exit::Failure),
        ] {
            let shown = format!("{errors:?}");
            let refused: Vec<_> = errors
                .into_iter()
                .map(|error| ("a.wasm".into(), error))
                .collect();
            assert_eq!(refusal_exit(&refused), exit, "{shown}");
        }
    }
}
