//! Errors when loading and compiling an artifact.

use innkeeper_model::{PluginReason, Retry};

use super::CompileVerdict;

/// An error when loading and compiling an artifact.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not exist.
    #[error("there is no file {path}")]
    NotFound {
        /// The file.
        path: String,
    },
    /// The file cannot be read.
    #[error("failed to read {path}")]
    ReadFile {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// There are too many bytes.
    #[error("the file has more than the {max} bytes that are allowed")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// It is not WebAssembly.
    #[error(
        "this is not WebAssembly: it starts with {start}; give the .wasm file that the build made"
    )]
    NotWasm {
        /// The first bytes, escaped.
        start: String,
    },
    /// It is WebAssembly, but not a component.
    #[error(
        "this is a core WebAssembly module, not a component: make it one with wasm-tools component new, or build its crate with innkeeper-guest-build"
    )]
    CoreModule,
    /// It is WebAssembly that the host does not know.
    #[error(
        "this is WebAssembly in encoding version {version}, layer {layer}, which this host does not know"
    )]
    UnknownEncoding {
        /// The version in the header.
        version: u16,
        /// 0 for modules, 1 for components.
        layer: u16,
    },
    /// It ends in the middle.
    #[error("the file is truncated: copy it or build it again")]
    Truncated,
    /// It is damaged.
    #[error("the component is damaged: copy it or build it again")]
    Malformed(#[source] wasmparser::BinaryReaderError),
    /// It uses a part of WebAssembly that the host has switched off: threads, 64-bit memories, exceptions or garbage
    /// collection.
    #[error(
        "the component uses a feature of WebAssembly that plugins do not have: build it without"
    )]
    Feature(#[source] wasmparser::BinaryReaderError),
    /// A part of it is too large.
    #[error("the component has {count} {what}, at most {max} are allowed")]
    TooComplex {
        /// The limited part.
        what: &'static str,
        /// The actual number or size.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// It was built against an unsupported contract version.
    #[error(
        "unsupported contract version innkeeper:plugin@{found} (supported: {}): build it with an SDK for a supported version, or update the host",
        supported.join(", ")
    )]
    UnknownContract {
        /// The component's version.
        found: String,
        /// This host's versions, oldest first.
        supported: &'static [&'static str],
    },
    /// Imports and exports use different contract versions.
    #[error(
        "it mixes the versions {first} and {second} of innkeeper:plugin: build all of it with one SDK"
    )]
    MixedContract {
        /// One version.
        first: String,
        /// Another.
        second: String,
    },
    /// It has imports that plugins do not get.
    #[error("forbidden imports: {}", imports.join("; "))]
    ForbiddenImports {
        /// Each import with a remedy.
        imports: Vec<String>,
    },
    /// It is a component, but not a plugin.
    #[error(
        "it is a component, but not a plugin: it neither imports nor exports innkeeper:plugin; it exports {}",
        if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") }
    )]
    OtherWorld {
        /// The exports.
        exports: Vec<String>,
    },
    /// It lacks the export that every plugin has.
    #[error(
        "it does not export innkeeper:plugin/reconciler: export a reconciler with the SDK's macro"
    )]
    MissingExport,
    /// The compiler refused it.
    #[error("failed to compile the component")]
    Compile(#[source] wasmtime::Error),
    /// It cannot be compiled in a separate process.
    #[error(transparent)]
    Verdict(CompileVerdict),
    /// The compiler was killed. The component need not be the cause.
    #[error(
        "the compiler was killed {times} times before it was done, the last time {cause}: give the host more CPU or memory"
    )]
    CompilerKilled {
        /// The number of attempts.
        times: u32,
        /// The last end's cause.
        cause: String,
    },
    /// The process could not be run.
    #[error("failed to run the compiler in a separate process")]
    RunCompiler(#[source] std::io::Error),
    /// The compiled code could not be stored.
    #[error(
        "failed to keep the compiled component in the cache directory {path}: give it more space, or choose another with --cache-dir"
    )]
    Keep {
        /// The directory.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The cache directory cannot be trusted with native code.
    #[error("the cache directory {path} is refused, because {problem}")]
    UnsafeCacheDirectory {
        /// The directory.
        path: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// The cache directory cannot be used.
    #[error("failed to open the cache directory {path}")]
    OpenCache {
        /// The directory.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// Returns when to retry with the same bytes.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::CompilerKilled { .. } | Self::RunCompiler(_) | Self::Keep { .. } => {
                Retry::Backoff
            }
            _ => Retry::OnChange,
        }
    }

    /// Returns the condition's reason.
    pub const fn reason(&self) -> PluginReason {
        match self {
            Self::Verdict(
                CompileVerdict::Cpu(_) | CompileVerdict::Memory(_) | CompileVerdict::Code(_),
            )
            | Self::TooComplex { .. }
            | Self::TooLarge { .. } => PluginReason::CompileLimitExceeded,
            Self::CompilerKilled { .. } => PluginReason::CompilerKilled,
            Self::RunCompiler(_) | Self::Keep { .. } => PluginReason::HostFault,
            _ => PluginReason::CannotCompile,
        }
    }
}
