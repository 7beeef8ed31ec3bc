//! The bytes of a component: the check before it is compiled, its imports, its embedded description.

use innkeeper_model::error_chain;
use innkeeper_policy::Grants;
use innkeeper_sandbox::{artifact, description, testing};

use super::{corpus::Seed, run::run_with};

/// The longest text of a refusal, in bytes: it goes into a condition.
const REFUSAL_BYTES_MAX: usize = 32 << 10;

#[test]
fn bytes_of_a_component_are_refused_or_safe_to_compile() {
    let plugin = Seed::new("a plugin".to_owned(), testing::guest().build());
    run_with("artifact", check, vec![plugin]);
}

fn check(bytes: &[u8]) {
    let inspection = artifact::inspect(bytes);
    match artifact::check(bytes, &artifact::Limits::default()) {
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
    if let Some(manifest) = description::embedded_manifest(bytes) {
        assert!(inspection.description.is_some());
        // What is granted as requested is granted, or never can be.
        let assessment = Grants::requested(&manifest).assess(&manifest);
        assert!(assessment.serves() || !assessment.missing.is_empty());
        let again = description::embed(b"\0asm\x0d\0\x01\0", &manifest);
        assert_eq!(description::embedded_manifest(&again), Some(manifest));
    }
}
