//! The formats of texts, as loose or strict as the API server is with them.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::LazyLock,
};

use jsonschema::ValidationOptions;
use regex::Regex;

/// The name under which a format is known to the validator: without dashes, and apart from the formats of JSON schema,
/// which mean other things by the same names.
pub(super) fn internal_name(format: &str) -> String {
    format!("api:{}", format.replace('-', ""))
}

/// Whether the API server checks a format of texts; others it ignores.
pub(super) fn is_text_format(format: &str) -> bool {
    FORMATS
        .iter()
        .any(|(name, _)| *name == format.replace('-', ""))
}

type Check = fn(&str) -> bool;

const FORMATS: [(&str, Check); 24] = [
    ("bsonobjectid", anything),
    ("byte", is_base64),
    ("cidr", is_cidr),
    ("creditcard", anything),
    ("date", is_date),
    ("datetime", is_date_time),
    ("duration", is_duration),
    ("email", is_email),
    ("hexcolor", is_hex_color),
    ("hostname", is_hostname),
    ("ipv4", is_ipv4),
    ("ipv6", is_ipv6),
    ("isbn", anything),
    ("isbn10", anything),
    ("isbn13", anything),
    ("k8slongname", is_long_name),
    ("k8sshortname", is_short_name),
    ("mac", is_mac),
    ("password", anything),
    ("rgbcolor", is_rgb_color),
    ("ssn", anything),
    ("uri", is_uri),
    ("uuid", is_uuid),
    ("uuid4", is_uuid4),
];

/// Teaches a validator all formats.
pub(super) fn register(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    FORMATS.into_iter().fold(
        options.should_validate_formats(true),
        |options, (name, check)| options.with_format(internal_name(name), check),
    )
}

macro_rules! matches_pattern {
    ($name:ident, $pattern:expr) => {
        fn $name(text: &str) -> bool {
            static PATTERN: LazyLock<Regex> =
                LazyLock::new(|| Regex::new($pattern).expect("the pattern is a literal"));
            PATTERN.is_match(text)
        }
    };
}

matches_pattern!(
    is_base64,
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
);
matches_pattern!(is_hex_color, "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
matches_pattern!(
    is_rgb_color,
    r"^rgb\(\s*(25[0-5]|2[0-4]\d|1\d\d|\d{1,2})\s*,\s*(25[0-5]|2[0-4]\d|1\d\d|\d{1,2})\s*,\s*(25[0-5]|2[0-4]\d|1\d\d|\d{1,2})\s*\)$"
);
matches_pattern!(
    is_mac,
    "^(?i)([0-9a-f]{2}[:-]){5}([0-9a-f]{2}|(([0-9a-f]{2}[:-]){2}|([0-9a-f]{2}[:-]){14})[0-9a-f]{2})$|^(?i)([0-9a-f]{4}\\.){2}([0-9a-f]{4}|[0-9a-f]{4}\\.[0-9a-f]{4}|([0-9a-f]{4}\\.){7}[0-9a-f]{4})$"
);
matches_pattern!(
    is_uuid,
    "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
);
matches_pattern!(
    is_uuid4,
    "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"
);
matches_pattern!(short_name_matches, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
matches_pattern!(
    long_name_matches,
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
);
matches_pattern!(
    hostname_matches,
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
);
matches_pattern!(
    time_matches,
    "^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$"
);
matches_pattern!(
    go_duration_matches,
    r"^[-+]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)$"
);
// Anywhere in the text: a number and a unit in the words of Scala.
matches_pattern!(
    scala_duration_matches,
    r"(?i)\d+\s*(ns|nano[A-Za-zµ]*|us|µs|micro[A-Za-zµ]*|ms|milli[A-Za-zµ]*|s|sec[A-Za-zµ]*|m|min[A-Za-zµ]*|h|hr|hour[A-Za-zµ]*|d|day[A-Za-zµ]*|w|wk|week[A-Za-zµ]*)($|[^A-Za-zµ])"
);
matches_pattern!(
    email_matches,
    r#"^([^<>@]*<)?[^\s<>@,;:"()\[\]\\]+@[^\s<>@,;:"()\\]+>?$"#
);

fn anything(_: &str) -> bool {
    true
}

fn is_short_name(text: &str) -> bool {
    text.len() <= 63 && short_name_matches(text)
}

fn is_long_name(text: &str) -> bool {
    text.len() <= 253 && long_name_matches(text)
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && hostname_matches(text)
}

fn is_ipv4(text: &str) -> bool {
    // Leading zeros are tolerated, as before Go 1.17.
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 4
        && parts.iter().all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && part.parse::<u32>().is_ok_and(|number| number <= 255)
        })
        || text
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_ipv6() && text.contains('.'))
}

fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6())
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let bits_max = if address.contains(':') { 128 } else { 32 };
    (is_ipv4(address) || is_ipv6(address) || address.parse::<Ipv4Addr>().is_ok())
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|bits| bits <= bits_max)
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
        && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    match (parts.next(), parts.next()) {
        (Some(date), Some(time)) => is_date(date) && time_matches(time),
        _ => false,
    }
}

fn is_duration(text: &str) -> bool {
    go_duration_matches(text) || scala_duration_matches(text)
}

fn is_email(text: &str) -> bool {
    email_matches(text) && text.contains('<') == text.ends_with('>')
}

/// A URI as in a request line: absolute, or a path that begins with a slash.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
        return false;
    }
    let percent_encoded = text
        .split('%')
        .skip(1)
        .all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()));
    let scheme = text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    });
    percent_encoded && (text.starts_with('/') || scheme) && !text.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_what_the_api_server_takes() {
        let table: [(Check, &[&str], &[&str]); 10] = [
            (is_date, &["2024-02-29"], &["2023-02-29", "2024-2-9", ""]),
            (
                is_date_time,
                &["2024-01-01T00:00:00Z", "2024-01-01t10:00:00.5+02:00"],
                &["2024-01-01", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00"],
            ),
            (
                is_duration,
                &["1h30m", "0", "-1.5s", "2 days", "10 sec"],
                &["", "1", "x"],
            ),
            (
                is_ipv4,
                &["10.0.0.1", "010.1.1.1"],
                &["10.0.0", "10.0.0.256"],
            ),
            (is_ipv6, &["::1", "fe80::1"], &["10.0.0.1", ":"]),
            (
                is_cidr,
                &["10.0.0.0/8", "::/0"],
                &["10.0.0.0", "10.0.0.0/33"],
            ),
            (is_uuid, &["123e4567e89b12d3a456426614174000"], &["123"]),
            (is_base64, &["YWJj", "YQ=="], &["YQ", "", "Y Q="]),
            (is_uri, &["https://a/b?c", "/a"], &["a/b", "", "http://a b"]),
            (is_email, &["a@b.c", "A <a@b.c>"], &["a", "a@", "<a@b.c"]),
        ];
        for (check, good, bad) in table {
            for text in good {
                assert!(check(text), "{text} is good");
            }
            for text in bad {
                assert!(!check(text), "{text} is bad");
            }
        }
    }
}
