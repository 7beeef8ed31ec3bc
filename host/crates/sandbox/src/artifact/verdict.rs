//! The bounds on a compiler, and the verdict on a component that cannot be compiled within them: it is the same at
//! every attempt.

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};

use crate::semaphore::Semaphore;

/// A compiler's largest address space, in bytes: enough for an ordinary component with about 6 MB.
const MEMORY_BYTES_MAX: u64 = 2 << 30;

/// The remedy for a component that exceeds a limit.
const SMALLER: &str = "make it smaller, its largest functions first";

/// The bounds on one compiling process, and how many may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileBounds {
    /// Processes at a time.
    pub processes_max: NonZeroU32,
    /// Address space in bytes. A 1 MB component takes about 300 MB.
    pub memory_bytes_max: u64,
    /// CPU time in seconds. A 1 MB component takes about one.
    pub cpu_seconds_max: u64,
    /// Native code and metadata, in bytes.
    pub code_bytes_max: u64,
    /// Time until the process is killed. Long, because a process that merely gets little CPU is innocent.
    pub wall_max: Duration,
    /// Restarts after a process was killed.
    pub retries_max: u32,
}

impl CompileBounds {
    /// Returns the usual bounds for this many processors and this much memory for all processes together.
    ///
    /// Compilers get at most half the memory: the kernel may end all processes in a container that uses up its memory.
    pub fn on(processors: NonZeroU32, memory_bytes_max: Option<u64>) -> Self {
        let share = memory_bytes_max.map_or(u64::MAX, |bytes| bytes / 2);
        let each = share.min(MEMORY_BYTES_MAX);
        let fit = share.checked_div(each).unwrap_or(0);
        let fit = u32::try_from(fit).unwrap_or(u32::MAX);
        let fit = NonZeroU32::new(fit).unwrap_or(NonZeroU32::MIN);
        Self {
            processes_max: processors.min(fit),
            memory_bytes_max: each,
            // Thirty times as much as a 1 MB component takes.
            cpu_seconds_max: 30,
            // Sixteen times the largest component.
            code_bytes_max: 512 << 20,
            // Four times the CPU time: a throttled node must not fail innocent components.
            wall_max: Duration::from_mins(2),
            retries_max: 3,
        }
    }

    /// Returns one permit for each process.
    pub(super) fn permits(&self) -> Semaphore {
        Semaphore::new(usize::try_from(self.processes_max.get()).unwrap_or(usize::MAX))
    }
}

/// Returns the remedy for lack of memory.
fn remedy(bytes_max: u64) -> String {
    // `CompileBounds::on` lowers the bound only to half of the container's limit.
    if bytes_max < MEMORY_BYTES_MAX {
        let limit_mib = bytes_max >> 19;
        return format!(
            ", which is half of the memory limit of the Pod: raise resources.limits.memory of the host above {limit_mib} MiB"
        );
    }
    format!(": {SMALLER}")
}

/// Why a component cannot be compiled within bounds: always the same for the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum CompileVerdict {
    /// The compiler refuses it, with this message.
    #[error("the compiler refused the component: {0}")]
    Refused(String),
    /// The compiler failed, with this last line.
    #[error("the compiler failed on the component: {0}")]
    Broke(String),
    /// It made the compiler reach outside the process, and the kernel stopped it.
    #[error(
        "the compiler was stopped because it reached out of its process, which no harmless component causes: do not run the component, and report it to the maintainers of Innkeeper"
    )]
    ReachedOut,
    /// It takes more than this CPU time, in seconds.
    #[error("compiling the component takes more than {0} s of CPU time: {SMALLER}")]
    Cpu(u64),
    /// It takes more than this address space, in bytes.
    #[error("compiling the component takes more than {} MiB of memory{}", .0 >> 20, remedy(*.0))]
    Memory(u64),
    /// It becomes more than this native code, in bytes.
    #[error("compiling the component takes more than {0} bytes of native code: {SMALLER}")]
    Code(u64),
}
