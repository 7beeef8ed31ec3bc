//! The hidden command `compile`: the host starts its own program with it, once per plugin.

use std::num::NonZeroUsize;

use innkeeper_sandbox::artifact::ChildBounds;

/// Flags of `compile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct CompileArgs {
    /// Largest address space, in bytes
    #[arg(long, value_name = "BYTES")]
    memory_bytes_max: u64,
    /// Longest CPU time, in seconds
    #[arg(long, value_name = "SECONDS")]
    cpu_seconds_max: u64,
    /// Largest output, in bytes
    #[arg(long, value_name = "BYTES")]
    code_bytes_max: u64,
    /// Number of compiler threads
    #[arg(long, value_name = "COUNT", default_value = "1")]
    threads: NonZeroUsize,
    /// Compile for an engine that counts fuel
    #[arg(long)]
    fuel: bool,
    /// Process ID of the host, without which this process ends
    #[arg(long, value_name = "PID")]
    host_process: Option<u32>,
}

impl From<CompileArgs> for ChildBounds {
    fn from(args: CompileArgs) -> Self {
        Self {
            memory_bytes_max: args.memory_bytes_max,
            cpu_seconds_max: args.cpu_seconds_max,
            code_bytes_max: args.code_bytes_max,
            threads: args.threads,
            fuel: args.fuel,
            host_process: args.host_process,
        }
    }
}
