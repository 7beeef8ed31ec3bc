//! One call's state: what a guest's imports answer from, and their limits.
//!
//! Imports answer from memory and never wait.
//! To end a call, the host notes the reason in `ending` and traps the guest. The caller gets the noted reason, not the
//! trap.

use std::{any::Any, collections::BTreeSet, sync::Arc, time::Instant};

use innkeeper_model::{Digest, Gvk, Limits, ListSelector, ObjectRef, ReadFailure, Reads, ZoneTime};
use parking_lot::Mutex;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{cli::WasiCliCtx, filesystem::WasiFilesystemCtx};

use crate::{
    call::{CallFault, CallLimit, Context},
    limiter::MemoryMeter,
    log::{LogBuffer, LogLevel},
    random::RandomStream,
};

/// Random bytes per `random` call; the contract states this limit.
const RANDOM_BYTES_PER_CALL_MAX: usize = 4096;
/// The time until the instance is complete, in milliseconds since the epoch: not zero, at which Go's runtime gives up,
/// and earlier than each pass, so that no clock goes back.
pub(super) const STARTUP_MS: u64 = 1_000;
/// Random bytes in one pass, and as many before it; the contract states this limit.
const RANDOM_BYTES_MAX: usize = 64 * 1024;
/// Handles for streams and the like that a guest may hold at a time; a clock's pollable counts twice. Far more than the
/// standard streams need; each costs the host about 200 bytes.
pub(super) const HANDLES_MAX: usize = 1000;

/// Reads that can be handed back to the caller in their own type.
pub(super) trait AnyReads: Reads {
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<R: Reads + 'static> AnyReads for R {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The reason for which the host ended a call.
#[derive(Debug)]
pub(super) enum Ending {
    Fault(CallFault),
    Parked(Gvk),
}

/// The refusal that a guest gets instead of an answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadRefusal {
    NotGranted,
    NotServed,
}

/// State for a guest that uses WASI.
pub(super) struct Wasi {
    pub(super) cli: WasiCliCtx,
    pub(super) files: WasiFilesystemCtx,
    pub(super) handles: ResourceTable,
    /// Handles for waits that never end.
    pub(super) waits: BTreeSet<u32>,
}

impl Default for Wasi {
    fn default() -> Self {
        let mut handles = ResourceTable::new();
        handles.set_max_capacity(HANDLES_MAX);
        Self {
            cli: WasiCliCtx::default(),
            files: WasiFilesystemCtx::default(),
            handles,
            waits: BTreeSet::new(),
        }
    }
}

/// One call's state.
pub(crate) struct StoreState {
    pub(super) meter: MemoryMeter,
    /// Shared with the guest's standard streams, which cannot reach this state.
    pub(super) log: Arc<Mutex<LogBuffer>>,
    pub(super) ending: Option<Ending>,
    pub(super) reads: Box<dyn AnyReads>,
    pub(super) reads_count: u32,
    pub(super) read_bytes: usize,
    pub(super) used_now: bool,
    pub(super) random_bytes: Option<usize>,
    /// None until the guest uses WASI.
    pub(super) wasi: Option<Box<Wasi>>,
    /// The time at which the instance was complete.
    pub(super) instantiated_at: Option<Instant>,
    /// The time at which the guest had answered.
    pub(super) answered_at: Option<Instant>,
    reads_max: u32,
    read_bytes_max: usize,
    now_ms: u64,
    random: RandomStream,
    /// The random bytes until the instance is complete: the same in each of a component's passes.
    startup: RandomStream,
    startup_bytes: usize,
}

impl StoreState {
    pub(super) fn new(
        reads: Box<dyn AnyReads>,
        context: &Context,
        limits: &Limits,
        memory_bytes_max: usize,
        component: &Digest,
    ) -> Self {
        Self {
            meter: MemoryMeter::new(memory_bytes_max),
            log: Arc::new(Mutex::new(LogBuffer::new(limits.log_bytes_max))),
            ending: None,
            reads,
            reads_count: 0,
            read_bytes: 0,
            used_now: false,
            random_bytes: None,
            wasi: None,
            instantiated_at: None,
            answered_at: None,
            reads_max: limits.host_calls_max,
            read_bytes_max: limits.host_call_bytes_max,
            now_ms: context.now_ms,
            random: RandomStream::new(context.seed),
            startup: RandomStream::new(*component.as_bytes()),
            startup_bytes: 0,
        }
    }

    /// Returns true until the export is entered. A runtime's requests until then do not belong to the pass.
    const fn is_starting(&self) -> bool {
        self.instantiated_at.is_none()
    }

    /// Ends the call.
    pub(super) fn end(&mut self, ending: Ending) -> wasmtime::Error {
        // The first reason counts: later ones follow from ending the guest.
        self.ending.get_or_insert(ending);
        wasmtime::Error::msg("the host ended the call")
    }

    pub(super) fn fault(&mut self, fault: CallFault) -> wasmtime::Error {
        self.end(Ending::Fault(fault))
    }

    pub(super) fn log_takes(&self, level: LogLevel) -> bool {
        self.log.lock().takes(level)
    }

    pub(super) fn log(&mut self, level: LogLevel, message: String) {
        self.log.lock().push(level, message);
    }

    pub(super) fn log_dropped(&mut self, bytes: usize) {
        self.log.lock().drop_line(bytes);
    }

    pub(super) fn now(&mut self) -> u64 {
        if self.is_starting() {
            return STARTUP_MS;
        }
        self.used_now = true;
        self.now_ms
    }

    pub(super) fn random(&mut self, len: u32) -> wasmtime::Result<Vec<u8>> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let is_starting = self.is_starting();
        let before = if is_starting {
            self.startup_bytes
        } else {
            self.random_bytes.unwrap_or(0)
        };
        let used = before.saturating_add(len);
        // Checked before anything is allocated: a guest may ask for 4 GiB.
        let exceeded = match () {
            () if len > RANDOM_BYTES_PER_CALL_MAX => {
                Some((CallLimit::RandomBytesPerCall, RANDOM_BYTES_PER_CALL_MAX))
            }
            () if used > RANDOM_BYTES_MAX => Some((CallLimit::RandomBytes, RANDOM_BYTES_MAX)),
            () => None,
        };
        if let Some((limit, allowed)) = exceeded {
            return Err(self.fault(CallFault::LimitExceeded { limit, allowed }));
        }
        if is_starting {
            self.startup_bytes = used;
            return Ok(self.startup.take(len));
        }
        self.random_bytes = Some(used);
        Ok(self.random.take(len))
    }

    pub(super) fn zone_offset(&mut self, time: &ZoneTime) -> wasmtime::Result<Option<i32>> {
        self.count_read()?;
        // Names that are no zone are recorded, too.
        self.count_bytes(time.zone.len())?;
        Ok(self.reads.zone_offset(time))
    }

    fn count_read(&mut self) -> wasmtime::Result<()> {
        self.reads_count += 1;
        if self.reads_count > self.reads_max {
            let allowed = usize::try_from(self.reads_max).unwrap_or(usize::MAX);
            return Err(self.fault(CallFault::LimitExceeded {
                limit: CallLimit::HostCalls,
                allowed,
            }));
        }
        Ok(())
    }

    /// Counts a read and returns the kind.
    pub(super) fn read_kind(&mut self, api_version: &str, kind: &str) -> wasmtime::Result<Gvk> {
        self.count_read()?;
        match Gvk::parse(api_version, kind) {
            Ok(kind) if !kind.kind.is_empty() => Ok(kind),
            Ok(_) => Err(self.fault(CallFault::ReadRejected {
                problem: "a read names no kind".to_owned(),
            })),
            Err(error) => Err(self.fault(CallFault::ReadRejected {
                problem: error.to_string(),
            })),
        }
    }

    pub(super) fn get(
        &mut self,
        reference: &ObjectRef,
    ) -> wasmtime::Result<Result<Option<Arc<str>>, ReadRefusal>> {
        match self.reads.get(reference) {
            Ok(object) => {
                // The host shares the text with the cache: only the copy into the guest's memory costs anything.
                self.count_bytes(object.as_ref().map_or(0, |object| object.len()))?;
                Ok(Ok(object))
            }
            Err(failure) => self.refuse(failure).map(Err),
        }
    }

    pub(super) fn list(
        &mut self,
        selector: &ListSelector,
    ) -> wasmtime::Result<Result<Vec<Arc<str>>, ReadRefusal>> {
        match self.reads.list(selector) {
            Ok(objects) => {
                self.count_bytes(objects.iter().map(|object| object.len()).sum())?;
                Ok(Ok(objects))
            }
            Err(failure) => self.refuse(failure).map(Err),
        }
    }

    fn count_bytes(&mut self, bytes: usize) -> wasmtime::Result<()> {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        if self.read_bytes > self.read_bytes_max {
            let allowed = self.read_bytes_max;
            return Err(self.fault(CallFault::LimitExceeded {
                limit: CallLimit::HostCallBytes,
                allowed,
            }));
        }
        Ok(())
    }

    fn refuse(&mut self, failure: ReadFailure) -> wasmtime::Result<ReadRefusal> {
        match failure {
            ReadFailure::NotGranted(_) | ReadFailure::OutsideWatchedNamespaces { .. } => {
                // The contract has no third refusal: to a guest, both mean that it may not read the object.
                Ok(ReadRefusal::NotGranted)
            }
            ReadFailure::NotServed(_) => Ok(ReadRefusal::NotServed),
            // The guest must not continue without the object: the pass starts again once the kind is cached.
            ReadFailure::NotSynced(kind) => Err(self.end(Ending::Parked(kind))),
            failure @ ReadFailure::InvalidSelector { .. } => {
                Err(self.fault(CallFault::ReadRejected {
                    problem: failure.to_string(),
                }))
            }
        }
    }
}
