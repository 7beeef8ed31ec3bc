//! Names, labels and annotations: which texts the API server takes, and what it says of others.

use std::sync::LazyLock;

use regex::Regex;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

static IS_LABEL: LazyLock<Regex> = LazyLock::new(|| whole(LABEL));
static IS_SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| whole(SUBDOMAIN));
static IS_KEY: LazyLock<Regex> = LazyLock::new(|| whole(KEY));
static IS_VALUE: LazyLock<Regex> = LazyLock::new(|| whole(VALUE));

fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).expect("the pattern is a literal")
}

/// Lengths are in bytes, whatever the unit in the API server's text.
fn too_long(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

/// What is wrong with a DNS label, the name of a namespace.
pub(super) fn dns_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63, "bytes"));
    }
    if !IS_LABEL.is_match(text) {
        problems.push(if IS_SUBDOMAIN.is_match(text) {
            "must not contain dots".to_owned()
        } else {
            format!("a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')")
        });
    }
    problems
}

/// What is wrong with the name of a custom resource, or a prefix that one is made of.
pub(super) fn object_name(text: &str) -> Vec<String> {
    dns_subdomain(text, "characters")
}

fn dns_subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(too_long(253, unit));
    }
    if !IS_SUBDOMAIN.is_match(text) {
        problems.push(format!("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"));
    }
    problems
}

/// What is wrong with the key of a label, or the name of a finalizer.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let prefixed = dns_subdomain(prefix, "bytes");
                problems.extend(
                    prefixed
                        .into_iter()
                        .map(|problem| format!("prefix part {problem}")),
                );
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63, "bytes")));
    }
    if !IS_KEY.is_match(name) {
        problems.push(format!("name part {KEY_RULE}"));
    }
    problems
}

/// What is wrong with the value of a label.
pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63, "bytes"));
    }
    if !IS_VALUE.is_match(text) {
        problems.push(format!("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{VALUE}')"));
    }
    problems
}
