//! The hidden command `compile`, which the host runs once per plugin.

use std::num::NonZeroUsize;

use innkeeper_sandbox::artifact::{ChildBounds, ChildTask};

/// Flags of `compile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct CompileArgs {
    /// Maximum address space, in bytes
    #[arg(long, value_name = "BYTES")]
    memory_bytes_max: u64,
    /// Maximum CPU time, in seconds
    #[arg(long, value_name = "SECONDS")]
    cpu_seconds_max: u64,
    /// Maximum output, in bytes
    #[arg(long, value_name = "BYTES")]
    code_bytes_max: u64,
    /// Number of compiler threads
    #[arg(long, value_name = "COUNT", default_value = "1")]
    threads: NonZeroUsize,
    /// Compile for an engine that counts fuel
    #[arg(long)]
    fuel: bool,
    /// Check a configuration against its schema instead of compiling
    #[arg(long)]
    config: bool,
    /// Process ID of the host; this process ends with it
    #[arg(long, value_name = "PID")]
    host_process: Option<u32>,
}

impl CompileArgs {
    /// Returns the process limits.
    pub const fn bounds(&self) -> ChildBounds {
        ChildBounds {
            memory_bytes_max: self.memory_bytes_max,
            cpu_seconds_max: self.cpu_seconds_max,
            code_bytes_max: self.code_bytes_max,
            host_process: self.host_process,
        }
    }

    /// Returns the task.
    pub const fn task(&self) -> ChildTask {
        if self.config {
            return ChildTask::CheckConfig;
        }
        ChildTask::Compile {
            threads: self.threads,
            fuel: self.fuel,
        }
    }
}
