//! From bytes to compiled code.
//!
//! All checks that need no compiler come first, because compiling is the expensive and dangerous step: the file format,
//! the contract version, imports and exports, and all sizes.
//! A host compiles in separate processes, which can be bounded and killed; see [`Compiler`].
//! This module does not know where the bytes come from.

mod cache;
mod child;
mod config;
mod confinement;
mod error;
mod inspect;
mod kept;
mod marks;
mod needs;
mod process;
mod scan;
mod verdict;

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use wasmtime::component::Component;

use self::cache::Compiled;
pub use self::{
    cache::Cache,
    child::{ChildBounds, ChildError, ChildTask, child},
    config::ConfigChecker,
    confinement::Confinement,
    error::Error,
    inspect::{Inspection, Producer, What, inspect},
    needs::Needs,
    process::{Compiler, Program},
    verdict::{CompileBounds, CompileVerdict},
};
use innkeeper_model::Digest;

use crate::{
    Engine,
    code::CodeSource,
    convert,
    description::{self, Embedded},
    wasi,
};

/// The contract's package.
const PACKAGE: &str = "innkeeper:plugin/";
/// The interface that every plugin exports.
const RECONCILER: &str = "innkeeper:plugin/reconciler@";
/// The interfaces that a plugin may import, beside the confined WASI.
const IMPORTS: [&str; 3] = [
    "innkeeper:plugin/types@",
    "innkeeper:plugin/host@",
    "innkeeper:plugin/cluster@",
];

/// Size limits for an artifact and everything in it.
///
/// Some inputs take far more time and memory to compile than their size suggests: a valid module of 600 KB took 37.7 s
/// and 12.3 GB. These limits keep ordinary mistakes away from the compiler; its process's bounds stop the rest.
/// The guests in this repository are far below them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The whole file, in bytes.
    pub bytes_max: usize,
    /// Functions in all modules.
    pub functions_max: usize,
    /// Local variables per function.
    pub locals_max: u32,
    /// One function's body, in bytes.
    pub body_bytes_max: usize,
    /// Core modules, and components, in the component.
    pub modules_max: usize,
    /// Memories in all modules.
    pub memories_max: usize,
    /// Tables in all modules.
    pub tables_max: usize,
    /// Data segments in all modules.
    pub data_segments_max: usize,
    /// Element segments in all modules.
    pub element_segments_max: usize,
    /// Globals in all modules.
    pub globals_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 32 * 1024 * 1024,
            // Lowered from 100,000: components with that many reached the compiler.
            functions_max: 50_000,
            locals_max: 10_000,
            body_bytes_max: 512 * 1024,
            modules_max: 32,
            memories_max: 4,
            tables_max: 16,
            data_segments_max: 10_000,
            element_segments_max: 10_000,
            globals_max: 10_000,
        }
    }
}

/// A compiled plugin, not yet described or linked.
#[derive(Clone)]
pub struct Artifact {
    pub(super) code: Compiled,
    pub(super) digest: Digest,
    pub(super) contract: String,
    /// The embedded description.
    pub(super) description: Option<Embedded>,
}

impl Artifact {
    /// Returns the bytes' digest.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the contract version that it was built against.
    pub fn contract(&self) -> &str {
        &self.contract
    }
}

/// Reads a regular file with at most `bytes_max` bytes.
pub fn read_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let failed = |source: std::io::Error| {
        let path = path.display().to_string();
        if source.kind() == std::io::ErrorKind::NotFound {
            Error::NotFound { path }
        } else {
            Error::ReadFile { path, source }
        }
    };
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        // Reading a pipe could wait for ever. Reading a directory fails with a good message anyway.
        return Err(failed(std::io::Error::other("it is no regular file")));
    }
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    File::open(path)
        // One byte more shows that the file is too large. Its metadata would not: the file may grow meanwhile.
        .and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() > bytes_max {
        return Err(Error::TooLarge { max: bytes_max });
    }
    Ok(bytes)
}

/// Checks that bytes are a plugin that this host can compile and link, without compiling them.
pub fn check(bytes: &[u8], limits: &Limits) -> Result<Inspection, Error> {
    let inspection = examine(bytes, limits)?;
    scan::validate(bytes)?;
    check_world(&inspection)?;
    Ok(inspection)
}

/// Checks the format and the sizes; also needed when the compiled form is in the cache.
fn examine(bytes: &[u8], limits: &Limits) -> Result<Inspection, Error> {
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    if bytes.len() > limits.bytes_max {
        return Err(Error::TooLarge {
            max: limits.bytes_max,
        });
    }
    let inspection = inspect(bytes);
    match inspection.what {
        What::Component => {}
        What::CoreModule => return Err(Error::CoreModule),
        What::UnknownEncoding { version, layer } => {
            return Err(Error::UnknownEncoding { version, layer });
        }
        What::NotWasm => {
            let start = bytes[..bytes.len().min(16)].escape_ascii();
            return Err(Error::NotWasm {
                start: format!("\"{start}\""),
            });
        }
    }
    scan::count(bytes, limits)?;
    Ok(inspection)
}

/// Checks and compiles in this process, or takes the compiled form from the cache.
///
/// For commands on one file, whose user can end a slow compiler together with the command. A host, which has other
/// plugins to run, uses a [`Compiler`].
/// Blocks until the code is compiled: 20 to 500 ms for ordinary guests.
pub fn compile(
    engine: &Engine,
    bytes: &[u8],
    limits: &Limits,
    cache: Option<&Cache>,
) -> Result<Artifact, Error> {
    compile_with(engine, bytes, limits, cache, |digest| {
        let component = Component::new(engine.wasmtime(), bytes).map_err(Error::Compile)?;
        // The stored form is mapped from the file, so that many plugins share the page cache instead of the heap.
        let stored = cache.and_then(|cache| cache.store(engine, digest, &component));
        Ok(stored.unwrap_or_else(|| Compiled {
            source: CodeSource::Memory(component.clone()),
            component,
        }))
    })
}

/// Checks bytes, and takes their compiled form from the cache or else makes it. Bytes with a compiled form are not
/// validated again: they were valid when it was made.
fn compile_with(
    engine: &Engine,
    bytes: &[u8],
    limits: &Limits,
    cache: Option<&Cache>,
    make: impl FnOnce(&Digest) -> Result<Compiled, Error>,
) -> Result<Artifact, Error> {
    let inspection = examine(bytes, limits)?;
    let cached = cache.and_then(|cache| cache.load(engine, &inspection.digest));
    if cached.is_none() {
        scan::validate(bytes)?;
    }
    let contract = check_world(&inspection)?.to_owned();
    let code = cached.map_or_else(|| make(&inspection.digest), Ok)?;
    Ok(Artifact {
        code,
        digest: inspection.digest,
        contract,
        description: description::embedded(bytes),
    })
}

/// Checks the imports and exports, and returns the contract version.
fn check_world(inspection: &Inspection) -> Result<&str, Error> {
    let names = || inspection.imports.iter().chain(&inspection.exports);
    let mut versions = names().filter_map(|name| contract_version(name));
    let Some(version) = versions.next() else {
        return Err(Error::OtherWorld {
            exports: inspection.exports.clone(),
        });
    };
    if let Some(other) = versions.find(|other| *other != version) {
        return Err(Error::MixedContract {
            first: version.to_owned(),
            second: other.to_owned(),
        });
    }
    if !convert::VERSIONS.contains(&version) {
        return Err(Error::UnknownContract {
            found: version.to_owned(),
            supported: convert::VERSIONS,
        });
    }
    let imports: Vec<String> = inspection
        .imports
        .iter()
        .filter(|import| !IMPORTS.iter().any(|allowed| import.starts_with(allowed)))
        .filter(|import| !wasi::is_known(import))
        .map(|import| format!("{import} ({})", advice(import)))
        .collect();
    if !imports.is_empty() {
        return Err(Error::ForbiddenImports { imports });
    }
    if !inspection
        .exports
        .iter()
        .any(|export| export.starts_with(RECONCILER))
    {
        return Err(Error::MissingExport);
    }
    Ok(version)
}

/// Returns the version in the contract package's name; empty if the name has none.
fn contract_version(name: &str) -> Option<&str> {
    let interface = name.strip_prefix(PACKAGE)?;
    Some(interface.split_once('@').map_or("", |(_, version)| version))
}

/// Returns the remedy for a forbidden import.
fn advice(import: &str) -> &'static str {
    const TOOLCHAIN: &str = "the toolchain adds it: build for wasm32-unknown-unknown, or for wasm32-wasip2 without the code that uses it";
    let interface = import.split_once('@').map_or(import, |(name, _)| name);
    match interface {
        name if name.starts_with("wasi:sockets/") || name.starts_with("wasi:http/") => {
            "plugins have no network: read objects with cluster.get and cluster.list, let a Job do the rest"
        }
        name if name.starts_with("wasi:filesystem/") => {
            "plugins have no files: compile them in, or take them from the configuration"
        }
        name if name.starts_with("wasi:clocks/") => "take the time from host.now",
        name if name.starts_with("wasi:logging/") => "write with host.log",
        name if name.starts_with("wasi:") => TOOLCHAIN,
        name if name.starts_with(PACKAGE) => "the contract has no such interface",
        _ => "only innkeeper:plugin may be imported: remove the dependency that imports it",
    }
}
