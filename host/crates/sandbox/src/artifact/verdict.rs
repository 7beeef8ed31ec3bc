//! The verdict on a component that cannot be compiled: it is the same at every attempt.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CompileBounds, Error};

/// The reason for which a component cannot be compiled within bounds; the same bytes always have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CompileVerdict {
    /// The compiler refuses it, with this message.
    Refused(String),
    /// It takes too much CPU time.
    Cpu,
    /// It takes too much memory.
    Memory,
    /// It becomes too much native code.
    Code,
    /// The compiler broke down, with this last line.
    Broke(String),
}

impl CompileVerdict {
    pub(super) fn into_error(self, bounds: &CompileBounds) -> Error {
        let limit = match self {
            Self::Refused(reason) => return Error::Refused { reason },
            Self::Broke(words) => return Error::CompilerBroke { words },
            Self::Cpu => CompileLimit::CpuSeconds(bounds.cpu_seconds_max),
            Self::Memory => CompileLimit::MemoryBytes(bounds.memory_bytes_max),
            Self::Code => CompileLimit::CodeBytes(bounds.code_bytes_max),
        };
        Error::CompileLimit { limit }
    }
}

/// A limit of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileLimit {
    /// CPU time in seconds.
    CpuSeconds(u64),
    /// Address space in bytes.
    MemoryBytes(u64),
    /// Native code in bytes.
    CodeBytes(u64),
}

impl fmt::Display for CompileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuSeconds(seconds) => write!(f, "{seconds} s of CPU time"),
            Self::MemoryBytes(bytes) => write!(f, "{bytes} bytes of memory"),
            Self::CodeBytes(bytes) => write!(f, "{bytes} bytes of native code"),
        }
    }
}
