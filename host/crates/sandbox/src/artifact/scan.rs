//! Validates a component and counts what is in it before the compiler sees it.

use std::collections::BTreeMap;

use wasmparser::{
    BinaryReader, BinaryReaderError, ComponentType, ComponentTypeDeclaration, FunctionBody, Parser,
    Payload, ValidPayload, Validator, WasmFeatures,
};

use super::{Error, Limits};

/// Levels of component and instance types within each other. `wasmparser` reads them by recursion without a limit: 3 KB
/// of types overflow a 2 MiB stack. WIT worlds have three levels.
const TYPE_LEVELS_MAX: usize = 32;

/// Returns the engine's features: must match [`engine`](crate::engine), or a component would pass here and fail in the
/// compiler.
fn features() -> WasmFeatures {
    let off = WasmFeatures::THREADS
        | WasmFeatures::MEMORY64
        | WasmFeatures::SHARED_EVERYTHING_THREADS
        | WasmFeatures::EXCEPTIONS
        | WasmFeatures::GC
        | WasmFeatures::GC_TYPES;
    WasmFeatures::default() - off
}

/// Returns why a component cannot be parsed.
fn damaged(error: BinaryReaderError) -> Error {
    // The parser reports the file's end by this text alone.
    if error.message().starts_with("unexpected end-of-file") {
        Error::Truncated
    } else {
        invalid(error)
    }
}

/// Returns why a part does not validate.
fn invalid(error: BinaryReaderError) -> Error {
    match error.missing_wasm_feature() {
        Some(_) => Error::Feature(error),
        None => Error::Malformed(error),
    }
}

/// Validates a component; takes some milliseconds per megabyte.
pub(super) fn validate(bytes: &[u8]) -> Result<(), Error> {
    let mut validator = Validator::new_with_features(features());
    let mut allocations = wasmparser::FuncValidatorAllocations::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(damaged)?;
        if let ValidPayload::Func(function, body) = validator.payload(&payload).map_err(invalid)? {
            let mut function = function.into_validator(allocations);
            function.validate(&body).map_err(invalid)?;
            allocations = function.into_allocations();
        }
    }
    Ok(())
}

/// Refuses a component whose parts are too large or too many. Comes before validation, whose cost grows with them.
pub(super) fn count(bytes: &[u8], limits: &Limits) -> Result<(), Error> {
    let mut counts = BTreeMap::new();
    for payload in Parser::new(0).parse_all(bytes) {
        let (what, count, max) = match payload.map_err(damaged)? {
            // Each module and each component begins with its version.
            Payload::Version { .. } => ("modules", 1, limits.modules_max),
            Payload::FunctionSection(part) => ("functions", part.count(), limits.functions_max),
            Payload::MemorySection(part) => ("memories", part.count(), limits.memories_max),
            Payload::TableSection(part) => ("tables", part.count(), limits.tables_max),
            Payload::GlobalSection(part) => ("globals", part.count(), limits.globals_max),
            Payload::DataSection(part) => ("data segments", part.count(), limits.data_segments_max),
            Payload::ElementSection(part) => (
                "element segments",
                part.count(),
                limits.element_segments_max,
            ),
            Payload::CodeSectionEntry(body) => {
                check_body(&body, limits)?;
                continue;
            }
            Payload::ComponentTypeSection(part) => {
                let range = part.range();
                let start = range.start;
                let content = bytes.get(range).unwrap_or_default();
                check_types(BinaryReader::new(content, start))?;
                continue;
            }
            _ => continue,
        };
        let counted: &mut usize = counts.entry(what).or_default();
        *counted = counted.saturating_add(size(count));
        at_most(what, *counted, max)?;
    }
    Ok(())
}

/// Refuses types that are nested too deep, without recursion.
fn check_types(mut reader: BinaryReader<'_>) -> Result<(), Error> {
    // The types that remain in the section, then the declarations that remain in each open type.
    let mut levels = vec![reader.read_var_u32().map_err(damaged)?];
    while let Some(rest) = levels.last_mut() {
        let Some(less) = rest.checked_sub(1) else {
            levels.pop();
            continue;
        };
        *rest = less;
        let is_declaration = levels.len() > 1;
        if let Some(declarations) = open_type(&mut reader, is_declaration).map_err(damaged)? {
            levels.push(declarations);
            at_most("levels of types", levels.len() - 1, TYPE_LEVELS_MAX)?;
        }
    }
    Ok(())
}

/// Reads a type, or a declaration within a type. For a component or instance type, reads only the beginning, and
/// returns how many declarations follow.
fn open_type(
    reader: &mut BinaryReader<'_>,
    is_declaration: bool,
) -> Result<Option<u32>, BinaryReaderError> {
    // Bytes from the component model's binary format.
    const DECLARED_TYPE: u8 = 0x01;
    const COMPONENT_TYPE: u8 = 0x41;
    const INSTANCE_TYPE: u8 = 0x42;

    let mut ahead = reader.clone();
    let is_type = !is_declaration || ahead.read_u8()? == DECLARED_TYPE;
    if is_type && matches!(ahead.read_u8()?, COMPONENT_TYPE | INSTANCE_TYPE) {
        let declarations = ahead.read_var_u32()?;
        *reader = ahead;
        return Ok(Some(declarations));
    }
    if is_declaration {
        reader.read::<ComponentTypeDeclaration<'_>>()?;
    } else {
        reader.read::<ComponentType<'_>>()?;
    }
    Ok(None)
}

fn check_body(body: &FunctionBody<'_>, limits: &Limits) -> Result<(), Error> {
    let bytes = body.range().len();
    at_most("bytes in one function", bytes, limits.body_bytes_max)?;
    let mut locals = 0_u32;
    for group in body.get_locals_reader().map_err(invalid)? {
        let (count, _) = group.map_err(invalid)?;
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
