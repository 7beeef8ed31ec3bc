//! The forms of single values: said once, and held by the API server and by the conversion alike.
//!
//! A form becomes a CEL rule of the CustomResourceDefinition, and checks the same value when a spec is converted: a spec
//! that was stored under an older definition is held to the same rules.

use std::{sync::OnceLock, time::Duration};

use kube::core::{Message, Rule};
use regex::Regex;

use super::Error;

/// A text of a fixed form.
pub(super) struct Form {
    /// A pattern without quotes and backslashes, as RE2 and Rust both read it.
    pattern: &'static str,
    /// The requirement, as the end of a sentence that begins with the field.
    must: &'static str,
    /// Made of the pattern when it is first asked for, which takes longer than all else that is done with a spec.
    regex: OnceLock<Regex>,
}

impl Form {
    const fn new(pattern: &'static str, must: &'static str) -> Self {
        Self {
            pattern,
            must,
            regex: OnceLock::new(),
        }
    }

    /// The rule for the field.
    pub(super) fn rule(&self) -> Rule {
        Rule::new(self.holds("self")).message(self.must)
    }

    /// The expression that a text is of the form.
    pub(super) fn holds(&self, text: &str) -> String {
        format!("{text}.matches('{}')", self.pattern)
    }

    /// Returns the requirement, as the end of a sentence that begins with the field.
    pub(super) const fn must(&self) -> &'static str {
        self.must
    }

    /// Holds a value to the form. The value is not shown: it may be a key, or hold a password.
    pub(super) fn check(&self, path: &str, value: &str) -> Result<(), Error> {
        if self.fits(value) {
            Ok(())
        } else {
            Err(Error::field(path, self.must))
        }
    }

    fn fits(&self, value: &str) -> bool {
        let regex = || Regex::new(self.pattern).expect("the pattern is a literal");
        self.regex.get_or_init(regex).is_match(value)
    }
}

/// The digest of the bytes.
pub(super) static DIGEST: Form = Form::new(
    "^sha256:[0-9a-f]{64}$",
    "must be sha256: and 64 hexadecimal digits",
);

/// A revision as the status names it.
pub(super) static REVISION: Form = Form::new(
    "^[0-9a-f]{16}$",
    "must be a revision as status.candidate.revision names it: 16 hexadecimal digits",
);

/// Registry, repository, and a tag or a digest or both.
pub(super) static REFERENCE: Form = Form::new(
    "^([A-Za-z0-9-]+([.][A-Za-z0-9-]+)*:[0-9]{1,5}|[A-Za-z0-9-]+([.][A-Za-z0-9-]+)+|localhost)\
              (/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+\
              (:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?@sha256:[0-9a-f]{64})$",
    "must name registry, repository, and tag or digest: registry.example/plugins/memcached:1.4.0",
);

/// A URL without credentials and fragment.
pub(super) static URL: Form = Form::new(
    "^https?://[^/?#@ ]+([/?][^# ]*)?$",
    "must be a URL that begins with https:// or http:// and holds neither credentials nor a fragment",
);

/// A file below the source directory.
pub(super) static PATH: Form = Form::new(
    "^([.]{0,2}[^./][^/]*|[.]{3,}[^/]*)(/([.]{0,2}[^./][^/]*|[.]{3,}[^/]*))*$",
    "must be a path below --source-dir, without a leading / and without . or .. as a part",
);

/// The name of an object.
pub(super) static NAME: Form = Form::new(
    "^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
    "must be a name: lower-case letters, digits, dashes and dots, starting and ending with a letter or digit",
);

/// The name of a namespace.
pub(super) static NAMESPACE: Form = Form::new(
    "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "must be a namespace: at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit",
);

/// A key of a ConfigMap.
pub(super) static DATA_KEY: Form = Form::new(
    "^([A-Za-z0-9_-][A-Za-z0-9._-]*|[.][A-Za-z0-9_-][A-Za-z0-9._-]*)$",
    "must be a key of a ConfigMap: letters, digits, dashes, underscores and dots",
);

/// An API group.
pub(super) static GROUP: Form = Form::new(
    "^([a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$",
    "must be an API group without a version, such as apps, or empty for the core group",
);

/// A kind.
pub(super) static KIND: Form = Form::new(
    "^[A-Z][A-Za-z0-9]{0,62}$",
    "must be a kind in CamelCase, such as Deployment",
);

/// A public key.
pub(super) static PUBLIC_KEY: Form = Form::new(
    "^-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=[:space:]]+-----END PUBLIC KEY-----[[:space:]]*$",
    "must be a public key in PEM form, from BEGIN PUBLIC KEY to END PUBLIC KEY",
);

/// A number or a percentage.
pub(super) static PERCENTAGE: Form = Form::new(
    "^(100|[1-9]?[0-9])%$",
    "must be a number, or a percentage such as 20%",
);

/// A field manager that does not look like one of the host's own.
pub(super) static FIELD_MANAGER: Form = Form::new(
    "^[!-~]([ -~]*[!-~])?$",
    "must be printable characters without a space at either end",
);

/// The prefix of the host's own field managers.
pub(super) const RESERVED_MANAGER: &str = "innkeeper:";

/// The form of a size.
pub(super) const SIZE_PATTERN: &str = "^[1-9][0-9]{0,11}(Ki|Mi|Gi)?$";

/// The form of a duration.
pub(super) const DURATION_PATTERN: &str = "^[1-9][0-9]{0,8}(ms|s|m|h)$";

/// A size in bytes with its bounds.
pub(super) struct SizeBounds {
    pub(super) min: &'static str,
    pub(super) max: &'static str,
}

impl SizeBounds {
    /// The rule for the field.
    pub(super) fn rule(&self) -> Rule {
        let Self { min, max } = self;
        Rule::new(format!(
            "quantity(self).compareTo(quantity('{min}')) >= 0 && quantity(self).compareTo(quantity('{max}')) <= 0"
        ))
        .message(between(min, max))
    }

    /// The bytes of a value.
    pub(super) fn read(&self, path: &str, value: &str) -> Result<usize, Error> {
        let Self { min, max } = self;
        let invalid = || {
            let problem =
                format!("\"{value}\" must be a size between {min} and {max}, such as {max}");
            Error::field(path, problem)
        };
        let bytes = size(value).ok_or_else(invalid)?;
        if size(min) <= Some(bytes) && Some(bytes) <= size(max) {
            usize::try_from(bytes).map_err(|_| invalid())
        } else {
            Err(invalid())
        }
    }
}

/// A duration with its bounds.
pub(super) struct DurationBounds {
    pub(super) min: &'static str,
    pub(super) max: &'static str,
}

impl DurationBounds {
    /// The rule for the field.
    pub(super) fn rule(&self) -> Rule {
        let Self { min, max } = self;
        Rule::new(format!(
            "duration(self) >= duration('{min}') && duration(self) <= duration('{max}')"
        ))
        .message(between(min, max))
    }

    /// The duration of a value.
    pub(super) fn read(&self, path: &str, value: &str) -> Result<Duration, Error> {
        let Self { min, max } = self;
        let read = duration(value);
        read.filter(|read| duration(min) <= Some(*read) && Some(*read) <= duration(max))
            .ok_or_else(|| {
                let problem = format!(
                    "\"{value}\" must be a duration between {min} and {max}, such as {max}"
                );
                Error::field(path, problem)
            })
    }
}

/// A whole number with its bounds.
pub(super) struct NumberBounds {
    pub(super) min: i32,
    pub(super) max: i32,
}

impl NumberBounds {
    /// A value within the bounds.
    pub(super) fn read<T: TryFrom<i32>>(&self, path: &str, value: i32) -> Result<T, Error> {
        let Self { min, max } = self;
        let within = (*min..=*max).contains(&value);
        within
            .then(|| T::try_from(value).ok())
            .flatten()
            .ok_or_else(|| Error::field(path, format!("{value} must be between {min} and {max}")))
    }
}

fn between(min: &str, max: &str) -> Message {
    Message::Message(format!("must be between {min} and {max}"))
}

const KIB: u64 = 1024;
/// The units of sizes, the smallest first.
const SIZE_UNITS: [(&str, u64); 3] = [("Ki", KIB), ("Mi", KIB * KIB), ("Gi", KIB * KIB * KIB)];
/// The units of durations in milliseconds, the smallest first: its name ends like that of the next.
const DURATION_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// A size in its form, in the largest unit of which it is a whole number.
pub(super) fn size_text(bytes: usize) -> String {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    in_units(bytes, &SIZE_UNITS).unwrap_or_else(|| bytes.to_string())
}

/// A duration in its form, in the largest unit of which it is a whole number; what is below a millisecond is left out.
pub(super) fn duration_text(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    in_units(ms, &DURATION_UNITS).unwrap_or_else(|| format!("{ms}ms"))
}

fn in_units(number: u64, units: &[(&str, u64)]) -> Option<String> {
    let mut units = units.iter().rev();
    let (unit, one) = units.find(|(_, one)| number > 0 && number.is_multiple_of(*one))?;
    Some(format!("{}{unit}", number / one))
}

/// The bytes of a size in its form.
fn size(text: &str) -> Option<u64> {
    let found = SIZE_UNITS
        .iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (digits, unit_bytes) = found.unwrap_or((text, 1));
    whole(digits)?.checked_mul(unit_bytes)
}

/// The duration of a text in its form.
fn duration(text: &str) -> Option<Duration> {
    let found = DURATION_UNITS
        .iter()
        .find_map(|(unit, ms)| Some((whole(text.strip_suffix(unit)?)?, *ms)));
    let (number, unit_ms) = found?;
    number.checked_mul(unit_ms).map(Duration::from_millis)
}

/// A number without a sign and without leading zeros.
fn whole(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|c| c.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read() {
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
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Some(Duration::from_mins(2)));
        for text in ["", "0s", "5", "s", "1d", "1.5s", "-1s", "1m30s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_and_durations_are_written_as_they_are_read() {
        for text in ["1", "1023", "1Ki", "1536Ki", "64Mi", "3Gi"] {
            let bytes = usize::try_from(size(text).unwrap()).unwrap();
            assert_eq!(size_text(bytes), text);
        }
        for text in ["1ms", "250ms", "1s", "90s", "2m", "36h"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }

    #[track_caller]
    fn check_form(form: &Form, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(form.fits(text), "{text:?} should be valid");
        }
        for text in bad {
            assert!(!form.fits(text), "{text:?} should be refused");
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
