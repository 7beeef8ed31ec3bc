//! A component's bytes: the check before compilation, the imports, the embedded description.

use innkeeper_model::{Manifest, Requests, error_chain};
use innkeeper_policy::Grants;
use innkeeper_sandbox::{
    artifact,
    description::{self, Embedded},
    manifest, testing,
};

use super::{corpus::Seed, run::run_with, shapes};

/// The longest refusal text, in bytes: it is written into a condition.
const REFUSAL_BYTES_MAX: usize = 32 << 10;

#[test]
fn bytes_of_a_component_are_refused_or_safe_to_compile() {
    let plugin = Seed::new("a plugin".to_owned(), testing::guest().build());
    run_with(
        "artifact",
        vec![plugin],
        Some(|shape| [testing::guest().build(), shapes::sections(shape)].concat()),
    );
}

/// Reaches the checks for a component that may be compiled, and those for an embedded description.
pub(super) fn check(bytes: &[u8]) -> [bool; 2] {
    let inspection = artifact::inspect(bytes);
    let checked = artifact::check(bytes, &artifact::Limits::default());
    let is_plugin = checked.is_ok();
    match checked {
        Ok(checked) => {
            assert_eq!(checked, inspection);
            let is_ours = |name: &String| name.starts_with("innkeeper:plugin/");
            assert!(checked.exports.iter().any(is_ours));
            let mut others = checked.imports.iter().filter(|name| !is_ours(name));
            assert!(
                others.all(|name| name.starts_with("wasi:")),
                "{:?}",
                checked.imports
            );
        }
        Err(error) => {
            let length = error_chain(&error).to_string().len();
            assert!(length <= REFUSAL_BYTES_MAX, "a refusal of {length} bytes");
        }
    }
    let Ok(Some(preview)) = description::preview(bytes) else {
        return [is_plugin, false];
    };
    assert!(inspection.is_described);
    let Some(manifest) = manifest(bytes) else {
        return [is_plugin, false];
    };
    // The preview must decide as the whole description would.
    assert_eq!(preview.requests, Requests::from(&manifest));
    assert_eq!(
        (&preview.name, &preview.version),
        (&manifest.name, &manifest.version)
    );
    // Only parents that are Secrets are never granted.
    let mut parents = manifest.parents.iter();
    let is_grantable = !parents.any(|parent| parent.kind.group_kind().is_secret());
    let assessment = Grants::requested(&manifest).assess(&manifest);
    assert_eq!(
        assessment.serves(),
        is_grantable,
        "{:?}",
        assessment.missing
    );
    let again = description::embed(b"\0asm\x0d\0\x01\0", &manifest);
    assert_eq!(description::preview(&again).unwrap(), Some(preview));
    [is_plugin, true]
}

/// Returns the whole embedded description, if it is valid.
fn manifest(bytes: &[u8]) -> Option<Manifest> {
    let Some(Embedded::Text(text)) = description::embedded(bytes) else {
        return None;
    };
    let manifest = serde_json::from_slice(&text).ok()?;
    manifest::check(&manifest).ok()?;
    Some(manifest)
}
