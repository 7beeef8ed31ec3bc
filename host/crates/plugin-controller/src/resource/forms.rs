//! The forms of single values, which both the API server and the conversion check.
//!
//! A form becomes a CEL rule of the CustomResourceDefinition, and checks the same value when a spec is converted: a spec
//! that was stored under an older definition has to pass the same rules.

use std::{sync::OnceLock, time::Duration};

use kube::core::Rule;
use regex::Regex;

use super::Error;

/// A text of a fixed form.
pub(super) struct TextForm {
    /// A pattern without quotes and backslashes, which RE2 in the API server and the regex crate read alike.
    pattern: &'static str,
    /// The requirement, as the end of a sentence that begins with the field.
    must: &'static str,
    /// Compiled at the first check: that takes longer than the rest of a conversion.
    regex: OnceLock<Regex>,
}

impl TextForm {
    const fn new(pattern: &'static str, must: &'static str) -> Self {
        Self {
            pattern,
            must,
            regex: OnceLock::new(),
        }
    }

    /// Returns the rule for the field.
    pub(super) fn rule(&self) -> Rule {
        Rule::new(self.holds("self")).message(self.must)
    }

    /// Returns the CEL expression that a text has the form.
    pub(super) fn holds(&self, text: &str) -> String {
        format!("{text}.matches('{}')", self.pattern)
    }

    /// Returns the requirement, as the end of a sentence that begins with the field.
    pub(super) const fn must(&self) -> &'static str {
        self.must
    }

    /// Checks a value. The error does not show it: it may be a key, or contain a password.
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
pub(super) static DIGEST: TextForm = TextForm::new(
    "^sha256:[0-9a-f]{64}$",
    "must be sha256: and 64 hexadecimal digits",
);

/// A revision as the status names it.
pub(super) static REVISION: TextForm = TextForm::new(
    "^[0-9a-f]{16}$",
    "must be a revision as status.candidate.revision names it: 16 hexadecimal digits",
);

/// A semantic version.
pub(super) static VERSION: TextForm = TextForm::new(
    "^(0|[1-9][0-9]*)([.](0|[1-9][0-9]*)){2}(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$",
    "must be a semantic version, such as 1.4.0",
);

/// Registry, repository, and a tag or a digest or both.
pub(super) static REFERENCE: TextForm = TextForm::new(
    "^([A-Za-z0-9-]+([.][A-Za-z0-9-]+)*:[0-9]{1,5}|[A-Za-z0-9-]+([.][A-Za-z0-9-]+)+|localhost)\
              (/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+\
              (:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?@sha256:[0-9a-f]{64})$",
    "must name registry, repository, and tag or digest: registry.example/plugins/memcached:1.4.0",
);

/// A URL without credentials and fragment.
pub(super) static URL: TextForm = TextForm::new(
    "^https?://[^/?#@ ]+([/?][^# ]*)?$",
    "must be a URL that begins with https:// or http:// and holds neither credentials nor a fragment",
);

/// A file below the source directory.
pub(super) static PATH: TextForm = TextForm::new(
    "^([.]{0,2}[^./][^/]*|[.]{3,}[^/]*)(/([.]{0,2}[^./][^/]*|[.]{3,}[^/]*))*$",
    "must be a path below --source-dir, without a leading / and without . or .. as a part",
);

/// The name of an object.
pub(super) static NAME: TextForm = TextForm::new(
    "^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
    "must be a name: lower-case letters, digits, dashes and dots, starting and ending with a letter or digit",
);

/// The name of a namespace.
pub(super) static NAMESPACE: TextForm = TextForm::new(
    "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "must be a namespace: at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit",
);

/// A key of a ConfigMap.
pub(super) static DATA_KEY: TextForm = TextForm::new(
    "^([A-Za-z0-9_-][A-Za-z0-9._-]*|[.][A-Za-z0-9_-][A-Za-z0-9._-]*)$",
    "must be a key of a ConfigMap: letters, digits, dashes, underscores and dots",
);

/// An API group.
pub(super) static GROUP: TextForm = TextForm::new(
    "^([a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$",
    "must be an API group without a version, such as apps, or empty for the core group",
);

/// A kind.
pub(super) static KIND: TextForm = TextForm::new(
    "^[A-Z][A-Za-z0-9]{0,62}$",
    "must be a kind in CamelCase, such as Deployment",
);

/// A public key.
pub(super) static PUBLIC_KEY: TextForm = TextForm::new(
    "^-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=[:space:]]+-----END PUBLIC KEY-----[[:space:]]*$",
    "must be a public key in PEM form, from BEGIN PUBLIC KEY to END PUBLIC KEY",
);

/// A number or a percentage.
pub(super) static PERCENTAGE: TextForm = TextForm::new(
    "^(100|[1-9]?[0-9])%$",
    "must be a number, or a percentage such as 20%",
);

/// The characters of a field manager; [`RESERVED_MANAGER`] is a rule of its own.
pub(super) static FIELD_MANAGER: TextForm = TextForm::new(
    "^[!-~]([ -~]*[!-~])?$",
    "must be printable characters without a space at either end",
);

/// The prefix of the host's own field managers.
pub(super) const RESERVED_MANAGER: &str = "innkeeper:";

/// The form of a size.
pub(super) const SIZE_PATTERN: &str = "^[1-9][0-9]{0,11}(Ki|Mi|Gi)?$";

/// The form of a duration.
pub(super) const DURATION_PATTERN: &str = "^[1-9][0-9]{0,8}(ms|s|m|h)$";

/// A size or a duration with its bounds, all in their text form.
pub(super) struct TextBounds {
    quantity: Quantity,
    min: &'static str,
    max: &'static str,
}

const SIZE_UNITS: [(&str, u64); 4] = [("", 1), ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)];
const DURATION_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

#[derive(Clone, Copy)]
enum Quantity {
    /// In bytes.
    Size,
    /// In milliseconds.
    Duration,
}

impl Quantity {
    /// Returns the units with their values, the smallest first.
    const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Size => &SIZE_UNITS,
            Self::Duration => &DURATION_UNITS,
        }
    }

    /// Returns the value of a text; none if it does not have the form.
    fn read(self, text: &str) -> Option<u64> {
        let mut units = self.units().iter();
        let (number, unit) =
            units.find_map(|(unit, value)| Some((whole(text.strip_suffix(unit)?)?, *value)))?;
        number.checked_mul(unit)
    }

    /// Returns the text of a value in the largest unit of which it is a whole number.
    fn text(self, value: u64) -> String {
        let units = self.units();
        let mut largest_first = units.iter().rev();
        let fits = |(_, unit): &&(&str, u64)| value > 0 && value.is_multiple_of(*unit);
        let (name, unit) = largest_first.find(fits).unwrap_or(&units[0]);
        format!("{}{name}", value / unit)
    }
}

impl TextBounds {
    pub(super) const fn size(min: &'static str, max: &'static str) -> Self {
        let quantity = Quantity::Size;
        Self { quantity, min, max }
    }

    pub(super) const fn duration(min: &'static str, max: &'static str) -> Self {
        let quantity = Quantity::Duration;
        Self { quantity, min, max }
    }

    /// Returns the rule for the field.
    pub(super) fn rule(&self) -> Rule {
        let Self { quantity, min, max } = self;
        let rule = match quantity {
            Quantity::Size => format!(
                "quantity(self).compareTo(quantity('{min}')) >= 0 && quantity(self).compareTo(quantity('{max}')) <= 0"
            ),
            Quantity::Duration => {
                format!(
                    "duration(self) >= duration('{min}') && duration(self) <= duration('{max}')"
                )
            }
        };
        Rule::new(rule).message(&*format!("must be between {min} and {max}"))
    }

    fn read(&self, path: &str, text: &str) -> Result<u64, Error> {
        let Self { quantity, min, max } = self;
        let bounds = quantity.read(min)..=quantity.read(max);
        let value = quantity
            .read(text)
            .filter(|value| bounds.contains(&Some(*value)));
        value.ok_or_else(|| {
            let noun = match quantity {
                Quantity::Size => "size",
                Quantity::Duration => "duration",
            };
            let problem =
                format!("\"{text}\" must be a {noun} between {min} and {max}, such as {max}");
            Error::field(path, problem)
        })
    }

    /// Reads a size.
    pub(super) fn bytes(&self, path: &str, text: &str) -> Result<usize, Error> {
        let bytes = self.read(path, text)?;
        // All bounds are below 2 GiB, so this holds on every platform.
        Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Reads a duration.
    pub(super) fn time(&self, path: &str, text: &str) -> Result<Duration, Error> {
        self.read(path, text).map(Duration::from_millis)
    }
}

/// A whole number with its bounds.
pub(super) struct NumberBounds {
    pub(super) min: i32,
    pub(super) max: i32,
}

impl NumberBounds {
    pub(super) const fn new(min: i32, max: i32) -> Self {
        Self { min, max }
    }

    /// Reads a value within the bounds.
    pub(super) fn read<T: TryFrom<i32>>(&self, path: &str, value: i32) -> Result<T, Error> {
        let Self { min, max } = self;
        let read = T::try_from(value).ok();
        let read = read.filter(|_| (*min..=*max).contains(&value));
        read.ok_or_else(|| Error::field(path, format!("{value} must be between {min} and {max}")))
    }
}

/// Formats a size in the largest unit of which it is a whole number.
pub(super) fn size_text(bytes: usize) -> String {
    Quantity::Size.text(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Formats a duration in the largest unit of which it is a whole number, cut to milliseconds.
pub(super) fn duration_text(duration: Duration) -> String {
    Quantity::Duration.text(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Reads a number without a sign and without leading zeros.
fn whole(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|c| c.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read() {
        let size = |text| Quantity::Size.read(text);
        let duration = |text| Quantity::Duration.read(text);
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
            let bytes = Quantity::Size.read(text).unwrap();
            assert_eq!(Quantity::Size.text(bytes), text);
        }
        for text in ["1ms", "250ms", "1s", "90s", "2m", "36h"] {
            let ms = Quantity::Duration.read(text).unwrap();
            assert_eq!(Quantity::Duration.text(ms), text);
        }
        assert_eq!(
            (size_text(0), duration_text(Duration::ZERO)),
            ("0".to_owned(), "0ms".to_owned())
        );
    }

    #[track_caller]
    fn check_form(form: &TextForm, good: &[&str], bad: &[&str]) {
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
