//! Writes YAML that survives gobackup's variable expansion.
//!
//! gobackup expands `$NAME` and `${NAME}` in the whole text before parsing it, and has no escape for `$`. So a literal
//! `$` is written as a variable that contains one. This is not a general writer.

use std::fmt::Write;

/// A value in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// The user's string.
    Text(String),
    /// A number or a boolean.
    Plain(String),
    /// A variable. It is written into a block scalar with explicit indentation, so no one-line value can end the
    /// scalar.
    Variable(String),
    Texts(Vec<String>),
    /// The keys are written unchanged; the user's keys must be [`quoted`].
    Map(Vec<(String, Self)>),
}

/// Returns a document with a map at the root.
pub(crate) fn write(map: Vec<(String, Node)>, expand_env: bool) -> String {
    let mut writer = Writer {
        text: String::new(),
        expand_env,
    };
    writer.map(0, &map);
    writer.text
}

struct Writer {
    text: String,
    expand_env: bool,
}

impl Writer {
    fn map(&mut self, depth: usize, map: &[(String, Node)]) {
        for (key, node) in map {
            self.indent(depth);
            self.text.push_str(key);
            self.text.push(':');
            match node {
                Node::Text(text) => {
                    self.text.push(' ');
                    self.literal(text);
                }
                Node::Plain(text) => {
                    self.text.push(' ');
                    self.text.push_str(text);
                }
                Node::Variable(name) => {
                    self.text.push_str(" |2-\n");
                    self.indent(depth + 1);
                    self.text.push_str("${");
                    self.text.push_str(name);
                    self.text.push('}');
                }
                Node::Texts(texts) => {
                    for text in texts {
                        self.text.push('\n');
                        self.indent(depth + 1);
                        self.text.push_str("- ");
                        self.literal(text);
                    }
                }
                Node::Map(below) => {
                    self.text.push('\n');
                    self.map(depth + 1, below);
                    continue;
                }
            }
            self.text.push('\n');
        }
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.text.push_str("  ");
        }
    }

    fn literal(&mut self, text: &str) {
        let quoted = quoted(text);
        if self.expand_env {
            self.text.push_str(&quoted);
        } else {
            self.text.push_str(&quoted.replace('$', "${DOLLAR}"));
        }
    }
}

/// A string in double quotes, with the escapes that YAML and JSON have in common.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            // YAML reads these as line breaks or rejects them; JSON needs no escape for them.
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                escape(&mut quoted, character);
            }
            _ if character.is_control() => escape(&mut quoted, character),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

fn escape(quoted: &mut String, character: char) {
    write!(quoted, "\\u{:04x}", u32::from(character)).expect("writing to a String cannot fail");
}
