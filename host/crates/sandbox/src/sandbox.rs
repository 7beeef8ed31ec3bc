//! Runs guest code in a separate store, under all limits, and returns how it ended.

use std::time::{Duration, Instant};

use innkeeper_model::{Digest, Limits, Reads};
use wasmtime::{Store, Trap, WasmBacktrace, component::ResourceTableError};
use wasmtime_wasi::I32Exit;

use crate::{
    CallFault, CallLimit, CallReport, CallSpeed, Context, End, Engine, Metering, Timing,
    deadline::{self, Stopwatch},
    state::{AnyReads, Ending, HANDLES_MAX, StoreState},
};

/// Bytes that may be lifted from a guest at once beyond an answer's limit. An answer that is a little too large is then
/// refused with its size; wasmtime would refuse it with a trap. The limit counts texts only, and wasmtime also counts
/// records and lists.
const LIFT_BYTES_EXTRA: usize = 1024 * 1024;

/// Part of wasmtime's error if more than that would be lifted; a test fails when the text changes.
const LIFT_REFUSED: &str = "fuel allocated for hostcalls";

/// A call that has ended, with the costs.
pub(super) struct FinishedCall {
    state: StoreState,
    fuel: Option<u64>,
    cpu: Duration,
    timing: Timing,
    waited_for_memory: bool,
}

/// Runs guest code, and returns its result or the reason for the missing one. The instance and all that it holds are
/// gone afterwards.
pub(super) fn run<T>(
    (engine, component): (&Engine, &Digest),
    reads: Box<dyn AnyReads>,
    context: &Context,
    limits: &Limits,
    guest: impl FnOnce(&mut Store<StoreState>) -> wasmtime::Result<T>,
) -> (Result<T, Ending>, FinishedCall) {
    // Taken before the clock starts, because waiting is not the guest's time, and held until the store is dropped.
    // Memory comes first in every call: with one order, no two calls wait for each other.
    let memory_bytes_max = engine.memory_bytes_max(limits.memory_bytes_max);
    let memory = engine.memory(memory_bytes_max, limits.has_long_deadline());
    let _slot = engine.slot();
    let settings = engine.settings();
    let watch = Stopwatch::start();
    let state = StoreState::new(reads, context, limits, memory_bytes_max, component);
    let mut store = Store::new(engine.wasmtime(), state);
    store.limiter(|state| &mut state.meter);
    let lift_bytes_max = limits.output_bytes_max.saturating_add(LIFT_BYTES_EXTRA);
    // The default is 128 MiB: the host would allocate as much for an answer with millions of empty texts.
    store.set_hostcall_fuel(lift_bytes_max);
    deadline::arm(&mut store, watch, limits.deadline, engine.ticker());
    // As much as there is: fuel is only counted, and the deadline ends the call.
    let metered = settings.metering == Metering::Fuel && store.set_fuel(u64::MAX).is_ok();
    let result = guest(&mut store);
    let ended_at = Instant::now();
    // Before the store is dropped: to tear down the instance is the host's work.
    let cpu = watch.cpu();
    let fuel_left = metered.then(|| store.get_fuel().ok()).flatten();
    let mut state = store.into_data();
    // Before `breakdown`, which takes the last error line: it may have no line end yet.
    state.log.lock().finish();
    let timing = timing(watch.started_at(), &state, ended_at);
    let waited_for_memory = memory.has_waited();
    let end = match (state.ending.take(), result) {
        (Some(ending), _) => Err(ending),
        (None, result) => {
            result.map_err(|error| Ending::Fault(breakdown(&mut state, &error, lift_bytes_max)))
        }
    };
    let fuel = fuel_left.map(|left| u64::MAX - left);
    (
        end,
        FinishedCall {
            state,
            fuel,
            cpu,
            timing,
            waited_for_memory,
        },
    )
}

impl FinishedCall {
    /// Returns the call's report and reads, which must have the type `R`.
    pub(super) fn into_report<R: Reads + 'static>(self, end: End) -> (CallReport, R) {
        let Self {
            state,
            fuel,
            cpu,
            timing,
            waited_for_memory,
        } = self;
        let (log, log_dropped) = state.log.lock().take();
        let report = CallReport {
            end,
            fuel,
            cpu,
            memory_peak_bytes: state.meter.peak_bytes(),
            reads: state.reads_count,
            read_bytes: state.read_bytes,
            used_now: state.used_now,
            used_random: state.random_bytes.is_some(),
            log,
            log_dropped,
            timing,
            waited_for_memory,
            speed: CallSpeed::default(),
        };
        let reads = state
            .reads
            .into_any()
            .downcast::<R>()
            .expect("the reads should be of the type that the caller put in");
        (report, *reads)
    }
}

fn timing(started_at: Instant, state: &StoreState, ended_at: Instant) -> Timing {
    let instantiated_at = state.instantiated_at.unwrap_or(ended_at);
    let answered_at = state.answered_at.unwrap_or(ended_at);
    Timing {
        instantiate: instantiated_at.saturating_duration_since(started_at),
        call: answered_at.saturating_duration_since(instantiated_at),
        check: ended_at.saturating_duration_since(answered_at),
    }
}

/// Returns the guest's fault for a wasmtime error.
fn breakdown(state: &mut StoreState, error: &wasmtime::Error, lift_bytes_max: usize) -> CallFault {
    if state.meter.exceeded() {
        return CallFault::MemoryExceeded {
            limit_bytes: state.meter.bytes_max(),
        };
    }
    // The table is part of wasmtime, so its limit comes back as an error and not in `ending`.
    if let Some(ResourceTableError::Full) = error.downcast_ref() {
        return CallFault::LimitExceeded {
            limit: CallLimit::Handles,
            allowed: HANDLES_MAX,
        };
    }
    let trap = error.downcast_ref::<Trap>();
    let frames = error.downcast_ref::<WasmBacktrace>();
    if trap.is_none() && frames.is_none() && state.instantiated_at.is_some() {
        // The guest had returned, and the result does not fit the contract's types.
        return CallFault::OutputRejected {
            at: "answer".to_owned(),
            problem: error.root_cause().to_string(),
        };
    }
    // Wasmtime refuses the argument before the host's function is entered, and only the error's text shows it.
    if trap.is_none() && error.root_cause().to_string().contains(LIFT_REFUSED) {
        return CallFault::LimitExceeded {
            limit: CallLimit::ArgumentBytes,
            allowed: lift_bytes_max,
        };
    }
    let last_error = state.log.lock().take_last_error();
    let exited = error.is::<I32Exit>();
    let message = match (trap, last_error) {
        // A Rust panic ends in this instruction, after the hook wrote the message.
        (Some(Trap::UnreachableCodeReached), Some(last_words)) => last_words,
        // A Go panic ends in an exit.
        (None, Some(last_words)) if exited => last_words,
        (Some(trap), _) => trap.to_string(),
        (None, _) => error.root_cause().to_string(),
    };
    let backtrace = frames
        .into_iter()
        .flat_map(WasmBacktrace::frames)
        // A number without a name tells nothing.
        .filter_map(|frame| frame.func_name().map(str::to_owned))
        .collect();
    CallFault::Trapped { message, backtrace }
}
