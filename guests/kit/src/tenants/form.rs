//! Value forms for program options in a parent.

use std::fmt;

/// An option value's form. No form allows a character that a shell, the kubelet or a path could interpret.
///
/// A list of dangerous options is never complete. A plugin therefore lists the harmless options, each with the value
/// form, and refuses others unless the configuration lists them.
///
/// ```
/// use innkeeper_kit::tenants::Form;
///
/// assert!(Form::Duration.accepts("1h30m"));
/// assert!(!Form::Number.accepts("1 --data-dir=/x"));
/// assert_eq!(Form::Choice(&["debug", "info"]).to_string(), "debug or info");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// No value.
    Nothing,
    /// `true`, `false` or no value.
    Switch,
    /// A whole number with at most 18 digits.
    Number,
    /// A whole number from the first to the second bound.
    Between(u32, u32),
    /// A number with or without a fraction, above the first and below the second bound.
    Decimal(u32, u32),
    /// A Go duration, such as `1h30m` or `500ms`.
    Duration,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// Words with single commas between them: letters, digits, and `.`, `_`, `-`, `:`, `/`, `*`, `=` after the first character.
    Words,
}

impl Form {
    /// Returns whether the value has the form; no value is the empty text.
    pub fn accepts(self, value: &str) -> bool {
        match self {
            Self::Nothing => value.is_empty(),
            Self::Switch => matches!(value, "" | "true" | "false"),
            Self::Number => is_number(value),
            Self::Between(least, most) => value
                .parse()
                .ok()
                .filter(|_| is_number(value))
                .is_some_and(|number: u64| (least.into()..=most.into()).contains(&number)),
            Self::Decimal(above, below) => value
                .parse()
                .ok()
                .filter(|_| is_decimal(value))
                .is_some_and(|number: f64| number > above.into() && number < below.into()),
            Self::Duration => is_duration(value),
            Self::Choice(texts) => texts.contains(&value),
            Self::Words => value.split(',').all(is_word),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no value"),
            Self::Switch => f.write_str("true, false or no value"),
            Self::Number => f.write_str("a whole number"),
            Self::Between(least, most) => write!(f, "a whole number from {least} to {most}"),
            Self::Decimal(above, below) => write!(f, "a number above {above} and below {below}"),
            Self::Duration => f.write_str("a duration such as 1h30m"),
            Self::Choice(texts) => {
                let texts: Vec<&str> = texts
                    .iter()
                    .copied()
                    .filter(|text| !text.is_empty())
                    .collect();
                f.write_str(&texts.join(" or "))
            }
            Self::Words => f.write_str("words with commas between them"),
        }
    }
}

fn is_number(text: &str) -> bool {
    (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    is_number(whole) && is_number(fraction)
}

fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 6] = ["ms", "us", "ns", "h", "m", "s"];
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.');
        let (number, unit) = rest.split_at(end.unwrap_or(rest.len()));
        let unit_len = UNITS
            .iter()
            .find(|candidate| unit.starts_with(**candidate))
            .map(|candidate| candidate.len());
        let (Some(len), true) = (unit_len, is_decimal(number)) else {
            return false;
        };
        rest = &unit[len..];
    }
    !text.is_empty()
}

fn is_word(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/*=".contains(&byte);
    let begins_plain =
        text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '*');
    begins_plain && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::Form;

    #[test]
    fn each_form_accepts_its_values_alone() {
        let forms = [
            (Form::Nothing, &[""][..], &["x", " "][..]),
            (Form::Switch, &["", "true", "false"], &["yes", "True", "1"]),
            (
                Form::Number,
                &["0", "64", "007"],
                &["", "-1", "1k", "1.5", " 1", "1 ", "1234567890123456789"],
            ),
            (
                Form::Between(1, 79),
                &["1", "79", "07"],
                &["", "0", "80", "1.5", "-1", "123456789012345678"],
            ),
            (
                Form::Decimal(0, 2),
                &["1", "1.25", "0.8"],
                &["", ".5", "1.", "1.2.3", "-1", "1e0", "0", "0.00", "2"],
            ),
            (
                Form::Duration,
                &["1h", "1h30m", "500ms", "0.5s", "10us"],
                &["", "1", "h", "1d", "1h 1m", "-1s", "1h--data-dir"],
            ),
            (Form::Choice(&["a", "b"]), &["a", "b"], &["", "c", "a,b"]),
            (
                Form::Words,
                &[
                    "*",
                    "a",
                    "a.b,c_d",
                    "https://*.example.com:8443",
                    "InitialCorruptCheck=true",
                ],
                &[
                    "",
                    "a,,b",
                    "/etc/passwd",
                    "a b",
                    "$(X)",
                    "-a",
                    "a\n",
                    "../x",
                    "a;b",
                    "ä",
                ],
            ),
        ];
        for (form, accepted, refused) in forms {
            for value in accepted {
                assert!(form.accepts(value), "{form:?} {value:?}");
            }
            for value in refused {
                assert!(!form.accepts(value), "{form:?} {value:?}");
            }
        }
    }
}
