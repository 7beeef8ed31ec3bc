//! Resource quantities, compared exactly.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An exact quantity: `digits` times ten to the power `exponent`.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    digits: i128,
    exponent: i32,
}

/// The maximum number of digits before the suffix: 10^18 times 1024^6 is below 2^127, so products fit 128 bits.
const DIGITS_MAX: usize = 18;

impl Amount {
    /// Parses a quantity; none if the text is not a quantity or has more than 18 digits.
    ///
    /// ```
    /// use innkeeper_kit::quantity::Amount;
    ///
    /// assert_eq!(Amount::parse("1"), Amount::parse("1000m"));
    /// assert!(Amount::parse("1Gi") > Amount::parse("1G"));
    /// assert_eq!(Amount::parse("lots"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let joined = format!("{whole}{fraction}");
        if joined.is_empty() || joined.len() > DIGITS_MAX || fraction.contains('.') {
            return None;
        }
        let (factor, exponent) = factor_of(suffix)?;
        let digits = joined.parse::<i128>().ok()? * factor;
        let fraction_digits = i32::try_from(fraction.len()).ok()?;
        Some(Self {
            digits: if negative { -digits } else { digits },
            exponent: exponent - fraction_digits,
        })
    }

    /// Rounds down to a whole number; none if it does not fit 128 bits.
    ///
    /// ```
    /// use innkeeper_kit::quantity::Amount;
    ///
    /// assert_eq!(Amount::parse("2Gi").and_then(Amount::floor), Some(2_147_483_648));
    /// assert_eq!(Amount::parse("1500m").and_then(Amount::floor), Some(1));
    /// ```
    pub fn floor(self) -> Option<i128> {
        let power = 10_i128.checked_pow(self.exponent.unsigned_abs())?;
        if self.exponent < 0 {
            Some(self.digits.div_euclid(power))
        } else {
            self.digits.checked_mul(power)
        }
    }

    /// Parses a typed quantity.
    pub fn from_quantity(quantity: &Quantity) -> Option<Self> {
        Self::parse(&quantity.0)
    }
}

/// Checks that requests and limits are quantities, and that no request exceeds the limit.
///
/// `path` is the parent's field: `spec.resources`.
///
/// # Errors
///
/// `<path>.<block>.<resource>: "<value>" is not a quantity`, or
/// `<path>.<resource>: request <a> exceeds limit <b>`.
pub fn check_resources(path: &str, resources: &ResourceRequirements) -> Result<(), String> {
    let none = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&none);
    let requests = resources.requests.as_ref().unwrap_or(&none);
    for (block, quantities) in [("limits", limits), ("requests", requests)] {
        for (resource, Quantity(text)) in quantities {
            if Amount::parse(text).is_none() {
                return Err(format!(
                    "{path}.{block}.{resource}: \"{text}\" is not a quantity"
                ));
            }
        }
    }
    for (resource, request) in requests {
        let Some(limit) = limits.get(resource) else {
            continue;
        };
        if Amount::from_quantity(request) > Amount::from_quantity(limit) {
            return Err(format!(
                "{path}.{resource}: request {} exceeds limit {}",
                request.0, limit.0
            ));
        }
    }
    Ok(())
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = self.digits.signum().cmp(&other.digits.signum());
        if sign != Ordering::Equal || self.digits == 0 {
            return sign;
        }
        let mine = self.digits.unsigned_abs();
        let my_zeros = self.exponent;
        let theirs = other.digits.unsigned_abs();
        let their_zeros = other.exponent;
        let magnitude = compare_decimal(mine, my_zeros, theirs, their_zeros);
        if self.digits < 0 {
            magnitude.reverse()
        } else {
            magnitude
        }
    }
}

/// Compares positive numbers by decimal digits, aligned at the highest one; no arithmetic, so no overflow.
fn compare_decimal(left: u128, left_zeros: i32, right: u128, right_zeros: i32) -> Ordering {
    let left = left.to_string();
    let right = right.to_string();
    let magnitude = |digits: &str, zeros: i32| {
        i64::try_from(digits.len())
            .unwrap_or(i64::MAX)
            .saturating_add(i64::from(zeros))
    };
    let longest = left.len().max(right.len());
    magnitude(&left, left_zeros)
        .cmp(&magnitude(&right, right_zeros))
        .then_with(|| format!("{left:0<longest$}").cmp(&format!("{right:0<longest$}")))
}

/// Returns a suffix's factor and power of ten.
fn factor_of(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1024_i128.pow(power), 0));
    match suffix {
        "" => Some((1, 0)),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (exponent.abs() <= 100).then_some((1, exponent))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Amount;

    #[test]
    fn reads_every_form() {
        let same = [
            ("1", "1000m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1Ki", "1024"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("1E3", "1k"),
            ("2E", "2000P"),
            ("100n", "0.1u"),
            ("+1", "1"),
            ("-0", "0"),
            ("5.", "5"),
        ];
        for (left, right) in same {
            assert_eq!(
                Amount::parse(left).unwrap(),
                Amount::parse(right).unwrap(),
                "{left}"
            );
        }
    }

    #[test]
    fn rejects_text_that_is_not_a_quantity() {
        for text in [
            "", "lots", "1 Gi", "1gi", "Gi", ".", "1.2.3", "-", "--1", "1e", "1e1.5", "é",
        ] {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
    }

    #[test]
    fn orders_across_signs_and_suffixes() {
        let ordered = [
            "-2Ki", "-2k", "-1m", "0", "1n", "1m", "999m", "1", "1k", "1Ki", "1E", "1Ei",
        ];
        let amounts: Vec<_> = ordered
            .iter()
            .map(|text| Amount::parse(text).unwrap())
            .collect();
        assert!(amounts.is_sorted());
        assert!(amounts.windows(2).all(|pair| pair[0] < pair[1]));
    }

    proptest! {
        #[test]
        fn agrees_with_whole_numbers(a in -1_000_000_i64..1_000_000, b in -2_000_i64..2_000) {
            let left = Amount::parse(&format!("{a}m")).unwrap();
            let right = Amount::parse(&format!("{b}")).unwrap();
            prop_assert_eq!(left.cmp(&right), a.cmp(&(b * 1000)));
        }

        #[test]
        fn never_panics(text in "\\PC*") {
            let _: Option<Amount> = Amount::parse(&text);
        }
    }
}
