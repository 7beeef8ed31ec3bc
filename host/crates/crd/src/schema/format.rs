//! Text formats, as strict as in the API server.
//!
//! JSON schema's formats have the same names but are stricter. `formats.json` holds regular expressions with the
//! same verdicts as the API server's libraries (go-openapi/strfmt, asaskevich/govalidator), and those for `metadata.json`.
//! Formats `bsonobjectid`, `creditcard`, `isbn` and `ssn` accept every text.

use std::{
    collections::BTreeMap,
    net::Ipv6Addr,
    sync::{LazyLock, OnceLock},
};

use innkeeper_model::syntax::{
    SUBDOMAIN_CHARS_MAX, is_dns_label, is_dns_subdomain, is_label_key, is_label_value,
};
use jsonschema::ValidationOptions;
use regex::Regex;

static PATTERNS: LazyLock<BTreeMap<String, Pattern>> = LazyLock::new(|| {
    let texts: BTreeMap<String, String> =
        serde_json::from_str(include_str!("formats.json")).expect("the file holds texts by name");
    let pattern = |(name, text)| {
        let regex = OnceLock::new();
        (name, Pattern { text, regex })
    };
    texts.into_iter().map(pattern).collect()
});

/// A regular expression that is compiled for the first text: together they hold 12 MiB, and take 30 MiB meanwhile.
struct Pattern {
    text: String,
    regex: OnceLock<Regex>,
}

impl Pattern {
    fn is_match(&self, text: &str) -> bool {
        let compile = || Regex::new(&self.text).expect("the file holds regular expressions");
        self.regex.get_or_init(compile).is_match(text)
    }
}

type Check = fn(&str) -> bool;

/// The formats that take more than a regular expression.
const CHECKS: [(&str, Check); 14] = [
    ("DNS label (RFC 1123)", is_dns_label),
    ("DNS subdomain (RFC 1123)", is_dns_subdomain),
    ("annotation key", |text| is_label_key(&text.to_lowercase())),
    ("cidr", is_cidr),
    ("date", is_date),
    ("date-time", is_date_time),
    ("hostname", is_hostname),
    ("ipv4", is_ipv4),
    ("ipv6", is_ipv6),
    ("k8s-long-name", is_dns_subdomain),
    ("k8s-short-name", is_dns_label),
    ("label key", is_label_key),
    ("label value", is_label_value),
    ("prefix of a DNS subdomain (RFC 1123)", is_prefix),
];

/// Returns the canonical name if the API server checks the format; it ignores dashes in names, and all other formats.
pub(super) fn known(format: &str) -> Option<&'static str> {
    let plain = |name: &str| name.replace('-', "");
    CHECKS
        .iter()
        .map(|(name, _)| *name)
        .chain(PATTERNS.keys().map(String::as_str))
        // The formats for `metadata.json` have names with spaces, so that no CustomResourceDefinition names them.
        .find(|name| plain(name) == plain(format) && !name.contains(' '))
}

/// Adds all formats to a validator, in place of the built-in ones with the same names.
pub(super) fn register(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    let mut options = options.should_validate_formats(true);
    for (name, pattern) in PATTERNS.iter() {
        options = options.with_format(name, move |text: &str| pattern.is_match(text));
    }
    CHECKS.into_iter().fold(options, |options, (name, check)| {
        options.with_format(name, check)
    })
}

fn has_form(format: &str, text: &str) -> bool {
    PATTERNS
        .get(format)
        .is_some_and(|pattern| pattern.is_match(text))
}

fn is_prefix(text: &str) -> bool {
    // A dash at the end is replaced when the name is made, and does not count.
    let bytes = text.strip_suffix('-').unwrap_or(text).len();
    bytes <= SUBDOMAIN_CHARS_MAX && has_form("prefix of a DNS subdomain (RFC 1123)", text)
}

fn is_hostname(text: &str) -> bool {
    // The expression limits neither the whole name nor every label.
    let fits = text.len() <= 255 && text.split('.').all(|label| label.len() <= 63);
    fits && has_form("hostname", text)
}

/// Leading zeros are allowed, and so are IPv6 addresses that embed an IPv4 address.
fn is_ipv4(text: &str) -> bool {
    has_form("ipv4", text) || (is_ipv6(text) && text.contains('.'))
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or((text, ""));
    let bits_max = if address.contains(':') { 128 } else { 32 };
    // `parse` alone accepts a plus sign.
    let is_number = bits.bytes().all(|byte| byte.is_ascii_digit());
    let fits = is_number && bits.parse::<u32>().is_ok_and(|bits| bits <= bits_max);
    fits && (is_ipv4(address) || is_ipv6(address))
}

fn is_date(text: &str) -> bool {
    // The form alone accepts February 30, and jiff alone other forms.
    has_form("date", text) && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    // As in strfmt, which ignores everything after a second T.
    let mut parts = lower.split('t');
    let is_time = |text: &str| has_form("clock time", text);
    parts.next().is_some_and(is_date) && parts.next().is_some_and(is_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_compiled_for_the_first_text() {
        // This is the only test with a text in this format.
        let pattern = PATTERNS.get("creditcard").unwrap();
        let schema = serde_json::json!({"format": "creditcard"});
        let validator = register(jsonschema::options()).build(&schema).unwrap();
        assert!(pattern.regex.get().is_none());
        assert!(validator.is_valid(&"1".into()));
        assert!(pattern.regex.get().is_some());
    }

    #[test]
    fn formats_take_what_the_api_server_takes() {
        let table: [(&str, &[&str], &[&str]); 10] = [
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-9", ""]),
            (
                "date-time",
                &["2024-01-01T00:00:00Z", "2024-01-01t10:00:00.5+02:00"],
                &["2024-01-01", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00"],
            ),
            (
                "duration",
                &["1h30m", "0", "-1.5s", "2 days", "10 sec"],
                &["", "1", "x"],
            ),
            (
                "ipv4",
                &["10.0.0.1", "010.1.1.1"],
                &["10.0.0", "10.0.0.256"],
            ),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", ":"]),
            (
                "cidr",
                &["10.0.0.0/8", "::/0"],
                &["10.0.0.0", "10.0.0.0/33"],
            ),
            ("uuid", &["123e4567e89b12d3a456426614174000"], &["123"]),
            ("byte", &["YWJj", "YQ=="], &["YQ", "", "Y Q="]),
            ("uri", &["https://a/b?c", "/a"], &["a/b", "", "http://a b"]),
            ("email", &["a@b.c", "A <a@b.c>"], &["a", "a@", "<a@b.c"]),
        ];
        for (format, good, bad) in table {
            let schema = serde_json::json!({"format": format});
            let validator = register(jsonschema::options()).build(&schema).unwrap();
            let check = |text: &str| validator.is_valid(&text.into());
            for text in good {
                assert!(check(text), "{format}: {text} is good");
            }
            for text in bad {
                assert!(!check(text), "{format}: {text} is bad");
            }
        }
    }
}
