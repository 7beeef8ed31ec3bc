//! A label selector from a plugin or a user.

use std::collections::BTreeMap;

use innkeeper_model::{SelectorExt as _, error_chain, parse_selector};

use super::{run::run_with, shapes};

/// The longest refusal text, in bytes: it is written into a condition.
const REFUSAL_BYTES_MAX: usize = 8 << 10;

#[test]
fn a_selector_is_refused_or_evaluated_within_limits() {
    run_with(
        "selector",
        Vec::new(),
        Some(|shape| shapes::selector(shape).into()),
    );
}

/// Reaches a selector that matches, and one that does not.
pub(super) fn check(input: &[u8]) -> [bool; 2] {
    let text = String::from_utf8_lossy(input);
    let selector = match parse_selector(&text) {
        Ok(selector) => selector,
        Err(error) => {
            let length = error_chain(&error).to_string().len();
            assert!(length <= REFUSAL_BYTES_MAX, "a refusal of {length} bytes");
            return [false; 2];
        }
    };
    let shown = selector.to_string();
    assert_eq!(parse_selector(&shown).as_ref(), Ok(&selector), "{shown}");
    let label = ("app".to_owned(), "web".to_owned());
    // As many objects as a namespace has: a selector is evaluated for each of them in each pass.
    let is_match = (0..1000)
        .filter(|_| selector.matches(&BTreeMap::from([label.clone()])))
        .count()
        > 0;
    [is_match, !is_match]
}
