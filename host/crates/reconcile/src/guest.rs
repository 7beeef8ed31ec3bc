//! The call of the guest, and its log.

use innkeeper_cluster::{Answer, Observation, PassReads, Recording};
use innkeeper_model::{
    ANNOTATION_KEY, ANNOTATION_RETAINED_FOR, Object, Phase, ReadFailure, ReadKey,
};
use innkeeper_sandbox::{
    self as plugin, CallReport, Context, End, Job, LogLevel, LogLine, ObservedChild, Recorded,
    Recorder, Said,
};
use tracing::{Level, debug, error, info, trace, warn};

use super::{Reconciler, Serving};

/// Where calls are recorded in the log, at the level that nobody asks for by accident.
const RECORDING: &str = "recording";

/// The reads of a call with their answers.
pub(super) type ReadsMade = Vec<(ReadKey, Answer)>;

/// How a call ended, and what it says about the next one.
pub(super) struct Called {
    pub(super) end: End,
    /// Every read with its answer; none if the guest asked for the time or for random bytes as well, so that the same
    /// reads do not make the same answer.
    pub(super) reads: Option<ReadsMade>,
}

impl Reconciler {
    /// Calls the guest with what was observed; its parent is subscribed to what was read, beside `own_reads`, which the
    /// host itself has read for it.
    ///
    /// Fails only for reasons of the host: the guest threads are gone, or the plugin's code cannot be mapped again.
    pub(super) async fn call(
        &self,
        serving: &Serving,
        observation: &Observation,
        phase: Phase,
        own_reads: &Recording,
    ) -> Result<Called, plugin::Error> {
        let reads = self.registration.reads(&observation.parent, &serving.reads);
        let job = self.job(serving, observation, phase, reads.beside(own_reads));
        // Before the call, which takes all of it.
        let recorder =
            tracing::enabled!(target: RECORDING, Level::TRACE).then(|| Recorder::new(&job));
        let plugin = serving.plugin.clone();
        let (report, reads) = self.shared.pool.call(&self.name, plugin, job).await?;
        let recording = reads.into_recording();
        if let Some(recorder) = recorder {
            self.record(serving, recorder, &report, &recording);
        }
        // After every call, also one that failed: what was read is what can make the next one succeed.
        let parent = observation.parent.id();
        self.registration.commit(&parent, &recording);

        self.metrics.called(
            report.cpu,
            report.memory_peak_bytes,
            report.waited_for_memory,
        );
        write_log(&report.log);
        let dropped = &report.log_dropped;
        if dropped.lines > 0 {
            self.metrics.log_dropped(dropped.lines);
            warn!(
                lines = dropped.lines,
                bytes = dropped.bytes,
                "guest logged more than its limit"
            );
        }
        Ok(called(report, recording))
    }

    /// Writes the call to the log, so that it can be repeated elsewhere.
    fn record(
        &self,
        serving: &Serving,
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
        let reads = recording.reads.iter().map(|(key, answer)| {
            let answer = match answer {
                Answer::Object(object) => Recorded::Object(object.as_deref()),
                Answer::List(objects) => {
                    Recorded::List(objects.iter().map(|text| &**text).collect())
                }
                Answer::Failed(failure) => Recorded::Failed(failure),
            };
            (key, answer)
        });
        let said = Said::from(report.end.clone());
        let recording = recorder.finish(
            &self.name,
            &serving.plugin,
            reads,
            &said,
            report.used_random,
        );
        match serde_json::to_string(&recording) {
            Ok(text) => trace!(target: RECORDING, "{text}"),
            Err(error) => warn!(%error, "failed to record a call"),
        }
    }

    /// What a guest is called with.
    pub(super) fn job(
        &self,
        serving: &Serving,
        observation: &Observation,
        phase: Phase,
        reads: PassReads,
    ) -> Job<PassReads> {
        let mut seed = [0; 32];
        (self.shared.random)(&mut seed);
        let now = (self.shared.now)().as_millisecond();
        Job {
            parent: observation.parent.json.clone(),
            children: observation.children.iter().map(observed_child).collect(),
            phase,
            reads,
            context: Context {
                now_ms: u64::try_from(now).unwrap_or_default(),
                seed,
            },
            limits: serving.limits.clone(),
        }
    }
}

/// What is to be known of a call that has ended.
pub(super) fn called(report: CallReport, recording: Recording) -> Called {
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
    Called {
        end,
        reads: (!used_now && !used_random).then_some(recording.reads),
    }
}

fn observed_child(child: &Object) -> ObservedChild {
    ObservedChild {
        key: child.annotations.get(ANNOTATION_KEY).cloned(),
        retained: child.controller.is_none() && child.annotation(ANNOTATION_RETAINED_FOR).is_some(),
        object: child.json.clone(),
    }
}

/// Says what a guest wanted to read in namespaces that the host does not see; of several reads the first.
fn explain_unseen(reads: &[(ReadKey, Answer)], end: &mut End) {
    let unseen = reads.iter().find_map(|(_, answer)| match answer {
        Answer::Failed(failure @ ReadFailure::OutOfSight { .. }) => Some(failure),
        _ => None,
    });
    let Some(unseen) = unseen else {
        return;
    };
    warn!("the guest was told that a read is not granted: {unseen}");
    // It knows no better reason, and grants would not mend it.
    if let End::GuestFault(fault) = end {
        fault.message = format!("{}; {unseen}", fault.message);
    }
}

/// Writes what a guest logged, below the pass's span, which names plugin and parent.
/// It has been bounded per pass and per second already.
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
