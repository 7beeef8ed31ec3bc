//! The call of the guest, and its log.

use tracing::{debug, error, info, warn};

use super::{Reconciler, Serving};
use crate::{
    cluster::{Answer, Observation, Recording, Registration},
    model::{ANNOTATION_KEY, ANNOTATION_RETAINED_FOR, Object, Phase, ReadFailure, ReadKey},
    plugin::{self, CallReport, Context, End, Job, LogLevel, LogLine, ObservedChild},
};

/// What a guest is called for.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// A pass: its parent is subscribed to what was read, beside what the host itself has read for it.
    Pass(&'a Recording),
    /// To see what would be done; reads are answered through this registration.
    Rehearsal(&'a Registration),
}

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
    /// Calls the guest with what was observed.
    /// Fails only when the guest threads are gone.
    pub(super) async fn call(
        &self,
        serving: &Serving,
        observation: &Observation,
        phase: Phase,
        purpose: Purpose<'_>,
    ) -> Result<Called, plugin::Error> {
        let mut seed = [0; 32];
        (self.shared.random)(&mut seed);
        let now = (self.shared.now)().as_millisecond();
        let none = Recording::default();
        let (registration, own_reads) = match purpose {
            Purpose::Pass(own_reads) => (&self.registration, own_reads),
            Purpose::Rehearsal(registration) => (registration, &none),
        };
        let reads = registration.reads(&observation.parent, &serving.reads);
        let job = Job {
            parent: observation.parent.json.clone(),
            children: observation.children.iter().map(observed_child).collect(),
            phase,
            reads: reads.beside(own_reads),
            context: Context {
                now_ms: u64::try_from(now).unwrap_or_default(),
                seed,
            },
            limits: serving.limits.clone(),
        };
        let (pool, plugin) = (&self.shared.pool, serving.plugin.clone());
        let (report, reads) = match purpose {
            Purpose::Pass(_) => pool.call(&self.name, plugin, job).await?,
            Purpose::Rehearsal(_) => pool.rehearse(plugin, job).await?,
        };
        let parent = observation.parent.id();
        let recording = reads.into_recording();
        match purpose {
            // After every call, also one that failed: what was read is what can make the next one succeed.
            Purpose::Pass(_) => registration.commit(&parent, &recording),
            Purpose::Rehearsal(_) => registration.commit(&parent, &Recording::default()),
        }
        let CallReport {
            mut end,
            log,
            log_dropped,
            cpu,
            timing,
            memory_peak_bytes,
            reads,
            used_now,
            used_random,
            waited_for_memory,
            ..
        } = report;
        explain_unseen(&recording.reads, &mut end);
        let called = Called {
            end,
            reads: (!used_now && !used_random).then_some(recording.reads),
        };
        debug!(?cpu, ?timing, memory_peak_bytes, reads, "guest answered");
        if matches!(purpose, Purpose::Rehearsal(_)) {
            for LogLine { level, message } in &log {
                debug!(target: "guest", ?level, "{message}");
            }
            return Ok(called);
        }
        self.metrics
            .called(cpu, memory_peak_bytes, waited_for_memory);
        write_log(&log);
        if log_dropped.lines > 0 {
            self.metrics.log_dropped(log_dropped.lines);
            warn!(
                lines = log_dropped.lines,
                bytes = log_dropped.bytes,
                "guest logged more than its limit"
            );
        }
        Ok(called)
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
