//! The verdict on a component that cannot be compiled: it is the same at every attempt.

use serde::{Deserialize, Serialize};

/// The most address space of a compiler, in bytes: enough for an ordinary component of about 6 MB.
pub(super) const MEMORY_BYTES_MAX: u64 = 2 << 30;

/// The remedy for a component that exceeds a limit.
const SMALLER: &str = "make it smaller, its largest functions first";

/// Returns the remedy for lack of memory. Less than the most that compilers get is half of the container's limit.
fn remedy(bytes_max: u64) -> String {
    if bytes_max < MEMORY_BYTES_MAX {
        let limit_mib = bytes_max >> 19;
        return format!(
            ", which is half of the memory limit of the Pod: raise resources.limits.memory of the host above {limit_mib} MiB"
        );
    }
    format!(": {SMALLER}")
}

/// The reason for which a component cannot be compiled within bounds; the same bytes always have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum CompileVerdict {
    /// The compiler refuses it, with this message.
    ///
    /// Remedy: Build the component again with the SDK.
    #[error("the compiler refused the component: {0}")]
    Refused(String),
    /// The compiler failed, with this last line.
    ///
    /// Remedy: Report it to the maintainers with the component.
    #[error("the compiler failed on the component: {0}")]
    Broke(String),
    /// It made the compiler reach out of its process, and the kernel stopped it.
    #[error(
        "the compiler was stopped because it reached out of its process, which no harmless component causes: do not run the component, and report it to the maintainers of Innkeeper"
    )]
    ReachedOut,
    /// It takes more than this CPU time, in seconds.
    #[error("compiling the component takes more than {0} s of CPU time: {SMALLER}")]
    Cpu(u64),
    /// It takes more than this address space, in bytes.
    ///
    /// Remedy: Make the component smaller, or raise `resources.limits.memory` of the host, of which a compiler gets
    /// half.
    #[error("compiling the component takes more than {} MiB of memory{}", .0 >> 20, remedy(*.0))]
    Memory(u64),
    /// It becomes more than this native code, in bytes.
    #[error("compiling the component takes more than {0} bytes of native code: {SMALLER}")]
    Code(u64),
}
