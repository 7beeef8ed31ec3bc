//! The command `compile`, which the host starts itself and with itself: one plugin from standard input to standard
//! output, within bounds.

use std::num::NonZeroUsize;

/// Flags of `compile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct CompileArgs {
    /// Take at most this much address space, in bytes
    #[arg(long, value_name = "BYTES")]
    pub memory_bytes_max: u64,
    /// Take at most this much CPU time, in seconds
    #[arg(long, value_name = "SECONDS")]
    pub cpu_seconds_max: u64,
    /// Write at most so many bytes
    #[arg(long, value_name = "BYTES")]
    pub code_bytes_max: u64,
    /// Compile with so many threads
    #[arg(long, value_name = "COUNT", default_value = "1")]
    pub threads: NonZeroUsize,
    /// Compile for an engine that counts fuel
    #[arg(long)]
    pub fuel: bool,
}
