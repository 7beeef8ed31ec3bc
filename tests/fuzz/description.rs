//! A component's embedded description, read before the Plugin's grants are checked.

use innkeeper_sandbox::description;
use innkeeper_tests::handmade;

use super::{run::run_with, shapes};

#[test]
fn an_embedded_description_is_refused_or_read_within_limits() {
    run_with(
        "description",
        Vec::new(),
        Some(|shape| shapes::description(shape).into()),
    );
}

/// Reaches a description that the host accepts.
pub(super) fn check(input: &[u8]) -> [bool; 1] {
    // A component with nothing but an embedded description.
    let component = handmade::described_as(b"\0asm\x0d\0\x01\0", input);
    [is_accepted(&component)]
}

/// Reads a component as the host does before it checks grants; returns true if it could be compiled.
fn is_accepted(component: &[u8]) -> bool {
    let is_described = matches!(description::preview(component), Ok(Some(_)));
    is_described && description::check_schema(component).is_ok()
}
