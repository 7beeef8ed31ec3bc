//! A call's input and result.
//!
//! Every outcome is a value: a guest that traps, loops or answers garbage is a [`CallFault`], never an error of the
//! host.

use std::{fmt, sync::Arc, time::Duration};

use innkeeper_model::{Fault, Gvk, Outcome, Phase, reason};

use crate::log::{Dropped, LogLine};

/// A child of the parent as the cache holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedChild {
    /// The key under which an earlier answer stated it; none if it carries none.
    pub key: Option<Arc<str>>,
    /// True if it is kept without an owner.
    pub retained: bool,
    /// The object as guests see it.
    pub object: Arc<str>,
}

/// One call's input, except the configuration, which belongs to the loaded plugin.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The parent as guests see it.
    pub parent: &'a str,
    /// All children, sorted by kind, namespace and name.
    pub children: &'a [ObservedChild],
    /// The reason for the pass.
    pub phase: Phase,
    /// True if nothing can be created in the parent's namespace, because it is being deleted.
    pub namespace_terminating: bool,
    /// True if the guest should predict the next call's report.
    pub predict: bool,
}

/// A pass's clock and seed. A recording keeps both, so that the pass can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The answer to `now`: milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// The seed for `random`; must be secret and new for every pass unless it is a replay.
    pub seed: [u8; 32],
}

/// A call's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The guest answered, and the answer keeps the boundary's rules.
    Answered(Outcome),
    /// The guest answered that it could not do its work.
    GuestFault(Fault),
    /// The guest broke a rule or a limit, or broke down.
    Faulted(CallFault),
    /// The guest read a kind that is not yet cached: the pass has to start again. The guest never learns.
    Parked(Gvk),
}

/// A call's result and costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// The call's outcome.
    pub end: End,
    /// The cost in the engine's own unit, the same for the same input on every machine; only with
    /// [`Metering::Fuel`](crate::Metering::Fuel).
    pub fuel: Option<u64>,
    /// Thread CPU time from instantiation to validated answer.
    pub cpu: Duration,
    /// The most memory that the instance held, tables included, in bytes.
    pub memory_peak_bytes: usize,
    /// Calls of `get` and `list`.
    pub reads: u32,
    /// Bytes that these returned.
    pub read_bytes: usize,
    /// True if the guest asked for the time; such a pass is not remembered.
    pub used_now: bool,
    /// True if the guest asked for random bytes; such a pass is not remembered and its recording is secret.
    pub used_random: bool,
    /// The lines that the guest logged, within the log's limits.
    pub log: Vec<LogLine>,
    /// The lines beyond these limits, counted.
    pub log_dropped: Dropped,
    /// Each step's time.
    pub timing: Timing,
    /// True if the call waited for memory that was reserved for other calls.
    pub waited_for_memory: bool,
    /// The speed that the [`Pool`](crate::Pool) expected.
    pub speed: CallSpeed,
}

/// The speed that a call is expected to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallSpeed {
    /// It ends soon.
    #[default]
    Prompt,
    /// It may take long: the deadline is long, or the plugin's last call exceeded the deadline.
    Slow,
}

/// Wall time per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Making the instance, start functions included.
    pub instantiate: Duration,
    /// Passing the request, the guest's work, and reading the answer.
    pub call: Duration,
    /// Parsing and checking the answer.
    pub check: Duration,
}

/// A volume that is bounded per call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallLimit {
    /// Calls of `get` and `list`.
    HostCalls,
    /// Bytes that `get` and `list` return.
    HostCallBytes,
    /// Bytes per `random` call.
    RandomBytesPerCall,
    /// Bytes over all `random` calls.
    RandomBytes,
    /// Bytes that one call hands to the host, such as a log line.
    ArgumentBytes,
    /// Handles for streams and the like that are open at a time.
    Handles,
}

impl fmt::Display for CallLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostCalls => "reads per pass",
            Self::HostCallBytes => "bytes read per pass",
            Self::RandomBytesPerCall => "random bytes per call",
            Self::RandomBytes => "random bytes per pass",
            Self::Handles => "handles at a time",
            Self::ArgumentBytes => "bytes handed to the host in one call, such as a log line",
        })
    }
}

/// A guest's fault; the text is fit for a condition on the parent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// It panicked, or executed an instruction that traps.
    #[error("the plugin broke down: {message}{}", stack(backtrace))]
    Trapped {
        /// The guest's last error lines if it wrote any, or else the trap.
        message: String,
        /// Functions with a name on the guest's stack, innermost first; at most ten.
        backtrace: Vec<String>,
    },
    /// It used up the time.
    #[error("the plugin did not answer within {} ms of CPU time", limit.as_millis())]
    DeadlineExceeded {
        /// CPU time that it may use.
        limit: Duration,
    },
    /// It asked for more memory than it may have.
    #[error("the plugin needs more than its limit of {limit_bytes} bytes of memory")]
    MemoryExceeded {
        /// Memory that it may hold.
        limit_bytes: usize,
    },
    /// The answer breaks a contract rule.
    #[error("{at}: {problem}")]
    OutputRejected {
        /// The place in the answer: `child "web": object.spec.replicas`.
        at: String,
        /// The problem there and the remedy.
        problem: String,
    },
    /// It asked the host for too much.
    #[error("the plugin exceeded its limit of {allowed} {limit}")]
    LimitExceeded {
        /// The exceeded limit.
        limit: CallLimit,
        /// The amount that the limit allows.
        allowed: usize,
    },
    /// It waited for a time.
    #[error(
        "the plugin waits, and nothing in a pass can be waited for: answer now, and ask for a later pass by requeue-after-ms"
    )]
    Waited,
    /// It called a socket function.
    #[error(
        "the plugin calls {function}, and plugins have no network: read objects with cluster.get and cluster.list, let a Job do the rest"
    )]
    NoNetwork {
        /// Interface and function.
        function: String,
    },
    /// It asked for something that cannot be read.
    #[error("the plugin asked for an impossible read: {problem}")]
    ReadRejected {
        /// The problem.
        problem: String,
    },
}

impl CallFault {
    /// The condition's reason and the metric's label.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Trapped { .. }
            | Self::ReadRejected { .. }
            | Self::Waited
            | Self::NoNetwork { .. } => reason::GUEST_TRAPPED,
            Self::DeadlineExceeded { .. } => reason::DEADLINE_EXCEEDED,
            Self::MemoryExceeded { .. } => reason::MEMORY_EXCEEDED,
            Self::OutputRejected { .. } => reason::OUTPUT_REJECTED,
            Self::LimitExceeded { .. } => reason::LIMIT_EXCEEDED,
        }
    }
}

/// Names the functions at a message's end; empty without any.
fn stack(backtrace: &[String]) -> String {
    match backtrace {
        [] => String::new(),
        functions => format!(" (in {})", functions.join(" < ")),
    }
}
