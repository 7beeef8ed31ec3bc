//! Label selectors in Kubernetes' text form, evaluated in memory.

use std::collections::{BTreeMap, BTreeSet};

/// A parsed label selector.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LabelSelector(Vec<Requirement>);

/// A requirement for one label; all requirements of a selector must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    /// The label exists and has one of these values.
    In(String, BTreeSet<String>),
    /// The label has none of these values, or does not exist.
    NotIn(String, BTreeSet<String>),
    /// The label exists.
    Exists(String),
    /// The label does not exist.
    Missing(String),
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::Missing(key) => !labels.contains_key(key),
        }
    }
}

/// A text that is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a label selector: join \"key=value\", \"key!=value\", \"key in (a,b)\", \"key notin (a,b)\", \"key\" and \"!key\" by commas"
)]
pub struct InvalidSelector(
    /// The text as given.
    pub String,
);

impl LabelSelector {
    /// Parses the text form (`app=web,tier in (a,b)`); the empty text selects all.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let invalid = || InvalidSelector(text.to_owned());
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let requirements: Option<Vec<Requirement>> = split(text)
            .ok_or_else(invalid)?
            .into_iter()
            .map(requirement)
            .collect();
        requirements.map(Self).ok_or_else(invalid)
    }

    /// Returns true if the selector matches these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }

    /// Returns the labels, as `key=value`, that every selected object has.
    pub fn required(&self) -> Vec<String> {
        self.0
            .iter()
            .filter_map(|requirement| match requirement {
                Requirement::In(key, values) if values.len() == 1 => {
                    values.first().map(|value| format!("{key}={value}"))
                }
                _ => None,
            })
            .collect()
    }
}

/// Splits at the commas outside parentheses; returns `None` if the parentheses are nested or unbalanced.
fn split(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' | ')' if inside != (c == ')') => return None,
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!inside).then_some(parts)
}

fn requirement(text: &str) -> Option<Requirement> {
    let text = text.trim();
    if let Some((head, rest)) = text.split_once('(') {
        let values: Option<BTreeSet<String>> =
            rest.strip_suffix(')')?.split(',').map(value).collect();
        let mut words = head.split_whitespace();
        let (key, operator) = (key(words.next()?)?, words.next()?);
        return match (operator, words.next()) {
            ("in", None) => Some(Requirement::In(key, values?)),
            ("notin", None) => Some(Requirement::NotIn(key, values?)),
            _ => None,
        };
    }
    if let Some(name) = text.strip_prefix('!') {
        return Some(Requirement::Missing(key(name)?));
    }
    let only = |text: &str| Some(BTreeSet::from([value(text)?]));
    if let Some((name, text)) = text.split_once("!=") {
        return Some(Requirement::NotIn(key(name)?, only(text)?));
    }
    if let Some((name, text)) = text.split_once('=') {
        let text = text.strip_prefix('=').unwrap_or(text);
        return Some(Requirement::In(key(name)?, only(text)?));
    }
    Some(Requirement::Exists(key(text)?))
}

/// Parses a label key: an optional DNS prefix and a name.
fn key(text: &str) -> Option<String> {
    let text = text.trim();
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let dns = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.';
    let prefixed =
        prefix.is_none_or(|prefix| (1..=253).contains(&prefix.len()) && prefix.bytes().all(dns));
    (prefixed && !name.is_empty() && word(name)).then(|| text.to_owned())
}

/// Parses a label value, which may be empty.
fn value(text: &str) -> Option<String> {
    let text = text.trim();
    (text.is_empty() || word(text)).then(|| text.to_owned())
}

fn word(text: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
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
            let parsed = LabelSelector::parse(selector).unwrap();
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
            "a=b=c",
            ",",
            "in (a)",
        ] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn returns_the_labels_that_all_selected_objects_have() {
        let selector = LabelSelector::parse("a=1,b!=2,c in (3),d in (4,5),e").unwrap();
        assert_eq!(selector.required(), ["a=1", "c=3"]);
    }
}
