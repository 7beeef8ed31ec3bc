//! The plugin, and the report of its call.

use std::{num::NonZeroU32, path::Path};

use innkeeper_sandbox::{
    self as plugin, CallReport, EngineSettings, Metering, Plugin, Said, artifact,
};
use serde_json::{Map, Value};

use crate::{
    config::{Exit, RenderArgs, Streams},
    failure::{Failure, OrFail as _},
    plugin_file,
};

/// Loads the plugin with a configuration; its calls report their fuel.
pub(super) fn load(args: &RenderArgs, config: &Map<String, Value>) -> Result<Plugin, Failure> {
    let path = &args.plugin;
    let cache = args
        .cache_dir
        .as_deref()
        .map(artifact::Cache::open)
        .transpose()
        .or_fail(
            Exit::Usage,
            "failed to open the cache of compiled plugins; set another --cache-dir",
        )?;
    let settings = EngineSettings {
        metering: Metering::Fuel,
        ..EngineSettings::new(NonZeroU32::MIN)
    };
    let described = plugin_file::read(path)
        .and_then(|bytes| plugin_file::describe_with(&settings, &bytes, cache.as_ref()));
    let plugin = described.and_then(|described| Ok(described.configure(config)?));
    let message = format!("failed to load the plugin {}", path.display());
    plugin.or_fail_by(plugin_file::Error::exit, message)
}

/// Returns the result of a step of the plugin in the file `path`.
pub(super) fn started<T>(result: Result<T, plugin::Error>, path: &Path) -> Result<T, Failure> {
    let message = format!("failed to start the plugin {}", path.display());
    result.or_fail_by(Exit::of_plugin, message)
}

/// Notes the lines of the guest's log.
pub(super) fn note_log(report: &CallReport, streams: &mut Streams<'_>) {
    for line in &report.log {
        streams.note(&format!("log: {}: {}", line.level, line.message));
    }
}

/// Notes the guest's fault, if there is one.
pub(super) fn note_fault(said: &Said, streams: &mut Streams<'_>) {
    if let Some(fault) = &said.fault {
        streams.note(&format!("fault: {}: {}", fault.kind, fault.message));
    }
}
