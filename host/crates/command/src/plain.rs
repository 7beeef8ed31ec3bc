//! Sanitizes texts from guests, registries and cluster users for a terminal.

use std::borrow::Cow;

use innkeeper_model::foreign::{is_deceptive, is_invisible};

/// Longer than any host message.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Returns the text on one line with its indent, cut to 16 KiB. Control characters become spaces, and invisible and
/// bidirectional characters become U+FFFD.
pub fn plain(text: &str) -> Cow<'_, str> {
    match shortened(text) {
        Cow::Borrowed(text) => visible(text),
        Cow::Owned(text) => Cow::Owned(visible(&text).into_owned()),
    }
}

/// Returns the text, cut to 16 KiB.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    let omitted = text.len() - start.len();
    Cow::Owned(format!("{start} ... ({omitted} bytes omitted)"))
}

/// Sanitizes each line with [`plain`]. Indents all but the first, so that a foreign text cannot fake a line.
pub(crate) fn plain_lines(text: &str) -> String {
    const INDENT: &str = "  ";

    let mut lines = text.trim_end_matches('\n').split('\n').map(plain);
    let mut result = lines.next().unwrap_or_default().into_owned();
    for line in lines {
        result.push('\n');
        result.push_str(INDENT);
        result.push_str(&line);
    }
    result
}

fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return Cow::Borrowed(text);
    }
    // Shown, because they hide or reorder other characters.
    let text = text.replace(is_invisible, "\u{fffd}");
    if !text.contains(char::is_control) {
        return Cow::Owned(text);
    }
    // A terminal would execute escape sequences.
    let words: Vec<&str> = text
        .split(|c: char| c.is_control() || c == ' ')
        .filter(|word| !word.is_empty())
        .collect();
    let indent = text.len() - text.trim_start_matches(' ').len();
    Cow::Owned(" ".repeat(indent) + &words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_spaces() {
        for (text, shown) in [
            ("a  b", "a  b"),
            ("", ""),
            ("\u{1b}]0;title\u{7}a\r\n\tb\n", "]0;title a b"),
            ("  x: \u{9b}31m red", "  x: 31m red"),
            ("\n  a", "a"),
            ("ä\u{7f}ö", "ä ö"),
        ] {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }

    #[test]
    fn characters_that_hide_or_reorder_others_are_shown() {
        for (text, shown) in [
            ("a\u{202e}b", "a\u{fffd}b"),
            ("\u{2066}a\u{2069}", "\u{fffd}a\u{fffd}"),
            ("ad\u{200b}min\u{feff}", "ad\u{fffd}min\u{fffd}"),
            ("a\u{2028}b", "a\u{fffd}b"),
            ("\u{1b}[1m\u{202e}a  b", "[1m\u{fffd}a b"),
        ] {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ä".repeat(TEXT_BYTES_MAX);
        let shown = plain(&text);
        let expected = format!("{} ... (16384 bytes omitted)", "ä".repeat(8192));
        assert_eq!(shown, expected);
    }

    #[test]
    fn further_lines_of_a_text_are_indented() {
        for (text, shown) in [
            ("a", "a"),
            ("a\nerror: b", "a\n  error: b"),
            ("a\r\n    b\n\u{1b}c", "a\n      b\n  c"),
            ("a\n", "a"),
        ] {
            assert_eq!(plain_lines(text), shown, "{text:?}");
        }
    }
}
