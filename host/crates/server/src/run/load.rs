//! Loads the plugin files of the command line.

use std::{num::NonZeroU32, path::PathBuf, sync::Arc, thread};

use futures::future::join_all;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::{Limits, Retry, error_chain};
use innkeeper_plugin_controller::{self as plugins, Loaded, LoaderContext};
use innkeeper_sandbox::{
    self as plugin, Engine, EngineSettings, Pool,
    artifact::{self, CompileBounds, Compiler, ConfigChecker, Program},
};
use tokio::task::spawn_blocking;
use tracing::error;

use super::{SANDBOX, tasks};
use crate::args::RunArgs;

/// Returns the resources that compiling a plugin may use on this machine.
fn compile_bounds() -> CompileBounds {
    let processors = thread::available_parallelism()
        .ok()
        .and_then(|count| NonZeroU32::try_from(count).ok());
    CompileBounds::on(
        processors.unwrap_or(NonZeroU32::MIN),
        plugin::memory_bytes_max(),
    )
}

/// The default guest memory: half of the container's memory limit, because the cache needs the rest.
/// None without such a limit.
fn half_of_the_memory() -> Option<usize> {
    let bytes = plugin::memory_bytes_max()? / 2;
    Some(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Loads the plugins concurrently; reports and skips those that cannot be served.
pub(super) async fn load_all(
    args: &RunArgs,
) -> Result<(Pool, Arc<LoaderContext>, Vec<Loaded>), Failure> {
    let settings = &args.plugins;
    let (workers, files) = (settings.workers, settings.files());
    let engine = Engine::new(&EngineSettings {
        memory_together_bytes_max: settings.guest_memory_bytes_max.or_else(half_of_the_memory),
        pagemap_scan: plugin::swap_is_off(),
        ..EngineSettings::new(NonZeroU32::try_from(workers).unwrap_or(NonZeroU32::MAX))
    })
    .or_fail(Exit::Failure, SANDBOX)?;
    let pool = Pool::start(workers).or_fail(Exit::Failure, SANDBOX)?;
    let cache = artifact::Cache::open(&settings.cache_dir)
        .or_fail(
            Exit::Usage,
            "failed to open the cache of compiled plugins; set another --cache-dir",
        )?
        .with_bytes_max(settings.cache_bytes_max);
    let context = Arc::new(LoaderContext {
        engine,
        cache: cache.clone(),
        compiler: Compiler::new(cache.clone(), Program::of_process(), compile_bounds()),
        config_checker: ConfigChecker::new(Program::of_process()),
        artifact_limits: artifact::Limits::default(),
        limits: Limits::default(),
        configs: settings.configs(),
        grants: settings.grants(),
        usual_grants: settings.usual_grants(),
    });
    let loading = files.iter().cloned().map(|path| {
        let context = Arc::clone(&context);
        spawn_blocking(move || plugins::load(&context, &path))
    });
    let mut loaded = Vec::new();
    let mut refused = Vec::new();
    // In the order of the command line: it decides which of two plugins with the same parent kind is served.
    for (file, result) in files.iter().zip(join_all(loading).await) {
        match result.or_fail(Exit::Failure, tasks::TASK_ENDED)? {
            Ok(plugin) => loaded.push(plugin),
            Err(error) => refused.push((file.clone(), error)),
        }
    }
    let known: Vec<String> = loaded
        .iter()
        .map(|plugin| plugin.name.to_string())
        .collect();
    let (admitted, not_admitted) = plugins::admit(loaded);
    refused.extend(not_admitted);
    for (path, error) in &refused {
        error!(file = %path.display(), error = %error_chain(error), "plugin is not served");
    }
    // With a refused file, an unknown name is no error: the configuration or grants may be meant for that file.
    let mut named = context.configs.keys().chain(context.grants.keys());
    if refused.is_empty()
        && let Some(unused) = named.find(|name| !known.contains(name))
    {
        let message = format!(
            "--config or --grants names plugin {unused}, which is not among the given plugins"
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    if !args.serves_resources() {
        // Otherwise the Plugins state theirs too.
        cache.know_all_needs();
    }
    if admitted.is_empty() && !args.serves_resources() {
        let exit = end_of_refusal(&refused);
        return Err(tasks::nothing_to_serve(exit, files.len()));
    }
    Ok((pool, context, admitted))
}

/// Returns the end of a host of which every plugin file was refused. A full disk, for example, is no fault of the files.
fn end_of_refusal(refused: &[(PathBuf, plugins::Error)]) -> Exit {
    let mut errors = refused.iter().map(|(_, error)| error.retry());
    if errors.any(|retry| retry == Retry::Backoff) {
        Exit::Failure
    } else {
        Exit::Usage
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use innkeeper_model::PluginName;

    use super::*;

    #[test]
    fn plugin_files_that_cannot_be_used_are_a_usage_error_unless_another_attempt_may_succeed() {
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
            assert_eq!(end_of_refusal(&refused), exit, "{shown}");
        }
    }
}
