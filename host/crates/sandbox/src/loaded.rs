//! A plugin that has described itself, and a plugin that can be called.

use std::{sync::Arc, time::Instant};

use innkeeper_model::{
    Digest, Limits, ListSelector, Manifest, ObjectRef, ReadFailure, Reads, SHORT_DEADLINE_MAX,
};
use serde_json::{Map, Value};

use crate::{
    Engine, Error,
    artifact::{Artifact, ConfigChecker},
    call::{CallFault, CallReport, Context, End, Request},
    code::Code,
    convert, description,
    log::LogRate,
    sandbox,
    state::{Ending, STARTUP_MS},
};

/// A plugin that has described itself. It needs a configuration before it can be called.
#[derive(Clone)]
pub struct Described {
    inner: Arc<LoadedComponent>,
}

/// The state that all configurations of one component share.
struct LoadedComponent {
    engine: Engine,
    code: Arc<Code>,
    contract: &'static str,
    digest: Digest,
    manifest: Manifest,
}

impl Described {
    /// Links a component and runs its `describe` in the sandbox, under the limits of a call, but always with the
    /// longest of the short deadlines.
    ///
    /// Blocks as long as such calls take.
    pub fn load(engine: &Engine, artifact: &Artifact, limits: &Limits) -> Result<Self, Error> {
        let adapter = convert::adapter(artifact.contract(), &artifact.code.component)?;
        // Constants, so that every run makes the description that the component embeds.
        let context = Context {
            now_ms: STARTUP_MS,
            seed: [0; 32],
        };
        let limits = Limits {
            // A description with many definitions takes longer than any answer. But meanwhile, all other plugins wait to
            // describe themselves, and a call may wait for memory.
            deadline: SHORT_DEADLINE_MAX,
            ..limits.clone()
        };
        let permit = engine.describing();
        let (result, _) = sandbox::run(
            (engine, artifact.digest()),
            Box::new(NoReads),
            &context,
            &limits,
            |store| adapter.describe(store),
        );
        drop(permit);
        let manifest = match result {
            Ok(manifest) => manifest?,
            Err(Ending::Fault(source)) => return Err(Error::Describe(source)),
            // `NoReads` refuses every read, and only a read can park a call.
            Err(Ending::Parked(kind)) => {
                let problem = format!("it reads {kind} while it describes itself");
                return Err(Error::Describe(CallFault::ReadRejected { problem }));
            }
        };
        description::check(artifact.description.as_ref(), &manifest)?;
        Ok(Self {
            inner: Arc::new(LoadedComponent {
                engine: engine.clone(),
                contract: adapter.version(),
                code: engine.codes().add(
                    artifact.code.source.clone(),
                    artifact.contract(),
                    adapter,
                ),
                digest: artifact.digest().clone(),
                manifest,
            }),
        })
    }

    /// The description that the plugin gave of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// The digest of the bytes.
    pub fn digest(&self) -> &Digest {
        &self.inner.digest
    }

    /// Checks that the configuration's schema compiles within a check's limits.
    ///
    /// Blocks for a process if the plugin has a schema.
    pub fn check_config_schema(&self, checker: &ConfigChecker) -> Result<(), Error> {
        checker.check_schema(&self.inner.manifest)
    }

    /// Checks a configuration against the plugin's schema; with none, only `{}` fits.
    ///
    /// Blocks for a process if the plugin has a schema and the checker does not know the configuration.
    pub fn configure(
        &self,
        config: &Map<String, Value>,
        checker: &ConfigChecker,
    ) -> Result<Plugin, Error> {
        let text = canonical(config);
        let revision = revision_with(&self.inner.digest, &text);
        checker.check(&self.inner.manifest, &revision, config)?;
        Ok(Plugin {
            component: Arc::clone(&self.inner),
            config: text,
            revision,
            log_rate: LogRate::default(),
        })
    }
}

/// A plugin with a configuration: one revision, ready to be called.
///
/// # Expected flow
///
/// Compile the bytes, load the component, configure it, and call it: directly where the thread may block, or through a
/// [`Pool`](crate::Pool).
///
/// ```
/// use std::{error::Error, num::NonZeroU32};
///
/// use innkeeper_model::{Limits, Phase, Reads};
/// use innkeeper_sandbox::{
///     Context, Described, End, Engine, EngineSettings, Request,
///     artifact::{self, ConfigChecker, Program},
/// };
///
/// fn answer(bytes: &[u8], parent: &str, reads: impl Reads + 'static) -> Result<End, Box<dyn Error>> {
///     let engine = Engine::new(&EngineSettings::new(NonZeroU32::MIN))?;
///     let artifact = artifact::compile(&engine, bytes, &artifact::Limits::default(), None)?;
///     let limits = Limits::default();
///     let checker = ConfigChecker::new(Program::current());
///     let plugin = Described::load(&engine, &artifact, &limits)?.configure(&serde_json::Map::new(), &checker)?;
///     let request = Request { parent, children: &[], phase: Phase::Reconcile, namespace_terminating: false, predict: false };
///     // Fixed, so that the same call can be repeated.
///     let context = Context { now_ms: 1_767_225_600_000, seed: [0; 32] };
///     let (report, _reads) = plugin.call(&request, reads, &context, &limits)?;
///     Ok(report.end)
/// }
/// ```
///
/// # Guarantees
///
/// A fresh instance for every call: no call sees another one's memory, and the same input gives the same answer.
///
/// # Errors
///
/// Every guest fault is in the report. An [`Error`] is always the host's.
pub struct Plugin {
    component: Arc<LoadedComponent>,
    config: String,
    revision: Digest,
    log_rate: LogRate,
}

impl Plugin {
    /// The description that the plugin gave of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.component.manifest
    }

    /// The revision: a digest over bytes and configuration.
    pub fn revision(&self) -> &Digest {
        &self.revision
    }

    /// The digest of the bytes.
    pub fn digest(&self) -> &Digest {
        &self.component.digest
    }

    /// The configuration as the guest gets it: JSON with sorted keys and no spaces.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// The contract version that it speaks.
    pub fn contract(&self) -> &'static str {
        self.component.contract
    }

    /// Runs one pass in a fresh instance, on this thread, and returns `reads` with the recording.
    ///
    /// Fails only if the host cannot map the plugin's code again. Every guest fault is in the report. Blocks
    /// until an instance is free and then for at most ten times the deadline.
    pub fn call<R: Reads + 'static>(
        &self,
        request: &Request<'_>,
        reads: R,
        context: &Context,
        limits: &Limits,
    ) -> Result<(CallReport, R), Error> {
        let component = &self.component;
        // Before the clock starts, and outside the sandbox: every error inside is the guest's fault, and a
        // failure to map the code again is the host's.
        let adapter = component.code.adapter(component.engine.wasmtime())?;
        let (result, call) = sandbox::run(
            (&component.engine, &component.digest),
            Box::new(reads),
            context,
            limits,
            |store| adapter.reconcile(store, request, &self.config, limits),
        );
        let end = match result {
            Ok(Ok(Ok(outcome))) => End::Answered(outcome),
            Ok(Ok(Err(fault))) => End::GuestFault(fault),
            Ok(Err(rejected)) => End::Faulted(rejected.into()),
            Err(Ending::Fault(fault)) => End::Faulted(fault),
            Err(Ending::Parked(kind)) => End::Parked(kind),
        };
        let (mut report, reads) = call.into_report::<R>(end);
        let log = std::mem::take(&mut report.log);
        report.log = self.log_rate.admit(
            limits.log_bytes_per_second_max,
            log,
            &mut report.log_dropped,
            Instant::now(),
        );
        Ok((report, reads))
    }
}

/// Returns the revision for a component, by digest, and a configuration.
pub fn revision_of(digest: &Digest, config: &Map<String, Value>) -> Digest {
    revision_with(digest, &canonical(config))
}

fn revision_with(digest: &Digest, config: &str) -> Digest {
    Digest::hash_parts([digest.as_bytes().as_slice(), config.as_bytes()])
}

/// Returns the canonical text: serde_json's maps are sorted.
fn canonical(config: &Map<String, Value>) -> String {
    Value::Object(config.clone()).to_string()
}

/// Refuses all reads while a plugin describes itself.
struct NoReads;

impl Reads for NoReads {
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        Err(ReadFailure::NotGranted(reference.kind.clone()))
    }

    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        Err(ReadFailure::NotGranted(selector.kind.clone()))
    }
}
