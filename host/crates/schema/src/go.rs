//! Values in the text form that Go gives them, because the API server's messages hold them.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// A number as the API server's decoder sees it: what does not fit a signed 64-bit integer is a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Num {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

pub(super) fn number(number: &Number) -> Num {
    number
        .as_i64()
        .map_or_else(|| Num::Float(number.as_f64().unwrap_or(f64::NAN)), Num::Int)
}

/// The largest integer that every float up to it represents exactly.
const FLOAT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Whether a float is taken for an integer.
pub(super) fn is_integral(float: f64) -> bool {
    float.fract() == 0.0 && float.abs() <= FLOAT_INTEGER_MAX
}

/// `%q`: a quoted text.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c < ' ' || c == '\u{7f}' => {
                write(&mut out, format_args!("\\x{:02x}", u32::from(c)))
            }
            c if c.is_control() => write(&mut out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn write(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments)
        .expect("writing to a String does not fail");
}

/// `%v` of a float: the shortest form, with an exponent below 1e-4 and from 1e6 on.
pub(super) fn float(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{float}")
}

/// JSON as Go's encoder writes it.
pub(super) fn json(value: &Value) -> String {
    value
        .to_string()
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// A value as it stands after `Invalid value: `.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(it) => match number(it) {
            Num::Int(integer) => integer.to_string(),
            Num::Float(it) => float(it),
        },
        other => json(other),
    }
}

/// `%v` of a value.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", plain(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
        scalar => self::value(scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_as_go_writes_them() {
        for (number, text) in [
            (0.5, "0.5"),
            (1.0, "1"),
            (-2.25, "-2.25"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (123_456_789.0, "1.23456789e+08"),
            (123_456.5, "123456.5"),
        ] {
            assert_eq!(float(number), text);
        }
    }

    #[test]
    fn containers_read_as_go_writes_them() {
        let value = serde_json::json!({"a": [1, "b", null], "c": {}});
        assert_eq!(plain(&value), "map[a:[1 b <nil>] c:map[]]");
    }

    #[test]
    fn texts_are_quoted_as_go_does() {
        assert_eq!(quote("a\"b\\\n\u{1}é"), r#""a\"b\\\n\x01é""#);
    }
}
