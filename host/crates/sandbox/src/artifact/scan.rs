//! Validates a component and counts its parts before the compiler sees it.

use wasmparser::{FunctionBody, Parser, Payload, ValidPayload, Validator, WasmFeatures};

use super::{Error, Limits};

/// Returns the features of the engine: must match [`engine`](crate::engine), or a component would pass here and fail in the
/// compiler.
fn features() -> WasmFeatures {
    let off =
        WasmFeatures::THREADS | WasmFeatures::MEMORY64 | WasmFeatures::SHARED_EVERYTHING_THREADS;
    WasmFeatures::default() - off
}

#[derive(Default)]
struct PartCounts {
    functions: usize,
    modules: usize,
    memories: usize,
    tables: usize,
    data_segments: usize,
    element_segments: usize,
    globals: usize,
}

/// Validates a component; takes some milliseconds per megabyte.
pub(super) fn validate(bytes: &[u8]) -> Result<(), Error> {
    let malformed = |source| Error::Malformed { source };
    let mut validator = Validator::new_with_features(features());
    let mut allocations = wasmparser::FuncValidatorAllocations::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(malformed)?;
        if let ValidPayload::Func(function, body) =
            validator.payload(&payload).map_err(malformed)?
        {
            let mut function = function.into_validator(allocations);
            function.validate(&body).map_err(malformed)?;
            allocations = function.into_allocations();
        }
    }
    Ok(())
}

/// Refuses a component whose parts are too large or too many. Comes before validation, whose cost grows with them.
pub(super) fn count(bytes: &[u8], limits: &Limits) -> Result<(), Error> {
    let malformed = |source| Error::Malformed { source };
    let mut counts = PartCounts::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(malformed)? {
            Payload::Version { .. } => {
                counts.modules += 1;
                at_most("modules", counts.modules, limits.modules_max)?;
            }
            Payload::FunctionSection(section) => {
                counts.functions += size(section.count());
                at_most("functions", counts.functions, limits.functions_max)?;
            }
            Payload::MemorySection(section) => {
                counts.memories += size(section.count());
                at_most("memories", counts.memories, limits.memories_max)?;
            }
            Payload::TableSection(section) => {
                counts.tables += size(section.count());
                at_most("tables", counts.tables, limits.tables_max)?;
            }
            Payload::GlobalSection(section) => {
                counts.globals += size(section.count());
                at_most("globals", counts.globals, limits.globals_max)?;
            }
            Payload::DataSection(section) => {
                counts.data_segments += size(section.count());
                at_most(
                    "data segments",
                    counts.data_segments,
                    limits.data_segments_max,
                )?;
            }
            Payload::ElementSection(section) => {
                counts.element_segments += size(section.count());
                let max = limits.element_segments_max;
                at_most("element segments", counts.element_segments, max)?;
            }
            Payload::CodeSectionEntry(body) => check_body(&body, limits)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_body(body: &FunctionBody<'_>, limits: &Limits) -> Result<(), Error> {
    let malformed = |source| Error::Malformed { source };
    let bytes = body.range().len();
    at_most("bytes in one function", bytes, limits.body_bytes_max)?;
    let mut locals = 0_u32;
    for group in body.get_locals_reader().map_err(malformed)? {
        let (count, _) = group.map_err(malformed)?;
        locals = locals.saturating_add(count);
    }
    at_most(
        "locals in one function",
        size(locals),
        size(limits.locals_max),
    )
}

fn at_most(what: &'static str, count: usize, max: usize) -> Result<(), Error> {
    if count <= max {
        Ok(())
    } else {
        Err(Error::TooComplex { what, count, max })
    }
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
