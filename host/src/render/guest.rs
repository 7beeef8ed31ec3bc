//! The plugin, behind a trait so that tests can replace it.

use std::num::NonZeroU32;

use innkeeper_model::{Limits, Manifest};
use innkeeper_sandbox::{
    self as plugin, CallReport, Context, Described, Engine, EngineSettings, LogLevel, LogLine,
    Metering, Plugin, Request, artifact,
};
use serde_json::{Map, Value};

use super::{Error, input, reads::OfflineReads};
use crate::config::{RenderArgs, Streams};

/// The plugin's part of a pass.
pub(super) trait OfflineGuest {
    /// The description of the plugin.
    fn manifest(&self) -> &Manifest;

    /// Runs one pass.
    fn call(
        &self,
        request: &Request<'_>,
        reads: OfflineReads,
        context: &Context,
    ) -> Result<(CallReport, OfflineReads), plugin::Error>;
}

impl OfflineGuest for Plugin {
    fn manifest(&self) -> &Manifest {
        self.manifest()
    }

    fn call(
        &self,
        request: &Request<'_>,
        reads: OfflineReads,
        context: &Context,
    ) -> Result<(CallReport, OfflineReads), plugin::Error> {
        self.call(request, reads, context, &Limits::default())
    }
}

/// Loads the plugin with the configuration of the command line; its calls report their fuel.
pub(super) fn load(args: &RenderArgs, streams: &mut Streams<'_>) -> Result<Plugin, Error> {
    let config = input::config(args.config.as_ref(), streams)?;
    load_with(args, &config)
}

/// Loads the plugin with a configuration.
pub(super) fn load_with(args: &RenderArgs, config: &Map<String, Value>) -> Result<Plugin, Error> {
    let path = &args.plugin;
    let unusable = |source| Error::LoadArtifact {
        path: path.clone(),
        source,
    };
    let unstarted = |source| Error::LoadPlugin {
        path: path.clone(),
        source,
    };
    let cache = args.cache_dir.as_deref().map(artifact::Cache::open);
    let cache = cache.transpose().map_err(Error::Cache)?;
    let artifact_limits = artifact::Limits::default();
    let bytes = artifact::read_file(path, artifact_limits.bytes_max).map_err(unusable)?;
    let settings = EngineSettings {
        metering: Metering::Fuel,
        ..EngineSettings::new(NonZeroU32::MIN)
    };
    let engine = Engine::new(&settings).map_err(unstarted)?;
    let compiled = artifact::compile(&engine, &bytes, &artifact_limits, cache.as_ref());
    let compiled = compiled.map_err(unusable)?;
    Described::load(&engine, &compiled, &Limits::default())
        .and_then(|described| described.configure(config))
        .map_err(unstarted)
}

/// Formats a line of the guest's log.
pub(super) fn log_line(line: &LogLine) -> String {
    let level = match line.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
    };
    format!("log: {level}: {}", line.message)
}
