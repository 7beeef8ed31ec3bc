//! Components written by hand as core WebAssembly text: plugins that misbehave before they have a parent, and files that
//! are not plugins.

use wasm_encoder::{ComponentSection as _, CustomSection};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Where `reconcile` gets its arguments, which no plugin here reads: behind all descriptions.
const ARGUMENTS: u32 = 32_768;

const SPIN: &str = "(loop $again (br $again))";

/// What a handmade plugin changes in a well-behaved one.
struct Parts<'a> {
    /// The body of `describe`.
    describe: &'a str,
    /// The body of `reconcile`.
    reconcile: &'a str,
    /// Additional fields for the core module.
    fields: &'a str,
    /// An imported interface that is not in the contract.
    import: Option<&'a str>,
    /// The return type that `describe` has in the plugin's copy of the contract.
    described: &'a str,
}

const GOOD: Parts<'static> = Parts {
    describe: "(unreachable)",
    reconcile: "(unreachable)",
    fields: "",
    import: None,
    described: "manifest",
};

/// A plugin that loops forever in `describe`.
pub fn spins_in_describe() -> Vec<u8> {
    component(&Parts {
        describe: SPIN,
        ..GOOD
    })
}

/// A plugin that loops forever in the start function.
pub fn spins_at_start() -> Vec<u8> {
    component(&Parts {
        fields: &format!("(func $start {SPIN}) (start $start)"),
        ..GOOD
    })
}

/// A plugin that traps in `describe`.
pub fn breaks_down_in_describe() -> Vec<u8> {
    component(&GOOD)
}

/// A plugin that imports a function from an interface outside the contract: `package:name/interface@version`.
pub fn imports(interface: &str) -> Vec<u8> {
    component(&Parts {
        import: Some(interface),
        ..GOOD
    })
}

/// A plugin whose `describe` returns a number.
pub fn exports_another_type() -> Vec<u8> {
    component(&Parts {
        described: "u32",
        ..GOOD
    })
}

/// A plugin with this number of additional functions.
pub fn has_functions(count: usize) -> Vec<u8> {
    component(&Parts {
        fields: &"(func)".repeat(count),
        ..GOOD
    })
}

/// A plugin with a data segment that starts far beyond its memory.
pub fn has_data_out_of_bounds() -> Vec<u8> {
    let data = format!(r#"(data (i32.const 8388608) "{}")"#, "x".repeat(1 << 20));
    component(&Parts {
        fields: &data,
        ..GOOD
    })
}

/// The plugin with an embedded description that differs from what `describe` returns.
pub fn described_falsely(plugin: &[u8]) -> Vec<u8> {
    described_as(plugin, br#"{"name":"another"}"#)
}

/// The plugin with this text as the embedded description.
pub fn described_as(plugin: &[u8], description: &[u8]) -> Vec<u8> {
    with_section(plugin, "innkeeper:description", description)
}

/// A plugin whose `describe` returns the record at memory address 0, and whose `reconcile` traps.
pub(crate) fn describing(memory: &str) -> Vec<u8> {
    component(&Parts {
        describe: "",
        fields: memory,
        ..GOOD
    })
}

/// The same with a `reconcile` that loops forever.
pub(crate) fn describing_and_spinning(memory: &str) -> Vec<u8> {
    component(&Parts {
        describe: "",
        reconcile: &format!("{SPIN} (unreachable)"),
        fields: memory,
        ..GOOD
    })
}

/// The plugin with a custom section appended.
pub(crate) fn with_section(plugin: &[u8], name: &str, content: &[u8]) -> Vec<u8> {
    let section = CustomSection {
        name: name.into(),
        data: content.into(),
    };
    let mut bytes = plugin.to_vec();
    section.append_to_component(&mut bytes);
    bytes
}

/// A core module: WebAssembly, but no component.
pub fn core_module() -> Vec<u8> {
    wat::parse_str("(module)").expect("a module in the text format")
}

fn component(parts: &Parts<'_>) -> Vec<u8> {
    let contract = include_str!("../../wit/plugin.wit").replace(
        "describe: func() -> manifest;",
        &format!("describe: func() -> {};", parts.described),
    );
    let (contract, import) = match parts.import {
        Some(interface) => importing(&contract, interface),
        None => (contract, String::new()),
    };
    let module = format!(
        r#"(module
          {import}
          (memory (export "memory") 1)
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const {ARGUMENTS}))
          {}
          (func (export "innkeeper:plugin/reconciler@0.1.0#describe") (result i32)
            {} (i32.const 0))
          (func (export "innkeeper:plugin/reconciler@0.1.0#reconcile")
            (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) {}))"#,
        parts.fields, parts.describe, parts.reconcile,
    );
    encoded(&contract, &module)
}

/// Adds an import to the contract's world; returns the contract and the core module's import.
fn importing(contract: &str, interface: &str) -> (String, String) {
    let (package, rest) = interface
        .split_once('/')
        .expect("an interface has a package");
    let (name, version) = rest.split_once('@').expect("an interface has a version");
    let first = "  import host;";
    let world = contract.replace(first, &format!("{first} import {interface};"));
    let package = format!("package {package}@{version} {{ interface {name} {{ ask: func(); }} }}");
    let import = format!(r#"(import "{interface}" "ask" (func))"#);
    (format!("{world}\n{package}"), import)
}

/// Encodes a core module as a component for the world `plugin`.
fn encoded(wit: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve
        .push_str("plugin.wit", wit)
        .expect("the contract can be read");
    let world = resolve
        .select_world(&[package], Some("plugin"))
        .expect("the contract has the world");
    let mut module = wat::parse_str(module).expect("a module in the text format");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("the world can be embedded");
    ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .expect("the module fits the world")
}
