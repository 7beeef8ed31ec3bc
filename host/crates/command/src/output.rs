//! A command's standard output. Foreign texts in it can neither control the terminal nor fake a line.

use innkeeper_model::{foreign, yaml};
use serde::Serialize;
use serde_json::Value;

use crate::{Exit, Failure, OrFail as _, plain::plain, plain::plain_lines};

/// The failure to encode a result.
const ENCODE: &str = "failed to encode the result";

/// A part of a command's output. All text in it is sanitized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output(String);

impl Output {
    /// Formats a value as indented JSON.
    pub fn json(value: &impl Serialize) -> Result<Self, Failure> {
        Self::encoded(serde_json::to_string_pretty(value))
    }

    /// Formats a value as JSON on one line.
    pub fn json_line(value: &impl Serialize) -> Result<Self, Failure> {
        Self::encoded(serde_json::to_string(value))
    }

    fn encoded(json: serde_json::Result<String>) -> Result<Self, Failure> {
        let json = json.or_fail(Exit::Failure, ENCODE)?;
        Ok(Self(foreign::escape_json(&json) + "\n"))
    }

    /// Formats values as YAML documents.
    pub fn yaml(documents: &[Value]) -> Result<Self, Failure> {
        let text = yaml::write(documents).or_fail(Exit::Failure, ENCODE)?;
        Ok(Self(text))
    }

    /// Creates a single line.
    pub fn from_line(text: impl AsRef<str>) -> Self {
        let mut output = Self::default();
        output.line(text);
        output
    }

    /// Adds a line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.0.push_str(&plain(text.as_ref()));
        self.0.push('\n');
    }

    /// Adds a text, and indents all lines after the first.
    pub fn lines(&mut self, text: impl AsRef<str>) {
        self.0.push_str(&plain_lines(text.as_ref()));
        self.0.push('\n');
    }

    /// Adds a red line.
    pub fn red_line(&mut self, text: impl AsRef<str>) {
        self.0.push_str("\x1b[31m");
        self.0.push_str(&plain(text.as_ref()));
        self.0.push_str("\x1b[0m\n");
    }

    /// Erases the screen and the scrollback.
    pub fn erase_screen(&mut self) {
        self.0.push_str("\x1b[H\x1b[2J\x1b[3J");
    }

    /// Adds another part.
    pub fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// The sanitized text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "a\u{1b}[2J\r\nok\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}";

    #[test]
    fn no_part_has_a_character_of_a_foreign_text_that_deceives() {
        let value = json!({ HOSTILE: HOSTILE });
        let mut output = Output::from_line(HOSTILE);
        output.line(HOSTILE);
        output.lines(HOSTILE);
        for part in [
            Output::json(&value).unwrap(),
            Output::json_line(&value).unwrap(),
            Output::yaml(std::slice::from_ref(&value)).unwrap(),
        ] {
            output.append(&part);
        }
        let deceives = |c: char| foreign::is_deceptive(c) && c != '\n';
        let text = output.as_str();
        assert!(!text.contains(deceives), "{text:?}");
        assert!(text.lines().all(|line| !line.starts_with("ok")), "{text}");
    }

    #[test]
    fn escape_sequences_are_those_of_the_program() {
        let mut output = Output::default();
        output.erase_screen();
        output.red_line(HOSTILE);
        let shown =
            "\x1b[H\x1b[2J\x1b[3J\x1b[31ma [2J ok 31m\u{fffd}\u{fffd}\u{fffd}\u{fffd}\x1b[0m\n";
        assert_eq!(output.as_str(), shown);
    }
}
