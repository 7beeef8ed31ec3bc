//! Why bytes do not become a plugin that runs.

use innkeeper_model::Retry;

use super::CompileLimit;

/// Why bytes cannot be loaded as a plugin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such file.
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
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// There are too many.
    #[error("the file has more than the {max} bytes that are allowed")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// It is something else.
    #[error(
        "this is not WebAssembly: it starts with {start}; give the .wasm file that the build made"
    )]
    NotWasm {
        /// The first bytes, for people.
        start: String,
    },
    /// It is WebAssembly, but not a component.
    #[error(
        "this is a core WebAssembly module, not a component: make it one with wasm-tools component new, or build its crate with innkeeper-guest-build"
    )]
    CoreModule,
    /// It is WebAssembly of a kind that the host does not know.
    #[error(
        "this is WebAssembly in encoding version {version}, layer {layer}, which this host does not know"
    )]
    UnknownEncoding {
        /// The version in the header.
        version: u16,
        /// 0 for modules, 1 for components.
        layer: u16,
    },
    /// It is damaged.
    #[error("the component is damaged or uses a feature that is switched off")]
    Malformed {
        /// What and where.
        #[source]
        source: wasmparser::BinaryReaderError,
    },
    /// A part of it is too large.
    #[error("the component has {count} {what}, at most {max} are allowed")]
    TooComplex {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// It was built against a contract that this host does not speak.
    #[error(
        "it was built against version {found} of innkeeper:plugin, this host speaks {}: build it with an SDK for one of these, or update the host",
        supported.join(", ")
    )]
    UnknownContract {
        /// Its version.
        found: String,
        /// Ours.
        supported: &'static [&'static str],
    },
    /// It was put together from parts that speak different versions.
    #[error(
        "it mixes the versions {first} and {second} of innkeeper:plugin: build all of it with one SDK"
    )]
    MixedContract {
        /// One version.
        first: String,
        /// Another.
        second: String,
    },
    /// It wants something that no plugin gets.
    #[error("it imports what no plugin gets: {}", imports.join("; "))]
    ForbiddenImports {
        /// Each import with what to do about it.
        imports: Vec<String>,
    },
    /// It is a component for something else.
    #[error(
        "it is a component, but not a plugin: it neither imports nor exports innkeeper:plugin; it exports {}",
        if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") }
    )]
    OtherWorld {
        /// What it exports.
        exports: Vec<String>,
    },
    /// It lacks what every plugin has.
    #[error(
        "it does not export innkeeper:plugin/reconciler: export a reconciler with the SDK's macro"
    )]
    MissingExport,
    /// The compiler refused it.
    #[error("failed to compile the component")]
    Compile {
        /// Why.
        #[source]
        source: wasmtime::Error,
    },
    /// The same, in a process of its own.
    #[error("the compiler refused the component: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// The compiler wants too much for it.
    #[error(
        "compiling the component takes more than {limit}: make it smaller, its largest functions first"
    )]
    CompileLimit {
        /// Of what, and how much it may have.
        limit: CompileLimit,
    },
    /// The compiler broke down.
    #[error("the compiler broke down over the component: {words}")]
    CompilerBroke {
        /// Its last words.
        words: String,
    },
    /// The compiler was killed, which says nothing about the component.
    #[error(
        "the compiler was ended {times} times before it was done, the last time {cause}: give the host more CPU or memory"
    )]
    CompilerKilled {
        /// How often it was tried.
        times: u32,
        /// By what.
        cause: String,
    },
    /// There is no process to compile in.
    #[error("failed to compile in a process of its own")]
    RunCompiler {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The compiled form cannot be kept.
    #[error("failed to keep the compiled component in the cache directory")]
    Keep {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The cache directory cannot be trusted with native code.
    #[error("the cache directory {path} is refused, because {problem}")]
    UnsafeCacheDirectory {
        /// The directory.
        path: String,
        /// Why, and what to do.
        problem: String,
    },
    /// The cache directory cannot be used.
    #[error("failed to open the cache directory {path}")]
    OpenCache {
        /// The directory.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// Whether the same bytes may do another time.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::CompilerKilled { .. } | Self::RunCompiler { .. } | Self::Keep { .. } => {
                Retry::Backoff
            }
            _ => Retry::OnChange,
        }
    }

    /// The reason of a condition, in CamelCase.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::CompileLimit { .. } | Self::TooComplex { .. } | Self::TooLarge { .. } => {
                "CompileLimitExceeded"
            }
            Self::CompilerKilled { .. } => "CompilerKilled",
            Self::RunCompiler { .. } | Self::Keep { .. } => "HostFault",
            _ => "CannotCompile",
        }
    }
}
