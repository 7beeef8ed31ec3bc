//! The description that is embedded in a component: read before any grant of its Plugin is checked.

use innkeeper_sandbox::description;

use super::{
    run::run_with,
    shapes::{self, leb128},
};

#[test]
fn an_embedded_description_is_refused_or_read_within_limits() {
    run_with(
        "description",
        Vec::new(),
        Some(|shape| shapes::description(shape).into()),
    );
}

/// Reaches a description that the host reads.
pub(super) fn check(input: &[u8]) -> [bool; 1] {
    let Ok(text) = str::from_utf8(input) else {
        return [false];
    };
    [is_accepted(&component(text))]
}

/// Reads a component as the host does before it checks grants; returns true if it could be compiled.
fn is_accepted(component: &[u8]) -> bool {
    let is_described = matches!(description::preview(component), Ok(Some(_)));
    is_described && description::check_schema(component).is_ok()
}

/// Returns a component that has only an embedded description.
fn component(text: &str) -> Vec<u8> {
    let name = description::SECTION.as_bytes();
    let content = [&leb128(name.len()), name, text.as_bytes()].concat();
    [
        b"\0asm\x0d\0\x01\0\0".as_slice(),
        &leb128(content.len()),
        &content,
    ]
    .concat()
}
