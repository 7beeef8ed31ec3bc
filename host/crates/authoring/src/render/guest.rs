//! Loads and calls the plugin.

use std::num::NonZeroU32;

use innkeeper_command::{Failure, OrFail as _, Streams, plain};
use innkeeper_sandbox::{
    self as plugin, CallOutput, Described, EngineSettings, LogLine, Metering, Plugin,
};
use serde_json::{Map, Value};

use crate::{
    args::{Inspected, LoadArgs, RenderArgs},
    plugin_file,
};

/// Loads the plugin with a configuration.
pub(super) fn load(args: &RenderArgs, config: &Map<String, Value>) -> Result<Plugin, Failure> {
    described(&args.plugin, &args.load)?
        .configure(config, plugin_file::checker())
        .or_fail_by(
            plugin_file::exit_for,
            format!("failed to load the plugin {}", args.plugin),
        )
}

/// Loads a plugin; its calls report their fuel.
pub(crate) fn described(from: &Inspected, load: &LoadArgs) -> Result<Described, Failure> {
    let bytes = plugin_file::bytes(from, &load.registry)?;
    let cache = load.cache.open()?;
    let settings = EngineSettings {
        // Slower than deadlines, but the figure is the same on every machine.
        metering: Metering::Fuel,
        ..EngineSettings::new(NonZeroU32::MIN)
    };
    plugin_file::describe_with(&settings, &bytes, cache.as_ref()).or_fail_by(
        plugin_file::Error::exit,
        format!("failed to load the plugin {from}"),
    )
}

/// Returns the result of a plugin step.
pub(crate) fn started<T>(result: Result<T, plugin::Error>, from: &Inspected) -> Result<T, Failure> {
    let message = format!("failed to start the plugin {from}");
    result.or_fail_by(plugin_file::exit_for, message)
}

/// Prints the guest's log lines.
pub(crate) fn note_log(log: &[LogLine], streams: &mut Streams<'_>) {
    for line in log {
        streams.note(&format!("log: {}: {}", line.level, plain(&line.message)));
    }
}

/// Prints the guest's fault, if there is one.
pub(crate) fn note_fault(answer: &CallOutput, streams: &mut Streams<'_>) {
    if let Some(fault) = &answer.fault {
        streams.note(&format!("fault: {}: {}", fault.kind, plain(&fault.message)));
    }
}
