//! The process's WebAssembly engine, its settings, and bounds on live instances.
//!
//! There is one engine per process and metering: compiled code, the memory pool and the ticker belong to it.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::{
    Error,
    code::Codes,
    limiter,
    semaphore::{Permits, Semaphore},
    ticker::Ticker,
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Memory per slot that is wiped rather than given back to the kernel: page faults cost more than wiping. A guest with
/// typed Kubernetes objects stays below it, so that memory is never given back.
/// Measured: an empty call takes 11 us with 2 MiB kept and 13 us with nothing kept.
const LINEAR_MEMORY_KEEP_RESIDENT_BYTES: usize = 4 * MIB;
/// The same for tables; 8,192 eight-byte elements, more than a usual guest's tables have.
const TABLE_KEEP_RESIDENT_BYTES: usize = 64 * KIB;
/// With the whole 32-bit address range reserved and a guard behind it, no access needs a bounds check; such
/// checks cost a third on JSON.
const MEMORY_RESERVATION_BYTES: u64 = 4 << 30;
/// A guest's stack: wasmtime's default. Host calls run on the rest of the thread's stack, which has 2 MiB.
const WASM_STACK_BYTES_MAX: usize = 512 * KIB;
/// Functions named in a fault: enough to find the place in a condition, which people read.
const BACKTRACE_FRAMES_MAX: usize = 10;

/// The bound on the cost of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metering {
    /// By time alone: the fast way.
    #[default]
    Epochs,
    /// By time, and every call reports fuel: a cost figure that is the same on every machine.
    Fuel,
}

/// The engine's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Calls that may run at a time; a further one waits.
    pub calls_max: NonZeroU32,
    /// The largest memory limit that any plugin may have, in bytes; address space only, nothing is allocated.
    pub memory_bytes_max: usize,
    /// Memory for all instances together, in bytes; none: no bound. A call that may need more than is left waits. No call
    /// may have more than half.
    pub memory_together_bytes_max: Option<usize>,
    /// If true, the kernel is asked for the pages that a guest has touched, which makes wiping cheaper.
    /// Only where swap is off ([`swap_is_off`](crate::swap_is_off)): a touched page that was swapped out is not
    /// wiped, and the next guest could read it.
    pub pagemap_scan: bool,
    /// The bound on the cost of calls.
    pub metering: Metering,
}

impl EngineSettings {
    /// The usual settings.
    pub const fn new(calls_max: NonZeroU32) -> Self {
        Self {
            calls_max,
            memory_bytes_max: 1024 * MIB,
            memory_together_bytes_max: None,
            pagemap_scan: false,
            metering: Metering::Epochs,
        }
    }
}

/// The WebAssembly engine. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    engine: wasmtime::Engine,
    settings: EngineSettings,
    // One permit per pool instance: wasmtime answers a further one with an error.
    instances: Semaphore,
    // One permit: a plugin that describes itself does so outside the guest threads.
    describing: Semaphore,
    // One permit per byte that all instances may have together.
    memory: Semaphore,
    // One permit per byte that instances with long deadlines may have together: half, and no call may have more than
    // the other half. So a call with a short deadline never waits for a long one.
    long_memory: Semaphore,
    /// Code that may be unmapped while it is idle.
    codes: Codes,
    // Joined when the last clone goes.
    ticker: Ticker,
}

impl Engine {
    /// Reserves address space for the instances and starts the thread that ticks the epochs.
    pub fn new(settings: &EngineSettings) -> Result<Self, Error> {
        let mut config = compilation(settings.metering);
        // An empty call in a fresh instance takes 5 to 13 us with a pool, and 26 us without.
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(settings)));
        let engine = wasmtime::Engine::new(&config).map_err(Error::ConfigureEngine)?;
        // Wasmtime's engine only: a thread that held this one would never be joined.
        let counting = engine.clone();
        let ticker =
            Ticker::start(move || counting.increment_epoch()).map_err(Error::StartThread)?;
        let memory_bytes_max = settings.memory_together_bytes_max.unwrap_or(usize::MAX);
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                settings: settings.clone(),
                instances: Semaphore::new(
                    usize::try_from(instances(settings)).unwrap_or(usize::MAX),
                ),
                describing: Semaphore::new(1),
                memory: Semaphore::new(memory_bytes_max),
                long_memory: Semaphore::new(memory_bytes_max / 2),
                codes: Codes::default(),
                ticker,
            }),
        })
    }

    /// Unmaps components that have been idle for this long, and returns how many.
    ///
    /// The next call maps a component again, which takes some milliseconds. Running calls keep their code.
    pub fn unmap_idle(&self, idle: Duration) -> usize {
        self.inner.codes.unmap_idle(idle)
    }

    pub(super) fn codes(&self) -> &Codes {
        &self.inner.codes
    }

    pub(super) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.engine
    }

    pub(super) fn settings(&self) -> &EngineSettings {
        &self.inner.settings
    }

    /// Returns how much of this memory one instance may have, in bytes.
    pub fn memory_bytes_max(&self, bytes: usize) -> usize {
        // At most half of all memory, so that a long call leaves enough for any short one.
        let pool = self.inner.settings.memory_bytes_max;
        bytes.min(pool).min(self.inner.long_memory.permits_max())
    }

    /// Waits until instances leave this much memory; `long` is true for a call with a long deadline.
    pub(super) fn memory(&self, bytes: usize, long: bool) -> ReservedMemory<'_> {
        // First: a call that waits for a long one must not precede others in the order of `memory`.
        let long = long.then(|| self.inner.long_memory.acquire(bytes));
        ReservedMemory {
            all: self.inner.memory.acquire(bytes),
            long,
        }
    }

    /// Waits until other plugins have described themselves.
    pub(super) fn describing(&self) -> Permits<'_> {
        self.inner.describing.acquire(1)
    }

    /// Waits until an instance may be made.
    pub(super) fn slot(&self) -> Permits<'_> {
        self.inner.instances.acquire(1)
    }

    /// Returns the thread that interrupts calls at their deadlines.
    pub(super) fn ticker(&self) -> &Ticker {
        &self.inner.ticker
    }
}

/// Memory that an instance may have, released on drop.
#[must_use = "the memory is released on drop"]
pub(super) struct ReservedMemory<'a> {
    all: Permits<'a>,
    long: Option<Permits<'a>>,
}

impl ReservedMemory<'_> {
    /// Returns true if other calls held the memory when this one asked.
    pub(super) fn has_waited(&self) -> bool {
        self.all.has_waited() || self.long.as_ref().is_some_and(Permits::has_waited)
    }
}

/// Returns an engine that only compiles, for engines of this metering: it reserves no address space for instances.
pub(super) fn compiler(metering: Metering) -> wasmtime::Result<wasmtime::Engine> {
    wasmtime::Engine::new(&compilation(metering))
}

/// Returns the settings that compiled code depends on.
fn compilation(metering: Metering) -> Config {
    let mut config = Config::new();
    config
        // On by default. No import ever waits, and a call on an existing instance takes 0.2 us instead of 0.9 us.
        .concurrency_support(false)
        // Makes JSON parsing 20 % slower. Fuel could end a loop too, and makes it 31 % slower.
        .epoch_interruption(true)
        .consume_fuel(metering == Metering::Fuel)
        // The same input has to give the same output on every processor.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .shared_memory(false)
        .wasm_memory64(false)
        .max_wasm_stack(WASM_STACK_BYTES_MAX)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(BACKTRACE_FRAMES_MAX))
        .memory_reservation(MEMORY_RESERVATION_BYTES)
        // With the whole address range reserved, a memory grows in place.
        .memory_may_move(false)
        .memory_init_cow(true);
    config
}

/// Returns how many instances the pool has.
const fn instances(settings: &EngineSettings) -> u32 {
    // One more than calls, for a plugin that describes itself: many that are loaded at a time would otherwise hold the
    // calls' instances.
    settings.calls_max.get().saturating_add(1)
}

fn pool(settings: &EngineSettings) -> PoolingAllocationConfig {
    let instances = instances(settings);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(limiter::CORE_INSTANCES_MAX))
        .total_memories(instances.saturating_mul(limiter::MEMORIES_MAX))
        .total_tables(instances.saturating_mul(limiter::TABLES_MAX))
        // Per component too: one plugin could otherwise take the slots of all others.
        .max_core_instances_per_component(limiter::CORE_INSTANCES_MAX)
        .max_memories_per_component(limiter::MEMORIES_MAX)
        .max_tables_per_component(limiter::TABLES_MAX)
        .max_memories_per_module(limiter::MEMORIES_MAX)
        .max_tables_per_module(limiter::TABLES_MAX)
        .table_elements(limiter::TABLE_ELEMENTS_MAX)
        .max_memory_size(settings.memory_bytes_max)
        .linear_memory_keep_resident(LINEAR_MEMORY_KEEP_RESIDENT_BYTES)
        .table_keep_resident(TABLE_KEEP_RESIDENT_BYTES)
        .pagemap_scan(if settings.pagemap_scan {
            // Kernels before 6.7 lack the system call, and with `Yes` the host would not start there.
            Enabled::Auto
        } else {
            Enabled::No
        });
    pool
}
