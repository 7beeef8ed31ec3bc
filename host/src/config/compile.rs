//! The command `compile`, which the host starts itself and with itself: one plugin from standard input to standard
//! output, within bounds.

use std::num::NonZeroUsize;

use innkeeper_sandbox::artifact::ChildBounds;

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

impl From<CompileArgs> for ChildBounds {
    fn from(args: CompileArgs) -> Self {
        let CompileArgs {
            memory_bytes_max,
            cpu_seconds_max,
            code_bytes_max,
            threads,
            fuel,
        } = args;
        Self {
            memory_bytes_max,
            cpu_seconds_max,
            code_bytes_max,
            threads,
            fuel,
        }
    }
}
