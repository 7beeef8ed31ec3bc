//! Call: the guest with the observed objects, and its log.

use innkeeper_cluster::{PassReads, Recording};
use innkeeper_model::{
    ANNOTATION_KEY, Answer, Object, ObjectId, ReadFailure, ReadKey, error_chain,
};
use innkeeper_sandbox::{
    self as sandbox, CallOutput, CallReport, CallSpeed, End, Job, LogLevel, LogLine, ObservedChild,
    Recorder,
};
use tracing::{Level, debug, error, info, trace, warn};

use super::{
    enter::Entered,
    recall::Recalled,
    state::{Pass, Step},
};
use crate::{memory::Inputs, pass::context::Context, pass::skip::Stop, revision::Serving};

/// The target of recorded calls in the log, a target that no default filter enables.
const RECORDING: &str = "recording";

/// A pass whose guest has answered.
pub(crate) struct Answered {
    pub(crate) entered: Entered,
    pub(crate) end: End,
    /// The reads with their answers; none if the guest also asked for the time or for random bytes, so that equal reads
    /// do not mean an equal answer.
    pub(crate) reads: Option<Vec<(ReadKey, Answer)>>,
    /// The inputs besides the parent and the reads, if the pass may be remembered.
    pub(super) inputs: Option<Inputs>,
}

impl<'a> Pass<'a, Recalled> {
    /// Calls the guest. The parent is subscribed to its reads and to those of the host.
    ///
    /// Stops the pass without a fault of the guest if the guest threads are gone, or if the code of the plugin cannot be
    /// mapped again.
    pub(super) async fn call(self) -> Step<'a, Pass<'a, Answered>> {
        let (pass, Recalled { entered, inputs }) = self.split();
        let pass = pass.advance(|()| entered);
        let (context, serving) = (pass.context, &pass.epoch.serving);
        let job = pass.job();
        // Before the call, which consumes the job.
        let ordered = context.shared.recordings.may_want(&context.plugin, pass.id);
        let is_recorded = ordered || tracing::enabled!(target: RECORDING, Level::TRACE);
        let recorder = is_recorded.then(|| Recorder::new(&job));
        let plugin = serving.plugin.clone();
        let called = context.shared.pool.call(&context.plugin, plugin, job).await;
        let (report, reads) = match called {
            Ok(called) => called,
            Err(error) => {
                // The guest has not run, so nothing counts against the parent or the revision. If a guest thread is
                // gone, the owner of the pool ends the process.
                warn!(error = %error_chain(&error), "failed to call the plugin");
                return Err(pass.stop_entered(Stop::NotCalled));
            }
        };
        let recording = reads.into_recording();
        if let Some(recorder) = recorder {
            record(context, serving, pass.id, recorder, &report, &recording);
        }
        // After every call, also after a failed one: a change of its reads can make the next one succeed.
        pass.registration.commit(pass.id, &recording);
        count(context, &report);
        Ok(pass.answered(report, recording, inputs))
    }
}

impl<'a> Pass<'a, Entered> {
    /// Returns the call of the guest for this pass.
    pub(crate) fn job(&self) -> Job<PassReads> {
        let (shared, serving) = (&self.context.shared, &self.epoch.serving);
        let Entered {
            observation,
            phase,
            namespace_terminating,
            ..
        } = &self.state;
        let mut seed = [0; 32];
        (shared.random)(&mut seed);
        let now = (shared.now)().as_millisecond();
        let reads = self
            .registration
            .reads(&observation.parent, &serving.reads)
            .with_subscriptions(&self.state.own_reads);
        Job {
            parent: observation.parent.json.clone(),
            children: observation
                .children
                .iter()
                .map(|child| observed_child(child, &observation.parent))
                .collect(),
            phase: *phase,
            namespace_terminating: *namespace_terminating,
            reads,
            context: sandbox::Context {
                now_ms: u64::try_from(now).unwrap_or_default(),
                seed,
            },
            limits: serving.limits.clone(),
        }
    }

    /// Continues with the end of the call.
    pub(crate) fn answered(
        self,
        report: CallReport,
        recording: Recording,
        inputs: Option<Inputs>,
    ) -> Pass<'a, Answered> {
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
        explain_unseen(&recording.reads, &mut end);
        let reads = (!used_now && !used_random).then_some(recording.reads);
        self.advance(|entered| Answered {
            entered,
            end,
            reads,
            inputs,
        })
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

/// Writes the call to the log and hands it to its orders, so that `innkeeper replay` can repeat it.
fn record(
    context: &Context,
    serving: &Serving,
    parent: &ObjectId,
    recorder: Recorder,
    report: &CallReport,
    recording: &Recording,
) {
    if matches!(report.end, End::Parked(_)) {
        return;
    }
    if serving.shows_secrets() {
        trace!(target: RECORDING, "not recorded: the plugin is granted values of Secrets, which belong in no log");
        return;
    }
    let said = CallOutput::from(report.end.clone());
    let (plugin, reads) = (&serving.plugin, &recording.reads);
    let recording = recorder.finish(&context.plugin, plugin, reads, &said, report.used_random);
    match serde_json::to_string(&recording) {
        Ok(text) => {
            trace!(target: RECORDING, "{text}");
            let is_fault = said.fault.is_some();
            let recordings = &context.shared.recordings;
            recordings.deliver(&context.plugin, parent, is_fault, &text);
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

/// Adds the first read of a namespace that the host does not watch to the guest's fault: the guest knows no better reason,
/// and more grants would not help.
fn explain_unseen(reads: &[(ReadKey, Answer)], end: &mut End) {
    let unseen = reads.iter().find_map(|(_, answer)| match answer {
        Answer::Failed(failure @ ReadFailure::OutsideWatchedNamespaces { .. }) => Some(failure),
        _ => None,
    });
    let Some(unseen) = unseen else {
        return;
    };
    warn!("the guest was told that a read is not granted: {unseen}");
    if let End::GuestFault(fault) = end {
        fault.message = format!("{}; {unseen}", fault.message);
    }
}

/// Writes the guest's log lines below the span of the pass, which names plugin and parent.
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
