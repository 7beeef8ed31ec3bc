//! Deceptive characters in texts from guests, registries and cluster users.

use std::fmt::{self, Write as _};

/// Returns true for characters that are not shown as themselves: a terminal executes control characters, and invisible
/// and bidirectional format characters hide or reorder the text around them.
///
/// Source: the general categories Cc, Cf, Zl and Zp of Unicode 16, and letters without a glyph: fillers and the joiner
/// U+034F. Variation selectors are not among them: they only choose between glyphs.
pub fn is_deceptive(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

/// Returns true for characters without a glyph that are no control characters.
pub const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Escapes the deceptive characters in a JSON text, except the line feeds between values.
///
/// All others are in strings, because JSON syntax has none, and parsers read them back unchanged.
pub fn escape_json(json: &str) -> String {
    escape(json, |escaped, c| {
        // JSON has four-digit escapes only, so larger characters become surrogate pairs.
        for unit in c.encode_utf16(&mut [0; 2]) {
            push(escaped, format_args!("\\u{unit:04x}"));
        }
    })
}

/// Escapes the deceptive characters in a JSON text as YAML does, which has no surrogate pairs.
pub(crate) fn escape_yaml(json: &str) -> String {
    escape(json, |escaped, c| match u32::from(c) {
        code @ ..=0xffff => push(escaped, format_args!("\\u{code:04x}")),
        code => push(escaped, format_args!("\\U{code:08x}")),
    })
}

fn escape(text: &str, push_escaped: impl Fn(&mut String, char)) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden_in_lines(c) {
            push_escaped(&mut escaped, c);
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn push(text: &mut String, escape: fmt::Arguments<'_>) {
    text.write_fmt(escape).expect("a String takes any text");
}

/// Returns true for deceptive characters except line feeds and tabs, which multi-line texts contain.
pub(crate) fn is_hidden_in_lines(c: char) -> bool {
    is_deceptive(c) && !matches!(c, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn control_and_invisible_characters_deceive() {
        for c in [
            '\0',
            '\u{1b}',
            '\r',
            '\n',
            '\t',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{ad}',
            '\u{200b}',
            '\u{200f}',
            '\u{2028}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            assert!(is_deceptive(c), "{c:?}");
        }
        for c in [
            'a', ' ', 'ä', '→', '…', '\u{fffd}', '\u{a0}', '\u{fe0f}', '中', '😀',
        ] {
            assert!(!is_deceptive(c), "{c:?}");
        }
    }

    #[test]
    fn escaped_json_reads_back_unchanged() {
        let value = json!({"a\u{202e}": ["\u{1b}[2J\r\n\u{7f}\u{9b}\u{2066}\u{feff}", "\u{e0041}ä😀"], "\u{200b}": 1});
        for text in [value.to_string(), format!("{value:#}\n")] {
            let escaped = escape_json(&text);
            assert!(
                !escaped.contains(|c| is_deceptive(c) && c != '\n'),
                "{escaped:?}"
            );
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
        }
        assert_eq!(
            escape_json("\"\u{9b}\u{e0041}\""),
            r#""\u009b\udb40\udc41""#
        );
    }
}
