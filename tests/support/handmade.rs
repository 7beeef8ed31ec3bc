//! Plugins made by hand, of core WebAssembly in text form: what misbehaves before there is any parent, or is no plugin.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const SPIN: &str = "(loop $again (br $again))";

/// What a plugin by hand has that no good one has.
struct Parts<'a> {
    /// What it does when it is asked what it is.
    describe: &'a str,
    /// Fields of its core module.
    fields: &'a str,
    /// An interface that it imports beside those of the contract.
    import: Option<&'a str>,
    /// What `describe` gives, in the contract that it was built by.
    described: &'a str,
}

const GOOD: Parts<'static> = Parts {
    describe: "(unreachable)",
    fields: "",
    import: None,
    described: "manifest",
};

/// Computes for ever when it is asked what it is.
pub fn spins_in_describe() -> Vec<u8> {
    component(&Parts {
        describe: SPIN,
        ..GOOD
    })
}

/// Computes for ever before it can be asked anything.
pub fn spins_at_start() -> Vec<u8> {
    component(&Parts {
        fields: &format!("(func $start {SPIN}) (start $start)"),
        ..GOOD
    })
}

/// Breaks down when it is asked what it is.
pub fn breaks_down_in_describe() -> Vec<u8> {
    component(&GOOD)
}

/// Wants a function of an interface that the contract does not have: `package:name/interface@version`.
pub fn imports(interface: &str) -> Vec<u8> {
    component(&Parts {
        import: Some(interface),
        ..GOOD
    })
}

/// Describes itself by a number.
pub fn exports_another_type() -> Vec<u8> {
    component(&Parts {
        described: "u32",
        ..GOOD
    })
}

/// Has so many functions.
pub fn has_functions(count: usize) -> Vec<u8> {
    component(&Parts {
        fields: &"(func)".repeat(count),
        ..GOOD
    })
}

/// Has data far behind the end of its memory.
pub fn has_data_out_of_bounds() -> Vec<u8> {
    let data = format!(r#"(data (i32.const 8388608) "{}")"#, "x".repeat(1 << 20));
    component(&Parts {
        fields: &data,
        ..GOOD
    })
}

/// A plugin with a description in it that is not what it says when it runs.
pub fn described_falsely(plugin: &[u8]) -> Vec<u8> {
    with_section(plugin, b"innkeeper:description", br#"{"name":"another"}"#)
}

/// Answers what lies at address 0 of its memory when it is asked what it is.
pub(crate) fn describing(memory: &str) -> Vec<u8> {
    component(&Parts {
        describe: "",
        fields: memory,
        ..GOOD
    })
}

/// A plugin with one more custom section behind it.
pub(crate) fn with_section(plugin: &[u8], name: &[u8], content: &[u8]) -> Vec<u8> {
    const CUSTOM_SECTION: u8 = 0;

    let byte = |length: usize| u8::try_from(length).expect("the section is short");
    let section = [&[byte(name.len())], name, content].concat();
    [plugin, &[CUSTOM_SECTION, byte(section.len())], &section].concat()
}

/// WebAssembly, but no component.
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
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (unreachable))
          {}
          (func (export "innkeeper:plugin/reconciler@0.1.0#describe") (result i32)
            {} (i32.const 0))
          (func (export "innkeeper:plugin/reconciler@0.1.0#reconcile")
            (param i32 i32 i32 i32 i32 i32 i32) (result i32) (unreachable)))"#,
        parts.fields, parts.describe,
    );
    encoded(&contract, &module)
}

/// The contract and the core module's part of a world with one more import.
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

/// A component of a core module and the world `plugin`.
fn encoded(wit: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("plugin.wit", wit);
    let package = package.expect("the contract can be read");
    let world = resolve.select_world(&[package], Some("plugin"));
    let world = world.expect("the contract has the world");
    let mut module = wat::parse_str(module).expect("a module in the text format");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("the world can be embedded");
    let mut encoder = ComponentEncoder::default();
    let encoder = encoder.validate(true).module(&module);
    let bytes = encoder.and_then(ComponentEncoder::encode);
    bytes.expect("the module fits the world")
}
