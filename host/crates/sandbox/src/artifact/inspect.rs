//! Facts about a file for users: never fails, never compiles.

use innkeeper_model::Digest;
use wasm_metadata::Producers;
use wasmparser::{ComponentName, KnownCustom, Parser, Payload};

use super::contract_version;
use crate::description;

/// A file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A component.
    Component,
    /// A core module.
    CoreModule,
    /// Unknown WebAssembly.
    UnknownEncoding {
        /// The version in the header.
        version: u16,
        /// 0 for modules, 1 for components.
        layer: u16,
    },
    /// Anything else.
    NotWasm,
}

/// A tool that took part in making a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The role: `language`, `processed-by`, `sdk`.
    pub role: String,
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
}

/// The facts about bytes that need no compiling or running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Their format.
    pub what: What,
    /// Their number.
    pub size_bytes: usize,
    /// Their digest.
    pub digest: Digest,
    /// The component's imports, in order.
    pub imports: Vec<String>,
    /// The component's exports, in order.
    pub exports: Vec<String>,
    /// The contract version; none if they are no plugin.
    pub contract: Option<String>,
    /// The name in their metadata.
    pub name: Option<String>,
    /// The tools that made them.
    pub producers: Vec<Producer>,
    /// True if they have an embedded description.
    pub is_described: bool,
}

/// Inspects bytes; in a damaged component, the part before the damage.
pub fn inspect(bytes: &[u8]) -> Inspection {
    let mut inspection = Inspection {
        what: what(bytes),
        size_bytes: bytes.len(),
        digest: Digest::hash(bytes),
        imports: Vec::new(),
        exports: Vec::new(),
        contract: None,
        name: None,
        producers: producers(bytes),
        is_described: false,
    };
    if inspection.what == What::Component {
        outermost(bytes, &mut inspection);
        inspection.is_described = description::embedded(bytes).is_some();
    }
    inspection.contract = inspection
        .exports
        .iter()
        .chain(&inspection.imports)
        .find_map(|name| contract_version(name))
        .map(str::to_owned);
    inspection
}

fn what(bytes: &[u8]) -> What {
    let Some(rest) = bytes.strip_prefix(b"\0asm") else {
        return What::NotWasm;
    };
    let &[v0, v1, l0, l1, ..] = rest else {
        return What::NotWasm;
    };
    if Parser::is_component(bytes) {
        return What::Component;
    }
    if Parser::is_core_wasm(bytes) {
        return What::CoreModule;
    }
    What::UnknownEncoding {
        version: u16::from_le_bytes([v0, v1]),
        layer: u16::from_le_bytes([l0, l1]),
    }
}

/// Collects names from the outermost component; inner components are not inspected.
fn outermost(bytes: &[u8], inspection: &mut Inspection) {
    description::outermost(bytes, |payload| match payload {
        Payload::ComponentImportSection(section) => {
            inspection.imports.extend(
                section
                    .into_iter()
                    .flatten()
                    .map(|import| import.name.name.to_owned()),
            );
        }
        Payload::ComponentExportSection(section) => {
            inspection.exports.extend(
                section
                    .into_iter()
                    .flatten()
                    .map(|export| export.name.name.to_owned()),
            );
        }
        Payload::CustomSection(section) => {
            if let KnownCustom::ComponentName(names) = section.as_known() {
                inspection.name = names.into_iter().flatten().find_map(component_name);
            }
        }
        _ => {}
    });
}

fn component_name(name: ComponentName<'_>) -> Option<String> {
    match name {
        ComponentName::Component { name, .. } => Some(name.to_owned()),
        _ => None,
    }
}

fn producers(bytes: &[u8]) -> Vec<Producer> {
    // Damaged metadata must not hide the other facts.
    let Ok(Some(producers)) = Producers::from_wasm(bytes) else {
        return Vec::new();
    };
    let producer = |role: &str, name: &str, version: &str| Producer {
        role: role.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
    };
    let mut all = Vec::new();
    for (role, tools) in producers.iter() {
        all.extend(
            tools
                .iter()
                .map(|(name, version)| producer(role, name, version)),
        );
    }
    all
}
