//! Label selectors as text; the Kubernetes client has the type and evaluates it.

use kube_core::{Expression, Selector};

use super::syntax::{is_label_key, is_label_value};

/// The longest selector text, in bytes. Every list and watch sends it in the URL, and proxies take 8 KiB there.
const SELECTOR_BYTES_MAX: usize = 4096;

/// The most requirements per selector: the host evaluates all of them for every object.
const REQUIREMENTS_MAX: usize = 64;

/// The longest part of an invalid selector that an error shows, in characters.
const SHOWN_CHARS_MAX: usize = 256;

/// A text that is not a label selector, or one above the limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a label selector: join at most {REQUIREMENTS_MAX} of \"key=value\", \"key!=value\", \"key in (a,b)\", \"key notin (a,b)\", \"key\" and \"!key\" by commas, in at most {SELECTOR_BYTES_MAX} bytes"
)]
pub struct InvalidSelector(
    /// The text, at most the first 256 characters.
    pub String,
);

impl InvalidSelector {
    fn new(text: &str) -> Self {
        Self(text.chars().take(SHOWN_CHARS_MAX).collect())
    }
}

/// Parses the text form (`app=web,tier in (a,b)`); the empty text selects all. A text has at most 4096 bytes and 64
/// requirements.
pub fn parse_selector(text: &str) -> Result<Selector, InvalidSelector> {
    // Before anything is split: a description or a guest may give a text of any length.
    if text.len() > SELECTOR_BYTES_MAX {
        return Err(InvalidSelector::new(text));
    }
    let mut inside = false;
    let is_between = |c| {
        inside = c == '(' || (inside && c != ')');
        c == ',' && !inside
    };
    let selector: Option<Selector> = match text.trim() {
        "" => Some(Selector::default()),
        // Parentheses that are nested or unbalanced stay in a key or a value, which makes it invalid.
        text => text.split(is_between).map(expression).collect(),
    };
    selector
        .filter(is_valid_selector)
        .ok_or_else(|| InvalidSelector::new(text))
}

/// Returns true if all keys and values are valid, no list of values is empty, and the selector is within the limits of
/// [`parse_selector`].
pub fn is_valid_selector(selector: &Selector) -> bool {
    let expressions: Vec<Expression> = selector.clone().into_iter().collect();
    if expressions.len() > REQUIREMENTS_MAX || selector.to_string().len() > SELECTOR_BYTES_MAX {
        return false;
    }
    expressions.into_iter().all(|expression| match expression {
        Expression::In(key, values) | Expression::NotIn(key, values) => {
            is_label_key(&key)
                && !values.is_empty()
                && values.iter().all(|value| is_label_value(value))
        }
        Expression::Equal(key, value) | Expression::NotEqual(key, value) => {
            is_label_key(&key) && is_label_value(&value)
        }
        Expression::Exists(key) | Expression::DoesNotExist(key) => is_label_key(&key),
    })
}

/// A selector in JSON: the text, or `null` if it selects all.
pub(super) mod selector_text {
    use kube_core::Selector;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(
        selector: &Selector,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (!selector.selects_all())
            .then(|| selector.to_string())
            .serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Selector, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        super::parse_selector(&text).map_err(Error::custom)
    }
}

/// Parses one requirement; the key and the values are not checked.
fn expression(text: &str) -> Option<Expression> {
    let trimmed = |text: &str| text.trim().to_owned();
    let text = text.trim();
    if let Some((head, rest)) = text.split_once('(') {
        let values = rest.strip_suffix(')')?.split(',').map(trimmed).collect();
        let (key, operator) = head.trim().split_once(char::is_whitespace)?;
        return match operator.trim() {
            "in" => Some(Expression::In(trimmed(key), values)),
            "notin" => Some(Expression::NotIn(trimmed(key), values)),
            _ => None,
        };
    }
    Some(if let Some(key) = text.strip_prefix('!') {
        Expression::DoesNotExist(trimmed(key))
    // Before `=`, which it contains.
    } else if let Some((key, value)) = text.split_once("!=") {
        Expression::NotEqual(trimmed(key), trimmed(value))
    } else if let Some((key, value)) = text.split_once('=') {
        Expression::Equal(
            trimmed(key),
            // Kubernetes also has `==`, with the same meaning.
            trimmed(value.strip_prefix('=').unwrap_or(value)),
        )
    } else {
        Expression::Exists(trimmed(text))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube_core::SelectorExt;

    use super::*;

    fn labels(text: &str) -> BTreeMap<String, String> {
        text.split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn selects_the_same_objects_as_kubernetes() {
        for (selector, chosen, passed) in [
            ("", "a=1", None),
            ("app=web", "app=web x=y", Some("app=db")),
            ("app==web", "app=web", Some("")),
            ("app!=web", "app=db", Some("app=web")),
            ("app!=web", "x=y", Some("app=web")),
            ("tier in (a,b)", "tier=b", Some("tier=c")),
            ("tier in (a, b),app", "tier=a app=1", Some("tier=a")),
            ("tier notin (a)", "x=1", Some("tier=a")),
            ("!app", "x=1", Some("app=1")),
            ("a.b/c-d=e_f", "a.b/c-d=e_f", Some("c-d=e_f")),
            ("app=", "app=", Some("app=1")),
        ] {
            let parsed = parse_selector(selector).unwrap();
            assert!(parsed.matches(&labels(chosen)), "{selector} / {chosen}");
            if let Some(passed) = passed {
                assert!(!parsed.matches(&labels(passed)), "{selector} / {passed}");
            }
        }
    }

    #[test]
    fn rejects_the_same_texts_as_kubernetes() {
        for text in [
            "a b",
            "=x",
            "a=b c",
            "a in b",
            "a in (b",
            "a)",
            "a in ((b))",
            "a like (b)",
            "a,,b",
            "-a",
            "a=-b",
            "/a",
            "A.B/c",
            "-a./x",
            "a..b/x",
            "!a.-b/x",
            "a-.b/x in (c)",
            "a=b=c",
            ",",
            "in (a)",
        ] {
            assert!(parse_selector(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_selector_has_few_requirements_and_a_short_text() {
        let keys =
            |count: usize| -> Vec<String> { (0..count).map(|key| format!("k{key}")).collect() };
        let values = |count: usize| format!("a in ({})", keys(count).join(","));
        assert!(parse_selector(&keys(64).join(",")).is_ok());
        assert!(parse_selector(&values(800)).is_ok());
        for text in [
            keys(65).join(","),
            keys(100_000).join(","),
            values(900),
            " ".repeat(5000),
            "(".repeat(1 << 22),
        ] {
            let error = parse_selector(&text).unwrap_err().to_string();
            assert!(error.len() < 1000, "{} bytes", error.len());
            assert!(error.contains("at most 64 of"), "{error}");
        }
        // Those of a Plugin are objects, not texts.
        let many: Selector = keys(65).into_iter().map(Expression::Exists).collect();
        let long = Expression::In("a".to_owned(), keys(900).into_iter().collect());
        assert!(!is_valid_selector(&many));
        assert!(!is_valid_selector(&long.into()));
    }

    #[test]
    fn shows_one_text_for_equal_selectors() {
        for (text, shown) in [
            ("", ""),
            (" app == web ,!old", "app=web,!old"),
            ("tier in ( b,a )", "tier in (a,b)"),
            ("tier  notin (a),x!=,y", "tier notin (a),x!=,y"),
        ] {
            let parsed = parse_selector(text).unwrap();
            assert_eq!(parsed.to_string(), shown);
            assert_eq!(parse_selector(shown).unwrap(), parsed);
        }
    }

    #[test]
    fn a_list_of_values_is_not_empty() {
        for operator in [Expression::In, Expression::NotIn] {
            assert!(is_valid_selector(
                &operator("a".to_owned(), ["b".to_owned()].into()).into()
            ));
            assert!(!is_valid_selector(
                &operator("a".to_owned(), [].into()).into()
            ));
        }
    }
}
