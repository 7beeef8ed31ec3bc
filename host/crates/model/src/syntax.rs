//! Name syntax, as the API server checks it.

/// The longest DNS subdomain, and so the longest name for most objects.
pub const SUBDOMAIN_CHARS_MAX: usize = 253;

/// The longest plugin version: room for a semantic version with a commit and a build.
pub const VERSION_CHARS_MAX: usize = 64;

/// The longest DNS label, and so the longest namespace name; also the longest name in a label key.
const LABEL_CHARS_MAX: usize = 63;

/// Returns true if a text can name a namespace: 1 to 63 lower-case letters, digits and dashes, without a dash at either
/// end.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_CHARS_MAX && is_lower_word(text)
}

/// Returns true if the text is a DNS subdomain: words like DNS labels, joined by dots. Only the total length is
/// limited.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_CHARS_MAX && text.split('.').all(is_lower_word)
}

/// Returns true if the text can be one URL path segment: the only rule that the RBAC kinds have for names.
pub fn is_path_segment(text: &str) -> bool {
    (1..=SUBDOMAIN_CHARS_MAX).contains(&text.len())
        && text != "."
        && text != ".."
        // Stricter than the API server, which refuses only `/` and `%`: `?` and `#` would end the path of a request.
        && text.bytes().all(|c| c.is_ascii_graphic())
        && !text.contains(['/', '%', '?', '#'])
}

/// Returns true if the text is a label or annotation key: a name, or a DNS subdomain, a slash and a name.
pub fn is_label_key(text: &str) -> bool {
    is_qualified_word(text, LABEL_CHARS_MAX)
}

/// Returns true if the text is a label value.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || (text.len() <= LABEL_CHARS_MAX && is_mixed_word(text))
}

/// Returns true if the text is a condition type: like a label key, but longer.
///
/// 316 is the `maxLength` that Kubernetes' `metav1.Condition` has for `type`.
pub fn is_condition_type(text: &str) -> bool {
    text.len() <= 316 && is_qualified_word(text, 316)
}

/// Returns true if the text is a condition reason: one word that starts with a letter.
pub fn is_reason(text: &str) -> bool {
    // The pattern for `reason` in `metav1.Condition`.
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b',' | b':');
    text.bytes().next().is_some_and(|c| c.is_ascii_alphabetic())
        && text.bytes().all(inner)
        && !text.ends_with([',', ':'])
}

/// Returns true if the text can be a key below `data` in a Secret or ConfigMap.
pub fn is_data_key(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    (1..=SUBDOMAIN_CHARS_MAX).contains(&text.len())
        && text.bytes().all(inner)
        && text != "."
        // In a mounted volume, the kubelet keeps files of its own below `..data`.
        && !text.starts_with("..")
}

/// Returns true if the text is a plugin version: every semantic version is one, and also shorter forms.
pub fn is_version(text: &str) -> bool {
    // `+` begins the build metadata of a semantic version.
    text.len() <= VERSION_CHARS_MAX && is_mixed_word(&text.replace('+', "."))
}

fn is_lower_word(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Returns true if the text is a name, or a DNS subdomain, a slash and a name.
fn is_qualified_word(text: &str, name_chars_max: usize) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_dns_subdomain) && name.len() <= name_chars_max && is_mixed_word(name)
}

fn is_mixed_word(text: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    edge(text.bytes().next()) && edge(text.bytes().next_back()) && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_forms_of_the_api_server() {
        let long_label = "x".repeat(63);
        let long_part = format!("{long_label}x.a");
        let long_name = "x".repeat(254);
        type Check = fn(&str) -> bool;
        let long_version = "1".repeat(65);
        let table: [(Check, Vec<&str>, Vec<&str>); 9] = [
            (
                is_dns_label,
                vec!["a", "a-1", long_label.as_str()],
                vec!["", "-a", "a-", "A", "a.b"],
            ),
            (
                is_dns_subdomain,
                vec!["a.b-c", long_part.as_str()],
                vec!["", "a..b", "-a.b", "a-.b", ".a", "a_b", long_name.as_str()],
            ),
            (
                is_path_segment,
                vec!["system:node"],
                vec!["", ".", "..", "a/b", "a%2f", "a b"],
            ),
            (
                is_label_key,
                vec!["app", "a.b/App_1.x"],
                vec!["", "/a", "a/", "a/b/c", "-a", "-a./x", "a..b/x", "A.b/x"],
            ),
            (is_label_value, vec!["", "Web_1"], vec!["-", "a b", "ä"]),
            (
                is_condition_type,
                vec!["Ready", "a.b/Ready"],
                vec!["", "Is Ready"],
            ),
            (
                is_reason,
                vec!["Ok", "A_b,c:d"],
                vec!["", "1a", "a b", "a:"],
            ),
            (
                is_data_key,
                vec!["a", ".env", "A_b-c.d"],
                vec!["", ".", "..", "..a", "a b", "a/b"],
            ),
            (
                is_version,
                vec!["1", "v1.2.3-rc.1+build_5", &long_version[1..]],
                vec![
                    "",
                    "1.",
                    "+1",
                    "1 2",
                    "1\u{1b}[2J",
                    "1\n2",
                    "1\u{202e}2",
                    "ä",
                    &long_version,
                ],
            ),
        ];
        for (check, good, bad) in table {
            for text in good {
                assert!(check(text), "{text:?} should be valid");
            }
            for text in bad {
                assert!(!check(text), "{text:?} should be refused");
            }
        }
    }
}
