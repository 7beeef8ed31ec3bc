//! Renders one pass without a cluster: `innkeeper render`.
//!
//! The host's code makes the call, checks the answer and builds the children, so the printed objects are those that the
//! host would apply. There is no cluster: every kind counts as served, and only the given objects exist.
//!
//! An observed object is the parent's child if its controller is the parent (by UID if the parent's file has one, else
//! by kind and name), or if it has no controller and is retained for the parent. The plugin's reads see all observed
//! objects, including the parent and the children.
//!
//! Missing parent fields get the values that an API server would set: the namespace `default`, a fixed UID,
//! `generation: 1`, and the pass time as `creationTimestamp`, in phase finalize also as `deletionTimestamp`.

mod guest;
mod input;
mod observed;
mod outcome;
mod parent;
mod reads;
mod seed;
#[cfg(test)]
pub(crate) mod tests;
mod yaml_output;

use std::path::Path;

use innkeeper_command::{Exit, Failure, HOST_NAMESPACE, Output, Streams};
use innkeeper_crd::Kinds;
use innkeeper_model::{HashKey, Limits, Manifest, Outcome, Phase, Prediction, Report, reason};
use innkeeper_policy::{self as policy, Grants};
use innkeeper_sandbox::{
    self as plugin, CallOutput, CallReport, End, LogLine, ObservedChild, Request,
};

use crate::{
    args::{Inspected, OutputFormat, RenderArgs, RenderPhase},
    document::Document,
    statuses::ParentDefinitions,
};
pub(crate) use guest::{described, note_fault, note_log, started};
pub(crate) use input::{Files, Paths, bytes, given, named};
pub use input::{grants_in, one_object};
use observed::ObservedObjects;
pub(crate) use parent::UID;
pub(crate) use reads::{OfflineReads, Simulation};

/// The default hash key: fixed, so the output is reproducible. It protects nothing, as there is no cluster.
const HASH_KEY: [u8; 32] = *b"innkeeper render: not a secret! ";

/// The guest's part in a pass, which tests replace.
pub(crate) type Call<'a> = dyn Fn(
        &Request<'_>,
        OfflineReads,
        &plugin::Context,
    ) -> Result<(CallReport, OfflineReads), plugin::Error>
    + 'a;

/// Runs one pass and prints the result; `now_ms` is the caller's clock, in milliseconds since the epoch.
///
/// Errors go to the standard error.
pub fn run(args: &RenderArgs, now_ms: u64, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let Some(parent) = args.parent.as_ref().or(args.parent_file.as_ref()) else {
        return Err(Failure::new(Exit::Usage, "nothing to render: give PARENT"));
    };
    // First all files: a mistake in one is reported before the plugin is compiled, which takes seconds.
    let files = Files::read(&paths(args, parent), streams)?;
    let guest = guest::load(args, &files.config)?;
    let limits = Limits::default();
    let call: &Call<'_> = &|request, reads, context| guest.call(request, reads, context, &limits);
    pass(guest.manifest(), call, args, files, now_ms, streams)
}

fn pass(
    manifest: &Manifest,
    call: &Call<'_>,
    args: &RenderArgs,
    files: Files,
    now_ms: u64,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
    let mut offline = Offline::new(manifest, files.grants.as_ref(), &args.plugin, call)?;
    let now_ms = args.now.map_or(now_ms, |now| {
        u64::try_from(now.as_millisecond()).unwrap_or_default()
    });
    let phase = phase(args, manifest, streams);
    if let Some(hash_key) = &files.hash_key {
        offline.hash_key = hash_key.clone();
    }
    let inputs = given(files, args.seed, manifest, &offline.kinds, streams)?;
    let variation = Variation {
        phase,
        now_ms,
        seed: args.seed,
        predict: false,
        simulation: Simulation::default(),
    };
    let passed = offline.pass(inputs.parent, inputs.others, variation)?;
    note_log(&passed.log, streams);
    let answer = &passed.answer;
    let output = match args.output {
        OutputFormat::Json => outcome::json(answer, passed.reads.recorded(), passed.fuel)?,
        OutputFormat::Yaml => yaml_output::children(answer, &passed.observed, args.seed)?,
    };
    let exit = print(answer, &output, args.output, streams)?;
    let refusals = offline.definitions.refusals(&manifest.name);
    let status = passed
        .status_problem
        .map(|problem| format!("the API server would refuse the status of this answer: {problem}"));
    let problems: Vec<String> = refusals.into_iter().chain(status).collect();
    for problem in &problems {
        streams.note(problem);
    }
    Ok(if problems.is_empty() {
        exit
    } else {
        Exit::Finding
    })
}

fn paths(args: &RenderArgs, parent: &Path) -> Paths {
    Paths {
        parent: parent.to_owned(),
        observed: args.observed.clone(),
        config: args.config.clone(),
        grants: args.grants.clone(),
        hash_key: args.hash_key.clone(),
    }
}

/// A plugin, and the rules for passes without a cluster.
pub(crate) struct Offline<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) grants: Grants,
    pub(crate) hash_key: HashKey,
    pub(crate) kinds: Kinds,
    pub(crate) definitions: ParentDefinitions,
    /// The plugin's origin, in messages.
    pub(crate) from: &'a Inspected,
    pub(crate) call: &'a Call<'a>,
}

/// Settings that can differ between two passes for the same parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variation {
    pub(crate) phase: Phase,
    pub(crate) now_ms: u64,
    pub(crate) seed: u64,
    /// Asks for the report after this one.
    pub(crate) predict: bool,
    pub(crate) simulation: Simulation,
}

/// A pass and the answer.
pub(crate) struct Passed {
    pub(crate) answer: CallOutput,
    /// The predicted report, unless the guest also asked for the time or for random bytes.
    pub(crate) prediction: Option<Prediction>,
    pub(crate) reads: OfflineReads,
    pub(crate) fuel: Option<u64>,
    pub(crate) memory_peak_bytes: usize,
    /// The reason for which the API server would reject the answer's status, if it would.
    pub(crate) status_problem: Option<String>,
    log: Vec<LogLine>,
    observed: ObservedObjects,
}

impl Passed {
    /// The children as the guest got them.
    pub(crate) fn children(&self) -> &[ObservedChild] {
        &self.observed.children
    }
}

impl<'a> Offline<'a> {
    /// Returns a plugin with the built-in kinds, the plugin's kinds, and a hash key that protects nothing. Fails if the
    /// grants do not cover the requirements.
    pub(crate) fn new(
        manifest: &'a Manifest,
        given: Option<&Grants>,
        from: &'a Inspected,
        call: &'a Call<'a>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            manifest,
            grants: granted(given, manifest)?,
            hash_key: HashKey::new(HASH_KEY),
            kinds: Kinds::from_manifests([manifest]),
            definitions: ParentDefinitions::new(manifest),
            from,
            call,
        })
    }

    /// Calls the plugin for a parent, which need not have the fields that an API server sets, and checks the answer.
    pub(crate) fn pass(
        &self,
        parent: Document,
        others: Vec<Document>,
        variation: Variation,
    ) -> Result<Passed, Failure> {
        let Variation {
            phase,
            now_ms,
            seed,
            predict,
            simulation,
        } = variation;
        let manifest = self.manifest;
        let grants = &self.grants;
        let kind = parent.group_kind();
        if !grants.allows_parent(&kind) {
            let message =
                format!("the grants allow no parents of {kind}; grant them with --grants FILE");
            return Err(Failure::new(Exit::Usage, message));
        }
        let parent = parent::complete(parent, manifest, phase, now_ms);
        let mut observed = ObservedObjects::new(parent, others, grants, &self.hash_key)?;
        if simulation.reversed {
            observed.children.reverse();
        }
        let reads = OfflineReads::new(&observed, self, simulation);
        let request = Request {
            parent: &observed.parent.json,
            children: &observed.children,
            phase,
            // Only the API server knows it.
            namespace_terminating: false,
            predict,
        };
        let context = plugin::Context {
            now_ms,
            seed: seed::for_pass(seed),
        };
        let (report, reads) = started((self.call)(&request, reads, &context), self.from)?;
        let rules = policy::Rules {
            manifest,
            grants,
            limits: &Limits::default(),
            resources: &self.kinds,
            // As a host with default flags has them.
            host_namespaces: &[HOST_NAMESPACE.to_owned()],
            parent: &observed.parent.id(),
            depth: observed.parent.depth(),
            phase,
        };
        let is_repeatable = !report.used_now && !report.used_random;
        let prediction = prediction(&report.end).filter(|_| is_repeatable).cloned();
        let answer = outcome::checked(report.end, &rules);
        let definitions = &self.definitions;
        Ok(Passed {
            status_problem: definitions.problem(&manifest.name, &observed.parent, &answer.report),
            answer,
            prediction,
            reads,
            fuel: report.fuel,
            memory_peak_bytes: report.memory_peak_bytes,
            log: report.log,
            observed,
        })
    }
}

fn prediction(end: &End) -> Option<&Prediction> {
    match end {
        End::Answered(Outcome::Desired(desired)) => desired.prediction.as_ref(),
        _ => None,
    }
}

/// Returns the plugin's grants; fails if they do not cover the requirements.
pub fn granted(given: Option<&Grants>, manifest: &Manifest) -> Result<Grants, Failure> {
    // Nothing is at risk offline: without a file, the plugin gets the grants that `manifests` proposes.
    let grants = given.cloned().unwrap_or_else(|| Grants::proposed(manifest));
    let assessment = grants.assess(manifest);
    if assessment.serves() {
        return Ok(grants);
    }
    let missing = assessment
        .missing
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let message = format!(
        "the plugin requires more than its grants allow: {missing}; grant it with --grants FILE"
    );
    Err(Failure::new(Exit::Usage, message))
}

fn print(
    answer: &CallOutput,
    output: &Output,
    format: OutputFormat,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
    note_fault(answer, streams);
    if answer.fault.is_none() && format == OutputFormat::Yaml && answer.outcome != Some("desired") {
        streams.note(&unchanged_note(&answer.report));
    }
    streams.print(output)?;
    Ok(match answer.fault {
        Some(_) => Exit::Finding,
        None => Exit::Success,
    })
}

/// Returns the note for an outcome without children: YAML output has no conditions, so the note carries the one with
/// the plugin's reason.
fn unchanged_note(report: &Report) -> String {
    let note = "the plugin leaves the children as they are";
    let ready = report
        .conditions
        .iter()
        .find(|condition| condition.kind == reason::READY);
    match ready {
        Some(ready) => {
            let status: &str = ready.status.into();
            let reason = &ready.reason;
            let message = &ready.message;
            format!("{note}: Ready={status}/{reason}: {message}")
        }
        None => note.to_owned(),
    }
}

fn phase(args: &RenderArgs, manifest: &Manifest, streams: &mut Streams<'_>) -> Phase {
    let phase = match args.phase {
        RenderPhase::Reconcile => Phase::Reconcile,
        RenderPhase::Finalize => Phase::Finalize,
    };
    if phase == Phase::Finalize && !manifest.finalize {
        streams
            .note("the plugin requests no finalizer: a host never runs the finalize phase for it");
    }
    phase
}
