//! Texts of guests and of users of the cluster, for a terminal.

use std::borrow::Cow;

/// Returns the text on one line and without control characters, because a terminal would execute escape sequences. Its
/// indent stays.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
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
}
