//! The plugin, and the report of its call.

use std::{num::NonZeroU32, path::Path};

use innkeeper_model::Limits;
use innkeeper_sandbox::{
    self as plugin, CallReport, Described, Engine, EngineSettings, LogLevel, Metering, Plugin,
    Said, artifact,
};
use serde_json::{Map, Value};

use crate::{
    config::{Exit, RenderArgs, Streams},
    failure::{Failure, OrFail as _},
};

/// Loads the plugin with a configuration; its calls report their fuel.
pub(super) fn load(args: &RenderArgs, config: &Map<String, Value>) -> Result<Plugin, Failure> {
    let path = &args.plugin;
    let unusable = || format!("failed to load the plugin {}", path.display());
    let cache = args.cache_dir.as_deref().map(artifact::Cache::open);
    let cache = cache.transpose().or_fail(
        Exit::Usage,
        "failed to open the cache of compiled plugins; set another --cache-dir",
    )?;
    let artifact_limits = artifact::Limits::default();
    let bytes = artifact::read_file(path, artifact_limits.bytes_max);
    let bytes = bytes.or_fail(Exit::Usage, unusable())?;
    let settings = EngineSettings {
        metering: Metering::Fuel,
        ..EngineSettings::new(NonZeroU32::MIN)
    };
    let engine = started(Engine::new(&settings), path)?;
    let compiled = artifact::compile(&engine, &bytes, &artifact_limits, cache.as_ref());
    let compiled = compiled.or_fail(Exit::Usage, unusable())?;
    let described = Described::load(&engine, &compiled, &Limits::default());
    started(
        described.and_then(|described| described.configure(config)),
        path,
    )
}

/// Returns the result of a step of the plugin in the file `path`.
pub(super) fn started<T>(result: Result<T, plugin::Error>, path: &Path) -> Result<T, Failure> {
    let exit = result
        .as_ref()
        .map_or_else(Exit::of_plugin, |_| Exit::Success);
    result.or_fail(
        exit,
        format!("failed to start the plugin {}", path.display()),
    )
}

/// Notes the lines of the guest's log.
pub(super) fn note_log(report: &CallReport, streams: &mut Streams<'_>) {
    for line in &report.log {
        let level = match line.level {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        };
        streams.note(&format!("log: {level}: {}", line.message));
    }
}

/// Notes the guest's fault, if there is one.
pub(super) fn note_fault(said: &Said, streams: &mut Streams<'_>) {
    if let Some(fault) = &said.fault {
        streams.note(&format!("fault: {}: {}", fault.kind, fault.message));
    }
}
