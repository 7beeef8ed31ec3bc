//! Forms of single values: each becomes a CEL rule in the CustomResourceDefinition.

use std::time::Duration;

use kube::core::Rule;

/// A text with a fixed form.
pub(super) struct TextForm {
    /// A pattern without quotes and backslashes, which RE2 in the API server and the regex crate read alike.
    pattern: &'static str,
    /// The requirement, to complete a sentence that begins with the field.
    pub(super) must: &'static str,
}

impl TextForm {
    const fn new(pattern: &'static str, must: &'static str) -> Self {
        Self { pattern, must }
    }

    /// Returns the rule for the field.
    pub(super) fn rule(&self) -> Rule {
        Rule::new(self.holds("self")).message(self.must)
    }

    /// Returns the rule for a list with such texts.
    pub(super) fn rule_for_all(&self) -> Rule {
        Rule::new(format!("self.all(it, {})", self.holds("it"))).message(self.must)
    }

    /// Returns the CEL expression that a text has the form.
    pub(super) fn holds(&self, text: &str) -> String {
        format!("{text}.matches('{}')", self.pattern)
    }
}

/// A digest over bytes.
pub(super) const DIGEST: TextForm = TextForm::new(
    "^sha256:[0-9a-f]{64}$",
    "must be sha256: and 64 hexadecimal digits",
);

/// A revision as the status names it.
pub(super) const REVISION: TextForm = TextForm::new(
    "^[0-9a-f]{16}$",
    "must be a revision as status.candidate.revision names it: 16 hexadecimal digits",
);

/// A semantic version.
pub(super) const VERSION: TextForm = TextForm::new(
    "^(0|[1-9][0-9]*)([.](0|[1-9][0-9]*)){2}(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$",
    "must be a semantic version, such as 1.4.0",
);

/// Registry, repository, and a tag or a digest or both.
pub(super) const REFERENCE: TextForm = TextForm::new(
    "^([A-Za-z0-9-]+([.][A-Za-z0-9-]+)*:[0-9]{1,5}|[A-Za-z0-9-]+([.][A-Za-z0-9-]+)+|localhost)\
              (/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+\
              (:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?@sha256:[0-9a-f]{64})$",
    "must name registry, repository, and tag or digest: registry.example/plugins/memcached:1.4.0",
);

/// A URL without credentials and fragment.
pub(super) const URL: TextForm = TextForm::new(
    "^https?://[^/?#@ ]+([/?][^# ]*)?$",
    "must be a URL that begins with https:// or http:// and holds neither credentials nor a fragment",
);

/// A file below the source directory.
pub(super) const PATH: TextForm = TextForm::new(
    "^([.]{0,2}[^./][^/]*|[.]{3,}[^/]*)(/([.]{0,2}[^./][^/]*|[.]{3,}[^/]*))*$",
    "must be a path below --source-dir, without a leading / and without . or .. as a part",
);

/// An object name.
pub(super) const NAME: TextForm = TextForm::new(
    "^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
    "must be a name: lower-case letters, digits, dashes and dots, starting and ending with a letter or digit",
);

/// A namespace name.
pub(super) const NAMESPACE: TextForm = TextForm::new(
    "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "must be a namespace: at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit",
);

/// A ConfigMap key.
pub(super) const DATA_KEY: TextForm = TextForm::new(
    "^([A-Za-z0-9_-][A-Za-z0-9._-]*|[.][A-Za-z0-9_-][A-Za-z0-9._-]*)$",
    "must be a key of a ConfigMap: letters, digits, dashes, underscores and dots",
);

/// An API group.
pub(super) const GROUP: TextForm = TextForm::new(
    "^([a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$",
    "must be an API group without a version, such as apps, or empty for the core group",
);

/// A kind.
pub(super) const KIND: TextForm = TextForm::new(
    "^[A-Z][A-Za-z0-9]{0,62}$",
    "must be a kind in CamelCase, such as Deployment",
);

/// A public key.
pub(super) const PUBLIC_KEY: TextForm = TextForm::new(
    "^-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=[:space:]]+-----END PUBLIC KEY-----[[:space:]]*$",
    "must be a public key in PEM form, from BEGIN PUBLIC KEY to END PUBLIC KEY",
);

/// A number or a percentage.
pub(super) const PERCENTAGE: TextForm = TextForm::new(
    "^(100|[1-9]?[0-9])%$",
    "must be a number, or a percentage such as 20%",
);

/// Characters in a field manager; [`RESERVED_MANAGER`] is a separate rule.
pub(super) const FIELD_MANAGER: TextForm = TextForm::new(
    "^[!-~]([ -~]*[!-~])?$",
    "must be printable characters without a space at either end",
);

/// Prefix for the host's own field managers.
pub(super) const RESERVED_MANAGER: &str = "innkeeper:";

/// The form for sizes.
pub(super) const SIZE_PATTERN: &str = "^[1-9][0-9]{0,11}(Ki|Mi|Gi)?$";

/// The form for durations.
pub(super) const DURATION_PATTERN: &str = "^[1-9][0-9]{0,8}(ms|s|m|h)$";

const SIZE_UNITS: [(&str, u64); 4] = [("", 1), ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)];
const DURATION_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// Quantity units with their values, smallest first.
type Units = [(&'static str, u64)];

/// Returns the rule that a size is between two others, all in their text form.
pub(super) fn sizes(min: &str, max: &str) -> Rule {
    let rule = format!(
        "quantity(self).compareTo(quantity('{min}')) >= 0 && quantity(self).compareTo(quantity('{max}')) <= 0"
    );
    between(rule, min, max)
}

/// Returns the rule that a duration is between two others, all in their text form.
pub(super) fn durations(min: &str, max: &str) -> Rule {
    let rule =
        format!("duration(self) >= duration('{min}') && duration(self) <= duration('{max}')");
    between(rule, min, max)
}

fn between(rule: String, min: &str, max: &str) -> Rule {
    Rule::new(rule).message(&*format!("must be between {min} and {max}"))
}

/// Reads a size in bytes; none if the text does not have the form.
pub(super) fn bytes(text: &str) -> Option<usize> {
    read(&SIZE_UNITS, text)?.try_into().ok()
}

/// Reads a duration; none if the text does not have the form.
pub(super) fn time(text: &str) -> Option<Duration> {
    read(&DURATION_UNITS, text).map(Duration::from_millis)
}

fn read(units: &Units, text: &str) -> Option<u64> {
    let (number, unit) = units
        .iter()
        .find_map(|(unit, value)| Some((whole(text.strip_suffix(unit)?)?, *value)))?;
    number.checked_mul(unit)
}

/// Formats a value in the largest unit that divides it.
fn text(units: &Units, value: u64) -> String {
    let mut largest_first = units.iter().rev();
    // Every unit divides zero.
    let fits = |(_, unit): &&(&str, u64)| value > 0 && value.is_multiple_of(*unit);
    let (name, unit) = largest_first.find(fits).unwrap_or(&units[0]);
    format!("{}{name}", value / unit)
}

/// Formats a size in the largest unit that divides it.
pub(super) fn size_text(bytes: usize) -> String {
    text(&SIZE_UNITS, u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Formats a duration in the largest unit that divides it, cut to milliseconds.
pub(super) fn duration_text(duration: Duration) -> String {
    text(
        &DURATION_UNITS,
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    )
}

/// Reads a number without a sign and without leading zeros.
fn whole(digits: &str) -> Option<u64> {
    // `parse` also accepts a plus sign.
    let plain = digits.bytes().all(|c| c.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read() {
        let size = |text| read(&SIZE_UNITS, text);
        let duration = |text| read(&DURATION_UNITS, text);
        assert_eq!(size("1"), Some(1));
        assert_eq!(size("16Ki"), Some(16 * 1024));
        assert_eq!(size("3Gi"), Some(3 * 1024 * 1024 * 1024));
        for text in [
            "",
            "0",
            "01",
            "-1",
            "+1",
            "1k",
            "1.5Mi",
            "Mi",
            "1 Mi",
            "99999999999Gi9",
        ] {
            assert_eq!(size(text), None, "{text}");
        }
        assert_eq!(duration("250ms"), Some(250));
        assert_eq!(duration("2m"), Some(120_000));
        for text in ["", "0s", "5", "s", "1d", "1.5s", "-1s", "1m30s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_and_durations_are_written_as_they_are_read() {
        for text in ["1", "1023", "1Ki", "1536Ki", "64Mi", "3Gi"] {
            assert_eq!(size_text(bytes(text).unwrap()), text);
        }
        for text in ["1ms", "250ms", "1s", "90s", "2m", "36h"] {
            assert_eq!(duration_text(time(text).unwrap()), text);
        }
        assert_eq!(
            (size_text(0), duration_text(Duration::ZERO)),
            ("0".to_owned(), "0ms".to_owned())
        );
    }

    #[track_caller]
    fn check_form(form: &TextForm, good: &[&str], bad: &[&str]) {
        let regex = regex::Regex::new(form.pattern).unwrap();
        for text in good {
            assert!(regex.is_match(text), "{text:?} should be valid");
        }
        for text in bad {
            assert!(!regex.is_match(text), "{text:?} should be refused");
        }
    }

    fn digest() -> String {
        format!("sha256:{}", "0a".repeat(32))
    }

    #[test]
    fn digests_references_and_addresses_have_their_forms() {
        let digest = digest();
        check_form(
            &DIGEST,
            &[&digest],
            &["", "sha256:", "sha256:abc", "md5:00", &digest[7..]],
        );
        check_form(
            &REFERENCE,
            &[
                "registry.example/plugins/memcached:1.4.0",
                "localhost/x:1",
                "127.0.0.1:5000/a/b_c-d:v1",
                &format!("ghcr.io/a/b:1@{digest}"),
                &format!("registry:5000/x@{digest}"),
            ],
            &[
                "",
                "memcached:1",
                "library/memcached:1",
                "registry.example/memcached",
                "registry.example/Memcached:1",
                "https://registry.example/x:1",
                "registry.example/x:1@sha256:00",
                "registry.example//x:1",
                "user:password@registry.example/x:1",
            ],
        );
        check_form(
            &URL,
            &[
                "https://a.example/x.wasm?v=1",
                "http://127.0.0.1:8080",
                "https://[::1]:1/x",
            ],
            &[
                "",
                "ftp://a/x",
                "file:///etc/passwd",
                "https://",
                "https://user:secret@a/x",
                "https://a/x#y",
                "https://a/ x",
            ],
        );
    }

    #[test]
    fn paths_and_names_have_their_forms() {
        check_form(
            &PATH,
            &[
                "memcached.wasm",
                "a/b.wasm",
                ".hidden",
                "..a/x",
                "a/...",
                "a..b",
            ],
            &[
                "", "/a", "..", "../a", "a/..", "a/../b", "./a", "a//b", "a/",
            ],
        );
        check_form(&NAME, &["a", "a.b-c"], &["", "A", "a..b", "-a", "a_b"]);
        check_form(
            &NAMESPACE,
            &["a", "a-1"],
            &["", "a.b", "A", &"x".repeat(64)],
        );
        check_form(
            &DATA_KEY,
            &["plugin.wasm", ".x", "A_b"],
            &["", ".", "..", "a/b"],
        );
        check_form(
            &GROUP,
            &["", "apps", "example.com"],
            &["apps/v1", "Apps", "a."],
        );
        check_form(&KIND, &["Pod", "ABC1"], &["", "pod", "Pod.v1", "P-d"]);
        check_form(
            &PERCENTAGE,
            &["0%", "20%", "100%"],
            &["", "%", "101%", "020%", "20", "-1%"],
        );
    }
}
