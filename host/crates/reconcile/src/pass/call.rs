//! Call: runs the guest with the observed objects, and writes its log.

use innkeeper_cluster::{Observation, PassReads, Recording};
use innkeeper_model::{
    ANNOTATION_KEY, Answer, Object, ObjectId, ReadFailure, ReadKey, error_chain,
};
use innkeeper_sandbox::{
    self as sandbox, CallOutput, CallReport, CallSpeed, End, Job, LogLevel, LogLine, ObservedChild,
    Recorder,
};
use tracing::{Level, debug, error, info, trace, warn};

use super::{
    context::{Context, Pass, Step},
    enter::Entered,
    skip::Skip,
};
use crate::revision::Revision;

/// The log target for recorded calls, which no default filter enables.
const RECORDING: &str = "recording";

/// The end of a call.
pub(crate) struct GuestAnswer {
    pub(crate) end: End,
    /// The reads with their answers; `None` if the guest asked for the time or for random bytes too, so that equal reads do
    /// not mean an equal answer.
    pub(crate) reads: Option<Vec<(ReadKey, Answer)>>,
}

/// Calls the guest, if need be twice.
///
/// A prediction is extra work on children that do not exist yet. Where it may be the cause of a fault, the revision
/// makes no more of them, and the call is repeated without: calls are pure.
pub(super) async fn call(
    pass: &Pass<'_>,
    observed: &Observation,
    entered: &Entered,
    predict: bool,
) -> Step<GuestAnswer> {
    let predictions = &pass.epoch.predictions;
    if predict && predictions.ask() {
        let answer = call_once(pass, observed, entered, true).await?;
        if !matches!(answer.end, End::Faulted(_)) {
            return Ok(answer);
        }
        predictions.faulted();
    }
    call_once(pass, observed, entered, false).await
}

/// Calls the guest, and subscribes the parent to the guest's reads and to the host's own.
///
/// The guest has no fault if the guest threads are gone, or if the plugin's code cannot be mapped again.
async fn call_once(
    pass: &Pass<'_>,
    observed: &Observation,
    entered: &Entered,
    predict: bool,
) -> Step<GuestAnswer> {
    let context = pass.context;
    let revision = &pass.epoch.revision;
    let job = Job {
        predict,
        ..job(pass, observed, entered)
    };
    // Before the call, which consumes the job.
    let is_ordered = context.shared.recordings.may_want(&context.plugin, pass.id);
    let is_recorded = is_ordered || tracing::enabled!(target: RECORDING, Level::TRACE);
    let recorder = is_recorded.then(|| Recorder::new(&job));
    let plugin = revision.plugin.clone();
    let (report, reads) = match context.shared.pool.call(&context.plugin, plugin, job).await {
        Ok(called) => called,
        Err(error) => {
            // The guest has not run, so nothing counts against the parent or the revision. If a guest thread is gone,
            // the pool's owner ends the process.
            warn!(error = %error_chain(&error), "failed to call the plugin");
            return Err(Box::new(Skip::NotCalled));
        }
    };
    let recording = reads.into_recording();
    if let Some(recorder) = recorder {
        record(context, revision, pass.id, recorder, &report, &recording);
    }
    // After every call, also after a failed one: the next one can succeed once a read changes.
    pass.registration.commit(pass.id, &recording);
    count(context, &report);
    Ok(answered(report, recording))
}

/// Returns the call for this pass.
pub(crate) fn job(pass: &Pass<'_>, observed: &Observation, entered: &Entered) -> Job<PassReads> {
    let shared = &pass.context.shared;
    let revision = &pass.epoch.revision;
    let mut seed = [0; 32];
    (shared.random)(&mut seed);
    let now = (shared.now)().as_millisecond();
    Job {
        parent: observed.parent.json.clone(),
        children: observed
            .children
            .iter()
            .map(|child| observed_child(child, &observed.parent))
            .collect(),
        phase: entered.phase,
        namespace_terminating: entered.namespace_terminating,
        predict: false,
        reads: pass
            .registration
            .reads(&observed.parent, &revision.reads)
            .with_subscriptions(&entered.own_reads),
        context: sandbox::Context {
            now_ms: u64::try_from(now).unwrap_or_default(),
            seed,
        },
        limits: revision.limits.clone(),
    }
}

/// Converts the report of a call.
pub(crate) fn answered(report: CallReport, recording: Recording) -> GuestAnswer {
    let CallReport {
        mut end,
        cpu,
        timing,
        memory_peak_bytes,
        reads,
        used_now,
        used_random,
        ..
    } = report;
    debug!(?cpu, ?timing, memory_peak_bytes, reads, "guest answered");
    explain_unwatched(&recording.reads, &mut end);
    GuestAnswer {
        end,
        reads: (!used_now && !used_random).then_some(recording.reads),
    }
}

/// Counts a call and writes the guest's log.
fn count(context: &Context, report: &CallReport) {
    context.metrics.called(
        report.cpu,
        report.memory_peak_bytes,
        report.waited_for_memory,
    );
    if report.speed == CallSpeed::Slow {
        context.metrics.slow_call();
    }
    write_log(&report.log);
    let dropped = &report.log_dropped;
    if dropped.lines > 0 {
        context.metrics.log_dropped(dropped.lines);
        warn!(
            lines = dropped.lines,
            bytes = dropped.bytes,
            "guest logged more than its limit"
        );
    }
}

/// Writes the call to the log and delivers it to the clients that wait for it, so that `innkeeper replay` can repeat it.
fn record(
    context: &Context,
    revision: &Revision,
    parent: &ObjectId,
    recorder: Recorder,
    report: &CallReport,
    recording: &Recording,
) {
    // The guest runs again from the start when the kind is cached.
    if matches!(report.end, End::Parked(_)) {
        return;
    }
    if revision.shows_secrets() {
        trace!(target: RECORDING, "not recorded: the plugin may read Secret values, which belong in no log");
        return;
    }
    let output = CallOutput::from(report.end.clone());
    let plugin = &revision.plugin;
    let reads = &recording.reads;
    let recording = recorder.finish(&context.plugin, plugin, reads, &output, report.used_random);
    match serde_json::to_string(&recording) {
        Ok(text) => {
            trace!(target: RECORDING, "{text}");
            let is_fault = output.fault.is_some();
            context
                .shared
                .recordings
                .deliver(&context.plugin, parent, is_fault, &text);
        }
        Err(error) => warn!(%error, "failed to record a call"),
    }
}

fn observed_child(child: &Object, parent: &Object) -> ObservedChild {
    ObservedChild {
        key: child.annotations.get(ANNOTATION_KEY).cloned(),
        retained: child.is_retained(parent),
        object: child.json.clone(),
    }
}

/// Adds the first read in a namespace that the host does not watch to the guest's fault: the guest was told that the read
/// is not granted, but more grants would not help.
fn explain_unwatched(reads: &[(ReadKey, Answer)], end: &mut End) {
    let unwatched = reads.iter().find_map(|(_, answer)| match answer {
        Answer::Failed(failure @ ReadFailure::OutsideWatchedNamespaces { .. }) => Some(failure),
        _ => None,
    });
    let Some(unwatched) = unwatched else {
        return;
    };
    warn!("the guest was told that a read is not granted: {unwatched}");
    if let End::GuestFault(fault) = end {
        fault.message = format!("{}; {unwatched}", fault.message);
    }
}

/// Writes the guest's log lines in the pass span, which names plugin and parent.
/// The sandbox has already limited them per pass and per second.
fn write_log(lines: &[LogLine]) {
    for LogLine { level, message } in lines {
        match level {
            LogLevel::Error => error!(target: "guest", "{message}"),
            LogLevel::Warn => warn!(target: "guest", "{message}"),
            LogLevel::Info => info!(target: "guest", "{message}"),
            LogLevel::Debug => debug!(target: "guest", "{message}"),
        }
    }
}
